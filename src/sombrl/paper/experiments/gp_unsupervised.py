"""gp-unsupervised: SOMBRL without a task (section B, "pure intrinsic exploration": r = 0), then tasks nobody had named.

Explores for ‖σₙ‖ alone; random actions (the mean planner, whose objective is 0 everywhere) are the comparison. After
every few episodes each downstream task is planned for, zero-shot, under the mean model: swing-up, keep-down and spin on
Pendulum, the goals right and left on MountainCar. Σ*_N, the largest policy uncertainty, which the theorem says decays,
is what the planner finds for ‖σ_N‖ alone, whichever way the model's data were gathered; in units of each model's own
targets, so that a model that has seen only slow motion counts fast motion for more.

Differs from the paper: it states the setting and a bound for Σ*_N but shows no GP figure; the tasks are ours.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Evaluation, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import LOOKS, Panel, draw_panel, finish, new_figure, require, select, title_of
from sombrl.paper.experiments.gp import ENVS, episodes_of, gp_config
from sombrl.storage.results import Row

TASKS = {"pendulum": ("swing-up", "keep-down", "spin"), "mountain-car": ("goal-right", "goal-left")}
UNCERTAINTY = "eval/max_uncertainty"
STRATEGIES = {"optimistic": "optimistic", "random": "greedy"}  # what the CSV says, and what it is
EPISODES = {"smoke": 2, "small": 10, "paper": 20}
EVERY = {"smoke": 1, "small": 2, "paper": 2}
REPEATS = {"smoke": 1, "small": 1, "paper": 5}  # evaluation episodes per task


def cells(scale: str) -> list[Cell]:
    """Both explorations on both environments."""
    return [
        TrainCell(
            name=f"{env}/{method}",
            method=method,
            env=env,
            run=episodes_of(env, scale, setting="unsupervised", downstream=TASKS[env], episodes=EPISODES[scale]),
            config=gp_config(strategy, env, scale),
            metrics=("explore/uncertainty", "model/rmse"),
            evaluation=Evaluation(REPEATS[scale], TASKS[env], uncertainty=True, every=EVERY[scale]),
        )
        for env in ENVS
        for method, strategy in STRATEGIES.items()
    ]


def draw(rows: list[Row]) -> Any:
    """A line of panels per environment: Σ*_N, then the tasks."""
    require(rows, UNCERTAINTY)
    envs = [env for env in TASKS if select(rows, env=env)]
    columns = 1 + max(len(TASKS[env]) for env in envs)
    figure = new_figure(3.6 * columns, 3.3 * len(envs) + 0.9)
    grid = figure.subplots(len(envs), columns, squeeze=False)
    for line, env in zip(grid, envs, strict=True):
        here = select(rows, env=env)
        draw_panel(line[0], here, Panel(UNCERTAINTY, "", x="decisions"), LOOKS)
        line[0].set(title=f"{title_of(env)}: $Σ^*_N$ left to learn", xlabel="decisions of exploring", ylim=(0, None))
        for axes, task in zip(line[1:], TASKS[env], strict=False):
            draw_panel(axes, here, Panel(f"eval/{task}", "", x="decisions"), LOOKS)
            axes.set(title=task, xlabel="decisions of exploring")
        line[1].set_ylabel("zero-shot return")
        for axes in line[1 + len(TASKS[env]) :]:
            axes.set_axis_off()
    finish(figure, "GP dynamics explored without a task, then planned for tasks", rows)
    return figure


GP_UNSUPERVISED = Experiment(
    name="gp-unsupervised",
    summary="explore without a task, then plan for several, zero-shot; optimistic against random actions",
    figure="section B, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(UNCERTAINTY, "Σ*_N at the end"),
        *(Headline(f"eval/{task}", task) for tasks in TASKS.values() for task in tasks),
    ),
)
