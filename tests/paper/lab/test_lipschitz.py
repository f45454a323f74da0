"""Plans under fₙ over Lipschitz policies: fₙ from features is fₙ from data, and the theorem's assumptions hold."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.paper.lab.gp import Evidence
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.horizon import growth_of, horizons, passing_beta
from sombrl.paper.lab.lipschitz import POLICIES, lipschitz_held, lipschitz_regret, policy_class
from sombrl.paper.lab.noise import Rademacher
from sombrl.paper.lab.policies import LIPSCHITZ
from sombrl.paper.lab.rows import curves, select
from sombrl.paper.lab.settings import ExactFiniteHorizon
from sombrl.paper.lab.sub_gaussian import bounded_mean, projected
from sombrl.paper.lab.systems import GridWorld, random_system
from sombrl.paper.lab.trajectory import Observations
from sombrl.records import SombrlError
from sombrl.theory import hallucinated_growth

WORLD = GridWorld(Grid(1, 11, 5), noise=Rademacher(0.3), contraction=0.4, norm_bound=1.0)
SHORT = ExactFiniteHorizon(3)


@pytest.mark.parametrize("noise", [0.0, 1.5], ids=["inside", "binding"])
def test_the_bounded_mean_is_that_of_the_data(noise, x64):
    """From features, whose number is fixed, as from the Gram matrix of all data; also where the bound does nothing."""
    basis = WORLD.basis
    places = jr.randint(jr.key(0), (20,), 0, WORLD.grid.num_inputs, jnp.int32)
    targets = 0.3 * jnp.sin(WORLD.grid.inputs[places, :1]) + noise * jr.normal(jr.key(1), (20, 1))
    memory = Observations(places, targets, jnp.ones(20, bool))

    @jax.jit
    def both(memory):
        evidence = Evidence.none(basis.shape[1], 1).add(basis, *memory, WORLD.noise.size)
        return (
            bounded_mean(basis, evidence, WORLD.norm_bound),
            projected(WORLD.scaled, memory, WORLD.noise.size, WORLD.norm_bound),
            bounded_mean(basis, evidence, 1e6),
        )

    ours, theirs, free = both(memory)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert (np.abs(ours - free).max() > 0.05) == (noise > 0)


def test_the_class_holds_every_constant_policy_and_is_lipschitz(x64):
    grid = WORLD.grid
    tables = np.asarray(jax.jit(lambda: policy_class(grid, key=jr.key(0)))())
    assert tables.shape == (grid.num_actions + POLICIES, 1, grid.num_states, grid.num_actions)
    np.testing.assert_allclose(tables.sum(axis=-1), 1.0, atol=1e-12)
    actions = tables[:, 0] @ np.asarray(grid.actions)
    np.testing.assert_allclose(actions[: grid.num_actions], np.asarray(grid.actions)[:, None] * np.ones((1, 11)))
    assert np.abs(np.diff(actions, axis=1)).max() <= LIPSCHITZ * grid.spacing + 1e-12


@pytest.mark.thorough
def test_regret_bounds_and_the_lemma_along_a_run():
    methods = {"sombrl-theory": (1.0, False), "greedy": (0.0, False), "hucrl-theory": (1.0, True)}
    rows = lipschitz_regret(
        SHORT, WORLD, random_system, "random", methods=methods, systems=3, episodes=8, checkpoints=8
    )
    for method in methods:
        totals = curves(select(rows, method=method, metric="lab/regret"))[1]
        assert np.all(np.diff(totals, axis=1) >= -1e-9)  # J(π*) is the best of Π
    held = select(rows, metric="lab/simple_regret_held")
    assert {row["method"] for row in held} == {"sombrl-theory"}  # greedy is allowed nothing
    assert all(row["value"] == 1.0 for row in held)
    assert curves(select(rows, metric="lab/simple_regret"))[0].tolist() == [0, 3, 12]  # before n = 0, 1, 4 of 8
    kept = lipschitz_held(SHORT, WORLD, random_system, "random", factors=(1e-12, 1.0), systems=3, episodes=8)
    shares = {
        m: curves(select(kept, method=m, metric="lab/lemma_held"))[1].mean() for m in ("sombrl x1", "sombrl x1e-12")
    }
    assert shares["sombrl x1"] == 1.0 and shares["sombrl x1e-12"] < 1.0


@pytest.mark.thorough
def test_bounds_over_the_horizon():
    rows = horizons(WORLD, random_system, "random", lengths=(1, 2), systems=2, episodes=3)
    theory = select(rows, method="sombrl-theory")
    base = (1.0 + LIPSCHITZ) * max(WORLD.lipschitz, 1.0)
    np.testing.assert_allclose(curves(select(theory, metric="lab/horizon_growth"))[1], base**2)
    for method in ("sombrl-theory", "hucrl"):
        here = select(rows, method=method)
        bound, regret = (curves(select(here, metric=f"lab/horizon_{m}"))[1] for m in ("bound", "regret"))
        assert np.all(regret <= bound) and np.all(bound[:, 1] > bound[:, 0])


def test_where_the_bounds_grow_alike():
    base = (1.0 + LIPSCHITZ) * max(WORLD.lipschitz, 1.0)
    beta = passing_beta(WORLD)
    passing = hallucinated_growth(
        jnp.asarray(beta), policy_lipschitz=LIPSCHITZ, dynamics_lipschitz=WORLD.lipschitz,
        std_lipschitz=WORLD.std_lipschitz,
    )  # fmt: skip
    np.testing.assert_allclose(float(passing), base**2, rtol=1e-6)  # there the two grow alike
    assert growth_of(WORLD, np.array([2.0 * beta]), True) > base**2
    np.testing.assert_allclose(growth_of(WORLD, np.array([beta]), False), base**2)


def test_bad_numbers_are_refused():
    with pytest.raises(SombrlError, match="take a multiple"):
        lipschitz_regret(SHORT, WORLD, random_system, "x", methods={}, systems=1, episodes=7, checkpoints=2)
    with pytest.raises(SombrlError, match="at least one of each"):
        lipschitz_held(SHORT, WORLD, random_system, "x", factors=(1.0,), systems=0, episodes=2)
