"""The systems are what the theorems assume: norm B exactly, rewards in [0, 1], Lipschitz as claimed."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.paper.lab.cells import GRIDS, LEMMA_WORLDS, WORLDS
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import Gaussian
from sombrl.paper.lab.planner import value_average
from sombrl.paper.lab.policies import LIPSCHITZ, random_policy, uniform_policy
from sombrl.paper.lab.settings import ExactDiscounted, ExactFiniteHorizon, uniform_span
from sombrl.paper.lab.systems import GridWorld, random_system, trap
from sombrl.paper.lab.tables import truth
from sombrl.records import SombrlError
from tests.theory.gp import rbf_gram

CASES = [*((LEMMA_WORLDS[dim], random_system) for dim in (1, 2, 3)), WORLDS["trap"]]


@pytest.mark.parametrize("seed", range(4), ids=["1d", "2d", "3d", "trap"])
def test_norm_reward_and_slopes(seed, x64):
    world, draw = CASES[seed]
    system = jax.jit(lambda key: draw(world, key=key))(jr.key(seed))
    centers = np.asarray(world.scale(system.centers))
    alpha = np.asarray(system.weights)
    norms = np.sqrt(np.einsum("ij,ik,kj->j", alpha, rbf_gram(centers, centers), alpha))
    np.testing.assert_allclose(norms, world.norm_bound, rtol=1e-9)  # √(αᵀKα) = B
    residual = np.asarray(jax.jit(lambda system: system.residual(world))(system))
    np.testing.assert_allclose(residual, rbf_gram(np.asarray(world.scaled), centers) @ alpha, atol=1e-10)
    assert np.abs(residual).max() <= world.norm_bound  # |g| <= ‖g‖ √k
    reward = np.asarray(system.reward(world.grid))
    assert reward.min() >= 0.0 and reward.max() <= 1.0

    z = np.asarray(world.grid.inputs)
    pairs = np.random.default_rng(seed).integers(0, len(z), (2, 20_000))
    apart = np.linalg.norm(z[pairs[0]] - z[pairs[1]], axis=1)
    ok = apart > 0
    dynamics = np.asarray(world.known) + residual
    moved = np.linalg.norm(dynamics[pairs[0]] - dynamics[pairs[1]], axis=1)
    assert np.max(moved[ok] / apart[ok]) <= world.lipschitz
    # L_r is per coordinate block: |Δr| <= L_r (‖Δx‖ + |Δu|)
    blocks = np.linalg.norm((z[pairs[0]] - z[pairs[1]])[:, :-1], axis=1) + np.abs((z[pairs[0]] - z[pairs[1]])[:, -1])
    change = np.abs(reward.reshape(-1)[pairs[0]] - reward.reshape(-1)[pairs[1]])
    assert np.max(change[ok] / blocks[ok]) <= float(system.reward_lipschitz()) * (1 + 1e-9)


def test_nothing_moves_in_the_trap_without_an_action(x64):
    world, _ = WORLDS["trap"]
    draw = jax.jit(lambda key: trap(world, key=key).residual(world))
    for seed in range(4):
        residual = np.asarray(draw(jr.key(seed))).reshape(GRIDS[1].num_states, -1)
        np.testing.assert_allclose(residual, -residual[:, ::-1], atol=1e-12)
        assert np.abs(residual).max() > 0.5


def test_random_policies_are_lipschitz_and_differ(x64):
    grid = GRIDS[1]
    tables = jax.jit(jax.vmap(lambda key: random_policy(grid, key=key)))(jr.split(jr.key(0), 8))
    np.testing.assert_allclose(tables.sum(axis=-1), 1.0, atol=1e-12)
    actions = np.asarray(tables[:, 0] @ grid.actions)
    assert np.abs(np.diff(actions, axis=1)).max() <= LIPSCHITZ * grid.spacing + 1e-12
    assert np.ptp(actions[:, 0]) > 0.1
    np.testing.assert_allclose(uniform_policy(grid).sum(axis=-1), 1.0)


@pytest.mark.parametrize("dim", [1, 2])
def test_no_policy_has_a_larger_bias_than_the_uniform_span(dim, x64):
    world = LEMMA_WORLDS[dim]
    true = jax.jit(lambda key: truth(world, random_system(world, key=key)))(jr.key(3))
    bound = float(jax.jit(uniform_span)(true.transition))
    value = jax.jit(value_average)
    rng = np.random.default_rng(0)
    for _ in range(10):  # tables without any smoothness, too
        policy = jnp.asarray(
            np.eye(world.grid.num_actions)[rng.integers(0, world.grid.num_actions, true.reward.shape[0])]
        )
        reward = jnp.asarray(rng.integers(0, 2, (*true.reward.shape, 1)), jnp.float64)
        _, bias = value(true.transition, reward, policy[None])
        assert float(jnp.ptp(bias)) <= bound


def test_uniform_span_of_a_chain_that_forgets_at_once(x64):
    transition = jnp.full((4, 2, 4), 0.25)
    np.testing.assert_allclose(uniform_span(transition), 1.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"norm_bound": 0.0}, "norm_bound must be positive"),
        ({"norm_bound": -1.0}, "norm_bound must be positive"),
        ({"delta": 0.0}, "delta must lie between 0 and 1"),
        ({"delta": 1.0}, "delta must lie between 0 and 1"),
        ({"lengthscales": (1.0, 0.0)}, "lengthscale must be positive"),
        ({"contraction": 1.0}, "must contract"),
    ],
)
def test_impossible_worlds_are_refused(wrong, message):
    with pytest.raises(SombrlError, match=message):
        GridWorld(Grid(1, 5, 3), **{"noise": Gaussian(0.1)} | wrong)


def test_impossible_settings_are_refused(x64):
    for discount in (0.0, 1.0, 1.5):
        with pytest.raises(SombrlError, match="discount must lie between 0 and 1"):
            ExactDiscounted(discount)
    with pytest.raises(SombrlError, match="horizon must be positive"):
        ExactFiniteHorizon(0)
    with pytest.raises(SombrlError, match="one state dimension"):
        trap(LEMMA_WORLDS[2], key=jr.key(0))


def test_old_names_work_and_name_the_new_ones():
    from sombrl.paper import lab

    for old, new in lab.RENAMED.items():
        with pytest.warns(FutureWarning, match=f"{old} is now {new.__name__}"):
            assert getattr(lab, old) is new
    with pytest.raises(AttributeError, match="Nothing"):
        lab.Nothing  # noqa: B018
