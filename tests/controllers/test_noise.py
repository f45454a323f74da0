import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from sombrl.controllers.noise import coloured_noise, sample_plans


@pytest.mark.parametrize("exponent", [0.0, 0.25, 2.0])
@pytest.mark.parametrize("horizon", [64, 65])
def test_spectrum_falls_with_the_exponent(exponent, horizon):
    noise = np.asarray(coloured_noise((20_000, horizon), exponent, key=jr.key(0)))
    power = np.mean(np.abs(np.fft.rfft(noise)) ** 2, axis=0)[1:]  # the constant has no frequency
    slope, _ = np.polyfit(np.log(np.fft.rfftfreq(horizon)[1:]), np.log(power), 1)
    assert abs(slope + exponent) < 0.02


def covariance(horizon, exponent, monkeypatch):
    """Of the noise, exactly: it is linear in its normals, so give it one unit vector after the other."""
    num = 2 * (horizon // 2 + 1)
    monkeypatch.setattr(jr, "normal", lambda key, shape, dtype: jnp.eye(num, dtype=dtype).reshape(shape))
    rows = np.asarray(coloured_noise((num, horizon), exponent, key=jr.key(0)))
    return rows.T @ rows


@pytest.mark.parametrize("exponent", [0.0, 0.25, 1.0, 3.0])
@pytest.mark.parametrize("horizon", [1, 2, 3, 20, 21])
def test_every_element_has_variance_one(exponent, horizon, monkeypatch):
    np.testing.assert_allclose(np.diag(covariance(horizon, exponent, monkeypatch)), 1.0, atol=1e-5)


@pytest.mark.parametrize("horizon", [1, 2, 7, 8])
def test_exponent_zero_is_white(horizon, monkeypatch):
    np.testing.assert_allclose(covariance(horizon, 0.0, monkeypatch), np.eye(horizon), atol=1e-5)


def test_draws_are_standard_normal():
    noise = np.asarray(coloured_noise((20_000, 5), 0.25, key=jr.key(1)))
    assert noise.shape == (20_000, 5) and noise.dtype == np.float32
    assert all(scipy.stats.kstest(column, "norm").pvalue > 1e-3 for column in noise.T)


def test_white_noise_forgets_and_coloured_noise_does_not():
    def autocorrelation(exponent):
        noise = np.asarray(coloured_noise((20_000, 20), exponent, key=jr.key(2)))
        return [np.mean(noise[:, lag:] * noise[:, : 20 - lag]) for lag in (1, 2, 5)]

    np.testing.assert_allclose(autocorrelation(0.0), 0.0, atol=0.01)
    assert autocorrelation(2.0)[0] > 0.7


def test_dimensions_are_independent():
    noise = np.asarray(coloured_noise((20_000, 2, 10), 1.0, key=jr.key(3)))
    across = noise[:, 0].T @ noise[:, 1] / len(noise)  # every time of one against every time of the other
    np.testing.assert_allclose(across, 0.0, atol=0.04)


def test_plans_are_coloured_along_time_within_each_dimension():
    """A plan of one flattened sequence would correlate the dimensions of one decision."""
    zeros, ones = jnp.zeros((10, 3), jnp.float32), jnp.full((10, 3), 0.01, jnp.float32)
    plans = 100 * np.asarray(sample_plans(zeros, ones, 20_000, 2.0, key=jr.key(4)))
    np.testing.assert_allclose(np.cov(plans[:, 0].T), np.eye(3), atol=0.05)
    assert np.mean(plans[:, 0, 0] * plans[:, 1, 0]) > 0.6


def test_plans_follow_mean_and_std_and_stay_inside():
    mean = jnp.array([[-0.2], [0.3], [1.0]], jnp.float32)
    std = jnp.array([[0.1], [0.05], [1.0]], jnp.float32)
    plans = np.asarray(sample_plans(mean, std, 20_000, 0.25, key=jr.key(5)))
    np.testing.assert_allclose(plans[:, :2].mean(axis=0), mean[:2], atol=0.005)
    np.testing.assert_allclose(plans[:, :2].std(axis=0), std[:2], atol=0.005)
    assert plans.min() >= -1 and plans.max() == 1


def test_the_exponent_may_vary_without_recompiling():
    traces = []

    def draw(exponent, key):
        traces.append(1)
        return coloured_noise((4, 6), exponent, key=key)

    draw = jax.jit(draw)
    white, red = draw(jnp.float32(0.0), jr.key(6)), draw(jnp.float32(2.0), jr.key(6))
    assert len(traces) == 1 and not np.allclose(white, red)
    np.testing.assert_allclose(red, coloured_noise((4, 6), 2.0, key=jr.key(6)), rtol=1e-4, atol=1e-5)
