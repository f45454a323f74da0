"""The noises have the sub-Gaussian size they claim, and G(t) = E max(t - w, 0) is what an integral says."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.paper.lab.noise import CUT, NOISES, make_noise
from sombrl.records import SombrlError

SIZE = 0.3
each_noise = pytest.mark.parametrize("name", NOISES)


def atoms(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The distribution as points and weights, from its textbook density."""
    if name == "rademacher":
        return np.array([-SIZE, SIZE]), np.array([0.5, 0.5])
    if name == "gaussian":
        w = np.linspace(-12 * SIZE, 12 * SIZE, 200_001)
        density = np.exp(-0.5 * (w / SIZE) ** 2)
    elif name == "uniform":
        edge = np.sqrt(3) * SIZE
        w = (np.arange(200_000) + 0.5) / 200_000 * 2 * edge - edge
        density = np.ones_like(w)
    else:
        scale = make_noise(name, SIZE).scale
        w = np.linspace(-CUT * scale, CUT * scale, 200_001)
        density = np.exp(-np.abs(w) / scale)
    return w, density / density.sum()


@pytest.mark.thorough
@each_noise
def test_moment_bound(name):
    """E exp(tw) <= exp(t²R²/2) for every t: the definition of the size, met and (but for uniform) nearly attained."""
    w, p = atoms(name)
    t = np.linspace(0.05, 25, 400)
    log_moment = np.array([np.log(p @ np.exp(s * w)) for s in t])
    ratio = log_moment / (0.5 * t**2 * SIZE**2)
    assert ratio.max() <= 1 + 1e-6
    assert ratio.max() >= 0.999  # and no smaller size would do
    assert abs(p @ w) < 1e-9


@each_noise
def test_shortfall_is_the_integral(name, x64):
    w, p = atoms(name)
    t = np.linspace(-1.5, 1.5, 61)
    expected = [p @ np.maximum(s - w, 0) for s in t]
    np.testing.assert_allclose(make_noise(name, SIZE).shortfall(jnp.asarray(t)), expected, atol=2e-6)


@each_noise
def test_samples_follow_the_distribution(name, x64, key):
    noise = make_noise(name, SIZE)
    draws = np.asarray(noise.sample((100_000,), key=key))
    t = jnp.linspace(-0.6, 0.6, 13)
    empirical = [np.maximum(s - draws, 0).mean() for s in np.asarray(t)]
    np.testing.assert_allclose(empirical, noise.shortfall(t), atol=4e-3)


def test_bad_noise_is_refused():
    with pytest.raises(SombrlError, match="no noise 'cauchy'"):
        make_noise("cauchy", 1.0)
    with pytest.raises(SombrlError, match="size must be positive"):
        make_noise("uniform", 0.0)


def test_keys_make_the_draws(x64):
    noise = make_noise("truncated-laplace", SIZE)
    assert np.array_equal(noise.sample((3,), key=jr.key(1)), noise.sample((3,), key=jr.key(1)))
