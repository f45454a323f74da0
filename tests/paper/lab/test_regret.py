"""Regret is exact, greedy is SOMBRL without its bonus, the trap holds greedy only, and seeds decide everything."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.paper.lab.cells import WORLDS
from sombrl.paper.lab.gp import Evidence, posterior
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import Gaussian
from sombrl.paper.lab.planner import closed_loop, plan_average, value_average
from sombrl.paper.lab.policies import random_policy
from sombrl.paper.lab.regret import FACTORS, Method, bellman_gaps, choose, regret
from sombrl.paper.lab.rows import curves, select
from sombrl.paper.lab.settings import ExactDiscounted, ExactFiniteHorizon, ExactNonEpisodic
from sombrl.paper.lab.systems import GridWorld, random_system, trap
from sombrl.paper.lab.tables import truth
from sombrl.paper.lab.unsupervised import unsupervised
from sombrl.records import SombrlError

WORLD = GridWorld(Grid(1, 15, 5), noise=Gaussian(0.2))
SETTINGS = [ExactDiscounted(0.8), ExactNonEpisodic()]  # the trap has the finite horizon


@jax.jit
def true_system(key):
    return truth(WORLD, random_system(WORLD, key=key))


def final(rows, method):
    return curves(select(rows, method=method, metric="lab/regret"))[1][:, -1]


@pytest.mark.parametrize(
    "setting", [SETTINGS[0], pytest.param(SETTINGS[1], marks=pytest.mark.thorough)], ids=lambda s: s.name
)
def test_greedy_is_factor_zero_same_seeds_same_rows_one_trace(setting):
    traces = []

    def draw(world, *, key):
        traces.append(1)
        return random_system(world, key=key)

    methods = {"greedy": (0.0, False), "sombrl": (0.0, False), "other": (0.05, False), "thompson": (0.0, True)}
    sizes = {"systems": 2, "iterations": 10, "checkpoints": 5}
    rows = regret(setting, WORLD, draw, "random", methods=methods, **sizes)
    assert len(traces) == 1  # four methods, one compilation
    assert rows == regret(setting, WORLD, draw, "random", methods=methods, **sizes)
    seen = {m: [r | {"method": ""} for r in rows if r["method"] == m] for m in methods}
    assert seen["greedy"] == seen["sombrl"]
    assert seen["greedy"] != seen["other"]
    totals = curves(select(rows, method="other", metric="lab/regret"))[1]
    assert np.all(np.diff(totals, axis=1) >= -1e-9)  # exact regret is never negative


def test_greedy_plans_for_the_reward_alone(x64):
    setting, basis = ExactFiniteHorizon(6), WORLD.basis
    true = true_system(jr.key(0))
    places = jnp.asarray([3, 40, 60])
    evidence = Evidence.none(basis.shape[1], 1)
    evidence = evidence.add(basis, places, true.residual[places], jnp.ones(3, bool), 0.2)
    greedy = Method(jnp.asarray(0.0), jnp.asarray(False))

    @jax.jit
    def chosen(true, evidence):
        return choose(setting, WORLD, true, jnp.ones(()), basis, greedy, evidence, key=jr.key(1))

    @jax.jit
    def expected(true, evidence):
        mean = posterior(basis, evidence).mean
        return mean, setting.plan(WORLD.transition(mean), true.reward)

    policy, now, _, weight = chosen(true, evidence)
    assert float(weight) == 0.0
    mean, plan = expected(true, evidence)
    np.testing.assert_allclose(now.mean, mean, atol=1e-12)
    assert np.array_equal(policy, plan)


def test_bellman_gaps_add_up_to_the_regret(x64):
    """In the long run any policy's mean gap is J* - J(π): the sum of gaps is the regret without its noise."""
    true = true_system(jr.key(2))
    gaps, span = jax.jit(bellman_gaps)(true)
    assert float(gaps.min()) >= -1e-10 and float(span) > 0
    kinds = true.reward[:, :, None]
    best = value_average(true.transition, kinds, plan_average(true.transition, true.reward))[0][0]
    for seed in range(3):
        policy = random_policy(WORLD.grid, key=jr.key(seed))
        chain, _ = closed_loop(true.transition, kinds, policy[0])
        stationary = np.linalg.matrix_power(np.asarray(chain), 4096)[0]
        mean_gap = stationary @ np.sum(np.asarray(policy[0] * gaps), axis=1)
        expected = best - value_average(true.transition, kinds, policy)[0][0]
        np.testing.assert_allclose(mean_gap, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("setting", "iterations"),
    [(ExactFiniteHorizon(10), 60), pytest.param(ExactNonEpisodic(), 600, marks=pytest.mark.thorough)],
    ids=["finite-horizon", "non-episodic"],
)
def test_the_trap_holds_greedy_and_not_sombrl(setting, iterations):
    world, _ = WORLDS["trap"]
    methods = {"sombrl": (FACTORS[setting.name], False), "greedy": (0.0, False)}
    rows = regret(setting, world, trap, "trap", methods=methods, systems=3, iterations=iterations, checkpoints=20)
    assert np.median(final(rows, "sombrl")) < 0.5 * np.median(final(rows, "greedy"))
    _, stuck = curves(select(rows, method="greedy", metric="lab/regret"))
    late = np.median(np.diff(stuck, axis=1), axis=0)
    np.testing.assert_allclose(late[-5:], late[5:10], rtol=0.1)  # as much regret at the end as before: linear


def test_exploration_without_a_reward_learns_everywhere():
    rows = unsupervised(ExactFiniteHorizon(6), WORLD, random_system, "random", systems=3, episodes=40, checkpoints=20)
    left = {
        m: curves(select(rows, method=m, metric="lab/max_uncertainty"))[1].mean(axis=0) for m in ("sombrl", "random")
    }
    assert left["sombrl"][-1] < 0.3 * left["sombrl"][0]
    assert left["sombrl"][-1] < left["random"][-1]
    gains = curves(select(rows, method="theory", metric="lab/max_information_gain"))[1][0]
    assert np.all(curves(select(rows, method="sombrl", metric="lab/information_gain"))[1] <= gains / (1 - 1 / np.e))


def test_bad_numbers_are_refused():
    methods = {"sombrl": (1.0, False)}
    with pytest.raises(SombrlError, match="take a multiple"):
        regret(SETTINGS[0], WORLD, random_system, "random", methods=methods, systems=2, iterations=7, checkpoints=2)
    with pytest.raises(SombrlError, match="factor is -1"):
        regret(
            SETTINGS[0], WORLD, random_system, "x", methods={"a": (-1.0, False)}, systems=1, iterations=2, checkpoints=2
        )
    with pytest.raises(SombrlError, match="take a multiple"):
        unsupervised(ExactFiniteHorizon(6), WORLD, random_system, "random", systems=0, episodes=4, checkpoints=2)
