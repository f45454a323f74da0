"""Rows of parts: the bytes are where they should be, and every number comes back as it went in."""

import struct

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from sombrl.algorithms import ALGORITHMS
from sombrl.envs.adapters.gymnasium import GymnasiumEnvs
from sombrl.envs.adapters.spaces import check_spaces, to_row
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


SPACES = {
    "vector": Box(-9.0, 9.0, (3,)),
    "one number": Box(-9.0, 9.0, (1,)),
    "a number": Box(-9.0, 9.0, ()),
    "matrix": Box(-9.0, 9.0, (2, 2), np.float64),
    "whole numbers": Box(0, 9, (2,), np.int64),
    "grey": Box(0, 255, (4, 6), np.uint8),
    "colour": Box(0, 255, (4, 6, 3), np.uint8),
    "place": Discrete(4, start=2),
    "below": Discrete(4, start=-3),
    "dict": Dict(
        a=Discrete(3, start=-1), b=Box(0, 255, (4, 6), np.uint8), c=Box(-9.0, 9.0, (2, 2)), d=Box(-9, 9, (1,))
    ),
    "vectors": Dict(a=Box(-9.0, 9.0, (2,)), b=Box(-9.0, 9.0, (3,))),
}


class Shows(gymnasium.Env):
    """Nothing but spaces."""

    action_space = Discrete(2)

    def __init__(self, space):
        self.observation_space = space


def read(space):
    layout, _ = check_spaces(Shows(space), "Shows")
    return layout


@pytest.mark.parametrize("name", SPACES)
def test_what_an_environment_gives_is_what_training_has(name):
    """One observation or a batch, as Stable-Baselines3 has them, with the numbers of the adapter."""
    space = SPACES[name]
    layout = read(space)
    space.seed(0)
    several = [space.sample() for _ in range(3)]
    trained = np.stack([to_row(obs, space, layout, name) for obs in several])
    row, single = layout.rows(several[0])
    assert single and row.dtype == layout.dtype and row.tobytes() == trained[:1].tobytes()
    for count in (3, 1):
        if isinstance(space, Dict):
            batch = {key: np.stack([obs[key] for obs in several[:count]]) for key in space}
        else:
            batch = np.stack([np.asarray(obs) for obs in several[:count]])
        rows, single = layout.rows(batch)
        assert not single and rows.tobytes() == trained[:count].tobytes()
    if len(layout.parts) > 1:
        rows, single = layout.rows(trained)
        assert not single and rows.tobytes() == trained.tobytes()


@pytest.mark.parametrize(
    "name, observation, told",
    [
        ("vector", np.zeros(4), r"an observation is 3 numbers, or a batch of such, not an array of shape \(4,\)"),
        ("vector", np.array([0.0, np.nan, 0.0]), "is 3 numbers, not nan"),
        ("vector", np.array([0.0, 1e300, 0.0]), "is 3 numbers, not inf"),
        ("vector", {"x": np.zeros(3)}, "a dict of 'obs' .*: 'obs' is missing"),
        ("vector", "left", "is 3 numbers, not a str"),
        ("one number", np.zeros(5), r"is 1 number, or a batch of such, not an array of shape \(5,\)"),
        ("matrix", np.zeros((3, 2)), r"4 numbers, shape \(2, 2\), or a batch"),
        ("colour", np.zeros((4, 6, 3)), r"an image of uint8, shape \(4, 6, 3\), not of float64"),
        ("colour", np.zeros((3, 4, 6, 2), np.uint8), r"shape \(4, 6, 3\), or a batch of such"),
        ("place", 1, "one of the integers 2 to 5, not 1"),
        ("place", np.array([2, 6]), "one of the integers 2 to 5, not 6"),
        ("place", 2.0, "one of the integers 2 to 5, not of float64"),
        ("dict", np.zeros(3), r"a dict of 'a' \(one of .* and 'b' .*, not an array of float64 \(3,\)"),
        ("vectors", {"a": np.zeros(2)}, "'b' is missing"),
        ("vectors", {"a": np.zeros(2), "b": np.zeros(2)}, "the observation 'b' is 3 numbers"),
        ("vectors", {"a": np.zeros((2, 2)), "b": np.zeros((4, 3))}, "batches of the same size, not 'a'"),
    ],
)
def test_what_no_environment_gives_is_refused(name, observation, told):
    with pytest.raises(SombrlError, match=told) as error:
        read(SPACES[name]).rows(observation)
    assert "\n" not in str(error.value)


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
