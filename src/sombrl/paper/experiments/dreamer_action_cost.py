"""dreamer-action-cost: Dreamer where moving costs something (figure 4, left, and figure 9 of the paper).

A cost K‖u‖₂ on every frame, u in physical units, on CartPole and Finger, from vectors and from pixels. Costs are part
of the return, so 0 is what keeping still is worth. Dreamer-Optimistic with both readings of ‖σ‖: the mean over the
latents, our default, and the norm, which is √512 times larger or more at the same λ.

Differs from the paper, which does not print its K: these are the ones that the authors' published code names. Scale
small: CartPole from vectors with the middle K.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.dreamer import DREAMER_LOOKS, RETURN, RETURNS, SHARE, WEIGHT, dreamer_cell, dreamer_config
from sombrl.paper.experiments.figures import Look, draw_tiles
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

TASKS = {
    "smoke": ("dmc:cartpole-swingup",),
    "small": ("dmc:cartpole-swingup",),
    "paper": (
        "dmc:cartpole-swingup",
        "dmc:finger-spin",
        "dmc-vision:cartpole-swingup",
        "dmc-vision:finger-spin",
    ),
}
COSTS = {"smoke": (0.25,), "small": (0.25,), "paper": (0.1, 0.25, 0.4)}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "optimistic": ("optimistic", {}),
    "norm": ("optimistic", {"sigma": "norm"}),
    "greedy": ("greedy", {}),
}
"""The exploration of each, and its fields."""
LOOKS = DREAMER_LOOKS | {"norm": Look("Dreamer-Optimistic, norm of σ", COLORS[1], "--")}


def cells(scale: str) -> list[Cell]:
    """Every method on every task, for every cost."""
    return [
        dreamer_cell(name, env, scale, dreamer_config(strategy, scale, fields), action_cost=cost)
        for env in TASKS[scale]
        for cost in COSTS[scale]
        for name, (strategy, fields) in METHODS.items()
    ]


def draw(rows: list[Row]) -> Any:
    """Returns over frames, a line of panels per environment."""
    columns = len({row.env.partition(" ")[2] for row in rows})
    title = "Dreamer with action costs K‖u‖ per frame"
    return draw_tiles(rows, RETURNS, LOOKS, title=title, xlabel="frames", columns=columns)


DREAMER_ACTION_COST = Experiment(
    name="dreamer-action-cost",
    summary="Dreamer with a cost for every action: who still moves?",
    figure="figure 4, left; figure 9",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 reports", last=3),
        Headline(RETURN, "seeds above 10", last=3, at_least=10.0),
        Headline(WEIGHT, "last λ"),
        Headline(SHARE, "last bonus share"),
    ),
)
