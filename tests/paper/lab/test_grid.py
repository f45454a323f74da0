"""Transition tables against the simulation they stand for, and rounding that leaves means alone."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import NOISES, Gaussian, make_noise
from sombrl.records import SombrlError


def test_one_dimension_against_quadrature(x64):
    """P(x' = j) = ∫ hat_j(m + w) p(w) dw, with hats that stay 1 beyond the edge."""
    grid = Grid(1, 9, 2)
    axis = np.asarray(grid.axis)
    tables = jax.jit(lambda mean: grid.transition(Gaussian(0.35), jnp.full((grid.num_inputs, 1), mean)))
    for mean in (0.13, -1.4, 1.9, 3.0):
        table = np.asarray(tables(mean))[4, 1]

        def weight(y, j):
            return np.interp(y, axis, np.eye(9)[j])

        for j in range(9):
            knots = [y for y in axis if mean - 3 < y < mean + 3]
            density = norm(mean, 0.35).pdf
            expected = quad(
                lambda y, j=j, density=density: weight(y, j) * density(y), mean - 3, mean + 3, points=knots
            )[0]
            np.testing.assert_allclose(table[j], expected, atol=1e-8)


@pytest.mark.parametrize(("name", "dim"), list(zip(NOISES, (3, 1, 2, 2), strict=True)))
def test_rows_sum_to_one_and_keep_the_mean(name, dim, x64, key):
    grid = Grid(dim, 7, 3)
    means = jr.uniform(key, (grid.num_inputs, dim), jnp.float64, -0.5, 0.5)
    table = jax.jit(lambda means: grid.transition(make_noise(name, 0.2), means))(means).reshape(grid.num_inputs, -1)
    assert np.all(table >= 0)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)
    # Away from the edges the expected landing place is the mean itself, whatever the spacing.
    np.testing.assert_allclose(table @ grid.states, means, atol=1e-6)


def test_tables_are_the_frequencies_of_the_simulation(x64, key):
    grid, noise = Grid(2, 5, 2), Gaussian(0.4)
    mean = jnp.asarray([0.3, -1.7])
    table = grid.transition(noise, jnp.broadcast_to(mean, (grid.num_inputs, 2)))[0, 0]

    def once(key):
        noise_key, snap_key = jr.split(key)
        return grid.snap(mean + noise.sample((2,), key=noise_key), key=snap_key)

    landed = jax.jit(jax.vmap(once))(jr.split(key, 40_000))
    frequencies = np.bincount(np.asarray(landed), minlength=25) / 40_000
    np.testing.assert_allclose(frequencies, table, atol=0.01)


def test_order_of_states_and_inputs(x64):
    grid = Grid(2, 3, 2, half_width=1.0)
    np.testing.assert_array_equal(grid.states[1], [-1.0, 0.0])
    np.testing.assert_array_equal(grid.states[grid.middle], [0.0, 0.0])
    np.testing.assert_array_equal(grid.inputs[3], [-1.0, 0.0, 1.0])
    for index in range(9):  # a state is its own nearest grid point
        assert int(grid.snap(grid.states[index], key=jr.key(index))) == index


def test_spread_keeps_the_action(x64):
    grid = Grid(1, 3, 5)
    for action in (-1.0, -0.3, 0.0, 0.77, 1.0):
        weights = grid.spread(jnp.asarray(action))
        np.testing.assert_allclose([weights.sum(), weights @ grid.actions], [1.0, action], atol=1e-12)


@pytest.mark.parametrize("numbers", [(0, 5, 3), (1, 1, 3), (1, 5, 1)])
def test_impossible_grid_is_refused(numbers):
    with pytest.raises(SombrlError, match="is not a grid"):
        Grid(*numbers)
