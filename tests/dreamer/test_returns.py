"""Returns by hand and by the sum of n-step returns; the return scale against NumPy's percentiles."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from sombrl.dreamer.returns import (
    DISCOUNT,
    ReturnScale,
    imagination_weights,
    lambda_returns,
    replay_returns,
    with_bonus,
)

# Three decisions between four states. What state 0 brought must not matter, so it is absurd.
REWARDS = np.array([1e3, 1.0, 2.0, 4.0])
CONTINUES = np.array([1e3, 0.9, 0.8, 0.5])
VALUES = np.array([1e3, 10.0, 20.0, 30.0])


def f32(values):
    return jnp.asarray(values, jnp.float32)


def flags(*values):
    return jnp.asarray(values, bool)


def test_three_steps_by_hand():
    # R2 = 4 + .5 · 30 = 19; R1 = 2 + .8 (.05 · 20 + .95 · 19) = 17.24; R0 = 1 + .9 (.05 · 10 + .95 · 17.24) = 16.1902
    returns = lambda_returns(f32(REWARDS), f32(CONTINUES), f32(VALUES), 0.95)
    np.testing.assert_allclose(returns, [16.1902, 17.24, 19.0], rtol=1e-6)


def test_nothing_counts_after_an_imagined_end():
    # c2 = 0: R1 = 2 whatever follows; R0 = 1 + .9 (.05 · 10 + .95 · 2) = 3.16
    continues = f32([0.9, 0.9, 0.0, 0.5])
    for later in (0.0, 1e4):
        returns = lambda_returns(f32([0, 1, 2, later]), continues, f32([1, 10, later, later]), 0.95)
        np.testing.assert_allclose(returns[:2], [3.16, 2.0], rtol=1e-6)


def test_the_bonus_of_a_decision_is_paid_on_arrival():
    # λ = 2: rewards on arrival 1 + 2 · .5, 2 + 2 · .25, 4 + 2 · 1.
    # R2 = 6 + 15 = 21; R1 = 2.5 + .8 (1 + 19.95) = 19.26; R0 = 2 + .9 (.5 + 18.297) = 18.9173
    rewards = with_bonus(f32(REWARDS), f32([0.5, 0.25, 1.0]), f32(2.0))
    returns = lambda_returns(rewards, f32(CONTINUES), f32(VALUES), 0.95)
    np.testing.assert_allclose(rewards, [1e3, 2.0, 2.5, 6.0])
    np.testing.assert_allclose(returns, [18.9173, 19.26, 21.0], rtol=1e-6)
    assert jax.grad(lambda weight: jnp.sum(with_bonus(f32(REWARDS), f32([1, 1, 1]), weight)))(f32(2.0)) == 0.0


def test_a_fresh_episode_gets_no_bonus_for_the_last_ones_decision():
    rewards = with_bonus(f32(REWARDS), f32([0.5, np.nan, 1.0]), f32(2.0), flags(1, 0, 1, 0))
    np.testing.assert_allclose(rewards, [1e3, 2.0, 2.0, 6.0])


def test_lambda_returns_are_the_weighted_sum_of_n_step_returns():
    """(1 - λ) Σₙ λⁿ⁻¹ Rⁿ, with the longest n-step return in place of all longer ones."""
    lam, horizon = 0.7, 6
    rewards, values = np.asarray(jr.normal(jr.key(0), (2, horizon + 1), jnp.float32), np.float64)
    continues = np.asarray(jr.uniform(jr.key(1), (horizon + 1,), jnp.float32), np.float64)

    def n_steps(t, n):
        total, discount = 0.0, 1.0
        for i in range(t + 1, t + n + 1):
            total, discount = total + discount * rewards[i], discount * continues[i]
        return total + discount * values[t + n]

    expected = []
    for t in range(horizon):
        longest = horizon - t
        part = sum((1 - lam) * lam ** (n - 1) * n_steps(t, n) for n in range(1, longest))
        expected.append(part + lam ** (longest - 1) * n_steps(t, longest))
    np.testing.assert_allclose(lambda_returns(f32(rewards), f32(continues), f32(values), lam), expected, rtol=1e-4)


def test_limits_of_lambda():
    one_step = lambda_returns(f32(REWARDS), f32(CONTINUES), f32(VALUES), 0.0)
    np.testing.assert_allclose(one_step, [1 + 0.9 * 10, 2 + 0.8 * 20, 4 + 0.5 * 30], rtol=1e-6)
    to_the_end = lambda_returns(f32(REWARDS), f32(CONTINUES), f32(VALUES), 1.0)
    np.testing.assert_allclose(to_the_end[0], 1 + 0.9 * (2 + 0.8 * (4 + 0.5 * 30)), rtol=1e-6)


def replayed(terminal, last, rewards=REWARDS, bootstrap=VALUES):
    return replay_returns(f32(rewards), flags(*terminal), flags(*last), f32(bootstrap), DISCOUNT, 0.95)


def test_replay_without_an_end_is_the_imagined_return_with_a_constant_continue():
    expected = lambda_returns(f32(REWARDS), f32([DISCOUNT] * 4), f32(VALUES), 0.95)
    np.testing.assert_array_equal(replayed((0, 0, 0, 0), (0, 0, 0, 0)), expected)
    np.testing.assert_allclose(expected[2], 4 + 332 / 333 * 30, rtol=1e-6)


def test_replay_target_of_the_decision_into_a_last_record_is_its_bootstrap():
    """The clock ran out at record 2: what follows belongs to another episode, and record 2 is still worth something."""
    one, other = (replayed((0, 0, 0, 0), (0, 0, 1, 0), [0, 1, 2, later], [1e3, 10, 20, later]) for later in (4.0, -1e4))
    np.testing.assert_allclose(one[1], 2 + 332 / 333 * 20, rtol=1e-6)
    np.testing.assert_array_equal(one[:2], other[:2])
    np.testing.assert_allclose(one[0], 1 + 332 / 333 * (0.05 * 10 + 0.95 * (2 + 332 / 333 * 20)), rtol=1e-6)


def test_replay_target_of_the_decision_into_a_terminal_record_is_its_reward():
    returns = replayed((0, 0, 1, 0), (0, 0, 1, 0))
    np.testing.assert_allclose(returns[1], 2.0)
    np.testing.assert_allclose(returns[0], 1 + 332 / 333 * (0.05 * 10 + 0.95 * 2), rtol=1e-6)


def test_flags_of_the_first_record_do_not_matter():
    np.testing.assert_array_equal(replayed((1, 0, 0, 0), (1, 0, 0, 0)), replayed((0, 0, 0, 0), (0, 0, 0, 0)))


def test_imagination_weights_have_the_roots_continue():
    continues = f32([0.5, 0.8, 0.0, 0.9])
    np.testing.assert_allclose(imagination_weights(continues), [0.5, 0.4, 0.0], rtol=1e-6)
    assert (jax.grad(lambda c: jnp.sum(imagination_weights(c)))(continues) == 0).all()


def test_return_scale_follows_the_percentiles_slowly_from_zero():
    batches = np.asarray(50.0 * jr.normal(jr.key(2), (5, 8, 15), jnp.float32), np.float64)
    scale, lo, hi = ReturnScale(), 0.0, 0.0
    for batch in batches:
        scale = scale.update(f32(batch))
        lo, hi = 0.99 * lo + 0.01 * np.percentile(batch, 5), 0.99 * hi + 0.01 * np.percentile(batch, 95)
    np.testing.assert_allclose([scale.lo, scale.hi], [lo, hi], rtol=1e-4)
    assert hi - lo > 1
    np.testing.assert_allclose(scale.scale, hi - lo, rtol=1e-4)


def test_small_returns_are_not_blown_up():
    assert ReturnScale().scale == 1.0
    assert ReturnScale(f32(0.1), f32(0.6)).scale == 1.0
    np.testing.assert_allclose(ReturnScale(f32(-3.0), f32(4.5)).scale, 7.5)
