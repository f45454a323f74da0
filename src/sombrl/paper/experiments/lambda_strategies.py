"""lambda-strategies: how λₙ is chosen (section 5.2 of the paper), on sparse MountainCar.

Constant λ (1 and the paper's 10), falling linearly or exponentially from 10 over the run, the λₙ of the finite-horizon
theorem times a factor (the bound is loose), and none at all (greedy). The left panel says who finds the goal and keeps
it, the right one what λₙ was.

Ours alone: the paper names the ways and compares none of them.
"""

import dataclasses
from typing import Any

from sombrl.envs.mountain_car import GOAL_REWARD
from sombrl.exploration.config import ExploreConfig
from sombrl.exploration.weight import TheoryConfig
from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import Look, Panel, draw_panel, finish, new_figure, require
from sombrl.paper.experiments.gp import episodes_of, gp_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

ENV = "mountain-car"
RETURN, WEIGHT = "rollout/ep_rew_mean", "explore/bonus_weight"
EPISODES = {"smoke": 3, "small": 10, "paper": 20}
FACTOR = 1e-6  # brings the theorem's first λₙ to the size of the others; it then grows with the data
LOOKS = {
    "constant-1": Look("λ = 1", COLORS[4]),
    "constant-10": Look("λ = 10", COLORS[0]),
    "linear": Look("linear, 10 to 0", COLORS[1]),
    "exponential": Look("exponential, 10 to 0.1", COLORS[2]),
    "theoretical": Look(f"theorem × {FACTOR:g}", COLORS[6]),
    "greedy": Look("none", COLORS[3]),
}


def strategies(episodes: int, action_repeat: int) -> dict[str, ExploreConfig]:
    """The explorations by name, for a run of so many episodes."""
    theory = TheoryConfig(factor=FACTOR, reward_max=GOAL_REWARD * action_repeat)
    falling: dict[str, Any] = {"bonus_weight": 10.0, "bonus_weight_steps": episodes}
    return {
        "constant-1": ExploreConfig(explore="optimistic", bonus_weight=1.0),
        "constant-10": ExploreConfig(explore="optimistic", bonus_weight=10.0),
        "linear": ExploreConfig(explore="optimistic", schedule="linear", bonus_weight_end=0.0, **falling),
        "exponential": ExploreConfig(explore="optimistic", schedule="exponential", bonus_weight_end=0.1, **falling),
        "theoretical": ExploreConfig(explore="optimistic", schedule="theoretical", theory=theory),
        "greedy": ExploreConfig(explore="greedy"),
    }


def cells(scale: str) -> list[Cell]:
    """One per strategy."""
    run = episodes_of(ENV, scale, episodes=EPISODES[scale])
    base = gp_config("greedy", ENV, scale)
    return [
        TrainCell(name, name, ENV, run, dataclasses.replace(base, explore=explore), metrics=(RETURN, WEIGHT))
        for name, explore in strategies(run.episodes, run.action_repeat or 1).items()
    ]


def draw(rows: list[Row]) -> Any:
    """Returns left, λₙ right."""
    require(rows, RETURN)
    require(rows, WEIGHT)
    figure = new_figure(10.0, 4.6)
    left, right = figure.subplots(1, 2)
    draw_panel(left, rows, Panel(RETURN, ""), LOOKS)
    left.set(title="MountainCar", ylabel="return of the episode", xlabel="episode")
    draw_panel(right, rows, Panel(WEIGHT, ""), {name: look for name, look in LOOKS.items() if name != "greedy"})
    right.set(title="weight of the bonus", ylabel="$λ_n$", xlabel="episode")
    right.set_yscale("symlog", linthresh=0.1)
    finish(figure, "How λ is chosen", rows)
    return figure


LAMBDA_STRATEGIES = Experiment(
    name="lambda-strategies",
    summary="λ constant, falling, from the theorem, or 0, on sparse MountainCar",
    figure="section 5.2, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 episodes", last=3),
        Headline(RETURN, "seeds that found the goal", last=3, at_least=1.0),
        Headline(WEIGHT, "last λ"),
    ),
)
