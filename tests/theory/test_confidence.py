"""βₙ and calibration: by hand, on draws from the GP's own prior, and on functions of known RKHS norm."""

import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.theory import beta, calibration, calibration_curve, information_gain, required_beta
from tests.theory.gp import posterior, rbf_gram

USUAL = {"norm_bound": 2.0, "noise_std": 0.5, "delta": 0.1, "state_dim": 3}


def test_beta_by_hand(x64):
    ours = beta(jnp.asarray(4.0), **USUAL)
    np.testing.assert_allclose(float(ours), 2.0 + 0.5 * np.sqrt(2 * (4.0 + np.log(30.0))), rtol=1e-12)
    matched = beta(jnp.asarray(4.0), **USUAL, model_noise_std=0.5)
    np.testing.assert_allclose(float(matched), 2.0 + np.sqrt(2 * (4.0 + np.log(30.0))), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "up"), [("norm_bound", 3.0), ("noise_std", 0.6), ("delta", 0.05), ("state_dim", 4), ("gain", 5.0)]
)
def test_beta_is_monotone(name, up, x64):
    gain = jnp.asarray(up if name == "gain" else 4.0)
    changed = USUAL if name == "gain" else USUAL | {name: up}
    assert float(beta(gain, **changed)) > float(beta(jnp.asarray(4.0), **USUAL))


def test_beta_keeps_the_dtype():
    gains = jnp.arange(3.0, dtype=jnp.float32)
    assert beta(gains, **USUAL).dtype == jnp.float32
    assert np.all(np.diff(beta(gains, **USUAL)) > 0)


@pytest.mark.parametrize("change", [{"norm_bound": 0.0}, {"delta": 1.5}, {"noise_std": -1.0}, {"state_dim": 0}])
def test_beta_refuses_bad_input(change):
    with pytest.raises(SombrlError, match=next(iter(change))):
        beta(jnp.zeros(()), **(USUAL | change))


@pytest.mark.parametrize(("centre_weight", "bound"), [(0.1, 0.1), (2.0, 2.0)])
def test_beta_covers_functions_of_known_norm(centre_weight, bound, x64):
    """The promise of the lemma, 1 - δ, for f* = b k(0.3, ·), ‖f*‖ = b, over repeated noise."""
    rng = np.random.default_rng(0)
    noise_std, delta, repeats = 0.1, 0.1, 400
    x, q = rng.uniform(-1, 1, (40, 1)), np.linspace(-1, 1, 50)[:, None]
    f_x, f_q = (centre_weight * rbf_gram(at, np.array([[0.3]]))[:, 0] for at in (x, q))
    weights, std = posterior(x, q, noise_std)
    means = weights @ (f_x[:, None] + noise_std * rng.normal(size=(40, repeats)))
    gain = information_gain(jnp.asarray(rbf_gram(x, x)), noise_std)
    settings = {"norm_bound": bound, "noise_std": noise_std, "delta": delta, "state_dim": 1}

    def held(value):
        return np.mean(np.max(np.abs(means - f_q[:, None]) / std[:, None], axis=0) <= float(value))

    assert held(beta(gain, **settings, model_noise_std=noise_std)) >= 1 - delta
    if bound < 1:  # why the regulariser matters: the usual quotation, put to a GP with σ² = 0.01, is simply wrong
        assert held(beta(gain, **settings)) < 0.5


def test_draws_from_the_prior_are_covered(x64):
    """For f ~ GP every point is inside ±2σ with probability 0.9545, at every level of the curve, and jointly less."""
    rng = np.random.default_rng(1)
    noise_std, draws = 0.2, 4000
    points = np.concatenate([rng.uniform(-2, 2, (12, 1)), np.array([[-2.5], [0.1], [1.3]])])
    root = np.linalg.cholesky(rbf_gram(points, points) + 1e-10 * np.eye(15))
    f = root @ rng.normal(size=(15, draws))
    weights, std = posterior(points[:12], points[12:], noise_std)
    mean = weights @ (f[:12] + noise_std * rng.normal(size=(12, draws)))
    truth, mean = jnp.asarray(f[12:].T), jnp.asarray(mean.T)  # [draws, 3 queries], a query stands for a coordinate
    std = jnp.broadcast_to(jnp.asarray(std)[None, :], mean.shape)

    error = 4.0 * np.sqrt(0.0455 * 0.9545 / draws)
    coverage = calibration(mean, std, truth, 2.0)
    np.testing.assert_allclose(coverage.per_dimension, 0.9545, atol=error)
    assert float(coverage.joint) < float(jnp.min(coverage.per_dimension))
    levels = jnp.array([0.1, 0.5, 0.9, 0.99])
    curve = calibration_curve(mean, std, truth, levels)
    np.testing.assert_allclose(curve, np.broadcast_to(levels[:, None], (4, 3)), atol=4.0 * 0.5 / np.sqrt(draws))
    noisy = truth + noise_std * jnp.asarray(rng.normal(size=truth.shape))
    curve = calibration_curve(mean, jnp.sqrt(std**2 + noise_std**2), noisy, levels)
    np.testing.assert_allclose(curve, np.broadcast_to(levels[:, None], (4, 3)), atol=4.0 * 0.5 / np.sqrt(draws))


def test_required_beta_is_the_smallest(x64):
    rng = np.random.default_rng(2)
    mean, truth = (jnp.asarray(rng.normal(size=(50, 2))) for _ in range(2))
    std = jnp.asarray(rng.uniform(0.1, 1.0, (50, 2)))
    smallest = required_beta(mean, std, truth)
    assert float(calibration(mean, std, truth, smallest).joint) == 1.0
    assert float(calibration(mean, std, truth, smallest * (1 - 1e-9)).joint) == 1.0 - 1 / 50


def test_certainty_and_nan():
    mean, std = jnp.zeros((1, 1)), jnp.zeros((1, 1))
    assert float(required_beta(mean, std, mean)) == 0.0  # certain and right
    assert float(required_beta(mean, std, mean + 1.0)) == np.inf
    assert float(calibration(mean, std + jnp.nan, mean, 10.0).joint) == 0.0
    assert float(calibration(mean + jnp.nan, std + 1.0, mean, 10.0).joint) == 0.0
