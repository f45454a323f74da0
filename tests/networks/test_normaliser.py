"""The running normaliser against NumPy on everything it was shown."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.networks.normaliser import RunningNormaliser


def shown(batches):
    normaliser = RunningNormaliser.identity(batches[0].shape[1])
    for batch in batches:
        normaliser = normaliser.update(jnp.asarray(batch.astype(np.float32)))
    return normaliser


@pytest.mark.parametrize("sizes", [(1,), (5,), (3, 1, 8), (64,) * 20])
def test_batches_merge_into_the_statistics_of_all_rows(sizes):
    rng = np.random.default_rng(0)
    batches = [rng.normal([1.0, -20.0, 0.0], [0.5, 3.0, 100.0], (size, 3)) + i for i, size in enumerate(sizes)]
    rows = np.concatenate(batches)
    normaliser = shown(batches)
    np.testing.assert_allclose(np.asarray(normaliser.mean), rows.mean(0), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(np.asarray(normaliser.std), np.maximum(rows.std(0), 1e-3), rtol=1e-4)
    assert float(normaliser.count) == len(rows)


def test_order_does_not_matter():
    rng = np.random.default_rng(0)
    batches = [rng.normal(i, 1 + i, (16, 2)) for i in range(6)]
    forward, backward = shown(batches), shown(batches[::-1])
    np.testing.assert_allclose(np.asarray(forward.mean), np.asarray(backward.mean), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(forward.std), np.asarray(backward.std), rtol=1e-5)


def test_a_million_rows_far_from_zero_keep_their_digits():
    """4000 batches of 256: past the limit of the count, mean 1000 and std 1 in float32."""
    rng = np.random.default_rng(0)
    rows = (1000 + rng.normal(size=(4000, 256, 1))).astype(np.float32)

    @jax.jit
    def show(rows):
        return jax.lax.scan(lambda n, batch: (n.update(batch), None), RunningNormaliser.identity(1), rows)[0]

    normaliser = show(jnp.asarray(rows))
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(float(normaliser.mean[0]), exact.mean(), atol=5e-3)
    np.testing.assert_allclose(float(normaliser.std[0]), exact.std(), rtol=2e-3)
    assert float(normaliser.count) == 1e6


def test_the_capped_count_lets_old_data_fade():
    """Beyond the limit, n in the merge formula stays 1e6."""
    full = RunningNormaliser(*(jnp.array(v, jnp.float32) for v in ([2.0], [3.0], 1e6)))
    rows = np.array([[10.0], [14.0], [9.0]])
    total = 1e6 + 3
    mean = (1e6 * 2.0 + rows.sum()) / total
    variance = (1e6 * 9.0 + ((rows - mean) ** 2).sum() + 1e6 * (2.0 - mean) ** 2) / total
    merged = full.update(jnp.asarray(rows.astype(np.float32)))
    np.testing.assert_allclose(float(merged.mean[0]), mean, rtol=1e-6)
    np.testing.assert_allclose(float(merged.std[0]), np.sqrt(variance), rtol=1e-6)
    assert float(merged.count) == 1e6


def test_a_constant_column_has_the_floor_as_std():
    normaliser = shown([np.full((8, 1), 7.0)] * 3)
    assert float(normaliser.std[0]) == np.float32(1e-3)
    assert float(normaliser.mean[0]) == 7.0


def test_normalise_and_back():
    normaliser = RunningNormaliser.identity(2)
    x = jnp.array([3.0, -4.0], jnp.float32)
    assert np.array_equal(normaliser.normalise(x), x)
    normaliser = shown([np.random.default_rng(0).normal(5, 2, (50, 2))])
    z = normaliser.normalise(x)
    expected = (np.asarray(x) - np.asarray(normaliser.mean)) / np.asarray(normaliser.std)
    np.testing.assert_allclose(np.asarray(z), expected, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(normaliser.denormalise(z)), np.asarray(x), rtol=1e-5)
