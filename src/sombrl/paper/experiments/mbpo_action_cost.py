"""mbpo-action-cost: when moving costs something, greedy agents learn to keep still (section 6 of the paper).

MBPO-Optimistic against MBPO-Mean and MBPO-PETS with a cost K‖u‖₂ on every frame, u in physical units, on MountainCar
(beside its own 0.1 u²) and sparse CartPole. Costs are part of the return, so 0 is what keeping still is worth.

Differs from the paper: it shows action costs with Dreamer (figure 4, left); the K are those that the published MBPO
code names and does not run. Scale small: MountainCar with the smallest and the largest K, without MBPO-PETS.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import draw_tiles
from sombrl.paper.experiments.mbpo import EARNED, MBPO_LOOKS, METHODS, RETURN, RETURNS, WEIGHT, mbpo_cell
from sombrl.storage.results import Row

ENVS = {"smoke": ("pendulum",), "small": ("mountain-car",), "paper": ("mountain-car", "cartpole-sparse")}
COSTS = {"smoke": (0.1,), "small": (0.1, 0.4), "paper": (0.1, 0.25, 0.4)}


def cells(scale: str) -> list[Cell]:
    """The methods on every environment, for every cost."""
    methods = METHODS if scale == "paper" else ("optimistic", "greedy")
    return [
        mbpo_cell(method, env, scale, action_cost=cost, group=f"{env}-k{cost}")
        for env in ENVS[scale]
        for cost in COSTS[scale]
        for method in methods
    ]


def draw(rows: list[Row]) -> Any:
    """Returns over frames, a line of panels per environment."""
    columns = len({row.env.partition(" ")[2] for row in rows})
    title = "MBPO with action costs K‖u‖ per frame"
    return draw_tiles(rows, RETURNS, MBPO_LOOKS, title=title, xlabel="frames", columns=columns)


MBPO_ACTION_COST = Experiment(
    name="mbpo-action-cost",
    summary="the same with a cost for every action: who still moves?",
    figure="section 6; figure 4, left, has it for Dreamer",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 evaluations", last=3),
        Headline(RETURN, "seeds above 10", last=3, at_least=10.0),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
    ),
)
