"""planning-cost: what a mark is, what is counted, and the whole of it at scale smoke."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.controllers.icem import ICEM, PRESETS
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.pendulum import Pendulum
from sombrl.paper.experiments import EXPERIMENTS, run_experiment
from sombrl.paper.experiments.planning_cost import EFFORT, MARKS, METHODS, _first, markdown, measure, needed, strategy
from sombrl.storage.results import Row, read_rows


def test_a_mark_is_reached_by_the_first_iteration_that_has_it():
    quality = np.array([-0.5, 0.2, 0.9, 0.94, 0.99])
    assert [_first(quality, mark) for mark in (0.1, 0.9, 0.95, 0.995)] == [2, 3, 5, math.inf]


@pytest.fixture(scope="module")
def rows():
    effort = EFFORT["smoke"] | {"seeds": 3, "most": 3200, "iterations": 40, "steps": 800}
    found = measure("masses", "one", 4, "hucrl", None, **effort)
    return [Row("planning-cost", **row) for row in found]


@pytest.mark.thorough
def test_what_is_counted(rows):
    """Whole iterations of one population, the one with the least median."""
    value = {(row.metric, row.seed): row for row in rows if row.metric.startswith("plan/")}
    assert {row.value for row in rows if row.metric == "plan/size"} == {20 * (1 + 4)}
    for mark in MARKS:
        for seed in range(3):
            row = value.get((f"plan/samples_{mark}", seed))
            if row is not None:
                assert value["plan/quality", seed].value >= mark / 100
                assert row.value % row.env_frames == 0 < row.value <= 3200 and row.decisions == 4
                tried = [r for r in rows if (r.metric, r.env_frames) == (f"tried/samples_{mark}", row.env_frames)]
                assert row.value in [r.value for r in tried if r.seed == seed]
    medians = {}
    for population in EFFORT["smoke"]["populations"]:
        tried = [r.value for r in rows if (r.metric, r.env_frames) == ("tried/samples_90", population)]
        medians[population] = np.median(tried + [math.inf] * (3 - len(tried)))
    assert {r.env_frames for r in rows if r.metric == "plan/samples_90"} == {min(medians, key=medians.get)}


def test_seconds_are_samples_times_the_seconds_of_one():
    def row(method, metric, seed, value, env="masses"):
        return Row("planning-cost", method, env, "one motor", seed, metric, 360, 8, value)

    times = [row("hucrl", "plan/sample_s", 0, 3e-6), row("optimistic", "plan/sample_s", 0, 1e-6)]
    samples = [row("hucrl", "plan/samples_90", 0, 4000.0), row("hucrl", "plan/samples_90", 1, 5000.0)]
    samples += [
        row("optimistic", "plan/samples_95", 1, 2000.0),
        row("hucrl", "plan/samples_90", 0, 1.0, "masses sigma=1"),
    ]
    found = [
        (r.method, r.metric, r.seed, round(r.value, 9)) for r in EXPERIMENTS["planning-cost"].derive(times + samples)
    ]
    expected = [("hucrl", "plan/seconds_90", 0, 0.012), ("hucrl", "plan/seconds_90", 1, 0.015)]
    assert found == [*expected, ("optimistic", "plan/seconds_95", 1, 0.002)]


def test_no_plan_beats_the_optimum(rows):
    assert all(0.5 < row.value <= 1.0 + 1e-5 for row in rows if row.metric == "plan/quality")
    assert all(0.0 <= row.value < 0.01 for row in rows if row.metric == "plan/gap")


def test_seeds_that_do_not_get_there_need_infinitely_many():
    def row(seed, metric, value):
        return Row("planning-cost", "hucrl", "masses", "one motor", seed, metric, 0, 8, value)

    found = [row(seed, "plan/quality", 0.8) for seed in range(3)] + [row(1, "plan/samples_90", 600.0)]
    assert needed(found, "plan/samples_90", method="hucrl") == {8: [math.inf, 600.0, math.inf]}


@pytest.mark.thorough
def test_from_start_to_figure(tmp_path):
    places = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    path = run_experiment(EXPERIMENTS["planning-cost"], "smoke", **places)
    found = read_rows(path)
    assert len(markdown(found).splitlines()) == 2 + 4
    assert len(path.with_suffix(".png").read_bytes()) > 10_000
    assert path.with_name("smoke-sigma.png").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("env", "world", "repeat", "times"),
    [("pendulum", Pendulum(), 5, 1.07), ("mountain-car", MountainCar(), 2, 1.16)],
    ids=["pendulum", "mountain-car"],
)
def test_a_plan_of_the_same_size_costs_h_ucrl_little_more(env, world, repeat, times):
    """Floating-point operations of the published plans with a GP of rank 128, as XLA counts them."""
    operations = {}
    for method in METHODS:
        learner = GPLearner(world.obs_dim, 1, False, GPConfig())
        with jax.enable_x64(True):
            dynamics = learner.dynamics(learner.init(key=jr.key(0)))
        mdp = strategy(method).imagine(
            dynamics,
            world.task(repeat),
            state_dim=world.obs_dim,
            action_dim=1,
            iteration=jnp.zeros((), jnp.int32),
            discount=1.0,
            key=jr.key(1),
        )
        planner = ICEM(PRESETS[env])
        state, belief = planner.init(mdp, key=jr.key(0)), jnp.zeros(world.obs_dim, jnp.float32)
        program = eqx.filter_jit(planner.act).lower(state, mdp, belief, key=jr.key(0)).compile()
        operations[method] = program.compiled.cost_analysis()["flops"]
    assert operations["hucrl"] / operations["optimistic"] == pytest.approx(times, abs=0.01)
