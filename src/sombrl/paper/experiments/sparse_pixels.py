"""dreamer-sparse-pixels: Dreamer from small pictures that pay at the goal alone (beside the paper).

Four worlds of 32 x 32 pixels (`pixel:`), five seeds. Dreamer-Optimistic and Dreamer have as many decisions and updates.
Dreamer-Optimistic is there with the published σ, and with two others.
On one world a third agent explores for σ alone first (Plan2Explore), and is trained for the task on its records
afterwards, with as many decisions in all. Scale `small` is about twelve hours on two CPU cores; scale `paper` has the
same cells, for a GPU, so that one takes them over from the other.

`found` is whether any episode of training was paid, `kept` the return without exploring at the end as a share of the
best report of training (a report is an episode of every environment).
"""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.agent.agent import Agent
from sombrl.config.run import RunConfig
from sombrl.dreamer.config import DreamerConfig
from sombrl.paper.experiments.base import Cell, Evaluation, Experiment, FunctionCell, Headline, TrainCell, recorded_as
from sombrl.paper.experiments.dreamer import DREAMER_LOOKS, EARNED, LAST_WEIGHT, RETURN, dreamer_config, learned
from sombrl.paper.experiments.figures import Look, Panel, draw_panel, finish, new_figure, require, select, title_of
from sombrl.paper.experiments.gp_kept import ENOUGH, EVALUATED, KEPT, add_kept
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

WORLDS = ("mountain-car", "corridor", "key-door", "wall")
EXPLORED_FIRST = "corridor"
"""The world of the third agent."""
METHODS = ("optimistic", "recurrent", "features", "greedy", "unsupervised")
RESCALED = {"bonus_scale": "scale", "bonus_weight": 0.5, "ensemble_lr": 1e-3}
EXPLORE: dict[str, dict[str, Any]] = {
    "recurrent": RESCALED | {"ensemble_target": "deter"},
    "features": RESCALED | {"ensemble_target": "embedding"},
}
"""σ other than the published one: of what carries no chance, in units of its own running spread."""
LOOKS = DREAMER_LOOKS | {
    "recurrent": Look("σ of the recurrent state, rescaled", COLORS[1]),
    "features": Look("σ of the encoder's features, rescaled", COLORS[5]),
    "unsupervised": Look("Plan2Explore, then the task", COLORS[2], "--"),
}
FOUND, FOUND_AT, ZERO_SHOT = "found", "decisions until found", "eval/zero_shot"
EPISODE = 100
TRAINING: dict[str, Any] = {
    "size": "1m",
    "ratio": 64.0,
    "batch_size": 8,
    "batch_length": 32,
    "learning_rate": 2e-4,
    "warmup": 500,
}
"""Few updates and a small model: it may learn faster than published."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long everything is, at one scale."""

    seeds: int = 5
    decisions: int = 20_000
    exploring: int = 15_000
    """Decisions of these for σ alone, where that comes first."""
    practice: int = 1000
    """Updates for the task between the two."""
    episode: int = EPISODE
    evaluated: int = 5
    """Episodes per seed at the end."""


SMOKE = Budget(seeds=2, decisions=80, exploring=60, practice=1, episode=10, evaluated=1)


def cells(scale: str) -> list[Cell]:
    """Every method in every world; on one of them exploring first."""
    worlds = (EXPLORED_FIRST,) if scale == "smoke" else WORLDS
    budget = SMOKE if scale == "smoke" else Budget()
    found: list[Cell] = []
    for world in worlds:
        for method in METHODS[:-1]:
            run, config = settings(world, method, budget)
            found.append(
                TrainCell(
                    name=f"{world}/{method}",
                    method=method,
                    env=run.env,
                    run=run,
                    config=config,
                    algorithm="dreamer",
                    metrics=(RETURN, EARNED),
                    extra=learned,
                    evaluation=Evaluation(budget.evaluated, calibration=method != "greedy"),
                    checkpoint_every=10,
                )
            )
        if world == EXPLORED_FIRST:
            options = {"world": world, **dataclasses.asdict(budget)}
            found.append(FunctionCell(f"{world}/unsupervised", explored_first, options))
    return found


def settings(world: str, method: str, budget: Budget) -> tuple[RunConfig, DreamerConfig]:
    """A run and its agent."""
    smoke = budget == SMOKE
    strategy, explore = ("optimistic", EXPLORE[method]) if method in EXPLORE else (method, None)
    config = dreamer_config(strategy, "smoke" if smoke else "paper", explore, **({} if smoke else TRAINING))
    run = RunConfig(
        env=f"pixel:{world}",
        episode_length=budget.episode,
        decisions=budget.decisions,
        report_every=config.envs * (budget.episode + 1),  # a record more than decisions: the start
        seeds=budget.seeds,
    )
    return run, config


@recorded_as("sombrl.experiments.sparse_pixels.explored_first")
def explored_first(world: str, **numbers: int) -> list[dict[str, Any]]:
    """σ alone, then the task from what was seen."""
    budget = Budget(**numbers)
    (run, config), (task_run, task_config) = (settings(world, method, budget) for method in ("unsupervised", "greedy"))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "explored")
        explorer = Agent("dreamer", config, dataclasses.replace(run, decisions=budget.exploring))
        found = list(watched(explorer, 0))
        explorer.save(path)
        learner = Agent(
            "dreamer",
            dataclasses.replace(task_config, start_from=path, start_updates=budget.practice),
            dataclasses.replace(task_run, decisions=budget.decisions - budget.exploring),
        )
        found += watched(learner, budget.exploring)
        found += [
            row(learner, i, EVALUATED, budget.decisions, value)
            for i, value in enumerate(learner.evaluate(budget.evaluated).mean(axis=0))
        ]
    return found


def watched(agent: Agent, before: int) -> Iterator[dict[str, Any]]:
    """Train to the end: the returns of training, and of the first report what practice alone had learned."""
    for report in agent.iterations(agent.planned_iterations):
        for i in range(len(agent.seeds)):
            decisions = before + int(report.decisions[i])
            yield row(agent, i, RETURN, decisions, report.returns[i])
            if ZERO_SHOT in report.columns:
                yield row(agent, i, ZERO_SHOT, decisions, report.columns[ZERO_SHOT][i])


def row(agent: Agent, i: int, metric: str, decisions: int, value: float) -> dict[str, Any]:
    """One row of the table, of the i-th seed; a decision is one frame in these worlds."""
    where = {"env": agent.run_config.env, "method": "unsupervised", "setting": "finite-horizon", "seed": agent.seeds[i]}
    return where | {"metric": metric, "env_frames": decisions, "decisions": decisions, "value": float(value)}


def add_found(rows: list[Row]) -> list[Row]:
    """Per seed: whether training was ever paid, after how many decisions, and what share of the best was kept."""
    found = add_kept(rows)
    for end in select(rows, metric=EVALUATED):
        training = select(rows, env=end.env, method=end.method, seed=end.seed, metric=RETURN)
        paid = [one.decisions for one in training if one.value > 0.0]
        found.append(dataclasses.replace(end, metric=FOUND, value=float(bool(paid))))
        if paid:
            found.append(dataclasses.replace(end, metric=FOUND_AT, value=float(min(paid))))
    return found


def report(rows: list[Row]) -> str:
    """A line per world and method."""
    lines = [("world", "method", "found", "decisions until found", "kept", "return at the end")]
    for env in dict.fromkeys(row.env for row in rows):
        for method in METHODS:
            here = select(rows, env=env, method=method)
            ends = {metric: [row.value for row in select(here, metric=metric)] for metric in (FOUND, KEPT, EVALUATED)}
            if number := len(ends[EVALUATED]):
                when = [row.value for row in select(here, metric=FOUND_AT)]
                lines.append(
                    (
                        env,
                        method,
                        f"{sum(value > 0 for value in ends[FOUND])}/{number}",
                        f"{np.median(when):.0f}" if when else "–",
                        f"{sum(value >= ENOUGH for value in ends[KEPT])}/{number}",
                        f"{np.median(ends[EVALUATED]):.3g} [{min(ends[EVALUATED]):.3g}, {max(ends[EVALUATED]):.3g}]",
                    )
                )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("─" * width for width in widths))
    kept = f"kept: at least {ENOUGH:.0%} of the best report of training; return without exploring: median [least, most]"
    return "\n".join([*text, kept])


def draw(rows: list[Row]) -> Any:
    """Returns in training above; below, how many seeds have been paid by then."""
    require(rows, RETURN)
    envs = list(dict.fromkeys(row.env for row in rows))
    figure = new_figure(3.6 * max(len(envs), 2), 6.0)
    above, below = figure.subplots(2, len(envs), squeeze=False)
    for env, curve, steps in zip(envs, above, below, strict=True):
        here = select(rows, env=env)
        draw_panel(curve, here, Panel(RETURN, "", x="decisions"), LOOKS)
        curve.set(title=title_of(env))
        for method, look in LOOKS.items():
            _draw_found(steps, select(here, method=method, metric=RETURN), look)
        steps.set(xlabel="decisions", ylim=(-0.05, 1.05))
    above[0].set_ylabel("return in training")
    below[0].set_ylabel("share of seeds that were paid")
    finish(figure, "Dreamer from pictures that pay at the goal alone", rows)
    return figure


def _draw_found(axes: Any, rows: Sequence[Row], look: Look) -> None:
    if not rows:
        return
    seeds = {row.seed for row in rows}
    first = sorted(
        min(paid) for seed in seeds if (paid := [row.decisions for row in rows if row.seed == seed and row.value > 0.0])
    )
    end = max(row.decisions for row in rows)
    x, y = [0, *first, end], [*(np.arange(len(first) + 1) / len(seeds)), len(first) / len(seeds)]
    axes.step(x, y, look.dash, where="post", color=look.color, linewidth=2.2)


DREAMER_SPARSE_PIXELS = Experiment(
    name="dreamer-sparse-pixels",
    summary="Dreamer-Optimistic, Dreamer and Plan2Explore from small pictures that pay at the goal alone",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(FOUND, "seeds that found it", at_least=1.0),
        Headline(EVALUATED, "evaluated"),
        Headline(KEPT, "seeds that keep 90 %", at_least=ENOUGH),
        LAST_WEIGHT,
    ),
    derive=add_found,
    report=report,
)
"""Does optimism find from pixels what noise does not, and is it kept? Not in the paper."""
