"""SimBa and BroNet against NumPy and their published sizes; any network step by step in NumPy; norms that are kept."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.networks.as_steps import steps_of
from sombrl.networks.mlp import MLP, BroNet, stacked
from sombrl.networks.normaliser import Normalised, RunningNormaliser
from sombrl.networks.residual import PublishedBroNet, SimBa, keep_norms, make_body
from sombrl.networks.steps import run
from tests.networks.test_mlp import X, affine, normed, nudged

BODIES = {
    "plain": lambda key: MLP(3, (8, 8), 2, activation="silu", key=key),
    "plain, first norm": lambda key: MLP(3, (8, 8), 2, first_norm=True, key=key),
    "bro": lambda key: BroNet(3, (8, 8), 2, key=key),
    "bro, first norm": lambda key: BroNet(3, (8,), 2, first_norm=True, key=key),
    "simba": lambda key: SimBa(3, (8, 8, 8), (1, 1), key=key),
    "bronet": lambda key: PublishedBroNet(3, (8, 8, 8), 2, key=key),
}


def relu(x):
    return np.maximum(x, 0)


@pytest.mark.parametrize("blocks", [0, 2])
def test_simba_equals_numpy(blocks, key):
    network = nudged(SimBa(3, (8,) * (blocks + 1), 2, key=key), jr.key(1))
    x = affine(network.first, X.astype(np.float64))
    assert len(network.blocks) == blocks
    for block in network.blocks:
        assert block.first.weight.shape == (8, 32)
        x = x + affine(block.second, relu(affine(block.first, normed(block.norm, x))))
    expected = affine(network.last, normed(network.norm, x))
    np.testing.assert_allclose(np.asarray(jax.vmap(network)(jnp.asarray(X))), expected, rtol=1e-4, atol=1e-4)


def test_published_bronet_equals_numpy(key):
    network = nudged(PublishedBroNet(3, (8, 8, 8), 2, key=key), jr.key(1))
    x = relu(normed(network.first.norm, affine(network.first.linear, X.astype(np.float64))))
    for first, second in network.blocks:
        inside = relu(normed(first.norm, affine(first.linear, x)))
        x = x + normed(second.norm, affine(second.linear, inside))
    expected = affine(network.last, x)
    np.testing.assert_allclose(np.asarray(jax.vmap(network)(jnp.asarray(X))), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "hidden", "number"),
    [
        # A block of SimBa: two matrices w × 4w, their biases and a norm. Layers of BroNet: w² + w and a norm of 2w.
        ("simba", (512, 512, 512), 30 * 512 + 512 + 2 * (8 * 512**2 + 4 * 512 + 512 + 1024) + 1024 + 513),
        ("bronet", (512, 512, 512), 30 * 512 + 512 + 1024 + 4 * (512**2 + 512 + 1024) + 513),
    ],
)
def test_sizes(name, hidden, number):
    network = jax.eval_shape(lambda key: make_body(name, 30, hidden, 1, key=key), jr.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(network)) == number


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("normalised", [False, True])
def test_step_by_step_in_numpy(name, normalised, key):
    network = nudged(BODIES[name](key), jr.key(1))
    if normalised:
        normaliser = RunningNormaliser.identity(3).update(jnp.asarray(0.1 * X + 2.0))
        network = Normalised(normaliser, network)
    rows = np.concatenate([X, 100 * X])  # beyond the limit
    expected = np.asarray(jax.vmap(network)(jnp.asarray(rows)))
    found = np.stack([run(steps_of(network), row) for row in rows])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_a_normalised_network_sees_standard_units_within_a_limit(key):
    network, rows = MLP(3, (8,), 2, key=key), np.random.default_rng(0).normal(3.0, 5.0, (500, 3)).astype(np.float32)
    normalised = Normalised(RunningNormaliser.identity(3).update(jnp.asarray(rows)), network)
    standard = (rows - rows.mean(0)) / rows.std(0)
    seen = jax.vmap(network)(jnp.asarray(standard, jnp.float32))
    np.testing.assert_allclose(jax.vmap(normalised)(jnp.asarray(rows)), seen, atol=1e-4)
    far, end = (normalised(jnp.asarray(rows.mean(0) + size * rows.std(0), jnp.float32)) for size in (1e6, 10.0))
    np.testing.assert_allclose(far, end, rtol=1e-3)


@pytest.mark.parametrize("name", BODIES)
def test_kept_norms(name, key):
    """Only directions change, and the heads do as they like; of a stack every network for itself."""
    before = stacked(lambda *, key: BODIES[name](key), 2, key=key)
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jr.normal(jr.key(7), leaf.shape, leaf.dtype), before)
    after = keep_norms(before, moved)
    matrices = [[leaf for leaf in jax.tree.leaves(tree) if leaf.ndim == 3] for tree in (before, moved, after)]
    for old, new, kept in zip(*(group[:-1] for group in matrices), strict=True):
        sizes = [np.sqrt(np.sum(np.square(np.asarray(w, np.float64)), axis=(1, 2))) for w in (old, new, kept)]
        np.testing.assert_allclose(sizes[2], sizes[0], rtol=1e-5)
        np.testing.assert_allclose(kept / sizes[2][:, None, None], new / sizes[1][:, None, None], atol=1e-6)
    assert np.array_equal(matrices[1][-1], matrices[2][-1])
    for new, kept in zip(jax.tree.leaves(moved), jax.tree.leaves(after), strict=True):
        assert new.ndim == 3 or np.array_equal(new, kept)
