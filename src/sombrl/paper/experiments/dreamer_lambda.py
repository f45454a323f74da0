"""dreamer-lambda: what drives λ in Dreamer-Optimistic, and what σ is (beside the paper).

The policy and its slow copy differ so little that the term α λ decides: λ falls at the pace of its learning rate. Three
rates, a λ that stays, and σ as the norm over all latents (the paper, to the letter; with λ smaller by √512) or as the
mean variance instead of the mean standard deviation. On sparse CartPole, from vectors.
"""

import math
from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.dreamer import (
    DREAMER_LOOKS,
    RETURN,
    RETURNS,
    SHARE,
    SIGMA,
    WEIGHT,
    dreamer_cell,
    dreamer_config,
)
from sombrl.paper.experiments.figures import Look, Panel, draw_grid
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

ENVS = {"smoke": "dmc:cartpole-swingup", "small": "dmc:cartpole-swingup", "paper": "dmc:cartpole-swingup_sparse"}
VARIANTS: dict[str, dict[str, Any]] = {
    "auto": {},
    "faster": {"bonus_weight_lr": 1e-4},
    "fastest": {"bonus_weight_lr": 3e-4},
    "constant": {"schedule": "constant"},
    "norm": {"sigma": "norm", "bonus_weight": 2.0 / math.sqrt(512)},
    "variance": {"sigma": "variance"},
}
LOOKS = {
    "auto": Look("auto, learning rate 4e-5", DREAMER_LOOKS["optimistic"].color),
    "faster": Look("auto, 1e-4", COLORS[1]),
    "fastest": Look("auto, 3e-4", COLORS[2]),
    "constant": Look("constant λ", COLORS[3], "-."),
    "norm": Look("norm of σ", COLORS[4], "--"),
    "variance": Look("mean variance", COLORS[5], ":"),
}


def cells(scale: str) -> list[Cell]:
    """Every variant."""
    names = list(VARIANTS)[:2] if scale == "smoke" else list(VARIANTS)
    found: list[Cell] = []
    for name in names:
        cell = dreamer_cell(name, ENVS[scale], scale, dreamer_config("optimistic", scale, VARIANTS[name]))
        found.append(cell)
    return found


def draw(rows: list[Row]) -> Any:
    """Returns, λ and σ over frames."""
    panels = [RETURNS, Panel(WEIGHT, "λ", x="env_frames"), Panel(SIGMA, "σ on the replay", x="env_frames")]
    return draw_grid(rows, panels, LOOKS, title="What drives λ in Dreamer-Optimistic", xlabel="frames")


DREAMER_LAMBDA = Experiment(
    name="dreamer-lambda",
    summary="learning rates of λ, and what σ is, in Dreamer-Optimistic",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 reports", last=3),
        Headline(WEIGHT, "last λ"),
        Headline(SIGMA, "last σ"),
        Headline(SHARE, "last bonus share"),
    ),
)
