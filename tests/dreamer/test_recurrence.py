"""The scan with a quick gradient, against `lax.scan` differentiated by JAX."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dreamer.recurrence import _pullbacks, recur

STEPS, BATCH, WIDTH, OUT = 7, 3, 4, 2


def step(weights, state, given):
    """A state of two parts, an input that is not a number, an output, and a weight that only the output sees."""
    x, reset = given
    fast, slow = (jnp.where(jnp.broadcast_to(reset[:, None], s.shape), 0.0, s) for s in state)
    hidden = jnp.tanh(fast @ weights["inner"] + x + weights["bias"])
    slow = 0.9 * slow + 0.1 * hidden * fast
    return (hidden, slow), jax.nn.silu(slow) @ weights["outer"]


def scanned(weights, start, inputs):
    def advance(state, given):
        state, output = step(weights, state, given)
        return state, (state, output)

    return jax.lax.scan(advance, start, inputs)[1]


def data(key):
    keys = iter(jr.split(key, 6))
    weights = {
        "inner": jr.normal(next(keys), (WIDTH, WIDTH)),
        "outer": jr.normal(next(keys), (WIDTH, OUT)),
        "bias": jr.normal(next(keys), (BATCH, WIDTH)),
    }
    start = jr.normal(next(keys), (BATCH, WIDTH)), jr.normal(next(keys), (BATCH, WIDTH))
    reset = jnp.zeros((STEPS, BATCH), bool).at[3, 1].set(True)
    return weights, start, (jr.normal(next(keys), (STEPS, BATCH, WIDTH)), reset)


def score(found):
    """Every state and every output counts, each in its own way."""
    leaves = jax.tree.leaves(found)
    return sum(jnp.sum(jnp.sin(leaf * jnp.linspace(0.5, 2.0, leaf.size).reshape(leaf.shape))) for leaf in leaves)


def gradients(run):
    def of(weights, start, x, reset):
        return jax.value_and_grad(lambda w, s, x: score(run(w, s, (x, reset))), argnums=(0, 1, 2))(weights, start, x)

    return of


def assert_close(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(b).any()
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)


def ours(weights, start, inputs):
    return recur(step, weights, start, inputs)


def test_values_are_those_of_a_scan(key):
    found, expected = (jax.jit(run)(*data(jr.clone(key))) for run in (ours, scanned))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.array_equal(a, b)


def test_gradients_are_those_of_a_scan(key):
    weights, start, (x, reset) = data(key)
    assert_close(*(jax.jit(gradients(run))(weights, start, x, reset) for run in (ours, scanned)))


@pytest.mark.thorough
def test_several_seeds_at_once(key):
    weights, start, (x, reset) = jax.vmap(data)(jr.split(key, 2))
    together = jax.jit(jax.vmap(gradients(ours)))(weights, start, x, reset)
    for i in range(2):
        alone = jax.tree.map(lambda leaf: leaf[i], (weights, start, x, reset))  # noqa: B023
        assert_close(jax.tree.map(lambda leaf: leaf[i], together), gradients(scanned)(*alone))  # noqa: B023


@pytest.mark.parametrize("name", ["inner", "outer"])
def test_weights_are_not_copied_for_every_step(name, key):
    weights, start, inputs = data(key)
    before = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (STEPS, *leaf.shape)), start)
    leaves, axes, _ = _pullbacks(step, weights, before, inputs)
    for leaf, axis in zip(leaves, axes, strict=True):
        if axis == 0:
            assert leaf.shape[1:] != weights[name].shape
    assert any(axis is None and np.array_equal(leaf, weights[name]) for leaf, axis in zip(leaves, axes, strict=True))
