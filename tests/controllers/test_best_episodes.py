"""The best real episodes as plans: which they are, and where one is in them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.controllers.best_episodes import NUMBER, BestEpisodes
from sombrl.records import Transition
from sombrl.replay import Replay
from tests.oracles.toy import f32

LENGTHS, RETURNS = (3, 2, 4, 3, 2, 3), (5.0, 1.0, 9.0, -2.0, 7.0, 3.0)


def replay_of_episodes(capacity=32):
    """Episode n visits 10 n, 10 n + 1, … with actions -n, and earns its return in its last decision."""
    replay = Replay.empty(capacity, 1, 1)
    for n, (length, total) in enumerate(zip(LENGTHS, RETURNS, strict=True)):
        obs = f32(10.0 * n + np.arange(length))[:, None]
        reward = f32([0.0] * (length - 1) + [total])
        no = jnp.zeros(length, bool)
        action = f32(-n - 0.1 * np.arange(length))[:, None]
        replay = replay.add(Transition(obs, action, reward, obs + 1.0, no, no), ~no)
    return replay


@pytest.fixture(scope="module")
def best():
    return jax.jit(lambda replay: BestEpisodes.none(4, 1, 1).found_in(replay))(replay_of_episodes())


def test_they_have_the_highest_returns(best):
    assert np.asarray(best.obs[:, 0, 0]).tolist() == [20.0, 40.0, 0.0, 50.0]
    assert np.asarray(best.used.sum(axis=1)).tolist() == [4, 2, 3, 3]
    assert NUMBER == 4


def test_a_plan_is_what_was_done_from_the_nearest_state(best):
    plans = jax.jit(lambda state: best.plans(state, f32([1.0]), 3))(f32([21.2]))
    np.testing.assert_allclose(plans[0, :, 0], [-2.1, -2.2, -2.3], rtol=1e-6)
    np.testing.assert_allclose(plans[1, :, 0], [-4.0, -4.1, 0.0], rtol=1e-6)  # nothing after its end
    np.testing.assert_allclose(plans[2, :, 0], [-0.2, 0.0, 0.0], rtol=1e-6)


def test_fewer_episodes_than_places():
    rows = jax.tree.map(lambda leaf: leaf[:3], replay_of_episodes().data)
    replay = Replay.empty(8, 1, 1).add(rows, jnp.ones(3, bool))
    best = BestEpisodes.none(4, 1, 1).found_in(replay)
    assert np.asarray(best.used.sum(axis=1)).tolist() == [3, 0, 0, 0]
    plans = best.plans(f32([0.0]), f32([1.0]), 2)
    assert np.all(np.isfinite(plans)) and not np.any(plans[1:])
