"""MBPO with strong networks: mbpo-strong and mbpo-strong-ablation (`--preset strong`; beside the paper).

Scale `paper` has 100k frames and five seeds; scale `small` MountainCar and Pendulum. Both fit two CPU cores, a run of
100k frames in about half an hour on one of them.
"""

import dataclasses
from functools import partial
from typing import Any

from sombrl.algorithms.settings import configured, find_field
from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import Look, draw_tiles
from sombrl.paper.experiments.mbpo import (
    CHECKPOINT_EVERY,
    LAST_EARNED,
    LAST_RETURNS,
    LAST_WEIGHT,
    MBPO_LOOKS,
    METRICS,
    RETURNS,
    SIGMA,
    decisions_of,
    evaluations,
)
from sombrl.runs.plots import COLORS

TASKS = {
    "smoke": ("pendulum",),
    "small": ("mountain-car", "pendulum"),
    "paper": (
        *("walker-run", "finger-spin", "cartpole-sparse-short", "quadruped-run"),
        *("reacher-hard", "hopper-hop", "humanoid-walk", "mountain-car"),
    ),
}
DECISIONS = 50_000
"""100k frames of the DeepMind Control Suite."""
TINY = {"sac.hidden": (8, 8), "sac.actor_hidden": (8, 8), "sac.batch_size": 8, "ensemble.hidden": (8, 8)}


def strong_cell(env: str, scale: str, name: str, *, group: str | None = None, **fields: Any) -> TrainCell:
    """The strong preset on one task. `fields` are values by the names of `sombrl train`, with __ for a dot."""
    given = {"preset": "strong"} | ({} if scale != "smoke" else TINY)
    given |= {field.replace("__", "."): value for field, value in fields.items()}
    values = {find_field(field, ("mbpo",))["mbpo"]: value for field, value in given.items()}
    _, config = configured("mbpo", values)
    run = decisions_of(env, scale)
    if scale == "paper" and run.env.startswith("dmc:"):
        run = dataclasses.replace(run, decisions=DECISIONS)
    return TrainCell(
        name=f"{env}/{name}",
        method=name,
        env=run.env,
        run=run,
        config=config,
        algorithm="mbpo",
        metrics=METRICS,
        evaluation=evaluations(env, scale),
        checkpoint_every=CHECKPOINT_EVERY,
        group=group,
    )


def strong_cells(scale: str) -> list[Cell]:
    """With and without the bonus on every task."""
    return [
        strong_cell(env, scale, method, group=env, explore=method)
        for env in TASKS[scale]
        for method in ("optimistic", "greedy")
    ]


STRONG_LOOKS = {
    "optimistic": MBPO_LOOKS["optimistic"],
    "greedy": MBPO_LOOKS["greedy"],
}
MBPO_STRONG = Experiment(
    name="mbpo-strong",
    summary="MBPO with strong networks (--preset strong), with and without the bonus",
    figure="beside the paper, no figure",
    cells=strong_cells,
    draw=partial(draw_tiles, panel=RETURNS, looks=STRONG_LOOKS, title="MBPO with strong networks", xlabel="frames"),
    headlines=(LAST_RETURNS, LAST_EARNED, LAST_WEIGHT, Headline(SIGMA, "last mean ‖σ‖")),
)
"""How good MBPO-Optimistic is with the networks that the best model-free agents have (beside the paper)."""

# mbpo-strong-ablation

CHANGES: dict[str, dict[str, Any]] = {
    "strong": {},
    "greedy": {"explore": "greedy"},
    "no-normaliser": {"sac__normalise_observations": False},
    "two-min": {"sac__critics": "two-min"},
    "two-mean": {"sac__critics": "two-mean"},
    "stored-action": {"sac__imagined_action": "stored"},
    "equal-weight": {"sac__imagined_weight": "equal"},
    "real-data": {"sac__imagined": "none"},
    "concatenated": {"sac__mix": "concatenated"},
    "plain-actor": {"sac__actor": "plain", "sac__actor_hidden": (256, 256)},
    "light-critic": {"sac__critic": "bro", "sac__hidden": (256, 256), "sac__first_norm": True},
    "adam": {"sac__weight_decay": 0.0, "sac__gradient_clip": 0.5},
    "entropy-1": {"sac__target_entropy_factor": 1.0, "sac__init_temperature": 1.0},
    "two-ensemble-steps": {"ensemble__steps_per_fit": 2},
    "four-updates": {"sac__updates_per_call": 4},
    "wide": {"sac__hidden": (256, 256, 256)},
    "expansion-3": {"sac__critic_expansion": 3},
    "bins": {"sac__critic_output": "bins"},
    "projected": {"sac__project_weights": True, "sac__weight_decay": 0.0},
}
ABLATED = {"smoke": "pendulum", "small": "pendulum", "paper": "walker-run"}
ABLATION_DECISIONS, ABLATION_SEEDS = 15_000, 3


def ablation_cells(scale: str) -> list[Cell]:
    """A part less, or other, at a time, with the bonus."""
    env = ABLATED[scale]
    cells = [strong_cell(env, scale, name, **fields) for name, fields in CHANGES.items()]
    if scale != "paper":
        return list(cells)
    run = dataclasses.replace(cells[0].run, decisions=ABLATION_DECISIONS, seeds=ABLATION_SEEDS)
    evaluation = dataclasses.replace(evaluations(env, scale), every=5)
    return [dataclasses.replace(cell, run=run, evaluation=evaluation) for cell in cells]


ABLATION_LOOKS = {name: Look(name, COLORS[i % len(COLORS)]) for i, name in enumerate(CHANGES)}
MBPO_STRONG_ABLATION = Experiment(
    name="mbpo-strong-ablation",
    summary="the strong preset of MBPO, one part changed at a time",
    figure="beside the paper, no figure",
    cells=ablation_cells,
    draw=partial(draw_tiles, panel=RETURNS, looks=ABLATION_LOOKS, title="Parts of the strong preset", xlabel="frames"),
    headlines=(LAST_RETURNS, LAST_EARNED, LAST_WEIGHT),
)
"""What each part of the strong preset is worth (beside the paper)."""
