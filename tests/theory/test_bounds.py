"""The two log-determinant bounds as properties of random data, and where they are equalities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.theory import log_det_lower, log_det_upper
from tests.theory.gp import log_det, rbf_gram


@functools.cache
def compiled(earlier: int):
    return jax.jit(lambda grams, noise: (log_det_lower(grams, earlier, noise), log_det_upper(grams, earlier, noise)))


def draw(rng, points: int, outputs: int) -> np.ndarray:
    x = rng.uniform(-2, 2, (points, 2))
    return np.stack([rbf_gram(x * scale, x * scale) for scale in rng.uniform(0.2, 2.0, outputs)])


@pytest.mark.parametrize("earlier", [0, 4])
def test_bounds_hold(earlier, x64):
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(100):
        grams, noise_std = draw(rng, 12, 3), 10 ** rng.uniform(-1.5, 1.0)
        lower, upper = compiled(earlier)(jnp.asarray(grams), noise_std)
        exact = sum(log_det(gram, noise_std) for gram in grams)
        np.testing.assert_allclose([lower.exact, upper.exact], exact, rtol=1e-7)
        assert float(lower.bound) <= exact * (1 + 1e-9) and exact <= float(upper.bound) * (1 + 1e-9)
        gaps.append((exact - float(lower.bound), float(upper.bound) - exact))
    assert np.all(np.median(gaps, axis=0) > 1e-3)  # and they are bounds, not identities


@pytest.mark.parametrize("earlier", [0, 4])
def test_one_new_point_is_the_limit_case(earlier, x64):
    rng = np.random.default_rng(1)
    for _ in range(20):
        noise_std = 10 ** rng.uniform(-1.5, 1.0)
        lower, upper = compiled(earlier)(jnp.asarray(draw(rng, earlier + 1, 1)), noise_std)
        np.testing.assert_allclose(lower.bound, lower.exact, rtol=1e-7)
        np.testing.assert_allclose(upper.bound, upper.exact, rtol=1e-7)
        lower, upper = compiled(earlier)(jnp.asarray(draw(rng, earlier + 1, 3)), noise_std)
        np.testing.assert_allclose(upper.bound, upper.exact, rtol=1e-7)  # any number of outputs
        assert float(lower.bound) < float(lower.exact)


def test_unrelated_points_meet_the_upper_bound_and_repeats_the_lower(x64):
    lower, upper = compiled(0)(jnp.eye(5)[None], 0.5)
    np.testing.assert_allclose(upper.bound, upper.exact)
    assert float(lower.bound) < float(lower.exact)
    lower, upper = compiled(0)(jnp.ones((1, 5, 5)), 0.5)
    np.testing.assert_allclose(lower.bound, lower.exact)
    assert float(upper.bound) > float(upper.exact)


def test_no_new_points_are_refused():
    with pytest.raises(SombrlError, match="at least one new point"):
        log_det_lower(jnp.ones((1, 3, 3)), 3, 0.1)
