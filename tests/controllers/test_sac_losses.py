"""The mathematics of SAC, against NumPy, scipy and closed forms."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from sombrl.controllers.sac_losses import (
    LOG_STD_BOUNDS,
    BonusStatistics,
    actor_loss,
    bonus_weight_loss,
    bounded_log,
    finite_gradient,
    gaussian,
    polyak,
    squash,
    temperature_loss,
)
from tests.controllers.worlds import f32


def log_density(action, mean, std):
    """log π(u), u in (-1, 1), through `squash`: the noise that leads to u is known."""
    noise = (np.arctanh(action) - mean) / std
    squashed, log_prob = squash(f32([mean]), f32([np.log(std)]), f32([noise]))
    np.testing.assert_allclose(squashed[0], action, atol=1e-5)
    return float(log_prob)


def test_log_density_is_that_of_scipy_by_change_of_variables():
    for mean, std, action in [(0.0, 1.0, 0.3), (0.7, 0.2, 0.55), (-1.0, 0.5, -0.9)]:
        expected = scipy.stats.norm.logpdf(np.arctanh(action), mean, std) - np.log1p(-(action**2))
        np.testing.assert_allclose(log_density(action, mean, std), expected, atol=1e-4)


def test_density_integrates_to_one():
    grid = np.linspace(-0.999, 0.999, 301)
    density = [np.exp(log_density(action, 0.4, 0.6)) for action in grid]
    np.testing.assert_allclose(scipy.integrate.simpson(density, x=grid), 1.0, atol=2e-3)


def test_log_probability_of_a_vector_is_the_sum_of_its_coordinates():
    mean, log_std, noise = f32([0.1, -0.4]), f32([-0.2, 0.3]), f32([0.5, -1.0])
    parts = [squash(mean[i : i + 1], log_std[i : i + 1], noise[i : i + 1])[1] for i in range(2)]
    np.testing.assert_allclose(squash(mean, log_std, noise)[1], sum(parts), rtol=1e-6)


@pytest.mark.parametrize("mean", [-30.0, 0.0, 30.0])
def test_actions_are_bounded_and_their_log_probability_is_finite(mean):
    def log_prob(mean):
        return squash(mean, f32([2.0]), f32([1.5]))[1]

    action, value = squash(f32([mean]), f32([2.0]), f32([1.5]))
    assert np.abs(action[0]) <= 1 and np.isfinite(value)
    assert np.isfinite(jax.grad(log_prob)(f32([mean]))[0])


def test_log_std_is_clipped():
    low, high = LOG_STD_BOUNDS
    for raw, clipped in [(-50.0, low), (50.0, high), (0.5, 0.5)]:
        mean, log_std = gaussian(lambda obs, raw=raw: f32([1.0, raw]), f32([0.0]))
        assert mean == 1.0 and log_std == clipped


def test_actor_loss_by_hand():
    value, log_prob, bonus = f32([1.0, 0.0]), f32([-1.0, 0.5]), f32([0.1, 0.3])
    expected = -np.mean([1.0 + 0.2 * 1.0 + 0.1, 0.0 - 0.2 * 0.5 + 0.3])
    np.testing.assert_allclose(actor_loss(value, log_prob, bonus, f32(0.2)), expected, rtol=1e-6)


def test_temperature_loss_has_the_entropy_excess_as_gradient():
    loss, slope = jax.value_and_grad(temperature_loss)(f32(np.log(0.5)), f32(1.5), -2.0)
    np.testing.assert_allclose(loss, np.log(0.5) * 3.5, rtol=1e-6)
    np.testing.assert_allclose(slope, 3.5, rtol=1e-6)  # descending it lowers α: the policy is too random


def test_bonus_weight_loss_has_the_gap_as_gradient():
    loss, slope = jax.value_and_grad(bonus_weight_loss)(f32(np.log(2.0)), f32(-0.3))
    np.testing.assert_allclose(loss, np.log(2.0) * -0.3, rtol=1e-6)
    np.testing.assert_allclose(slope, -0.3, rtol=1e-6)  # descending it raises λ: the policy explores too little


def test_log_weights_are_bounded_but_can_come_back():
    for raw in (-40.0, 40.0):
        value, slope = jax.value_and_grad(bounded_log)(f32(raw))
        np.testing.assert_allclose(value, np.sign(raw) * np.log(1e8), rtol=1e-6)
        assert slope == 1


def test_polyak_by_hand():
    moved = polyak({"a": f32([1.0]), "b": f32(0.0)}, {"a": f32([3.0]), "b": f32(1.0)}, 0.25)
    np.testing.assert_allclose(moved["a"], [1.5])
    np.testing.assert_allclose(moved["b"], 0.25)


def test_a_gradient_that_is_not_finite_becomes_zero():
    def norm(action):
        return jnp.sum(jnp.sqrt(jnp.sum(finite_gradient(action) ** 2, axis=1)))

    slope = jax.grad(norm)(f32([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(slope, [[0.0, 0.0], [0.6, 0.8]], rtol=1e-6)


def test_statistics_are_those_of_all_values_together():
    values = np.asarray(jr.normal(jr.key(0), (3, 50)) * 2 + 5, np.float64)
    statistics = BonusStatistics.empty()
    for batch in values:
        statistics = statistics.add(f32(batch))
    np.testing.assert_allclose(statistics.mean, values.mean(), rtol=1e-5)
    np.testing.assert_allclose(statistics.std, values.std(), rtol=1e-5)
    assert statistics.count == 150
    scaled = {how: np.asarray(statistics.scale(f32(values[0]), how)) for how in ("z-score", "scale", "none")}
    np.testing.assert_allclose(scaled["z-score"], (values[0] - values.mean()) / values.std(), atol=1e-4)
    np.testing.assert_allclose(scaled["scale"], values[0] / values.std(), rtol=1e-5)
    np.testing.assert_allclose(scaled["none"], values[0], rtol=1e-6)


def test_statistics_have_a_floor_and_forget():
    statistics = BonusStatistics.empty().add(f32([2.0, 2.0]))
    np.testing.assert_allclose(statistics.std, 1e-3)
    full = BonusStatistics(f32(0.0), f32(1.0), f32(1e6)).add(f32([1.0, 1.0]))
    assert full.count == 1e6 and full.mean > 0
