"""dreamer-vision: Dreamer-Optimistic against Dreamer from pixels (figure 7 of the paper).

Differs from the paper: 100k frames instead of a million at scale paper, four environments per seed. Scale smoke is the
only one that a machine without a GPU should try.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.dreamer import DREAMER_LOOKS, METHODS, RETURN, RETURNS, SHARE, WEIGHT, dreamer_cell
from sombrl.paper.experiments.figures import draw_tiles
from sombrl.storage.results import Row

TASKS = {
    "smoke": ("dmc-vision:cartpole-swingup",),
    "small": ("dmc-vision:cartpole-swingup",),
    "paper": (
        "dmc-vision:cartpole-swingup",
        "dmc-vision:cartpole-swingup_sparse",
        "dmc-vision:finger-spin",
        "dmc-vision:finger-turn_hard",
        "dmc-vision:reacher-hard",
        "dmc-vision:walker-run",
    ),
}
SMALL_DECISIONS = 4000


def cells(scale: str) -> list[Cell]:
    """Both methods on every task."""
    decisions = SMALL_DECISIONS if scale == "small" else None
    return [dreamer_cell(method, env, scale, decisions=decisions) for env in TASKS[scale] for method in METHODS]


def draw(rows: list[Row]) -> Any:
    """Returns over frames."""
    return draw_tiles(rows, RETURNS, DREAMER_LOOKS, title="Dreamer from pixels", xlabel="frames")


DREAMER_VISION = Experiment(
    name="dreamer-vision",
    summary="Dreamer-Optimistic against Dreamer, observations of 64 x 64 pixels",
    figure="figure 7",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 reports", last=3),
        Headline(WEIGHT, "last λ"),
        Headline(SHARE, "last bonus share"),
    ),
)
