"""What the demo found, as one picture (demo.png, for a README)."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from sombrl.demo.states import EPISODE_MAP, SIGMA_MAP, draw_dots, draw_sigma, draw_visited
from sombrl.demo.story import Outcome, Story
from sombrl.runs.colors import COLORS, places
from sombrl.runs.plots import draw_curve, drawing


def draw_picture(path: Path, stories: list[Story], outcomes: list[Outcome]) -> None:
    """1600 × 900 pixels, legible at half of that: curves, visited states, σ maps."""
    with drawing("the demo"):
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
        for story, color, bottom in zip(stories, _colors(stories), (0.475, 0.135), strict=False):
            name: dict[str, Any] = {"size": 21, "weight": "bold", "color": color}
            figure.text(left - 0.018, bottom + 0.155, story.strategy, rotation=90, ha="center", va="center", **name)
            panels = [figure.add_axes((x, bottom, width, 0.31)) for x in edges]
            draw_visited(panels[0], story)
            for axes, n in zip(panels[1:], shown, strict=True):
                draw_sigma(axes, story, n)
                draw_dots(axes, story.visited[:n], "white", 5.0)
            for axes, title in zip(panels, titles, strict=True):
                if story is stories[0]:
                    axes.set_title(title, size=18, pad=9)

        _draw_scale(figure, edges[0], width, EPISODE_MAP, ("1", "episode", f"{episodes}"))
        known = ("known", "dots: data so far (first seed)", "unknown")
        _draw_scale(figure, edges[1], edges[-1] + width - edges[1], SIGMA_MAP, known)
        figure.text(edges[0], 0.02, "state space: position → velocity ↑", size=15, color="#666666")
        figure.savefig(path)


def _draw_returns(axes: Axes, stories: list[Story]) -> None:
    for story, color in zip(stories, _colors(stories), strict=True):
        episodes, seeds = story.returns.shape
        x = np.tile(np.arange(1, episodes + 1)[:, None], seeds)
        draw_curve(axes, x, story.returns / 1000, color, story.strategy)
    axes.set_xlabel("episode (200 frames)", size=18)
    axes.set_title("return in thousands", size=18, pad=45)
    axes.tick_params(labelsize=16)
    axes.locator_params(axis="x", integer=True)
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.04, 0.99), "ncols": 2}
    axes.legend(fontsize=18, handlelength=1.2, columnspacing=1.2, **place)


def _colors(stories: list[Story]) -> list[str]:
    return [COLORS[place] for place in places([story.strategy for story in stories])]


def _draw_scale(figure: Figure, left: float, width: float, colormap: Colormap, texts: tuple[str, str, str]) -> None:
    """A bar of colours with a text at its left end, its middle and its right end."""
    axes = figure.add_axes((left, 0.093, width, 0.018))
    axes.imshow(np.linspace(0, 1, 256)[None], aspect="auto", cmap=colormap)
    axes.set_axis_off()
    for x, text, side in zip((0.0, 0.5, 1.0), texts, ("left", "center", "right"), strict=True):
        axes.text(x, -0.5, text, transform=axes.transAxes, size=16, ha=side, va="top")
