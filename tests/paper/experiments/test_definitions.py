"""Every experiment at every scale: valid settings, distinct cells, no number that its method does not read."""

import dataclasses
import json

import equinox as eqx
import numpy as np
import pytest

from sombrl import agent
from sombrl.agent.agent import Agent
from sombrl.cli.main import main
from sombrl.controllers.icem import PRESETS
from sombrl.envs.registry import make_envs
from sombrl.paper.experiments import EXPERIMENTS, SCALES, rccar, run_experiment
from sombrl.paper.experiments.base import FunctionCell, TrainCell
from sombrl.paper.experiments.figures import Panel, curves, draw_tiles
from sombrl.paper.experiments.gp import BONUS_WEIGHT
from sombrl.paper.experiments.gp_nonepisodic import at_goal
from sombrl.paper.experiments.lambda_strategies import strategies
from sombrl.paper.experiments.mbpo import MBPO_LOOKS
from sombrl.paper.experiments.rkhs_projection import TRUE_NORM, project_for_bounds
from sombrl.runs.plots import drawing
from sombrl.storage.results import Row, read_rows
from tests.paper.experiments.toy import TOY

everywhere = pytest.mark.parametrize("scale", SCALES)
each = pytest.mark.parametrize("name", list(EXPERIMENTS))
MBPO = [name for name in EXPERIMENTS if name.startswith("mbpo-")]


@pytest.fixture(scope="module")
def made():
    """Environments by their settings."""
    return {}


@pytest.fixture
def shared_envs(made, monkeypatch):
    """Each environment is made once: simulators are slow to load, and here nobody steps them."""

    def make_once(*args, **options):
        settings = repr((args, options))
        if settings not in made:
            made[settings] = make_envs(*args, **options)
        return made[settings]

    monkeypatch.setattr(agent, "make_envs", make_once)


def build(cell: TrainCell) -> Agent:
    """The agent of a cell with one seed, which is enough to refuse what does not go together."""
    return Agent(cell.algorithm, cell.config, dataclasses.replace(cell.run, seeds=1))


@each
@everywhere
def test_cells_are_valid(name, scale, shared_envs):
    cells = EXPERIMENTS[name].cells_at(scale)
    assert cells
    settings = [json.dumps(cell.settings(), sort_keys=True) for cell in cells]  # JSON, so that it can be compared
    assert len(set(settings)) == len(cells)
    for cell in cells:
        if isinstance(cell, TrainCell):
            iterations = build(cell).planned_iterations
            assert iterations >= 2
            assert cell.evaluation is None or (cell.evaluation.every or 1) <= iterations
            open_ended = cell.run.setting == "non-episodic" or cell.run.env.startswith("atari:")
            assert open_ended or cell.run.episode_length is not None
            assert cell.run.seeds >= 2
        else:
            assert isinstance(cell, FunctionCell) and callable(cell.function)


@each
def test_scales_differ(name):
    """No scale is another one under a new name."""
    settings = [json.dumps([cell.settings() for cell in EXPERIMENTS[name].cells_at(s)]) for s in ("smoke", "small")]
    assert settings[0] != settings[1]


@everywhere
def test_methods_have_their_own_numbers_and_no_others(scale):
    cells = [cell for e in EXPERIMENTS.values() for cell in e.cells_at(scale) if isinstance(cell, TrainCell)]
    assert {cell.method for cell in cells} >= {"optimistic", "hucrl", "pets", "greedy", "oracle", "random"}
    schedule = {"bonus_weight", "schedule", "bonus_weight_end", "bonus_weight_steps", "theory"}
    read = {
        "optimistic": schedule | {"bonus", "imagine_by", "sigma", "bonus_weight_lr", "hidden"},
        "hucrl": {"beta"},
    }
    for cell in cells:
        explore, default = cell.config.explore, type(cell.config)().explore
        changed = {f.name for f in dataclasses.fields(explore) if getattr(explore, f.name) != getattr(default, f.name)}
        assert changed - {"explore"} <= read.get(explore.explore, set()), cell.name
        if cell.method in ("optimistic", "hucrl", "pets", "greedy"):
            assert explore.explore == cell.method
        if cell.method == "optimistic":
            weight, schedule, bonus = explore.bonus_weight, explore.schedule, getattr(explore, "bonus", None)
            published = {"gp-icem": (BONUS_WEIGHT, "constant", "norm"), "mbpo": (1.0, "auto", "mean")}
            published |= {"sim-fsvgd": (rccar.WEIGHT, "linear", "norm"), "dreamer": (2.0, "auto", None)}
            assert (weight, schedule, bonus) == published[cell.algorithm]
        if cell.method == "hucrl":
            assert explore.beta == (3.0 if cell.run.setting == "non-episodic" else 2.0)
        if cell.algorithm == "gp-icem":
            assert (cell.config.model == "true") == ("oracle" in cell.method)
        assert (cell.run.setting == "unsupervised") == bool(cell.run.downstream)
        assert cell.evaluation is None or set(cell.evaluation.tasks) == set(cell.run.downstream)


def test_paper_scale_has_the_published_numbers():
    cells = {cell.name: cell for cell in EXPERIMENTS["gp-episodic"].cells_at("paper")}
    pendulum, car = cells["pendulum/optimistic"], cells["mountain-car/pets"]
    assert (pendulum.run.action_repeat, pendulum.run.episode_length, pendulum.run.episodes) == (5, 40, 20)
    assert (car.run.action_repeat, car.run.episode_length, car.run.episodes) == (2, 100, 20)
    icem = pendulum.config.icem  # with half the horizon: a decision is five frames instead of one
    assert (icem.num_samples, icem.num_elites, icem.iterations, icem.horizon, icem.particles) == (500, 50, 10, 10, 5)
    icem = car.config.icem
    assert (icem.num_samples, icem.num_elites, icem.iterations, icem.horizon, icem.particles) == (1000, 100, 5, 50, 5)
    cells = EXPERIMENTS["gp-nonepisodic"].cells_at("paper")
    assert {cell.run.env_kwargs for cell in cells} == {(f"action_cost={c}",) for c in (0.0, 0.1, 0.2)}
    assert {(cell.run.episodes, cell.run.update_every, cell.run.seeds) for cell in cells} == {(100, 10, 5)}
    assert {cell.config.icem for cell in cells if cell.run.env == "pendulum"} == {PRESETS["pendulum"]}


def test_mbpo_has_the_published_numbers_at_scale_paper():
    cells = {cell.name: cell for cell in EXPERIMENTS["mbpo-state"].cells_at("paper")}
    assert len(cells) == 8 * 3
    for cell in cells.values():
        sac, ensemble, run = cell.config.sac, cell.config.ensemble, cell.run
        width = 512 if cell.name.startswith(("humanoid", "quadruped")) else 256
        assert sac.hidden == ensemble.hidden == (width, width)
        assert (sac.updates_per_call, sac.batch_size, ensemble.members, ensemble.steps_per_fit) == (5, 256, 5, 5)
        assert (run.action_repeat, run.episode_length) == ((2, 500) if run.env.startswith("dmc:") else (1, 999))
        assert (run.seeds, cell.evaluation.episodes) == (5, 3)
    decisions = {cell.run.env: (cell.run.decisions, 500 * cell.evaluation.every) for cell in cells.values()}
    assert decisions["MountainCarContinuous-v0"] == (25_000, 2500)
    assert decisions["dmc:cartpole-swingup_sparse"] == (100_000, 5000)
    assert decisions["dmc:walker-run"] == (50_000, 5000)


@pytest.mark.parametrize("name", MBPO)
@everywhere
def test_cells_of_a_group_differ_in_their_exploration_alone(name, scale, shared_envs):
    cells = EXPERIMENTS[name].cells_at(scale)
    groups = {cell.group for cell in cells} - {None}
    assert "group" not in json.dumps([cell.settings() for cell in cells])
    assert bool(groups) == (name != "mbpo-dmc-trap")
    for group in groups:
        members = [cell for cell in cells if cell.group == group]
        assert len(members) >= 2
        first = members[0]
        controllers = [build(cell).parts.controller for cell in members]
        assert all(eqx.tree_equal(controllers[0], other) for other in controllers)
        for cell in members:
            assert (cell.algorithm, cell.run, cell.metrics) == (first.algorithm, first.run, first.metrics)
            assert (cell.evaluation, cell.checkpoint_every) == (first.evaluation, first.checkpoint_every)
            assert dataclasses.replace(cell.config, explore=first.config.explore) == first.config


def test_action_costs_and_schedules_are_those_of_their_cells():
    cells = EXPERIMENTS["mbpo-action-cost"].cells_at("paper")
    assert {cell.run.action_cost for cell in cells} == {0.1, 0.25, 0.4}
    assert all(cell.env == f"{cell.run.env} K={cell.run.action_cost}" for cell in cells)
    cells = {cell.name: cell for cell in EXPERIMENTS["mbpo-lambda-strategies"].cells_at("paper")}
    for name in ("mountain-car/linear", "cartpole-sparse/exponential"):
        assert cells[name].config.explore.bonus_weight_steps == cells[name].run.decisions


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


def test_reset_free_mountain_car_runs_a_thousand_decisions_at_scale_small():
    cells = {cell.name: cell for cell in EXPERIMENTS["gp-nonepisodic"].cells_at("small")}
    for method in ("optimistic", "greedy"):
        run = cells[f"mountain-car/{method}"].run
        assert (run.episodes * run.update_every, run.seeds) == (1000, 5)


def test_share_at_the_goal():
    row = {"rollout/ep_rew_mean": 10 * 5 * 100 * 0.5 - 3.0, "rollout/ep_len_mean": 10, "env_frames": 500}
    assert at_goal(row | {"decisions": 100}) == {"rollout/at_goal": 0.5}
    row["rollout/ep_rew_mean"] = -3.0
    assert at_goal(row | {"decisions": 100}) == {"rollout/at_goal": 0.0}


def test_lambda_strategies_are_all_different():
    found = strategies(10, 5)
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


def test_projection_has_the_norms_it_says():
    rows = project_for_bounds(points=8, grid=10, bounds=[0.5, 100.0], seed=0)
    norm = {row["method"]: row["value"] for row in rows if row["metric"] == "rkhs_norm"}
    assert norm["B=0.5"] == pytest.approx(0.5) and norm["truth"] == TRUE_NORM
    assert norm["B=100"] == norm["mean"]
    curve = {m: [r["value"] for r in rows if r["method"] == m and r["metric"] == "f"] for m in ("mean", "B=100")}
    assert curve["mean"] == curve["B=100"]


def synthetic(name: str, scale: str) -> list[Row]:
    """Rows as the cells of a trained experiment would have them, with made-up numbers."""
    random = np.random.default_rng(0)
    rows = []
    for cell in EXPERIMENTS[name].cells_at(scale):
        extra = ["rollout/at_goal"] if cell.extra else []
        tasks = [f"eval/{task}" for task in cell.evaluation.tasks or ("ep_rew_mean",)] if cell.evaluation else []
        tasks += ["eval/max_uncertainty"] if cell.evaluation and cell.evaluation.uncertainty else []
        for n in range(cell.run.episodes):
            for seed in cell.run.seed_list:
                for metric in [*cell.metrics, *extra, *tasks]:
                    where = (name, cell.method, cell.env, cell.run.setting, seed, metric)
                    rows.append(Row(*where, 50 * (n + 1), 10 * (n + 1), float(n + random.normal())))
    derive = EXPERIMENTS[name].derive
    return rows + (derive(rows) if derive else [])


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("gp-episodic", 4),
        ("gp-nonepisodic", 12),
        ("gp-discounted", 4),
        ("gp-unsupervised", 8),
        ("lambda-strategies", 2),
        ("mbpo-state", 8),
        ("mbpo-vs-model-free", 3),
        ("mbpo-action-cost", 6),
        ("mbpo-bonus-ablation", 3),
        ("mbpo-lambda-strategies", 4),
        ("mbpo-dmc-trap", 4),
        ("mbpo-updates", 2),
        ("rccar-margins", 4),
        ("rccar-ablation", 1),
    ],
)
def test_figures(name, panels, tmp_path):
    with drawing("a test"):
        figure = EXPERIMENTS[name].draw(synthetic(name, "paper"))
        figure.savefig(tmp_path / "figure.png")
    assert len(figure.axes) == panels
    assert len(figure.legends[0].get_texts()) >= 2
    assert "standard deviation" in figure.get_suptitle()
    for axes in figure.axes:
        assert axes.lines or not axes.axison


def test_band_and_median_are_those_of_the_seeds():
    rows = [Row("toy", "greedy", "e", "s", seed, "rollout/ep_rew_mean", 1, 1, float(seed)) for seed in (0, 1, 5)]
    with drawing("a test"):
        (axes,) = TOY.draw(rows).axes
    assert axes.lines[0].get_ydata() == [1.0]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((1 - np.std([0, 1, 5]), 1 + np.std([0, 1, 5])))


def test_tiles_have_frames_on_their_axis():
    where = ("mbpo-state", "sac")
    rows = [
        Row(*where, env, "s", seed, "eval/ep_rew_mean", 2 * n, n, 0.0)
        for env in ("Pendulum-v1", "dmc:walker-run", "dmc:hopper-hop")
        for seed in (0, 1)
        for n in (1000, 2000)
    ]
    frames, _ = curves(rows[:4], "env_frames")
    assert frames.tolist() == [[2000, 2000], [4000, 4000]]
    with drawing("a test"):
        panel = Panel("eval/ep_rew_mean", "return", x="env_frames")
        figure = draw_tiles(rows, panel, MBPO_LOOKS, title="A test", xlabel="frames", columns=2)
        figure.draw_without_rendering()
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert titles == ["Pendulum", "Walker run", "Hopper hop"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == [2000, 4000]
    assert any(label.get_text().endswith("k") for label in figure.axes[0].get_xticklabels())


def test_list_experiments(capsys):
    main(["list", "experiments"])
    out = capsys.readouterr().out
    assert all(name in out for name in EXPERIMENTS) and "figure 2" in out


@pytest.mark.slow
def test_compute_cost_compares_warm_runs(tmp_path):
    from sombrl.paper.experiments.gp_compute_cost import draw, measure

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
