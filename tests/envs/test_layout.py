"""Rows of parts: the bytes are where they should be, and every number comes back as it went in."""

import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.algorithms import ALGORITHMS
from sombrl.envs.adapters.gymnasium import GymnasiumEnvs
from sombrl.envs.guards import require_vectors
from sombrl.envs.interface import EnvSpec
from sombrl.envs.layout import ObsLayout, Part
from sombrl.records import SombrlError
from sombrl.settings import FiniteHorizon

from .tiny import Gallery

MIXED = ObsLayout((Part("walk", (3,), "vector"), Part("eye", (3, 1, 3), "image"), Part("door", (), "discrete", 700)))
OBS = {
    "eye": np.arange(247, 256).reshape(3, 1, 3).astype(np.uint8),
    "door": 699,
    "walk": np.array([1.5, -1e-41, 3e38], np.float32),  # one of them below the normal numbers
}


def test_a_row_is_the_bytes_of_its_parts_by_name():
    row = MIXED.flatten(OBS)
    assert row.dtype == np.uint8 and MIXED.length == 4 + 9 + 12
    assert row.tobytes() == struct.pack("=i", 699) + bytes(range(247, 256)) + OBS["walk"].tobytes()


def test_round_trip():
    back = MIXED.split(MIXED.flatten(OBS))
    assert list(back) == ["door", "eye", "walk"]
    for name, part in back.items():
        assert part.tobytes() == np.asarray(OBS[name], part.dtype).tobytes()
    assert [part.dtype for part in back.values()] == [np.int32, np.uint8, np.float32]


def test_leading_axes():
    many = {name: np.stack([np.stack([value] * 2)] * 4) for name, value in OBS.items()}
    many["walk"][3, 1, 0] = 7.0
    rows = MIXED.flatten(many)
    assert rows.shape == (4, 2, 25)
    back = MIXED.split(rows)
    assert all(np.array_equal(back[name], many[name]) for name in many)
    assert rows[0, 0].tobytes() == MIXED.flatten(OBS).tobytes()


def test_the_same_in_jax():
    rows = np.stack([MIXED.flatten(OBS), MIXED.flatten({**OBS, "door": 3})])
    ours, theirs = MIXED.split(rows), jax.jit(MIXED.split)(jnp.asarray(rows))
    for name in ours:
        assert np.asarray(theirs[name]).tobytes() == ours[name].tobytes() and theirs[name].dtype == ours[name].dtype


def test_vectors_alone_are_floats():
    layout = ObsLayout((Part("b", (1,), "vector"), Part("a", (2,), "vector")))
    row = layout.flatten({"b": [3.0], "a": np.array([1.0, 2.0])})
    assert row.dtype == np.float32 and row.tolist() == [1.0, 2.0, 3.0]
    assert layout.split(row)["b"].tolist() == [3.0]


def test_a_spec_without_a_layout_is_one_vector():
    spec = EnvSpec("x", 5, 2, 10, 1)
    assert spec.obs_dtype == np.float32 and spec.obs_layout.parts == (Part("obs", (5,), "vector"),)
    assert hash(EnvSpec("x", 25, 2, 10, 1, layout=MIXED)) == hash(EnvSpec("x", 25, 2, 10, 1, layout=MIXED))


@pytest.mark.parametrize("name", ["gp-icem", "mbpo", "sac", "maxinfo-sac", "sim-fsvgd"])
def test_algorithms_for_vectors_say_what_to_use_instead(name):
    algorithm = ALGORITHMS[name]
    images = GymnasiumEnvs(Gallery, [0], episode_length=5)
    choices = GymnasiumEnvs("CartPole-v1", [0])
    for envs, told in [(images, "shows Discrete observations and images"), (choices, r"Discrete\(2\) actions")]:
        with pytest.raises(SombrlError, match=f"{told}, and {name} .*sombrl train dreamer") as error:
            algorithm.build(algorithm.config(), envs, FiniteHorizon(5))
        assert "\n" not in str(error.value)
    require_vectors(EnvSpec("x", 5, 2, 10, 1), name)
