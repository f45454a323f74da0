"""mbpo-state: figure 3, left, of the paper (section 6, appendix D.1): policies that learn from state and a model.

MBPO-Optimistic, MBPO-Mean (λ = 0) and MBPO-PETS (the next state of a random member), which differ in nothing else, on
MountainCar, sparse CartPole and six more tasks of the DeepMind Control Suite. The x-axis counts frames of the
simulator: decisions times action repeat.

Differs from the paper: budgets, see mbpo.py; which environments its figure shows cannot be read off its text, which
names MountainCar, CartPole, Quadruped and Humanoid. Scale small: MountainCar, where the goal must be found, and
Pendulum, where optimism must not hurt, with small networks.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import draw_tiles
from sombrl.paper.experiments.mbpo import EARNED, MBPO_LOOKS, METHODS, RETURN, RETURNS, SIGMA, WEIGHT, mbpo_cell
from sombrl.storage.results import Row

ENVS = {
    "smoke": ("pendulum", "cartpole-sparse"),
    "small": ("mountain-car", "pendulum"),
    "paper": (
        *("mountain-car", "cartpole-sparse", "reacher-hard", "finger-spin"),
        *("hopper-hop", "walker-run", "quadruped-run", "humanoid-walk"),
    ),
}


def cells(scale: str) -> list[Cell]:
    """Every method on every environment."""
    return [mbpo_cell(method, env, scale, group=env) for env in ENVS[scale] for method in METHODS]


def draw(rows: list[Row]) -> Any:
    """Returns over frames."""
    return draw_tiles(rows, RETURNS, MBPO_LOOKS, title="MBPO from state", xlabel="frames")


MBPO_STATE = Experiment(
    name="mbpo-state",
    summary="policies on an ensemble: MBPO-Optimistic, MBPO-Mean and MBPO-PETS",
    figure="figure 3, left",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 evaluations", last=3),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
        Headline(SIGMA, "last mean ‖σ‖"),
    ),
)
