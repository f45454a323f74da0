"""Worlds with a known answer, where one part of SAC after the other is put to the test."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.controllers import MODEL_FREE, SAC
from sombrl.controllers.sac_losses import gaussian, twin_q
from tests.controllers.worlds import f32, filled, train, transitions, uncertain, world

pytestmark = pytest.mark.slow

FAST = replace(
    MODEL_FREE,
    hidden=(32, 32),
    batch_size=64,
    updates_per_call=100,
    actor_lr=3e-3,
    critic_lr=3e-3,
    tau=0.05,
    init_temperature=1e-3,  # as good as none, so that values are plain returns
    temperature_lr=0.0,
    bonus_weight_lr=0.0,
)


def q_at(state, obs, action):
    return np.asarray(twin_q(state.critic, f32(obs), f32(action)))


def test_bandit_finds_the_best_action_and_its_value():
    actions = np.linspace(-1, 1, 101)[:, None]
    nowhere = np.zeros((101, 1))
    rows = transitions(nowhere, actions, 2 - (actions[:, 0] - 0.3) ** 2, nowhere, terminated=True)
    state, _ = train(SAC(1, FAST), world(action_dim=1), filled(rows, 128), 8)
    mean, _ = gaussian(state.actor, f32([0.0]))
    np.testing.assert_allclose(np.tanh(mean), [0.3], atol=0.1)
    asked = [-0.9, -0.2, 0.3, 0.8]
    values = q_at(state, np.zeros((4, 1)), np.array(asked)[:, None])
    np.testing.assert_allclose(values, np.tile(2 - (np.array(asked) - 0.3) ** 2, (2, 1)), atol=0.1)


def test_optimism_moves_the_bandit_towards_the_unknown():
    """σ = exp(u): with a heavy λ the best action is no longer that of the reward."""
    actions = np.linspace(-1, 1, 101)[:, None]
    nowhere = np.zeros((101, 1))
    rows = transitions(nowhere, actions, 2 - (actions[:, 0] + 0.5) ** 2, nowhere, terminated=True)
    mdp = uncertain(weight=5.0, action_dim=1)
    state, _ = train(SAC(1, replace(FAST, bonus_scale="none")), mdp, filled(rows, 128), 8)
    mean, _ = gaussian(state.actor, f32([0.0]))
    assert np.tanh(mean)[0] > 0.8


@pytest.mark.parametrize(("ends", "discount"), [("terminated", 1.0), ("truncated", 1.0), ("truncated", 0.8)])
def test_two_steps_discount_and_only_termination_ends_them(ends, discount):
    """0 → 1 → 1 with rewards 0 and 1: the value of 1 is 1 if it ends there, else the whole series."""
    config = replace(FAST, discount=0.5)
    rng = np.random.default_rng(0)
    obs = np.repeat([[0.0], [1.0]], 50, axis=0)
    last = obs[:, 0] == 1
    rows = transitions(obs, rng.uniform(-1, 1, (100, 1)), last, np.ones((100, 1)), **{ends: last})
    state, _ = train(SAC(1, config), world(action_dim=1, discount=discount), filled(rows, 128), 10)
    gamma = 0.5 if discount == 1 else discount
    value = 1.0 if ends == "terminated" else 1 / (1 - gamma)
    found = q_at(state, [[0.0], [1.0]], [[0.0], [0.0]])
    np.testing.assert_allclose(found, np.tile([gamma * value, value], (2, 1)), rtol=0.1, atol=0.05)


def test_imagined_next_states_are_what_is_learned_from():
    """The stored next state is worth nothing; the model says that state 0 leads to 0: a reward of 1 forever."""
    rows = transitions(
        np.repeat([[0.0], [8.0]], 50, axis=0), np.zeros((100, 1)), np.repeat([1.0, 0.0], 50), np.full((100, 1), 8.0)
    )
    config = replace(FAST, imagined="one-step", real_every=1000, discount=0.5, updates_per_call=100, policy_every=10)
    state, _ = train(SAC(1, config), world(action_dim=1), filled(rows, 128), 20)
    # x' = x/2: from 0 it stays there.
    np.testing.assert_allclose(q_at(state, [[0.0]], [[0.0]]), [[2.0], [2.0]], rtol=0.1)


def test_branched_rollouts_learn_the_task_they_imagine():
    """No stored reward says so, but the task is to choose ½."""
    key = jr.key(3)
    obs = np.asarray(jr.normal(key, (100, 1)))
    rows = transitions(obs, np.zeros((100, 1)), np.zeros(100), obs)
    config = replace(
        FAST, imagined="branched", rollout_length=3, real_every=1000, discount=0.5, policy_every=2, actor_lr=1e-2
    )
    state, _ = train(SAC(1, config), world(action_dim=1), filled(rows, 128), 8)
    means = [float(jnp.tanh(gaussian(state.actor, f32([x]))[0][0])) for x in (-0.5, 0.0, 0.5)]
    np.testing.assert_allclose(means, 0.5, atol=0.15)
