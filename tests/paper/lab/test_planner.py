"""Dynamic programming against brute force over all policies, NumPy's linear algebra, and Riccati's equation."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import Gaussian
from sombrl.paper.lab.planner import (
    plan_average,
    plan_discounted,
    plan_finite_horizon,
    value_average,
    value_discounted,
    value_finite_horizon,
)

STATES, ACTIONS, HORIZON, DISCOUNT = 3, 2, 3, 0.8


@jax.jit
def best_values(transition, reward):
    """What our plans are worth: finite horizon, discounted, average."""
    kinds = reward[:, :, None]
    finite = plan_finite_horizon(transition, reward, HORIZON)
    discounted, average = plan_discounted(transition, reward, DISCOUNT), plan_average(transition, reward)
    return (
        value_finite_horizon(transition, kinds, finite, HORIZON)[:, 0],
        value_discounted(transition, kinds, discounted, DISCOUNT)[:, 0],
        value_average(transition, kinds, average)[0][0],
    )


@jax.jit
def values(transition, rewards, policy):
    return (
        value_finite_horizon(transition, rewards, policy, 7),
        value_discounted(transition, rewards, policy, DISCOUNT),
        *value_average(transition, rewards, policy),
    )


def mdp(seed: int):
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    return transition, rng.uniform(size=(STATES, ACTIONS))


def stationary_policies():
    for actions in itertools.product(range(ACTIONS), repeat=STATES):
        yield np.eye(ACTIONS)[list(actions)]


def chain_of(transition, reward, policy):
    return np.einsum("xu,xuy->xy", policy, transition), np.sum(policy * reward, axis=1)


def average_of(chain, reward):
    """By powers of the chain, which an ergodic one allows."""
    return np.linalg.matrix_power(chain, 4096)[0] @ reward


@pytest.mark.parametrize("seed", range(5))
def test_finite_horizon_beats_every_policy(seed, x64):
    transition, reward = mdp(seed)
    ours = best_values(jnp.asarray(transition), jnp.asarray(reward))[0]
    best = np.full(STATES, -np.inf)
    for stages in itertools.product(stationary_policies(), repeat=HORIZON):
        value = np.zeros(STATES)
        for policy in reversed(stages):
            chain, r = chain_of(transition, reward, policy)
            value = r + chain @ value
        best = np.maximum(best, value)
    np.testing.assert_allclose(ours, best, rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_infinite_horizons_beat_every_policy(seed, x64):
    transition, reward = mdp(seed)
    _, ours, gain = best_values(jnp.asarray(transition), jnp.asarray(reward))
    discounted, averages = [], []
    for policy in stationary_policies():
        chain, r = chain_of(transition, reward, policy)
        discounted.append(np.linalg.inv(np.eye(STATES) - DISCOUNT * chain) @ r)
        averages.append(average_of(chain, r))
    np.testing.assert_allclose(ours, np.max(discounted, axis=0), rtol=1e-12)
    np.testing.assert_allclose(gain, np.max(averages), rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_values_of_a_random_policy(seed, x64):
    """Several rewards at once, a policy with probabilities, against NumPy."""
    transition, reward = mdp(seed)
    rng = np.random.default_rng(seed + 100)
    policy = rng.dirichlet(np.ones(ACTIONS), STATES)
    rewards = np.stack([reward, rng.uniform(size=reward.shape)], axis=-1)
    tables = jnp.asarray(transition), jnp.asarray(rewards), jnp.asarray(policy)[None]
    chain = chain_of(transition, reward, policy)[0]
    each = np.einsum("xu,xuk->xk", policy, rewards)
    finite = sum(np.linalg.matrix_power(chain, t) @ each for t in range(7))
    ours_finite, ours_discounted, gain, bias = values(*tables)
    np.testing.assert_allclose(ours_finite, finite, rtol=1e-12)
    discounted = np.linalg.inv(np.eye(STATES) - DISCOUNT * chain) @ each
    np.testing.assert_allclose(ours_discounted, discounted, rtol=1e-12)
    np.testing.assert_allclose(gain, [average_of(chain, each[:, i]) for i in range(2)], rtol=1e-10)
    np.testing.assert_allclose(bias + gain[None, :], each + chain @ bias, atol=1e-12)  # Bellman's equation


def test_discretised_lqr_against_riccati(x64):
    """x' = 0.9x + 0.5u + w, cost x² + u²: the grid finds the linear feedback and its cost."""
    a, b, sigma, horizon = 0.9, 0.5, 0.1, 6
    grid = Grid(1, 241, 161, half_width=3.0)
    z = grid.inputs
    transition = grid.transition(Gaussian(sigma), (a * z[:, 0] + b * z[:, 1])[:, None])
    cost = (z[:, 0] ** 2 + z[:, 1] ** 2).reshape(grid.num_states, -1)

    @jax.jit
    def solve(transition, cost):
        plan = plan_finite_horizon(transition, -cost, horizon)
        return plan, -value_finite_horizon(transition, -cost[:, :, None], plan, horizon)[:, 0]

    plan, value = solve(transition, cost)
    p, constant = 0.0, 0.0
    for _ in range(horizon):
        gain = a * b * p / (1 + b * b * p)
        # Rounding by chance adds at most h²/4 of variance, nearly h²/6 on average.
        constant += p * (sigma**2 + grid.spacing**2 / 6)
        p = 1 + a * a * p - a * b * p * gain
    x = np.asarray(grid.axis)
    inside = np.abs(x) < 1.0
    np.testing.assert_allclose(np.asarray(value)[inside], (p * x**2 + constant)[inside], atol=2e-3)
    first = np.asarray(plan[0] @ grid.actions)
    np.testing.assert_allclose(first[inside], -gain * x[inside], atol=0.02)
