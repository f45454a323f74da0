"""From which action cost on does Dreamer fail? dreamer-k-curve (beside figure 4, left, and figure 9).

The final return over K on CartPole and Finger, from vectors, with the 1-million model and three seeds. Scale `paper` is
for a GPU, scale `small` for a night on two CPU cores.
"""

import dataclasses
from typing import Any

import numpy as np

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.dreamer import (
    DREAMER_LOOKS,
    LAST_RETURNS,
    LAST_SHARE,
    LAST_WEIGHT,
    METHODS,
    RETURN,
    dreamer_cell,
    dreamer_config,
)
from sombrl.paper.experiments.figures import curves, finish, new_figure, require, select, title_of
from sombrl.storage.results import Row

TASKS = ("dmc:cartpole-swingup", "dmc:finger-spin")
COSTS = (0.1, 0.25, 0.5, 1.0, 2.0)
DECISIONS = {"smoke": 80, "small": 10_000, "paper": 25_000}
SEEDS = {"smoke": 2, "small": 3, "paper": 3}
LAST = 3  # reports that make a final return


def k_cells(scale: str) -> list[Cell]:
    """Both methods with every cost on every task; at scale smoke one of each."""
    tasks, costs = (TASKS, COSTS) if scale != "smoke" else (TASKS[:1], COSTS[2:3])
    cells: list[Cell] = []
    for task in tasks:
        for cost in costs:
            for method in METHODS:
                config = dreamer_config(method, scale, size="tiny" if scale == "smoke" else "1m")
                cell = dreamer_cell(method, task, scale, config, action_cost=cost, decisions=DECISIONS[scale])
                cells.append(dataclasses.replace(cell, run=dataclasses.replace(cell.run, seeds=SEEDS[scale])))
    return cells


def draw_k(rows: list[Row]) -> Any:
    """A panel per task: the final return over K, a point per seed and a line through the medians."""
    require(rows, RETURN)
    envs = list(dict.fromkeys(row.env for row in rows))
    tasks = list(dict.fromkeys(env.partition(" ")[0] for env in envs))
    figure = new_figure(4.6 * max(len(tasks), 1.4), 4.2)
    grid = figure.subplots(1, len(tasks), squeeze=False)
    for axes, task in zip(grid[0], tasks, strict=True):
        for method, look in DREAMER_LOOKS.items():
            finals = {
                float(env.partition("K=")[2]): np.nanmean(curves(found)[1][-LAST:], axis=0)
                for env in envs
                if env.partition(" ")[0] == task and (found := select(rows, env=env, method=method, metric=RETURN))
            }
            for cost, values in finals.items():
                axes.plot([cost] * len(values), values, "o", color=look.color, alpha=0.4, markersize=4)
            medians = [float(np.median(values)) for values in finals.values()]
            axes.plot(list(finals), medians, look.dash, color=look.color, linewidth=2.2, label=look.label)
        axes.axhline(0.0, color="0.6", linewidth=1.0)
        axes.set(title=title_of(task), xlabel="K", xscale="log", xticks=COSTS, xticklabels=[f"{k:g}" for k in COSTS])
        axes.minorticks_off()
    grid[0, 0].set_ylabel(f"return, last {LAST} reports")
    finish(figure, "Dreamer over the cost of actions", rows, "a point per seed")
    return figure


DREAMER_K_CURVE = Experiment(
    name="dreamer-k-curve",
    summary="Dreamer over the cost of actions K: where does it stop moving?",
    figure="beside figure 4, left, and figure 9",
    cells=k_cells,
    draw=draw_k,
    headlines=(
        LAST_RETURNS,
        Headline(RETURN, "seeds above 10", last=LAST, at_least=10.0),
        LAST_WEIGHT,
        LAST_SHARE,
    ),
)
"""Dreamer-Optimistic and Dreamer over the cost of actions (beside figure 4, left, and figure 9).

A cost K‖u‖₂ on every frame is part of the return, so keeping still is worth 0. `dreamer-action-cost` has the 12-million
model at single costs; this is the whole curve with a model a twelfth of that, for shorter: 50k frames at scale paper.
"""
