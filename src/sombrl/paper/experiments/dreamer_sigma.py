"""What σ is in Dreamer-Optimistic, and whether it still works when it is needed: dreamer-sigma (beside the paper).

Pixel worlds that pay at their goal alone. Scale `paper` has the 1-million model and three seeds and is for a GPU; scale
`small` the smallest model on one world, for two CPU cores.
"""

import dataclasses
from functools import partial
from typing import Any

from sombrl.dreamer.calibration import DECODED, LATENT
from sombrl.paper.experiments.base import Cell, Evaluation, Experiment, Headline
from sombrl.paper.experiments.dreamer import (
    LAST_RETURNS,
    LAST_SHARE,
    LAST_WEIGHT,
    RETURNS,
    SHARE,
    SIGMA,
    WEIGHT,
    dreamer_cell,
    dreamer_config,
)
from sombrl.paper.experiments.figures import Look, Panel, draw_grid
from sombrl.paper.experiments.sparse_pixels import EPISODE, TRAINING
from sombrl.runs.plots import COLORS

WORLDS = {
    "smoke": ("deceptive-chain",),
    "small": ("pixel:mountain-car",),
    "paper": ("pixel:mountain-car", "pixel:key-door"),
}
DECISIONS = {"smoke": 80, "small": 10_000, "paper": 20_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "smoke": {},
    "small": TRAINING | {"size": "tiny"},
    "paper": TRAINING,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "optimistic": {},
    "scaled": {"bonus_scale": "scale"},
    "scaled-0.1": {"bonus_scale": "scale", "bonus_weight": 0.1},
    "norm": {"sigma": "norm"},
    "deter": {"ensemble_target": "deter"},
    "deter-scaled-0.1": {"ensemble_target": "deter", "bonus_scale": "scale", "bonus_weight": 0.1},
    "embedding": {"ensemble_target": "embedding"},
    "bootstrap": {"bootstrap": 0.5},
    "greedy": {},
}
LOOKS = {
    "optimistic": Look("as published", COLORS[0]),
    "scaled": Look("σ / its running std", COLORS[1]),
    "scaled-0.1": Look("σ / its running std, λ from 0.1", COLORS[2]),
    "norm": Look("norm of σ", COLORS[4], "--"),
    "deter": Look("of the recurrent state", COLORS[5]),
    "deter-scaled-0.1": Look("of the recurrent state / its running std, λ from 0.1", COLORS[6]),
    "embedding": Look("of the encoder's features", COLORS[4]),
    "bootstrap": Look("members learn from half of the records each", COLORS[5], ":"),
    "greedy": Look("Dreamer", COLORS[3], "-."),
}
EVERY = {"smoke": 1, "small": 10, "paper": 10}  # reports between two evaluations


def sigma_cells(scale: str) -> list[Cell]:
    """Every variant on every world; at scale smoke two of them."""
    names = ("scaled", "greedy") if scale == "smoke" else tuple(VARIANTS)
    return [_cell(world, name, scale) for world in WORLDS[scale] for name in names]


def _cell(world: str, name: str, scale: str) -> Cell:
    strategy = "greedy" if name == "greedy" else "optimistic"
    config = dreamer_config(strategy, scale, VARIANTS[name], **SETTINGS[scale])
    cell = dreamer_cell(name, world, scale, config, decisions=DECISIONS[scale], episode=EPISODE)
    evaluation = Evaluation(2, every=EVERY[scale], explore=True, calibration=strategy != "greedy")
    return dataclasses.replace(cell, evaluation=evaluation)


DREAMER_SIGMA = Experiment(
    name="dreamer-sigma",
    summary="what σ is in Dreamer-Optimistic: how it falls, and whether it knows where the model errs",
    figure="beside the paper, no figure",
    cells=sigma_cells,
    draw=partial(
        draw_grid,
        panels=[
            RETURNS,
            Panel(SIGMA, "σ on the replay", x="env_frames"),
            Panel(SHARE, "share of the bonus", x="env_frames"),
            Panel(WEIGHT, "λ", x="env_frames"),
            Panel(LATENT, "ranks, ensemble's error", x="env_frames"),
            Panel(DECODED, "ranks, decoded error", x="env_frames"),
        ],
        looks=LOOKS,
        title="What σ is in Dreamer-Optimistic",
        xlabel="frames",
    ),
    headlines=(
        LAST_RETURNS,
        LAST_WEIGHT,
        Headline(SIGMA, "last σ"),
        LAST_SHARE,
        Headline(LATENT, "ranks, ensemble's error", last=2),
        Headline(DECODED, "ranks, decoded error", last=2),
    ),
)
"""What σ is in Dreamer-Optimistic (beside the paper).

σ of the ensemble falls by an order of magnitude before rewards are found. The variants scale it by its own running std,
let the ensemble predict something else, or give its members different records. Beside returns, σ, λ and the bonus's
share: Spearman's rank correlation of σ with the error of one step, on two held-out episodes with the actions of
training; 1 would be a σ that orders all errors.
"""
