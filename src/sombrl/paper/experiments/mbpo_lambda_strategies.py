"""mbpo-lambda-strategies: how λ is chosen when a policy learns at every decision (sections 5.2 and D.1 of the paper).

λ that tunes itself so that the policy stays as curious as its own slow copy (from 1; the published way), constant (1
and 0.1), falling from 1 over the run, linearly to 0 or exponentially to 0.01, and none at all (MBPO-Mean). The bonus is
the published one, which has mean 0 and variance 1, so that λ is in units of reward. Schedules count decisions here.

Ours alone: the paper compares none of them. Scale paper: MountainCar and sparse CartPole; small: MountainCar.
"""

from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, Headline
from sombrl.paper.experiments.figures import Look, Panel, draw_grid
from sombrl.paper.experiments.mbpo import EARNED, RETURN, RETURNS, WEIGHT, decisions_of, mbpo_cell, mbpo_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

ENVS = {"smoke": ("pendulum",), "small": ("mountain-car",), "paper": ("mountain-car", "cartpole-sparse")}
LOOKS = {
    "auto": Look("tunes itself, from 1", COLORS[0]),
    "constant-1": Look("λ = 1", COLORS[4]),
    "constant-0.1": Look("λ = 0.1", COLORS[5]),
    "linear": Look("linear, 1 to 0", COLORS[1]),
    "exponential": Look("exponential, 1 to 0.01", COLORS[2]),
    "greedy": Look("none", COLORS[3], "-."),
}
GROUPS = {"auto": "tuned", "greedy": "tuned", "constant-1": "constant", "constant-0.1": "constant"}


def strategies(decisions: int) -> dict[str, dict[str, Any]]:
    """What each strategy changes in the published exploration, for a run of so many decisions."""
    falling = {"bonus_weight": 1.0, "bonus_weight_steps": decisions}
    return {
        "auto": {},
        "constant-1": {"schedule": "constant", "bonus_weight": 1.0},
        "constant-0.1": {"schedule": "constant", "bonus_weight": 0.1},
        "linear": {"schedule": "linear", "bonus_weight_end": 0.0, **falling},
        "exponential": {"schedule": "exponential", "bonus_weight_end": 0.01, **falling},
    }


def cells(scale: str) -> list[Cell]:
    """Every strategy on every environment."""
    found: list[Cell] = []
    for env in ENVS[scale]:
        decisions = decisions_of(env, scale).decisions or 0
        configs = {
            name: mbpo_config("optimistic", env, scale, explore=changes)
            for name, changes in strategies(decisions).items()
        }
        configs["greedy"] = mbpo_config("greedy", env, scale)
        found += [
            mbpo_cell(name, env, scale, config, group=f"{env}-{GROUPS[name]}" if name in GROUPS else None)
            for name, config in configs.items()
        ]
    return found


def draw(rows: list[Row]) -> Any:
    """Returns above, λ below."""
    panels = [RETURNS, Panel(WEIGHT, "$λ$", x="env_frames")]
    figure = draw_grid(rows, panels, LOOKS, title="How λ is chosen, MBPO", xlabel="frames")
    for axes in figure.axes[len(figure.axes) // 2 :]:
        axes.set_yscale("symlog", linthresh=0.01)
    return figure


MBPO_LAMBDA_STRATEGIES = Experiment(
    name="mbpo-lambda-strategies",
    summary="λ of MBPO tuned, constant, falling, or 0",
    figure="section 5.2, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 evaluations", last=3),
        Headline(RETURN, "seeds above 50", last=3, at_least=50.0),
        Headline(EARNED, "reward per decision, exploring"),
        Headline(WEIGHT, "last λ"),
    ),
)
