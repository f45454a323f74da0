"""Regret by hand in the three settings; slopes of curves whose exponent is known."""

import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.theory import discounted_regret, episodic_regret, loglog_slope, nonepisodic_regret


def test_regret_by_hand():
    assert episodic_regret(np.array([[1.0, 3.0, 5.0], [5.0, 5.0, 5.0]]), 5.0).tolist() == [[4, 6, 6], [0, 0, 0]]
    assert nonepisodic_regret(jnp.array([0.0, -1.0, 2.0]), 1.0).tolist() == [1.0, 3.0, 2.0]
    rewards = np.array([[1.0, np.nan, np.nan], [1.0, 1.0, np.nan], [0.0, 0.0, 4.0]])
    regret = discounted_regret(rewards, np.array([1, 2, 3]), 2.0, 0.5)
    assert regret.tolist() == [1.0, 1.5, 2.5]
    assert episodic_regret(np.zeros((2, 3)), np.array([[1.0], [2.0]])).tolist() == [[1, 2, 3], [2, 4, 6]]


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_slope_of_a_power_is_its_exponent(exponent):
    rng = np.random.default_rng(0)
    n = np.arange(1, 201)
    exact = loglog_slope(np.stack([n**exponent] * 3))
    assert exact.value == pytest.approx(exponent) and exact.low == pytest.approx(exact.high)
    exponents = exponent + 0.05 * rng.normal(size=(10, 1))
    slope = loglog_slope(rng.uniform(0.5, 2.0, (10, 1)) * n**exponents)
    assert slope.low < exponent < slope.high and slope.high - slope.low < 0.2
    assert slope.dropped == 0


def test_interval_covers_as_often_as_it_says():
    """90 % intervals over 20 seeds of N^0.5 with noise: a percentile bootstrap may fall a little short."""
    rng = np.random.default_rng(1)
    n, repeats = np.arange(1, 101), 200
    inside = 0
    for _ in range(repeats):
        curves = np.cumsum(np.sqrt(n) - np.sqrt(n - 1) + 0.1 * rng.normal(size=(20, 100)), axis=1) + 1.0 * np.sqrt(n)
        slope = loglog_slope(curves, confidence=0.9, resamples=300)
        inside += slope.low <= 0.5 <= slope.high
    assert 0.78 < inside / repeats < 0.97


def test_finished_learning_has_slope_zero_and_offsets_do_not_matter_late():
    flat = np.minimum(np.arange(1, 101), 20) * np.array([[1.0], [2.0]])
    assert loglog_slope(flat).value == pytest.approx(0.0, abs=1e-12)


def test_a_resample_without_a_logarithm_is_counted():
    n = np.arange(1, 51)
    slope = loglog_slope(np.stack([-0.5 * n, 2.0 * n, 3.0 * n]))
    assert slope.dropped > 0 and slope.value == pytest.approx(1.0)


def test_bad_input_is_refused():
    with pytest.raises(SombrlError, match="two seeds"):
        loglog_slope(np.ones((1, 10)))
    with pytest.raises(SombrlError, match="not positive"):
        loglog_slope(-np.ones((2, 10)))
    with pytest.raises(SombrlError, match="discount"):
        discounted_regret(np.ones((2, 3)), np.array([3, 3]), 1.0, 1.0)
