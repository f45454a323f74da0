"""found-kept: does an agent keep what it found? All defaults, four tasks whose reward has to be found."""

import dataclasses
from typing import Any

import numpy as np

from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.config.run import RunConfig
from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import LOOKS, Panel, draw_panel, finish, new_figure, require, select, title_of
from sombrl.paper.experiments.gp import RETURN, SEEDS, SMOKE_GP, SMOKE_PLAN, greedy_evaluation
from sombrl.storage.results import Row

TASKS: dict[str, dict[str, Any]] = {
    "mountain-car": {"action_repeat": 5, "episode_length": 40, "episodes": 10},
    "pendulum": {"env_kwargs": ("reward=sparse",), "action_repeat": 5, "episode_length": 40, "episodes": 15},
    "deceptive-chain": {"action_repeat": 4, "episode_length": 50, "episodes": 12},
    "wall": {"action_repeat": 2, "episode_length": 50, "episodes": 16},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "optimistic": {},
    "no-value": {"horizon_value": "none"},
    "greedy": {"explore": dataclasses.replace(GPICEMConfig().explore, explore="greedy")},
}
"""The defaults, the defaults without the value beyond the horizon, and without optimism."""
KEPT_LOOKS = {
    "optimistic": LOOKS["optimistic"],
    "no-value": dataclasses.replace(LOOKS["hucrl"], label="SOMBRL, plain plans"),
    "greedy": LOOKS["greedy"],
}
EVALUATED, KEPT = "eval/ep_rew_mean", "kept"
ENOUGH = 0.9


def cells(scale: str) -> list[Cell]:
    """Every variant on every task."""
    found: list[Cell] = []
    for env, numbers in TASKS.items():
        run = RunConfig(env=env, seeds=SEEDS[scale], **numbers)
        if scale == "smoke":
            run = dataclasses.replace(run, episode_length=6, episodes=2)
        for name, changes in VARIANTS.items():
            config = dataclasses.replace(GPICEMConfig(), **changes)
            if scale == "smoke":
                small = dataclasses.replace(config.value, anchors=8, actions=2)
                config = dataclasses.replace(config, gp=SMOKE_GP, icem=SMOKE_PLAN, value=small)
            label = " ".join([env, *run.env_kwargs])
            evaluation = greedy_evaluation(scale)
            found.append(TrainCell(f"{env}/{name}", name, label, run, config, metrics=(RETURN,), evaluation=evaluation))
    return found


def add_kept(rows: list[Row]) -> list[Row]:
    """Per seed, the mean return of the evaluation as a share of the best episode of training."""
    kept = []
    for row in select(rows, metric=EVALUATED):
        where = {"env": row.env, "method": row.method, "seed": row.seed}
        best = max(one.value for one in select(rows, metric=RETURN, **where))
        share = row.value / best if best > 0 else 0.0
        kept.append(dataclasses.replace(row, metric=KEPT, value=float(np.clip(share, -1.0, 2.0))))
    return kept


def draw(rows: list[Row]) -> Any:
    """Returns in training above; below, every seed's evaluation against its best episode of training."""
    require(rows, RETURN)
    envs = list(dict.fromkeys(row.env for row in rows))
    figure = new_figure(3.6 * len(envs), 6.4)
    above, below = figure.subplots(2, len(envs), squeeze=False)
    for env, curve, dots in zip(envs, above, below, strict=True):
        here = select(rows, env=env)
        draw_panel(curve, here, Panel(RETURN, ""), KEPT_LOOKS)
        curve.set(title=title_of(env), xlabel="episode")
        for method, look in KEPT_LOOKS.items():
            ends = select(here, method=method, metric=EVALUATED)
            best = [max(r.value for r in select(here, method=method, seed=end.seed, metric=RETURN)) for end in ends]
            dots.plot(best, [end.value for end in ends], "o", color=look.color, markersize=7, alpha=0.8)
        limit = max(*dots.get_xlim(), *dots.get_ylim())
        dots.plot([0, limit], [0, ENOUGH * limit], color="0.6", linewidth=1)
        dots.set(xlabel="best episode of training")
    above[0].set_ylabel("return in training")
    below[0].set_ylabel("return of the evaluation")
    finish(figure, "What was found, and what was kept (line: 90 %)", rows)
    return figure


FOUND_KEPT = Experiment(
    name="found-kept",
    summary="four tasks with a hidden reward, all defaults: is what training found still there in eval?",
    figure="no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 episodes", last=3),
        Headline(EVALUATED, "evaluated"),
        Headline(KEPT, "seeds that keep 90 %", at_least=ENOUGH),
    ),
    derive=add_kept,
)
"""Is what training found still there when the agent is evaluated? Not in the paper.

Sparse MountainCar, sparse Pendulum, a deceptive chain (a small reward at the start, a large one behind a hill) and a
point mass behind a wall. All settings but the length of episodes are the defaults of `gp-icem`. `no-value` plans
without the value beyond the horizon, `greedy` without optimism. `kept` is the mean of five evaluation episodes, planned
for the task alone, divided by the best episode of training of that seed.
"""
