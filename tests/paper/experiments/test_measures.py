"""What single experiments compute: regret, shares, schedules, projections and times, and a whole run of one."""

import pytest

from sombrl.paper.experiments import EXPERIMENTS, run_experiment
from sombrl.paper.experiments.drift import CHANGE as DRIFT_CHANGE
from sombrl.paper.experiments.drift import EPISODES as DRIFT_EPISODES
from sombrl.paper.experiments.gp import lambda_strategies
from sombrl.paper.experiments.gp_cost import draw, measure
from sombrl.paper.experiments.gp_settings import at_goal
from sombrl.paper.experiments.mbpo import MBPO_LOOKS
from sombrl.paper.experiments.theory import TRUE_NORM, project_for_bounds
from sombrl.runs.plots import drawing
from sombrl.storage.results import Row, read_rows


def test_share_at_the_goal():
    row = {"rollout/ep_rew_mean": 10 * 5 * 100 * 0.5 - 3.0, "rollout/ep_len_mean": 10, "env_frames": 500}
    assert at_goal(row | {"decisions": 100}) == {"rollout/at_goal": 0.5}
    row["rollout/ep_rew_mean"] = -3.0
    assert at_goal(row | {"decisions": 100}) == {"rollout/at_goal": 0.0}


def test_lambda_strategies_are_all_different():
    found = lambda_strategies(10, 5)
    assert len({str(explore) for explore in found.values()}) == len(found)
    assert found["theoretical"].theory.reward_max == 500.0


def test_regret_is_against_the_mean_of_the_oracle():
    where = ("gp-episodic", "pendulum", "finite-horizon")

    def row(method, seed, episode, value):
        return Row(
            where[0], method, where[1], where[2], seed, "rollout/ep_rew_mean", 200 * episode, 40 * episode, value
        )

    rows = [row("oracle", 0, 1, -1.0), row("oracle", 1, 1, -3.0)]
    rows += [row("greedy", seed, n, -10.0 * n) for n in (1, 2) for seed in (0, 1)]
    regret = EXPERIMENTS["gp-episodic"].derive(rows)
    assert [(r.seed, r.decisions, r.value) for r in regret] == [
        (0, 40, 8.0),
        (0, 80, 26.0),
        (1, 40, 8.0),
        (1, 80, 26.0),
    ]
    assert {(r.metric, r.method) for r in regret} == {("regret", "greedy")}


def test_kept_is_the_evaluation_over_the_best_episode_of_training():
    def row(metric, seed, value, episode=1):
        return Row("found-kept", "optimistic", "wall", "finite-horizon", seed, metric, 0, episode, value)

    rows = [row("rollout/ep_rew_mean", seed, value, n) for seed in (0, 1) for n, value in enumerate((-1.0, 50.0, 20.0))]
    rows += [row("rollout/ep_rew_mean", 2, -1.0)]
    rows += [row("eval/ep_rew_mean", seed, value) for seed, value in ((0, 45.0), (1, 0.0), (2, 0.0))]
    kept = EXPERIMENTS["found-kept"].derive(rows)
    assert [(one.seed, one.metric, one.value) for one in kept] == [(0, "kept", 0.9), (1, "kept", 0.0), (2, "kept", 0.0)]


def test_violations_are_added_up_and_seeds_without_are_found():
    def row(seed, value, decisions):
        return Row("safe-exploration", "safe", "x", "finite-horizon", seed, "safety/violations", 0, decisions, value)

    rows = [
        row(seed, value, n)
        for seed, values in ((0, (0.0, 2.0, 1.0)), (1, (0.0, 0.0, 0.0)))
        for n, value in enumerate(values)
    ]
    totals = EXPERIMENTS["safe-exploration"].derive(rows)
    assert [(one.seed, one.metric, one.value) for one in totals] == [
        (0, "violations", 3.0),
        (0, "without violation", 0.0),
        (1, "violations", 0.0),
        (1, "without violation", 1.0),
    ]


def test_dynamic_regret_and_recovery():
    """Random actions earn 0; the oracle 10 before the change and 20 after it."""

    def rows(method, seed, values):
        where = ("drift", method, "pendulum torque=-1", "finite-horizon", seed, "rollout/ep_rew_mean")
        return [Row(*where, 200 * (n + 1), 40 * (n + 1), float(value)) for n, value in enumerate(values)]

    before, after = DRIFT_CHANGE, DRIFT_EPISODES - DRIFT_CHANGE
    table = rows("oracle", 0, [9.0, 11.0, 20.0, 20.0])
    quick = [0.0] + [10.0] * (before - 1) + [5.0, 5.0] + [20.0] * (after - 2)
    table += rows("window", 0, quick) + rows("all", 0, [0.0] + [10.0] * (DRIFT_EPISODES - 1))
    derived = EXPERIMENTS["drift"].derive(table)
    found = {(row.method, row.metric, row.decisions): row.value for row in derived}
    last = 40 * DRIFT_EPISODES
    assert found["window", "dynamic_regret", last] == pytest.approx(10.0 + 2 * 15.0)
    assert found["all", "dynamic_regret", last] == pytest.approx(10.0 + 10.0 * after)
    assert found["window", "score", 40 * before] == 1.0 and found["all", "score", last] == 0.5
    assert found["window", "recovered", last] == 1.0 and found["all", "recovered", last] == 0.0
    assert found["window", "episodes until recovered", last] == 2.0  # from there on 20, 20, 20
    assert ("all", "episodes until recovered", last) not in found


def test_projection_has_the_norms_it_says():
    rows = project_for_bounds(points=8, grid=10, bounds=[0.5, 100.0], seed=0)
    norm = {row["method"]: row["value"] for row in rows if row["metric"] == "rkhs_norm"}
    assert norm["B=0.5"] == pytest.approx(0.5) and norm["truth"] == TRUE_NORM
    assert norm["B=100"] == norm["mean"]
    curve = {m: [r["value"] for r in rows if r["method"] == m and r["metric"] == "f"] for m in ("mean", "B=100")}
    assert curve["mean"] == curve["B=100"]


@pytest.mark.thorough
def test_mbpo_experiment_from_start_to_figure(tmp_path):
    places = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    path = run_experiment(EXPERIMENTS["mbpo-action-cost"], "smoke", **places)
    rows = read_rows(path)
    assert {row.method for row in rows} == {"optimistic", "greedy"}
    evaluated = [row for row in rows if row.metric == "eval/ep_rew_mean" and row.method == "greedy"]
    assert [(row.decisions, row.env_frames, row.seed) for row in evaluated] == [
        (20, 20, 0),
        (20, 20, 1),
        (40, 40, 0),
        (40, 40, 1),
    ]
    assert evaluated[0].value != evaluated[2].value  # it is the policy that has learned meanwhile
    weights = {m: [r.value for r in rows if r.metric == "policy/bonus_weight" and r.method == m] for m in MBPO_LOOKS}
    assert min(weights["optimistic"]) > 0.9 and set(weights["greedy"]) == {0.0}
    assert len(path.with_suffix(".png").read_bytes()) > 10_000


@pytest.mark.slow
def test_only_what_it_has_is_asked_of_sac(tmp_path):
    places = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    assert run_experiment(EXPERIMENTS["mbpo-dmc-trap"], "smoke", pattern="*/sac", **places) is None
    rows = read_rows(tmp_path / "runs" / "mbpo-dmc-trap-smoke" / "cartpole-sparse" / "sac" / "rows.csv")
    assert {row.metric for row in rows} == {"eval/ep_rew_mean", "rollout/average_reward", "policy/q"}
    assert {row.env_frames for row in rows} == {40, 80}


@pytest.mark.slow
def test_compute_cost_compares_warm_runs(tmp_path):
    rows = [Row("gp-compute-cost", **row) for row in measure("pendulum", "smoke", 1, {"optimistic": 1, "hucrl": 1})]
    value = {(row.method, row.metric): row.value for row in rows}
    for method in ("optimistic", "hucrl"):
        assert (
            value[method, "time/first_episode_s"] > 2 * value[method, "time/warm_s"] > 0
        )  # nothing compiles the second time
    ratio = value["hucrl", "time/warm_s"] / value["optimistic", "time/warm_s"]
    assert value["hucrl", "time/over_optimistic"] == pytest.approx(ratio)
    with drawing("a test"):
        draw(rows).savefig(tmp_path / "figure.png")
