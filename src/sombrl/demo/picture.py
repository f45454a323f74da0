"""What the demo found, as one picture (demo.png, for a README)."""

from pathlib import Path
from typing import Any

import numpy as np

from sombrl.demo.story import Outcome, Story
from sombrl.envs.mountain_car import GOAL_POSITION, MAX_POSITION, MAX_SPEED, MIN_POSITION
from sombrl.runs.plots import COLORS, draw_curve, drawing

COLOR = dict(zip(("optimistic", "greedy"), COLORS, strict=False))
SIGMA_MAX = 2**0.5  # two coordinates of which nothing is known
SIGMA_MAP, EPISODE_MAP = "viridis", "plasma"
EPISODE_END = 0.88  # plasma's last yellow does not show on white


def draw_picture(path: Path, stories: list[Story], outcomes: list[Outcome]) -> None:
    """1600 × 900 pixels, legible at half of that: curves, visited states, σ maps."""
    with drawing("the demo"):
        from matplotlib.figure import Figure

        episodes = len(stories[0].sigma)
        shown = sorted({min(1, episodes - 1), (episodes - 1) // 2, episodes - 1})
        found = ", ".join(f"by {one.strategy} on {one.found} of {one.seeds} seeds" for one in outcomes)
        figure = Figure(figsize=(16, 9), dpi=100)
        figure.text(0.03, 0.93, "Sparse MountainCar: plan for r, or for r + λ‖σ‖?", size=31, weight="bold")
        figure.text(0.03, 0.873, f"Only the hilltop pays. It was found {found}.", size=20, color="#444444")
        _draw_returns(figure.add_axes((0.055, 0.135, 0.265, 0.595)), stories)

        left, gap = 0.385, 0.012
        width = (0.985 - left) / (1 + len(shown)) - gap
        edges = [left + i * (width + gap) for i in range(1 + len(shown))]
        titles = ["visited, all seeds", *(f"‖σ‖ after {n} ep." for n in shown)]
        for story, bottom in zip(stories, (0.475, 0.135), strict=True):
            name: dict[str, Any] = {"size": 21, "weight": "bold", "color": COLOR[story.strategy]}
            figure.text(left - 0.018, bottom + 0.155, story.strategy, rotation=90, ha="center", va="center", **name)
            for x, title, n in zip(edges, titles, [None, *shown], strict=True):
                axes = figure.add_axes((x, bottom, width, 0.31))
                _draw_states(axes, story, n)
                if story is stories[0]:
                    axes.set_title(title, size=18, pad=9)

        _draw_scale(figure, (edges[0], width), episode_colormap(), "1", f"{episodes}", "episode")
        maps = (edges[1], edges[-1] + width - edges[1])
        label = "dots: data so far (first seed)"
        _draw_scale(figure, maps, SIGMA_MAP, "known", "unknown", label)
        figure.text(edges[0], 0.02, "state space: position → velocity ↑", size=15, color="#666666")
        figure.savefig(path)


def _draw_returns(axes: Any, stories: list[Story]) -> None:
    for story in stories:
        episodes, seeds = story.returns.shape
        x = np.tile(np.arange(1, episodes + 1)[:, None], seeds)
        draw_curve(axes, x, story.returns / 1000, COLOR[story.strategy], story.strategy)
    axes.set_xlabel("episode (200 frames)", size=18)
    axes.set_title("return in thousands", size=18, pad=45)
    axes.tick_params(labelsize=16)
    axes.locator_params(axis="x", integer=True)
    place = {"loc": "lower left", "bbox_to_anchor": (-0.04, 0.99), "ncols": 2}
    axes.legend(fontsize=18, handlelength=1.2, columnspacing=1.2, **place)


def _draw_states(axes: Any, story: Story, n: int | None) -> None:
    """The states all seeds visited or, given n, the first seed's σ before episode n with the data it had."""
    if n is None:
        for episode, states in enumerate(story.visited):
            points = np.concatenate(states)
            color = episode_color(episode, len(story.visited))
            axes.scatter(points[:, 0], points[:, 1], s=10, color=color, linewidths=0)
        axes.text(GOAL_POSITION - 0.03, -0.066, "goal", size=16, ha="right", va="bottom")
    else:
        extent = (MIN_POSITION, MAX_POSITION, -MAX_SPEED, MAX_SPEED)
        look = {"cmap": SIGMA_MAP, "vmin": 0, "vmax": SIGMA_MAX, "interpolation": "bilinear"}
        axes.imshow(story.sigma[n], origin="lower", aspect="auto", extent=extent, **look)
        for states in story.visited[:n]:
            axes.plot(states[0][:, 0], states[0][:, 1], ".", color="white", markersize=5, markeredgewidth=0)
    if n is not None:
        axes.axvline(GOAL_POSITION, color="black", alpha=0.35, linewidth=3.5)  # white alone is lost on yellow
    axes.axvline(GOAL_POSITION, color="#222222" if n is None else "white", linestyle="--", linewidth=1.8)
    axes.set(xlim=(MIN_POSITION, MAX_POSITION), ylim=(-MAX_SPEED, MAX_SPEED), xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color="#999999")
    axes.grid(False)


def _draw_scale(figure: Any, place: tuple[float, float], colormap: Any, low: str, high: str, label: str) -> None:
    axes = figure.add_axes((place[0], 0.093, place[1], 0.018))
    axes.imshow(np.linspace(0, 1, 256)[None], aspect="auto", cmap=colormap)
    axes.set_axis_off()
    for x, text, side in ((0.0, low, "left"), (0.5, label, "center"), (1.0, high, "right")):
        axes.text(x, -0.5, text, transform=axes.transAxes, size=16, ha=side, va="top")


def episode_colormap() -> Any:
    """Dark for the first episode, bright for the last."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[EPISODE_MAP](np.linspace(0, EPISODE_END, 256)))


def episode_color(n: int, episodes: int) -> str:
    """The colour of episode `n`, from 0."""
    from matplotlib.colors import to_hex

    return to_hex(episode_colormap()(n / max(episodes - 1, 1)))
