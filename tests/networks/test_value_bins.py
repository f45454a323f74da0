"""Values as distributions over bins, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.networks import value_bins


def f32(x):
    return jnp.asarray(x, jnp.float32)


def test_a_bin_stands_for_its_place():
    """The 101 bins are at ±(exp(|b|) - 1), b from -10 to 10 in steps of 0.2."""
    b = np.linspace(-10, 10, 101)
    values = jax.vmap(value_bins.value)(f32(np.where(np.eye(101) > 0, 0.0, -1e9)))
    np.testing.assert_allclose(values, np.sign(b) * np.expm1(np.abs(b)), rtol=1e-4, atol=1e-5)


def test_equal_logits_stand_for_zero():
    np.testing.assert_allclose(value_bins.value(jnp.full(101, 3.0, jnp.float32)), 0.0, atol=1e-5)


@pytest.mark.parametrize("target", [0.0, 0.05, 1.0, -3.7, 180.0, -21000.0])
def test_the_loss_is_least_where_the_value_is_the_target(target):
    """Its gradient, softmax less the target's weights, has zeros elsewhere; the weights give the target back."""
    gradient = jax.grad(value_bins.loss)(jnp.zeros(101, jnp.float32), f32(target))
    weights = 1 / 101 - np.asarray(gradient)
    assert (weights > 1e-4).sum() <= 2 and weights.min() > -1e-6
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-5)
    logits = np.log(np.maximum(weights, 1e-30))
    logits[weights < 1e-5] = -1e9
    np.testing.assert_allclose(value_bins.value(f32(logits)), target, rtol=2e-3, atol=1e-3)


def test_the_loss_of_equal_logits():
    np.testing.assert_allclose(value_bins.loss(jnp.zeros(101, jnp.float32), f32(12.0)), np.log(101), rtol=1e-5)


def test_what_no_bin_reaches_is_the_outermost():
    logits = f32(np.random.default_rng(0).normal(size=101))
    far, end = (value_bins.loss(logits, f32(target)) for target in (1e9, np.expm1(10.0)))
    np.testing.assert_allclose(far, end, rtol=1e-5)
    np.testing.assert_allclose(end, -jax.nn.log_softmax(logits)[-1], rtol=1e-4)
