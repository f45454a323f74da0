"""What a model expects: shown the first records, on its own after them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dreamer.config import DreamerConfig, DreamerExplore
from sombrl.dreamer.dreamer import Dreamer
from sombrl.dreamer.foresight import film, foresee
from sombrl.envs.layout import Part
from tests.dreamer.test_dreamer import BATCH, TIME, sequences


@pytest.mark.thorough
def test_the_rest_is_imagined_without_looking():
    config = DreamerConfig(size="tiny", precision="float32", explore=DreamerExplore(explore="greedy"))
    agent = Dreamer(config, (Part("obs", (3,), "vector"),), 2, False)
    networks, batch = agent.init(key=jr.key(0)).networks, sequences(agent)
    see = jax.jit(lambda obs: foresee(agent, networks, _with(batch, obs), context=3, key=jr.key(1))["obs"])
    seen = np.asarray(see(batch.obs["obs"]))
    assert seen.shape == (BATCH, TIME, 3)
    later = np.asarray(see(batch.obs["obs"].at[:, 3:].set(7.0)))
    np.testing.assert_array_equal(seen, later)
    sooner = np.asarray(see(batch.obs["obs"].at[:, 0].add(50.0)))
    assert (sooner[:, 0] != seen[:, 0]).any()
    otherwise = jax.tree.map(lambda leaf: leaf, batch)
    moved = foresee(agent, networks, _acting(otherwise, 4), context=3, key=jr.key(1))["obs"]
    np.testing.assert_allclose(np.asarray(moved)[:, :4], seen[:, :4], atol=1e-6)
    assert (np.asarray(moved)[:, 4] != seen[:, 4]).any()


def _with(batch, obs):
    return type(batch)(**{**vars(batch), "obs": {"obs": obs}})


def _acting(batch, step: int):
    return type(batch)(**{**vars(batch), "action": batch.action.at[:, step].set(jnp.asarray([1.0, -1.0]))})


def test_the_film():
    truth = np.zeros((2, 3, 8, 8, 1), np.uint8)
    truth[:, :, 2] = 200
    frames = film(truth, truth / 255.0, context=1)
    assert len(frames) == 3 and frames[0].shape == (24, 16, 3)
    np.testing.assert_array_equal(frames[0][:8, :8, 0], truth[0, 0, ..., 0])
    np.testing.assert_array_equal(frames[0][8:16], frames[0][:8])  # the model is right
    np.testing.assert_array_equal(frames[0][16:22], 127)  # so nothing differs
    assert tuple(frames[0][-1, 0]) != tuple(frames[1][-1, 0])  # shown, then dreamt
