"""dreamer-proprio: Dreamer-Optimistic against Dreamer on vectors (figure 8 of the paper).

Differs from the paper: 200k frames instead of 500k at scale paper, four environments per seed.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.dreamer import DREAMER_LOOKS, METHODS, RETURN, RETURNS, SHARE, WEIGHT, dreamer_cell
from sombrl.paper.experiments.figures import draw_tiles
from sombrl.storage.results import Row

TASKS = {
    "smoke": ("dmc:cartpole-swingup",),
    "small": ("dmc:cartpole-swingup",),
    "paper": (
        "dmc:cartpole-swingup",
        "dmc:cartpole-swingup_sparse",
        "dmc:finger-spin",
        "dmc:finger-turn_hard",
        "dmc:reacher-hard",
        "dmc:walker-walk",
        "dmc:walker-run",
    ),
}
DECISIONS = {"smoke": None, "small": None, "paper": 100_000}


def cells(scale: str) -> list[Cell]:
    """Both methods on every task."""
    return [dreamer_cell(method, env, scale, decisions=DECISIONS[scale]) for env in TASKS[scale] for method in METHODS]


def draw(rows: list[Row]) -> Any:
    """Returns over frames."""
    return draw_tiles(rows, RETURNS, DREAMER_LOOKS, title="Dreamer on vectors", xlabel="frames")


DREAMER_PROPRIO = Experiment(
    name="dreamer-proprio",
    summary="Dreamer-Optimistic against Dreamer, observations of vectors",
    figure="figure 8",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 reports", last=3),
        Headline(WEIGHT, "last λ"),
        Headline(SHARE, "last bonus share"),
    ),
)
