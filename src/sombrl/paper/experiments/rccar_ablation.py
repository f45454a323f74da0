"""rccar-ablation: which part of SimFSVGD-Optimistic does it (beside the paper).

The paper changes two things at once: imagined cars move by the mean plus noise instead of sampled particles, and there
is a bonus. Here they are taken apart, two by two. Then, with both as published for the optimistic agent: the simulator
with tyres as prior, none at all (FSVGD), no GP on top of it, a model in the world's frame as published, particles with
a bandwidth by their median distance, searches that begin with a new policy, and the published λ.

On the sparse reward (margin factor 5).
"""

import dataclasses
from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import Look, draw_tiles
from sombrl.paper.experiments.rccar import CAR_LOOKS, RETURN, RETURNS, SIGMA, car_cell, car_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

MARGIN = 5.0
EXPLORES: dict[str, dict[str, Any]] = {
    "noise-bonus": {},
    "noise-none": {"explore": "greedy"},
    "samples-bonus": {"imagine_by": "samples"},
    "samples-none": {"explore": "pets"},
    "published-lambda": {"bonus_weight": 0.5, "bonus_weight_steps": 10},
}
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "median-bandwidth": ("model", {"bandwidth": None}),
    "fresh-search": ("search", {"fresh": True}),
}
FIELDS: dict[str, dict[str, Any]] = {
    "high-fidelity": {"prior": "high-fidelity"},
    "no-prior": {"prior": "none"},
    "no-gap": {"prior_gap": False},
    "world-frame": {"frame": "world"},
}
LOOKS = {
    "noise-bonus": CAR_LOOKS["optimistic"],
    "noise-none": Look("mean and noise, no bonus", COLORS[1], "-."),
    "samples-bonus": Look("samples, bonus", COLORS[2]),
    "samples-none": CAR_LOOKS["pets"],
    "high-fidelity": Look("prior with tyres", COLORS[4]),
    "no-prior": Look("no simulator (FSVGD)", COLORS[5], ":"),
    "no-gap": Look("simulator taken at its word", COLORS[6], ":"),
    "world-frame": Look("in the world's frame", COLORS[1], "--"),
    "median-bandwidth": Look("bandwidth by the median", COLORS[4], "--"),
    "fresh-search": Look("new policy at every search", COLORS[5], "-."),
    "published-lambda": Look("λ from 0.5, ten episodes", COLORS[0], ":"),
}


def cells(scale: str) -> list[Cell]:
    """Two by two, then one change at a time."""
    configs = {name: car_config(scale, explore) for name, explore in EXPLORES.items()}
    configs |= {name: car_config(scale, **fields) for name, fields in FIELDS.items()}
    for name, (part, changes) in PARTS.items():
        config = car_config(scale)
        configs[name] = dataclasses.replace(config, **{part: dataclasses.replace(getattr(config, part), **changes)})
    return [car_cell(name, MARGIN, scale, config) for name, config in configs.items()]


def draw(rows: list[Row]) -> Any:
    """Returns over episodes."""
    return draw_tiles(rows, RETURNS, LOOKS, title="What makes SimFSVGD-Optimistic", xlabel="episode")


RCCAR_ABLATION = Experiment(
    name="rccar-ablation",
    summary="rollouts and bonus two by two, priors and coordinates of SimFSVGD-Optimistic",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last episode"),
        Headline(RETURN, "last 3 episodes", last=3),
        Headline(SIGMA, "last mean ‖σ‖"),
    ),
)
