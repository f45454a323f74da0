"""X with its knob at zero is Y, exactly: the same actions, bit for bit, in a real run."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.envs.pendulum import Pendulum
from sombrl.exploration import Constant, Exploration, Hallucinated, Mean, NoBonus
from sombrl.records import AbstractTask
from tests.dynamics.data import fit, learner, predict, replay_of, wave
from tests.small import small


class NoReward(AbstractTask):
    def reward(self, state, action, next_state):
        return jnp.zeros((), jnp.float32)

    def terminated(self, state, action, next_state):
        return jnp.zeros((), bool)


class Indifferent(Pendulum):
    """The pendulum for an agent that is told nothing of its reward."""

    def task(self, action_repeat):
        return NoReward()


def actions(**settings):
    agent = small(**settings)
    agent.learn(18)
    return np.asarray(agent.state.replay.data.action), np.asarray(agent.state.replay.data.obs)


@pytest.fixture(scope="module")
def greedy():
    return actions(explore="greedy")


@pytest.mark.parametrize(
    "settings",
    [
        {"explore": "optimistic", "bonus_weight": 0.0},
        {"explore": "optimistic", "bonus_weight": 0.0, "bonus": "information-gain"},
        {"explore": "pessimistic", "bonus_weight": 0.0},
        {"explore": "optimistic", "schedule": "linear", "bonus_weight": 0.0, "bonus_weight_end": 0.0},
    ],
)
def test_optimism_without_bonus_is_greedy(greedy, settings):
    for ours, theirs in zip(actions(**settings), greedy, strict=True):
        assert np.array_equal(ours, theirs)


def test_hucrl_with_beta_zero_is_the_mean():
    """β = 0: the hallucinated controls move nothing, so two seeds of them cannot matter."""
    agent = small(explore="greedy")
    agent.learn(6)
    dynamics = agent.trainer.parts.learner.dynamics(_first(agent.trainer._fitted()))
    for propagation, extra in ((Mean(), 0), (Hallucinated(0.0), 3)):
        mdp = Exploration(propagation, NoBonus(), Constant(0.0)).imagine(
            dynamics,
            agent.envs.task,
            state_dim=3,
            action_dim=1,
            iteration=jnp.zeros((), jnp.int32),
            discount=1.0,
            key=jr.key(0),
        )
        plan = jnp.full(1 + extra, 0.3, jnp.float32)
        state, reward, _ = mdp.step(jnp.array([1.0, 0.0, 0.5], jnp.float32), plan, key=jr.key(1))
        if extra == 0:
            expected = state, reward
    assert np.array_equal(state, expected[0]) and np.array_equal(reward, expected[1])


def test_unsupervised_is_optimism_on_a_task_that_pays_nothing():
    ours = actions(env=Pendulum(), explore="unsupervised")
    theirs = actions(env=Indifferent(), explore="optimistic", bonus_weight=1.0)
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.thorough
def test_thompson_without_uncertainty_is_greedy_within_the_noise_of_the_draw():
    """On a posterior that is sure, a drawn function is the mean."""
    gp = learner(noise_std=1e-3, kernel="linear", fit_steps=0)
    rows = wave(100)
    line = type(rows)(rows.obs, rows.action, rows.reward, rows.obs * 1.1, rows.terminated, rows.truncated)
    dynamics = gp.dynamics(fit(gp, replay_of(line))[0])
    drawn = predict(dynamics.draw(key=jr.key(0)), rows.obs, rows.action).mean
    mean = predict(dynamics, rows.obs, rows.action).mean
    np.testing.assert_allclose(np.asarray(drawn), np.asarray(mean), atol=1e-3)


def _first(tree):
    return jax.tree.map(lambda leaf: leaf[0], tree)
