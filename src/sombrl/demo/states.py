"""The car's state space as a picture: the states visited, or what the model does not know of it."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, to_hex

from sombrl.demo.story import Story
from sombrl.envs.mountain_car import GOAL_POSITION, MAX_POSITION, MAX_SPEED, MIN_POSITION

SIGMA_MAX = 2**0.5  # two coordinates of which nothing is known
SIGMA_MAP: Colormap = colormaps["viridis"]
EPISODE_MAP: Colormap = ListedColormap(
    colormaps["plasma"](np.linspace(0, 0.88, 256))
)  # its last yellow is lost on white
"""Dark for the first episode, bright for the last."""


def draw_visited(axes: Axes, story: Story, ink: str = "#222222") -> None:
    """Every state of every seed, coloured by episode."""
    episodes = len(story.visited)
    for n, states in enumerate(story.visited):
        points = np.concatenate(states)
        color = to_hex(EPISODE_MAP(n / max(episodes - 1, 1)))
        axes.scatter(points[:, 0], points[:, 1], s=10, color=color, linewidths=0)
    axes.text(GOAL_POSITION - 0.03, -0.066, "goal", size=16, ha="right", va="bottom", color=ink)
    _finish(axes, ink)


def draw_sigma(axes: Axes, story: Story, n: int) -> None:
    """The first seed's ‖σ‖ before episode `n`, counted from 0."""
    extent = (MIN_POSITION, MAX_POSITION, -MAX_SPEED, MAX_SPEED)
    look: dict[str, Any] = {"cmap": SIGMA_MAP, "vmin": 0, "vmax": SIGMA_MAX, "interpolation": "bilinear"}
    axes.imshow(story.sigma[n], origin="lower", aspect="auto", extent=extent, **look)
    axes.axvline(GOAL_POSITION, color="black", alpha=0.35, linewidth=3.5)  # white alone is lost on yellow
    _finish(axes, "white")


def draw_dots(axes: Axes, episodes: list[list[np.ndarray]], color: str, size: float, rim: str | None = None) -> None:
    """The states of the first seed in some episodes; a rim in another colour shows them on any ground."""
    look: dict[str, Any] = {"markeredgecolor": rim or color, "markeredgewidth": size / 12 if rim else 0}
    for states in episodes:
        axes.plot(states[0][:, 0], states[0][:, 1], ".", color=color, markersize=size, **look)


def _finish(axes: Axes, goal: str) -> None:
    axes.axvline(GOAL_POSITION, color=goal, linestyle="--", linewidth=1.8)
    axes.set(xlim=(MIN_POSITION, MAX_POSITION), ylim=(-MAX_SPEED, MAX_SPEED), xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color="#999999")
    axes.grid(False)
