"""Information gain against NumPy, the GP's own number and weight space; the greedy maximum against brute force."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.dynamics.gp_posterior import Pivots, condition
from sombrl.records import SombrlError
from sombrl.theory import gain_rate, greedy_information_gain, information_gain
from sombrl.theory.kernels import KERNELS, rbf
from tests.theory.gp import log_det, rbf_gram

POINTS = np.random.default_rng(0).uniform(-2, 2, (20, 2))
GRID = np.linspace(-2, 2, 65)[:, None]


@functools.cache
def greedy(kernel: str, number: int):
    return jax.jit(lambda candidates, noise: greedy_information_gain(KERNELS[kernel], candidates, noise, number))


@functools.cache
def gram_of(kernel: str):
    return jax.jit(lambda x: jax.vmap(lambda a: jax.vmap(lambda b: KERNELS[kernel](a, b))(x))(x))


@pytest.mark.parametrize("noise_std", [0.03, 0.5])
def test_equals_numpy_and_the_posterior(noise_std, x64):
    gram = rbf_gram(POINTS, POINTS)
    ours = float(information_gain(jnp.asarray(gram), noise_std))
    np.testing.assert_allclose(ours, 0.5 * log_det(gram, noise_std), rtol=1e-9)
    x, mask = jnp.asarray(POINTS), jnp.ones(20, bool)
    theirs, *_ = condition(rbf, x, jnp.zeros(20), mask, jnp.asarray(noise_std), 1e-9, Pivots.none(20))
    np.testing.assert_allclose(ours, float(theirs.information_gain), rtol=1e-6)


def test_linear_kernel_equals_weight_space(x64):
    gram = gram_of("linear")(jnp.asarray(POINTS))
    features = np.concatenate([np.ones((20, 1)), POINTS], axis=1)
    expected = 0.5 * np.linalg.slogdet(np.eye(3) + features.T @ features / 0.3**2)[1]
    np.testing.assert_allclose(float(information_gain(gram, 0.3)), expected, rtol=1e-9)


def test_works_in_float32_and_under_jit():
    gram = rbf_gram(POINTS, POINTS)
    ours = jax.jit(information_gain)(jnp.asarray(gram, jnp.float32), jnp.float32(0.1))
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(float(ours), 0.5 * log_det(gram, 0.1), rtol=1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "matern52", "linear"])
def test_greedy_gains_are_the_gains_of_its_points(kernel, x64):
    gains, chosen = greedy(kernel, 256)(jnp.asarray(GRID), 0.3)  # more picks than candidates: repeats
    gram = np.asarray(gram_of(kernel)(jnp.asarray(GRID)))
    for number in (1, 7, 100, 256):
        some = np.asarray(chosen)[:number]
        np.testing.assert_allclose(gains[number - 1], 0.5 * log_det(gram[np.ix_(some, some)], 0.3), rtol=1e-7)


def test_greedy_is_within_its_guarantee(x64):
    rng = np.random.default_rng(1)
    for _ in range(10):
        points, noise_std = rng.uniform(-1.5, 1.5, (6, 1)), rng.uniform(0.1, 1.0)
        gram = rbf_gram(points, points)
        gains, _ = greedy("rbf", 4)(jnp.asarray(points), noise_std)
        for number in (1, 2, 3, 4):
            sets = itertools.combinations_with_replacement(range(6), number)
            best = max(0.5 * log_det(gram[np.ix_(s, s)], noise_std) for s in sets)
            assert (1 - 1 / np.e) * best <= float(gains[number - 1]) + 1e-9 <= best + 1e-6
        increments = np.diff(np.concatenate([[0.0], gains]))
        assert np.all(np.diff(increments) <= 1e-9)  # diminishing returns


@pytest.mark.parametrize("kernel", ["rbf", "matern52", "linear"])
def test_the_table_of_rates_holds_empirically(kernel, x64):
    """Γ_N over the rate must not grow from N = 8 to N = 256 (one input; the linear kernel's bias makes it two)."""
    gains, _ = greedy(kernel, 256)(jnp.asarray(GRID), 0.3)
    numbers = np.array([8, 16, 32, 64, 128, 256])
    ratio = np.asarray(gains)[numbers - 1] / gain_rate(kernel, 2 if kernel == "linear" else 1, numbers)
    assert np.all(ratio[1:] <= ratio[:-1] * 1.02)
    if kernel == "linear":  # the bound is tight: slope ½ per weight in log N
        slope = np.diff(np.asarray(gains)[numbers - 1]) / np.log(2.0)
        np.testing.assert_allclose(slope, 0.5 * 2, rtol=0.1)


def test_rates_by_hand():
    np.testing.assert_allclose(gain_rate("linear", 3, 100), 3 * np.log(100))
    np.testing.assert_allclose(gain_rate("rbf", 3, np.array([10, 100])), [np.log(10) ** 4, np.log(100) ** 4])
    np.testing.assert_allclose(gain_rate("matern52", 3, 100), 100 ** (3 / 8) * np.log(100) ** (5 / 8))
    np.testing.assert_allclose(gain_rate("matern52", 1, 100, smoothness=0.5), np.sqrt(100 * np.log(100)))


def test_bad_input_is_refused():
    gram, points = jnp.eye(3), jnp.zeros((3, 1))
    with pytest.raises(SombrlError, match="noise_std must be positive"):
        information_gain(gram, 0.0)
    with pytest.raises(SombrlError, match="at least one"):
        greedy_information_gain(rbf, points, 0.1, 0)
    with pytest.raises(SombrlError, match="rbf, matern52, linear"):
        gain_rate("cubic", 1, 10)
