"""Every experiment at every scale: valid settings, distinct cells, no number that its method does not read."""

import dataclasses
import hashlib
import json
import math
from pathlib import Path

import equinox as eqx
import pytest

from sombrl.agent.agent import Agent
from sombrl.cli.main import main
from sombrl.config.run import RunConfig
from sombrl.controllers.icem import PRESETS
from sombrl.envs.adapters.atari import find_game
from sombrl.envs.adapters.dmc import check_name
from sombrl.envs.adapters.factories import check_id
from sombrl.envs.registry import WORLDS, make_envs
from sombrl.paper.experiments import EXPERIMENTS, SCALES, rccar
from sombrl.paper.experiments.base import FunctionCell, TrainCell
from sombrl.paper.experiments.gp import BONUS_WEIGHT

ROOT = Path(__file__).resolve().parents[3]
everywhere = pytest.mark.parametrize("scale", SCALES)
each = pytest.mark.parametrize("name", list(EXPERIMENTS))
MBPO = [name for name in EXPERIMENTS if name.startswith("mbpo-")]


def train_cells(scale: str) -> list[TrainCell]:
    """Those of all experiments."""
    cells = [cell for experiment in EXPERIMENTS.values() for cell in experiment.cells_at(scale)]
    return [cell for cell in cells if isinstance(cell, TrainCell)]


def iterations(run: RunConfig) -> int:
    """How many there are: episodes, or reports."""
    return run.episodes if run.decisions is None else math.ceil(run.decisions / run.report_every)


def shape(cell: TrainCell) -> str:
    """What has to go together: the algorithm, the setting, and every choice of the configuration but numbers."""

    def choices(part):
        if isinstance(part, dict):
            return {name: choices(value) for name, value in part.items()}
        return part if isinstance(part, (str, bool)) else part is None

    options = sorted(option.partition("=")[0] for option in cell.run.env_kwargs)
    config = choices(cell.settings()["config"])
    return json.dumps([cell.algorithm, cell.run.setting, cell.run.downstream, options, config], sort_keys=True)


def one_of_each_shape() -> dict[str, TrainCell]:
    """The smallest cell of every shape that occurs at any scale, by its name."""
    found: dict[str, TrainCell] = {}
    for scale in SCALES:
        for cell in train_cells(scale):
            found.setdefault(shape(cell), cell)
    return {f"{cell.algorithm}, {cell.env}, {cell.method}": cell for cell in found.values()}


SHAPES = one_of_each_shape()


@pytest.fixture(scope="module")
def made():
    """Environments by their settings."""
    return {}


@pytest.fixture
def shared_envs(made, monkeypatch):
    """Each environment is made once: simulators are slow to load, and these tests never step them."""

    def make_once(*args, **options):
        settings = repr((args, options))
        if settings not in made:
            made[settings] = make_envs(*args, **options)
        return made[settings]

    monkeypatch.setattr("sombrl.envs.maker.make_envs", make_once)


def build(cell: TrainCell) -> Agent:
    """The agent of a cell with one seed, which is enough to refuse what does not go together."""
    agent = Agent(cell.algorithm, cell.config, dataclasses.replace(cell.run, seeds=1))
    assert agent.planned_iterations == iterations(cell.run)
    return agent


@each
@everywhere
def test_cells_are_valid(name, scale):
    cells = EXPERIMENTS[name].cells_at(scale)
    assert cells
    settings = [json.dumps(cell.settings(), sort_keys=True) for cell in cells]  # JSON, so that it can be compared
    assert len(set(settings)) == len(cells)
    for cell in cells:
        if isinstance(cell, TrainCell):
            assert iterations(cell.run) >= 2
            assert cell.evaluation is None or (cell.evaluation.every or 1) <= iterations(cell.run)
            open_ended = cell.run.setting == "non-episodic" or cell.run.env.startswith("atari:")
            assert open_ended or cell.run.episode_length is not None
            assert cell.run.seeds >= 2
        else:
            assert isinstance(cell, FunctionCell) and callable(cell.function)


@pytest.mark.parametrize("cell", SHAPES.values(), ids=SHAPES)
def test_settings_go_together(cell, shared_envs):
    build(cell)


@pytest.mark.slow
@each
@everywhere
def test_every_cell_makes_an_agent(name, scale, shared_envs):
    for cell in EXPERIMENTS[name].cells_at(scale):
        if isinstance(cell, TrainCell):
            build(cell)


@pytest.mark.thorough
def test_environments_exist():
    for env in {cell.run.env for scale in SCALES for cell in train_cells(scale)}:
        if env.startswith("atari:"):
            find_game(env)
        elif env.startswith("dmc"):
            check_name(env)
        elif env not in WORLDS:
            check_id(env)


@each
def test_scales_differ(name):
    """No scale is another one under a new name."""
    settings = [json.dumps([cell.settings() for cell in EXPERIMENTS[name].cells_at(s)]) for s in ("smoke", "small")]
    assert settings[0] != settings[1]


@pytest.mark.parametrize(
    ("name", "scale"),
    [("gp-compute-cost", "small"), ("planning-cost", "small"), ("rkhs-projection", "paper"), ("theory-lab", "small")],
)
def test_settings_are_those_of_the_committed_results(name, scale):
    manifest = json.loads((ROOT / "results" / name / f"{scale}.json").read_text())
    made_with = {"experiment": name, "sombrl": manifest["versions"]["sombrl"]}
    settings = [made_with | cell.settings() for cell in EXPERIMENTS[name].cells_at(scale)]
    found = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    assert found == manifest["settings_sha256"]


def test_functions_keep_the_names_that_folders_on_disk_have():
    cells = [cell.settings() for name in EXPERIMENTS for cell in EXPERIMENTS[name].cells_at("small")]
    names = {settings.get("function") or settings["extra"] for settings in cells} - {None}
    assert names == {
        "sombrl.experiments.bounds_coverage.recorded",
        "sombrl.experiments.dreamer.learned",
        "sombrl.experiments.gp_compute_cost.measure",
        "sombrl.experiments.gp_nonepisodic.at_goal",
        "sombrl.experiments.offline.sign",
        "sombrl.experiments.offline.to_online",
        "sombrl.experiments.planning_cost.measure",
        "sombrl.experiments.planning_cost.time_samples",
        "sombrl.experiments.rccar_real_regression.regress",
        "sombrl.experiments.rkhs_projection.project_for_bounds",
        "sombrl.experiments.sparse_pixels.explored_first",
        "sombrl.experiments.theory_lab.lab_cell",
        "sombrl.experiments.tolerance_reward.reward_at",
    }


@pytest.mark.thorough
@everywhere
def test_methods_have_their_own_numbers_and_no_others(scale):
    cells = train_cells(scale)
    assert {cell.method for cell in cells} >= {"optimistic", "hucrl", "pets", "greedy", "oracle", "random"}
    schedule = {"bonus_weight", "bonus_weight_units", "schedule", "bonus_weight_end", "bonus_weight_steps", "theory"}
    read = {
        "optimistic": schedule
        | {"bonus", "imagine_by", "sigma", "bonus_weight_lr", "hidden"}
        | {"bonus_scale", "ensemble_target", "ensemble_lr", "bootstrap"},
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
            plain = cell.name.startswith("gp/")  # the laboratory's, with the paper's λ
            published = {"gp-icem": (BONUS_WEIGHT if plain else 0.1, "constant", "norm"), "mbpo": (1.0, "auto", "mean")}
            published |= {"sim-fsvgd": (rccar.WEIGHT, "linear", "norm"), "dreamer": (2.0, "auto", None)}
            assert (weight, schedule, bonus) == published[cell.algorithm]
            if cell.algorithm == "gp-icem":
                assert explore.bonus_weight_units == ("reward" if plain else "range")
        if cell.method == "constant-10":  # the paper's λ
            assert (explore.bonus_weight, explore.bonus_weight_units) == (BONUS_WEIGHT, "reward")
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
    assert bool(groups) == (name not in ("mbpo-dmc-trap", "mbpo-strong-ablation"))
    for group in groups:
        members = [cell for cell in cells if cell.group == group]
        assert len(members) >= 2
        first = members[0]
        for cell in members:
            assert (cell.algorithm, cell.run, cell.metrics) == (first.algorithm, first.run, first.metrics)
            assert (cell.evaluation, cell.checkpoint_every) == (first.evaluation, first.checkpoint_every)
            assert dataclasses.replace(cell.config, explore=first.config.explore) == first.config
        if scale == "smoke":  # the same program
            controllers = [build(cell).trainer.parts.controller for cell in members]
            assert all(eqx.tree_equal(controllers[0], other) for other in controllers)


def test_action_costs_and_schedules_are_those_of_their_cells():
    cells = EXPERIMENTS["mbpo-action-cost"].cells_at("paper")
    assert {cell.run.action_cost for cell in cells} == {0.1, 0.25, 0.4}
    assert all(cell.env == f"{cell.run.env} K={cell.run.action_cost}" for cell in cells)
    cells = {cell.name: cell for cell in EXPERIMENTS["mbpo-lambda-strategies"].cells_at("paper")}
    for name in ("mountain-car/linear", "cartpole-sparse/exponential"):
        assert cells[name].config.explore.bonus_weight_steps == cells[name].run.decisions


def test_reset_free_mountain_car_runs_a_thousand_decisions_at_scale_small():
    cells = {cell.name: cell for cell in EXPERIMENTS["gp-nonepisodic"].cells_at("small")}
    for method in ("optimistic", "greedy"):
        run = cells[f"mountain-car/{method}"].run
        assert (run.episodes * run.update_every, run.seeds) == (1000, 5)


def test_list_experiments(capsys):
    main(["list", "experiments"])
    out = capsys.readouterr().out
    assert all(name in out for name in EXPERIMENTS) and "figure 2" in out
