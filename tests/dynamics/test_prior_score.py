"""Scores of priors against closed forms: every estimator on a known Gaussian, and the solver against NumPy."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from sombrl.dynamics.particles import Statistics
from sombrl.dynamics.prior_score import SCORES, GaussianProcessPrior, gaussian_score, moments, solve

MEAN = np.array([0.5, -1.0, 0.2])
ROOT = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [-0.3, 0.4, 0.9]])
COVARIANCE = ROOT @ ROOT.T


def gaussian(number, seed):
    rng = np.random.default_rng(seed)
    return (MEAN + rng.normal(size=(number, 3)) @ ROOT.T).astype(np.float32)


VALUES = gaussian(200, seed=1)
TRUTH = -np.linalg.solve(COVARIANCE, (VALUES - MEAN).T).T


def relative(score, truth):
    return np.sqrt(np.sum((np.asarray(score) - truth) ** 2) / np.sum(truth**2))


def test_a_gaussian_score_is_the_gradient_of_its_log_density():
    density = scipy.stats.multivariate_normal(MEAN, COVARIANCE + 0.2**2 * np.eye(3)).logpdf
    score = gaussian_score(jnp.asarray(VALUES[:5]), *(jnp.asarray(z, jnp.float32) for z in (MEAN, COVARIANCE)), 0.2)
    for value, answer in zip(VALUES[:5], np.asarray(score), strict=True):
        slope = scipy.optimize.approx_fprime(value.astype(np.float64), density, 1e-6)
        np.testing.assert_allclose(answer, slope, rtol=1e-3, atol=1e-3)


def test_moments_are_numpys():
    draws = gaussian(300, seed=2)
    mean, covariance = moments(jnp.asarray(draws))
    np.testing.assert_allclose(np.asarray(mean), draws.mean(0), atol=1e-5)
    np.testing.assert_allclose(np.asarray(covariance), np.cov(draws.T, bias=True), atol=1e-5)


@pytest.mark.parametrize("resolution", [0.1, 0.01])
def test_the_solver_bears_what_a_smooth_prior_does_to_a_covariance(resolution):
    """48 points of a smooth kernel: all but a few eigenvalues are the resolution's alone."""
    x = np.random.default_rng(0).uniform(-2, 2, (48, 2))
    covariance = 0.3 * np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1))
    columns = np.random.default_rng(1).normal(size=(48, 6))
    exact = np.linalg.solve(covariance + resolution**2 * np.eye(48), columns)
    ours = jax.jit(solve, static_argnums=2)(*(jnp.asarray(z, jnp.float32) for z in (covariance, columns)), resolution)
    assert relative(ours, exact) < (1e-3 if resolution == 0.01 else 1e-4)


def test_two_systems_side_by_side_are_each_alone():
    matrices = jnp.stack([jnp.asarray(COVARIANCE, jnp.float32), jnp.eye(3)])
    columns = jnp.ones((2, 3, 1))
    together = jax.vmap(lambda m, c: solve(m, c, 0.1))(matrices, columns)
    for i in range(2):
        truth = np.linalg.solve(np.asarray(matrices[i]) + 0.01 * np.eye(3), np.ones((3, 1)))
        np.testing.assert_allclose(np.asarray(together[i]), truth, rtol=1e-4)


@functools.cache
def estimate(name, number):
    return jax.jit(SCORES[name])(jnp.asarray(VALUES), jnp.asarray(gaussian(number, seed=0)))


def moment_score(number):
    return gaussian_score(jnp.asarray(VALUES), *moments(jnp.asarray(gaussian(number, seed=0))), 1e-2)


@pytest.mark.parametrize(("name", "few", "many"), [("gp", 0.3, 0.1), ("ssge", 0.5, 0.35), ("nu-method", 0.7, 0.25)])
def test_estimators_approach_the_score_of_a_gaussian(name, few, many):
    """Relative errors at 128 and at 1024 draws: bounded, and smaller with more."""
    errors = [relative(moment_score(n) if name == "gp" else estimate(name, n), TRUTH) for n in (128, 1024)]
    assert errors[0] < few and errors[1] < many and errors[1] < errors[0]


def test_a_density_estimate_is_the_gradient_of_its_log_density():
    """Gaussians of Scott's width around every draw, in float64."""
    draws = gaussian(128, seed=0).astype(np.float64)
    width = (draws.std(0) + 1e-3) * 128 ** (-1 / 7)

    def log_density(x):
        return scipy.special.logsumexp(scipy.stats.norm(draws, width).logpdf(x).sum(1))

    for value, answer in zip(VALUES[:5], np.asarray(estimate("kde", 128)), strict=False):
        slope = scipy.optimize.approx_fprime(value.astype(np.float64), log_density, 1e-6)
        np.testing.assert_allclose(answer, slope, rtol=2e-3, atol=2e-3)


def test_estimators_do_not_depend_on_units_or_origin():
    """Values and draws ten times larger and moved: scores ten times smaller."""
    draws = gaussian(128, seed=0)
    for name, estimator in SCORES.items():
        score = estimate(name, 128)
        moved = jax.jit(estimator)(jnp.asarray(10 * VALUES + 3), jnp.asarray(10 * draws + 3))
        assert relative(10 * np.asarray(moved), np.asarray(score)) < 0.02, name


def test_the_gp_prior_is_scipys_gaussian():
    units = Statistics(jnp.array([1.0]), jnp.array([2.0]), jnp.zeros(2), jnp.ones(2))
    prior = GaussianProcessPrior(units, lengthscale=0.7, scale=1.5, resolution=0.1)
    inputs, values = jr.normal(jr.key(0), (6, 1)), jr.normal(jr.key(1), (3, 6, 2))
    answer = prior(inputs, values, key=jr.key(2))
    x = (np.asarray(inputs, np.float64)[:, 0] - 1) / 2 / 0.7
    covariance = 1.5**2 * np.exp(-0.5 * (x[:, None] - x[None]) ** 2) + 0.01 * np.eye(6)
    truth = -np.einsum("nm,pmt->pnt", np.linalg.inv(covariance), np.asarray(values, np.float64))
    np.testing.assert_allclose(np.asarray(answer.score), truth, rtol=1e-3, atol=1e-2)
    assert not np.any(answer.mean) and np.all(np.asarray(answer.std) == 1.5)
    assert prior.legacy_weight(3, 6) == pytest.approx(1 / 18)
