"""Networks against NumPy, their initialisation against its singular values, and stacks against single networks."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.networks.mlp import MLP, BroNet, LayerNorm, orthogonal, soft_reset, stacked
from sombrl.networks.residual import PublishedBroNet, SimBa
from sombrl.numerics import safe_sqrt
from sombrl.records import SombrlError

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
ACTIVATIONS = {"relu": lambda x: np.maximum(x, 0), "silu": lambda x: x / (1 + np.exp(-x)), "tanh": np.tanh}


def affine(layer, x):
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def normed(norm, x):
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    return normal * np.asarray(norm.scale) + np.asarray(norm.shift)


def nudged(network, key):
    """Biases and scales away from 0 and 1, so that a test can see them."""
    leaves, structure = jax.tree.flatten(network)
    leaves = [x + 0.3 * jr.normal(jr.fold_in(key, i), x.shape, x.dtype) for i, x in enumerate(leaves)]
    return jax.tree.unflatten(structure, leaves)


@pytest.mark.parametrize(
    ("activation", "first_norm"), [("relu", False), ("silu", False), ("tanh", False), ("relu", True)]
)
def test_mlp_equals_numpy(activation, first_norm, key):
    network = nudged(MLP(3, (8, 8), 2, activation=activation, first_norm=first_norm, key=key), jr.key(1))
    act = ACTIVATIONS[activation]
    x = X.astype(np.float64)
    for i, layer in enumerate(network.layers[:-1]):
        x = affine(layer, x)
        x = act(normed(network.norm, x) if i == 0 and first_norm else x)
    expected = affine(network.layers[-1], x)
    np.testing.assert_allclose(np.asarray(jax.vmap(network)(jnp.asarray(X))), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("blocks", "first_norm"), [(0, False), (1, False), (2, False), (1, True)])
def test_bronet_equals_numpy(blocks, first_norm, key):
    network = nudged(BroNet(3, (8,) * (blocks + 1), 2, first_norm=first_norm, key=key), jr.key(1))
    assert len(network.blocks) == blocks
    x = affine(network.first, X.astype(np.float64))
    x = np.maximum(normed(network.norm, x) if first_norm else x, 0)
    for block in network.blocks:
        x = x + affine(block.second, np.maximum(affine(block.first, normed(block.norm, x)), 0))
    expected = affine(network.last, x)
    np.testing.assert_allclose(np.asarray(jax.vmap(network)(jnp.asarray(X))), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", [BroNet, SimBa, PublishedBroNet])
def test_residual_networks_refuse_unequal_widths(make, key):
    with pytest.raises(SombrlError, match="the same width"):
        make(3, (8, 4), 1, key=key)


def test_layer_norm_forgets_shift_and_scale():
    norm, x = LayerNorm(16), jr.normal(jr.key(0), (16,), jnp.float32)
    np.testing.assert_allclose(np.asarray(norm(x)), np.asarray(norm(5.0 * x - 3.0)), atol=1e-4)


def singular_values(weight):
    return np.linalg.svd(np.asarray(weight), compute_uv=False)


def test_initial_weights_are_orthogonal_times_the_gain(key):
    network = MLP(3, (8, 8), (2, 2), gain=1.7, output_gain=0.5, key=key)
    for layer in network.layers[:-1]:
        np.testing.assert_allclose(singular_values(layer.weight), 1.7, rtol=1e-5)
        assert not np.any(layer.bias)
    last = network.layers[-1].weight
    for head in (last[:, :2], last[:, 2:]):  # each orthogonal in itself, not to the other
        np.testing.assert_allclose(singular_values(head), 0.5, rtol=1e-5)
    assert not np.allclose(singular_values(last), 0.5, rtol=0.05)
    for leaf in jax.tree.leaves(BroNet(3, (8, 8), 2, key=jr.key(1))):
        if leaf.ndim == 2:
            np.testing.assert_allclose(singular_values(leaf), math.sqrt(2), rtol=1e-5)


def test_orthogonal_matrices_are_uniform():
    """Entries of a uniform orthonormal frame have mean 0 and variance 1/n."""
    gaussians = jr.normal(jr.key(0), (3000, 4, 2), jnp.float32)
    draws = np.asarray(jax.jit(jax.vmap(orthogonal))(gaussians))
    np.testing.assert_allclose(draws.mean(0), 0.0, atol=0.04)
    np.testing.assert_allclose(draws.var(0), 0.25, atol=0.03)


def test_stacked_members_are_independent_single_networks(key):
    make = functools.partial(MLP, 3, (8, 8), 2)
    together, alone_of = stacked(make, 4, key=key), jax.jit(lambda key: make(key=key))
    weights = np.asarray(together.layers[0].weight)
    for i, member_key in enumerate(jr.split(jr.key(0), 4)):
        alone = alone_of(member_key)
        for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(ours)[i], np.asarray(theirs), atol=1e-6)
        np.testing.assert_allclose(singular_values(weights[i]), math.sqrt(2), rtol=1e-5)
        assert i == 0 or not np.allclose(weights[i], weights[0], atol=0.1)
    values = jax.vmap(lambda x: jax.vmap(lambda network: network(x))(together))(jnp.asarray(X))
    assert values.shape == (7, 4, 2)


@pytest.mark.parametrize(("make", "layers"), [(MLP, 3), (BroNet, 4), (SimBa, 4), (PublishedBroNet, 4)])
@pytest.mark.parametrize("members_first", [True, False])
def test_a_stack_on_a_batch_is_one_product_per_layer(make, layers, members_first, key):
    networks = stacked(functools.partial(make, 3, (8, 8), 2), 5, key=key)

    def values(networks, rows):
        if members_first:
            return jax.vmap(lambda network: jax.vmap(network)(rows))(networks)
        return jax.vmap(lambda x: jax.vmap(lambda network: network(x))(networks))(rows)

    program = jax.jit(values).lower(networks, jnp.asarray(X)).as_text()
    assert len(re.findall(r"stablehlo\.dot_general", program)) == layers
    assert "while" not in program


def test_many_batched_initialisations_in_one_program_end():
    """Batched QRs side by side wait for each other forever on two cores: ours must not be batched."""
    make = functools.partial(MLP, 32, (32, 32, 32), 32)
    networks = jax.jit(lambda key: stacked(make, 5, key=key))(jr.key(0))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(jax.block_until_ready(networks)))


def test_soft_reset_mixes(key):
    old, fresh = (MLP(3, (8, 8), 2, key=k) for k in jr.split(key))
    mixed = soft_reset(old, fresh, 0.2)
    for a, b, c in zip(*(jax.tree.leaves(n) for n in (old, fresh, mixed)), strict=True):
        np.testing.assert_allclose(np.asarray(c), 0.8 * np.asarray(a) + 0.2 * np.asarray(b), rtol=1e-6, atol=1e-7)
    for mix, expected in ((0.0, old), (1.0, fresh)):
        for a, b in zip(jax.tree.leaves(soft_reset(old, fresh, mix)), jax.tree.leaves(expected), strict=True):
            assert np.array_equal(a, b)


def test_safe_sqrt_has_a_finite_derivative_everywhere():
    x = jnp.array([0.0, 1e-30, 4.0], jnp.float32)
    np.testing.assert_allclose(np.asarray(safe_sqrt(x)), np.sqrt(np.asarray(x)), rtol=1e-6)
    slope = jax.vmap(jax.grad(safe_sqrt))(x)
    assert float(slope[0]) == 0.0 and np.all(np.isfinite(slope))
    np.testing.assert_allclose(float(slope[2]), 0.25, rtol=1e-6)
