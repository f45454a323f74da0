"""SVGD and FSVGD: their direction in NumPy, and the posteriors they should find: of a line's weights, of a GP."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.particles import Statistics
from sombrl.dynamics.svgd import likelihood_slopes, median_bandwidth, squared_distances, stein_direction
from tests.dynamics.toy import Curve, Nothing, curve, fast_jit

UNITS = Statistics.identity(1, 1)


# ---------------------------------------------------------------------------------------------------- the direction


def reference(vectors, slopes, h, legacy):
    """Particle by particle, from the definition."""
    number, directions = len(vectors), []
    for i in range(number):
        kernel = [np.exp(-np.sum((vectors[i] - v) ** 2) / (2 * h**2)) for v in vectors]
        attraction = sum(k * slope for k, slope in zip(kernel, slopes, strict=True))
        repulsion = sum(-k * (vectors[i] - v) / h**2 for k, v in zip(kernel, vectors, strict=True))
        directions.append(attraction / (1 if legacy else number) + repulsion / number)
    return np.stack(directions)


@pytest.mark.parametrize("repulsion", ["textbook", "legacy"])
@pytest.mark.parametrize("bandwidth", [0.8, None])
def test_the_direction_is_the_definitions(repulsion, bandwidth):
    rng = np.random.default_rng(0)
    vectors, slopes = rng.normal(size=(2, 5, 3))
    pairs = [np.linalg.norm(vectors[i] - vectors[j]) for i in range(5) for j in range(i)]
    h = np.median(pairs) if bandwidth is None else bandwidth
    ours = stein_direction(*(jnp.asarray(z, jnp.float32) for z in (vectors, slopes)), bandwidth, repulsion)
    np.testing.assert_allclose(
        np.asarray(ours), reference(vectors, slopes, h, repulsion == "legacy"), rtol=1e-4, atol=1e-5
    )


def test_far_apart_they_descend_alone_and_close_by_they_part():
    slopes = jnp.array([[1.0], [-2.0]], jnp.float32)
    far = stein_direction(jnp.array([[0.0], [50.0]], jnp.float32), slopes, 0.5, "legacy")
    np.testing.assert_allclose(np.asarray(far), [[1.0], [-2.0]], rtol=1e-6)
    near = stein_direction(jnp.array([[0.0], [0.1]], jnp.float32), jnp.zeros((2, 1)), 0.5, "textbook")
    assert float(near[0, 0]) > 0 > float(near[1, 0])  # descended: the left one goes left
    alone = stein_direction(jnp.ones((1, 3)), jnp.full((1, 3), 2.0), None, "textbook")
    np.testing.assert_allclose(np.asarray(alone), 2.0)


def test_median_of_identical_particles_does_not_divide_by_zero():
    assert float(median_bandwidth(squared_distances(jnp.ones((4, 3))))) > 0
    direction = stein_direction(jnp.ones((4, 3)), jnp.ones((4, 3)), None, "textbook")
    np.testing.assert_allclose(np.asarray(direction), 1.0, rtol=1e-6)


@pytest.mark.parametrize("dim", [2, 6])
def test_particles_of_a_gaussian_have_its_moments(dim):
    """In few dimensions; the known bias, too little variance, stays below a fifth of the std."""
    rng = np.random.default_rng(1)
    root = np.tril(rng.normal(size=(dim, dim)) * 0.4) + np.eye(dim)
    mean, covariance = rng.normal(size=dim), root @ root.T
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    centre = jnp.asarray(mean, jnp.float32)

    def step(vectors, _):
        slopes = (vectors - centre[None, :]) @ precision
        return vectors - 0.3 * stein_direction(vectors, slopes, None, "textbook"), None

    start = jr.normal(jr.key(0), (40, dim))
    found = np.asarray(fast_jit(lambda v: jax.lax.scan(step, v, None, length=1500)[0])(start))
    np.testing.assert_allclose(found.mean(0), mean, atol=0.02)
    ratio = np.sqrt(np.linalg.eigvals(np.linalg.solve(covariance, np.cov(found.T, bias=True))).real)
    assert ratio.min() > 0.8 and ratio.max() < 1.05


def test_how_much_variance_is_left_in_many_dimensions():
    """Fewer particles than dimensions end as a simplex, of which the stationary equation can be solved by hand."""

    def step(vectors, _):
        return vectors - 0.3 * stein_direction(vectors, vectors, None, "textbook"), None

    found = fast_jit(lambda v: jax.lax.scan(step, v, None, length=1500)[0])(jr.normal(jr.key(0), (8, 40)))
    squares = np.sum(np.asarray(found) ** 2, axis=1)
    np.testing.assert_allclose(squares, 7 / (2 * (np.exp(0.5) - 1)), rtol=0.02)


def test_likelihood_slopes_are_those_of_scipys_density():
    values, targets = np.random.default_rng(0).normal(size=(3, 4, 2)), np.random.default_rng(1).normal(size=(4, 2))
    raw, weight = np.array([-1.0, 0.3]), 7.0

    def loss(values, raw):
        std = np.log1p(np.exp(raw)) + 1e-4
        return -weight * scipy.stats.norm(values, std).logpdf(targets).sum(-1).mean(-1)  # per particle

    arguments = (jnp.asarray(z, jnp.float32) for z in (values, targets, raw, weight))
    value_slope, noise_slope = likelihood_slopes(*arguments)
    truth = scipy.optimize.approx_fprime(values.ravel(), lambda v: loss(v.reshape(3, 4, 2), raw).sum(), 1e-6)
    np.testing.assert_allclose(np.asarray(value_slope).ravel(), truth, rtol=1e-3, atol=1e-3)
    truth = scipy.optimize.approx_fprime(raw, lambda r: loss(values, r).mean(), 1e-6)
    np.testing.assert_allclose(np.asarray(noise_slope), truth, rtol=1e-3, atol=1e-3)


# --------------------------------------------------------------------------------------------------- posteriors


def line_posterior(inference, particles):
    """Weights and biases found for a line with Gaussian priors, and the mean and covariance of their posterior."""
    x = np.linspace(-1.0, 1.5, 8)
    y, noise = 0.4 * x - 0.3 + 0.5 * np.random.default_rng(0).normal(size=8), 0.5
    config = ParticleConfig(
        inference=inference,
        particles=particles,
        hidden=(),
        batch_size=64,
        steps=4000,
        check_every=4000,
        held_out=0.0,
        learning_rate=5e-3,
        weight_decay=0.0,
        bandwidth=None,
        likelihood_exponent=1.0,
        learn_noise=False,
        weight_prior_std=0.5,
        bias_prior_std=1.0,
    )
    learner = ParticleLearner(Curve(), config, statistics=UNITS, noise_std=jnp.full(1, noise))
    state, _ = jax.jit(lambda k: learner.fit(learner.init(key=k), curve(x, y, 8), key=jr.fold_in(k, 1)))(jr.key(0))
    networks = state.particles.networks
    found = np.stack([np.asarray(networks.weights[0])[:, 0, 0], np.asarray(networks.biases[0])[:, 0]], axis=1)
    features = np.stack([x, np.ones_like(x)], axis=1)
    covariance = np.linalg.inv(features.T @ features / noise**2 + np.diag([1 / 0.25, 1.0]))
    return found, covariance @ features.T @ y / noise**2, covariance


def test_an_ensemble_finds_the_likeliest_line_many_times():
    """Ridge regression, whose minimum is the posterior's mean: from wherever a network starts."""
    found, mean, covariance = line_posterior("ensemble", 4)
    assert np.all(np.abs(found - mean) < 0.15 * np.sqrt(np.diag(covariance)))


def test_svgd_finds_the_posterior_of_a_line():
    """Bayesian linear regression is exact."""
    found, mean, covariance = line_posterior("svgd", 40)
    np.testing.assert_allclose(found.mean(0), mean, atol=0.3 * np.sqrt(np.diag(covariance)).min())
    np.testing.assert_allclose(found.std(0), np.sqrt(np.diag(covariance)), rtol=0.25)
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(correlation, abs=0.25)


@pytest.mark.thorough
def test_fsvgd_finds_the_posterior_of_a_gaussian_process():
    """The same kernel, noise and data, as functions: mean and std on a grid."""
    x = np.array([-2.2, -1.8, -1.5, -0.9, -0.6, 0.1, 1.2, 1.5])
    y = 0.8 * np.sin(2 * x) + 0.1 * np.random.default_rng(0).normal(size=8)
    lengthscale, noise = 0.7, 0.1
    config = ParticleConfig(
        particles=20,
        hidden=(64, 64),
        activation="tanh",
        batch_size=32,
        steps=2500,
        check_every=2500,
        held_out=0.0,
        learning_rate=3e-3,
        weight_decay=0.0,
        bandwidth=None,
        resolution=0.1,
        neighbourhood_share=0.0,
        visited_share=0.0,
        likelihood_exponent=1.0,
        learn_noise=False,
        prior_lengthscale=lengthscale,
    )
    learner = ParticleLearner(Curve(), config, statistics=UNITS, noise_std=jnp.full(1, noise))
    state, _ = jax.jit(lambda k: learner.fit(learner.init(key=k), curve(x, y, 8), key=jr.fold_in(k, 1)))(jr.key(0))
    grid = np.linspace(-3, 3, 61)
    values = np.asarray(jax.jit(jax.vmap(state.particles))(jnp.asarray(grid, jnp.float32)[:, None]))[:, :, 0]

    def kernel(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) / lengthscale) ** 2)

    weights = np.linalg.solve(kernel(x, x) + noise**2 * np.eye(8), kernel(x, grid)).T
    mean, std = weights @ y, np.sqrt(1 - np.sum(weights * kernel(grid, x), axis=1))
    assert np.sqrt(np.mean((values.mean(1) - mean) ** 2)) < 0.1
    assert np.sqrt(np.mean((values.std(1) - std) ** 2)) < 0.15
    assert 0.7 < values.std(1).mean() / std.mean() < 1.1  # SVGD's bias is towards too little
    assert np.corrcoef(values.std(1), std)[0, 1] > 0.94


# --------------------------------------------------------------------------------------------------- reductions

SMALL = {"particles": 3, "hidden": (8,), "batch_size": 6, "functions": 5, "measurement_points": 8, "resolution": 0.1}


def a_few_steps(simulator, **settings):
    config = ParticleConfig(steps=5, check_every=3, **(SMALL | settings))
    learner = ParticleLearner(Curve(), config, simulator, UNITS)
    data = curve(np.linspace(-2, 2, 20), np.sin(np.linspace(-2, 2, 20)))
    fit = fast_jit(lambda k: learner.fit(learner.init(key=k), data, key=jr.fold_in(k, 1)))
    return fit(jr.key(0))[0].particles


@pytest.mark.optimised
def test_a_simulator_that_knows_nothing_leaves_fsvgd():
    """Its additive GP with the kernel of FSVGD's own prior is that prior: the same particles, draw for draw."""
    shares = {"neighbourhood_share": 0.5, "visited_share": 0.5}  # no point of the domain, which each draws its own way
    plain = a_few_steps(None, prior_lengthscale=0.5, prior_scale=0.8, **shares)
    sim = a_few_steps(Nothing(), additive_lengthscale=0.5, additive_scales=(0.8,), **shares)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(sim), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
