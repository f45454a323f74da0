"""mbpo-vs-model-free: figure 6 of the paper (appendix C, "Experiments with MBPO"): what the model is good for.

MBPO-Optimistic and MBPO-Mean against SAC and MaxInfoSAC, which has the bonus but learns its policy from real data
alone. The model-free ones are as published: one update per decision and plain critics, where MBPO has five and residual
ones; so the figure compares algorithms at equal data, not at equal computation.

Differs from the paper: MBPO-Mean is ours, it tells the bonus from the model. Budgets, see mbpo.py. Scale small:
MountainCar and Pendulum, with small networks.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import draw_tiles
from sombrl.paper.experiments.mbpo import EARNED, MBPO_LOOKS, MODEL_FREE, RETURN, RETURNS, WEIGHT, mbpo_cell
from sombrl.storage.results import Row

ENVS = {
    "smoke": ("pendulum",),
    "small": ("mountain-car", "pendulum"),
    "paper": ("mountain-car", "cartpole-sparse", "walker-run"),
}


def cells(scale: str) -> list[Cell]:
    """Two with a model to learn from, two without."""
    found: list[Cell] = []
    for env in ENVS[scale]:
        found += [mbpo_cell(method, env, scale, group=env) for method in ("optimistic", "greedy")]
        found += [mbpo_cell(method, env, scale) for method in MODEL_FREE]
    return found


def draw(rows: list[Row]) -> Any:
    """Returns over frames."""
    return draw_tiles(rows, RETURNS, MBPO_LOOKS, title="With and without a model", xlabel="frames")


MBPO_VS_MODEL_FREE = Experiment(
    name="mbpo-vs-model-free",
    summary="MBPO-Optimistic and MBPO-Mean against SAC and MaxInfoSAC",
    figure="figure 6",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 evaluations", last=3),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
    ),
)
