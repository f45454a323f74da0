"""tolerance-reward: the small figure of the paper's appendix: what parking pays at a distance, by margin factor.

D = √(Δx² + Δy² + Δθ²) from the goal; at rest, so that no control cost is in it.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from sombrl.envs.rc_car import RCCar
from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell, Headline
from sombrl.paper.experiments.figures import new_figure, require, select
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

FACTORS = (20.0, 10.0, 5.0, 2.0, 1.0)
FARTHEST = 4.0  # about where the car starts
REWARD = "reward"


def reward_at(factor: float, points: int) -> list[dict]:
    """The reward on the way to the goal; `decisions` counts points, `distance` is where they are."""
    task = RCCar(margin_factor=factor).task(1)
    rows = []
    for i, distance in enumerate(np.linspace(0.0, FARTHEST, points)):
        obs = jnp.zeros(13, jnp.float32).at[0].set(float(distance)).at[3].set(1.0)
        paid = float(task.reward(obs, jnp.zeros(2, jnp.float32), obs))
        for metric, value in ((REWARD, paid), ("distance", float(distance))):
            rows.append(
                {"method": f"factor-{factor:g}", "env": "rc-car", "setting": "finite-horizon", "seed": 0}
                | {"metric": metric, "env_frames": i, "decisions": i, "value": value}
            )
    return rows


def cells(scale: str) -> list[Cell]:
    """A curve per factor."""
    points = 5 if scale == "smoke" else 201
    return [FunctionCell(f"factor-{f:g}", reward_at, {"factor": f, "points": points}) for f in FACTORS]


def draw(rows: list[Row]) -> Any:
    """Reward over distance."""
    require(rows, REWARD)
    figure = new_figure(5.6, 3.6)
    axes = figure.subplots()
    for method, color in zip(dict.fromkeys(row.method for row in rows), COLORS, strict=False):
        x, y = ([row.value for row in select(rows, method=method, metric=metric)] for metric in ("distance", REWARD))
        axes.plot(x, y, color=color, linewidth=2.0, label=method.replace("factor-", "margin factor "))
    axes.set(xlabel="distance from the goal pose, m and rad", ylabel="reward of a frame", xlim=(0, FARTHEST))
    axes.legend()
    return figure


TOLERANCE_REWARD = Experiment(
    name="tolerance-reward",
    summary="what parking pays at a distance, by margin factor",
    figure="appendix, the reward's figure",
    cells=cells,
    draw=draw,
    headlines=(Headline(REWARD, "reward at 4 m"),),
)
