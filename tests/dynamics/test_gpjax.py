"""Our Gaussian processes against GPJax's exact ones, with a lengthscale per input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.dynamics.gp_posterior import Pivots, condition, log_marginal_likelihood
from sombrl.theory.kernels import matern52, rbf
from tests.dynamics.data import fit, learner, normalised, predict, replay_of, wave

gpjax = pytest.importorskip("gpjax", reason="needs gpjax: make test-extras")

JITTER = 1e-4  # GPJax adds 1e-6 to the diagonal, of which the noise has 0.04
NOISE_STD, LENGTHSCALES = 0.2, np.array([0.7, 1.3, 2.0])
KERNELS = [(rbf, gpjax.kernels.RBF), (matern52, gpjax.kernels.Matern52)]


def model(kernel, lengthscales, noise_std):
    """A GP of mean 0 and variance 1, with fixed hyperparameters."""
    prior = gpjax.Prior(
        mean_function=gpjax.mean_functions.Zero(), kernel=kernel(lengthscale=jnp.asarray(lengthscales), variance=1.0)
    )
    return prior * gpjax.likelihoods.Gaussian(obs_stddev=jnp.asarray(noise_std))


def posterior(kernel, lengthscales, noise_std, x, y, q):
    """Its mean and standard deviation at `q` without the noise, and the log marginal likelihood."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as GPJax is written for
        gp, data = model(kernel, lengthscales, noise_std), gpjax.Dataset(X=jnp.asarray(x), y=jnp.asarray(y)[:, None])
        found = gp.condition(data).predict(jnp.asarray(q))
        return (
            np.asarray(found.mean),
            np.sqrt(np.asarray(found.variance)),
            float(gpjax.objectives.conjugate_mll(gp, data)),
        )


@pytest.mark.parametrize(("kernel", "theirs"), KERNELS)
def test_the_posterior_and_the_likelihood(kernel, theirs, x64):
    rng = np.random.default_rng(3)
    x, y, q = rng.normal(size=(50, 3)), rng.normal(size=50), rng.normal(size=(20, 3))
    mean, std, likelihood = posterior(theirs, LENGTHSCALES, NOISE_STD, x, y, q)

    mask, padded_x, padded_y = jnp.arange(64) < 50, np.zeros((64, 3)), np.zeros(64)
    padded_x[:50], padded_y[:50] = x / LENGTHSCALES, y
    inputs, targets, noise_std = jnp.asarray(padded_x), jnp.asarray(padded_y), jnp.asarray(NOISE_STD)
    ours, pivots, _ = condition(kernel, inputs, targets, mask, noise_std, 1e-9, Pivots.none(60))
    at = jnp.asarray(q / LENGTHSCALES)
    rows = jax.vmap(lambda a: jax.vmap(lambda b: kernel(a, b))(ours.centers))(at)
    features = np.asarray(rows) @ np.asarray(ours.whitener).T
    assert int(pivots.number) == 50 and 0.1 < std.min() < std.max() < 1.0
    np.testing.assert_allclose(features @ np.asarray(ours.weight_mean), mean, atol=JITTER)
    variance = 1.0 - np.sum((features @ np.asarray(ours.explained).T) ** 2, axis=1)
    np.testing.assert_allclose(np.sqrt(variance), std, atol=JITTER)
    found = log_marginal_likelihood(kernel, inputs, targets, mask, noise_std)
    np.testing.assert_allclose(float(found), likelihood, rtol=JITTER)


def test_the_dynamics_after_fitting():
    """With the hyperparameters that our fit has found, on the data as it normalises them."""
    train, test = wave(60), wave(40, seed=1)
    state, _ = fit(learner(), replay_of(train))
    mean, std = normalised(state, predict(learner().dynamics(state), test.obs, test.action), test)
    with jax.enable_x64(True):

        def inputs(rows):
            x = np.concatenate([rows.obs, rows.action], 1).astype(np.float64)
            return (x - np.asarray(state.inputs.mean)) / np.asarray(state.inputs.std)

        change = np.asarray(train.next_obs, np.float64) - np.asarray(train.obs, np.float64)
        y = (change - np.asarray(state.outputs.mean)) / np.asarray(state.outputs.std)
        for j in range(2):
            lengthscales = np.exp(np.asarray(state.hyperparameters.log_lengthscale[j], np.float64))
            noise_std = np.exp(float(state.hyperparameters.log_noise_std[j]))
            theirs = posterior(gpjax.kernels.RBF, lengthscales, noise_std, inputs(train), y[:, j], inputs(test))[:2]
            np.testing.assert_allclose(mean[:, j], theirs[0], atol=5e-3)
            np.testing.assert_allclose(std[:, j], theirs[1], atol=5e-3)
