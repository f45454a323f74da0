"""The grid's GP against scikit-learn, and its information gain against the determinant."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from sombrl.paper.lab.gp import Evidence, posterior
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.systems import GridWorld
from sombrl.theory import information_gain
from tests.theory.gp import rbf_gram

NOISE = 0.2
WORLDS = {1: GridWorld(Grid(1, 21, 5)), 3: GridWorld(Grid(3, 3, 3))}


def data(world: GridWorld, number: int, seed: int):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, world.grid.num_inputs, number)
    return places, rng.normal(size=(number, world.grid.state_dim))


@pytest.mark.parametrize("dim", [1, 3])
def test_equals_scikit_learn(dim, x64):
    world = WORLDS[dim]
    places, targets = data(world, 40, seed=dim)
    basis = world.basis
    mask = np.arange(50) < 40  # ten rows of rubbish must not count
    padded = np.concatenate([places, np.zeros(10, int)]), np.concatenate([targets, np.full((10, dim), 9.0)])
    evidence = Evidence.none(basis.shape[1], dim)
    evidence = evidence.add(basis, jnp.asarray(padded[0]), jnp.asarray(padded[1]), jnp.asarray(mask), NOISE)
    ours = jax.jit(posterior)(basis, evidence)

    inputs = np.asarray(world.scaled)
    theirs = GaussianProcessRegressor(RBF(1.0), alpha=NOISE**2, optimizer=None).fit(inputs[places], targets)
    mean, std = theirs.predict(inputs, return_std=True)
    np.testing.assert_allclose(ours.mean, mean.reshape(-1, dim), atol=1e-6)
    np.testing.assert_allclose(ours.std, std.reshape(-1, dim)[:, 0], atol=1e-6)
    gram = rbf_gram(inputs[places], inputs[places])
    np.testing.assert_allclose(ours.information_gain, information_gain(jnp.asarray(gram), NOISE), rtol=1e-6)


def test_before_any_data_it_is_the_prior(x64):
    basis = WORLDS[1].basis
    now = posterior(basis, Evidence.none(basis.shape[1], 1))
    assert not np.any(now.mean)
    np.testing.assert_allclose(now.std, 1.0, atol=1e-9)
    assert float(now.information_gain) == 0.0


def test_order_and_batches_do_not_matter(x64):
    basis = WORLDS[1].basis
    places, targets = (jnp.asarray(x) for x in data(WORLDS[1], 12, seed=0))
    mask = jnp.ones(12, bool)
    once = Evidence.none(basis.shape[1], 1).add(basis, places, targets, mask, NOISE)
    twice = Evidence.none(basis.shape[1], 1).add(basis, places[::-1][:5], targets[::-1][:5], mask[:5], NOISE)
    twice = twice.add(basis, places[:7], targets[:7], mask[:7], NOISE)
    np.testing.assert_allclose(posterior(basis, once).mean, posterior(basis, twice).mean, atol=1e-9)


def test_draws_have_the_moments_of_the_posterior(x64, key):
    world = GridWorld(Grid(1, 7, 3))
    basis = world.basis
    places, targets = (jnp.asarray(x) for x in data(world, 6, seed=0))
    now = posterior(basis, Evidence.none(basis.shape[1], 1).add(basis, places, targets, jnp.ones(6, bool), NOISE))
    draws = np.asarray(jax.jit(jax.vmap(lambda key: now.draw(basis, key=key)))(jr.split(key, 20_000)))[:, :, 0]
    np.testing.assert_allclose(draws.mean(axis=0), now.mean[:, 0], atol=0.03)
    np.testing.assert_allclose(draws.std(axis=0), now.std, atol=0.02)
