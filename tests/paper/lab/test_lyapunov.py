"""Lyapunov functions that are known: against SciPy, against brute force, and what switching does without them."""

import jax
import jax.random as jr
import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from sombrl.paper.lab.cells import KNOWN, LEMMA_WORLDS
from sombrl.paper.lab.lyapunov import DRIFT, STABLE, constant, energy, lyapunov_matrix, switching
from sombrl.paper.lab.rows import curves, select
from sombrl.paper.lab.systems import random_system
from sombrl.paper.lab.tables import truth


def test_the_matrix_is_scipys_and_shrinks_every_state():
    for closed_loop in (STABLE, STABLE.T):
        matrix = lyapunov_matrix(closed_loop, DRIFT)
        np.testing.assert_allclose(matrix, solve_discrete_lyapunov((closed_loop / DRIFT).T, np.eye(2)), rtol=1e-9)
        x = np.random.default_rng(0).normal(size=(200, 2))
        value, following = (np.sqrt(np.einsum("ni,ij,nj->n", y, matrix, y)) for y in (x, x @ closed_loop.T))
        assert np.all(following <= DRIFT * value)


def test_taking_turns_too_often_pumps_energy_and_the_least_t_does_not():
    rows = switching()
    turns, growth = curves(select(rows, metric="lab/growth"))
    minimum = int(curves(select(rows, metric="lab/lyapunov_minimum"))[1].item())
    assert np.abs(np.linalg.eigvals(STABLE)).max() < 1.0  # each by itself is stable
    assert growth[0][0] > 1.0  # and every decision another one is not
    assert np.all(growth[0][turns >= minimum] < 1.0)
    x = np.array([1.0, 1.0])
    for _ in range(100):
        x = STABLE.T @ STABLE @ x
    np.testing.assert_allclose(np.linalg.norm(x) ** (1 / 200), growth[0][0], rtol=0.01)


def test_no_policy_has_more_energy_than_the_drift_allows(x64):
    rows = energy(KNOWN, random_system, "wide", systems=2, seed=3)
    values = {row["metric"]: [] for row in rows}
    for row in rows:
        values[row["metric"]].append(row["value"])
    assert np.all(np.array(values["lab/drift_constant_exact"]) <= constant(KNOWN))
    assert np.all(np.array(values["lab/energy_largest"]) <= np.array(values["lab/energy_bound"]))
    # The drift itself, by hand and with a policy that was not found by the planner.
    true = jax.jit(lambda key: truth(KNOWN, random_system(KNOWN, key=key)))(jr.split(jr.key(3), 2)[0])
    norm = np.abs(np.asarray(KNOWN.grid.states)[:, 0])
    drift = np.asarray(true.transition) @ norm - 0.5 * norm[:, None]
    np.testing.assert_allclose(drift.max(), values["lab/drift_constant_exact"][0], rtol=1e-9)
    chain = np.asarray(true.transition)[:, 0]
    average = np.linalg.matrix_power(chain, 4096)[0] @ norm
    assert average <= values["lab/energy_largest"][0] + 1e-9
    assert max(values["lab/energy_at_edge"]) < 1e-6  # so it is not the edge that holds the state


def test_the_drift_in_two_dimensions(x64):
    rows = energy(LEMMA_WORLDS[2], random_system, "2d", systems=2)
    exact = [row["value"] for row in rows if row["metric"] == "lab/drift_constant_exact"]
    assert np.all(np.array(exact) <= constant(LEMMA_WORLDS[2]))
