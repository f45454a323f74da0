"""Our numbers beside published ones: draws mbpo, defaults, dreamer and rccar.svg here, from committed numbers alone.

python docs/figures/draw.py

published.csv has what others have published for the same tasks, with its source; the paper's curves of the car are in
`sombrl.paper.experiments.rccar`, read off its figure. Nothing else is drawn.
"""

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from sombrl.paper.experiments.dreamer import DREAMER_LOOKS
from sombrl.paper.experiments.figures import TITLES, Look, curves, select
from sombrl.paper.experiments.mbpo import MBPO_LOOKS
from sombrl.paper.experiments.rccar import CAR_LOOKS, PUBLISHED, PUBLISHED_AT
from sombrl.storage.results import Row, read_rows

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "results"
MARKS = {"SAC, 2 updates": ("s", "0.45"), "TD-MPC2": ("^", "0.45"), "BRO, 10 updates": ("D", "0.45")}
LAST_FRAME = 200_000


def draw_mbpo() -> plt.Figure:
    """Six tasks of DeepMind Control: our medians and quartiles, DreamerV3's published mean, marks at 100k frames."""
    rows = read_rows(RESULTS / "mbpo-state" / "paper.csv")
    rows = [row for row in rows if row.metric == "eval/ep_rew_mean" and row.env_frames <= LAST_FRAME]
    published = _published()
    envs = [env for env in dict.fromkeys(row.env for row in rows) if env.startswith("dmc:")]
    figure, tiles = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained")
    for axes, env in zip(tiles.flat, envs, strict=True):
        for method in ("optimistic", "greedy", "pets"):
            look = MBPO_LOOKS[method]
            frames, values = curves(select(rows, env=env, method=method), "env_frames")
            _band(axes, np.nanmax(frames, axis=1) / 1000, values, look)
        line = [p for p in published if p["env"] == env and p["method"] == "DreamerV3"]
        frames = [int(p["env_frames"]) / 1000 for p in line]
        axes.plot(frames, [float(p["mean"]) for p in line], ":", color="0.3", label="DreamerV3, published")
        for method, (marker, colour) in MARKS.items():
            for p in published:
                if (p["env"], p["method"]) == (env, method):
                    style = {"color": colour, "markersize": 5, "fillstyle": "none", "linestyle": ""}
                    axes.plot([100], [float(p["mean"])], marker, label=f"{method}, published", **style)
        axes.set(title=TITLES[env], xlabel="thousand frames", ylabel="return", xlim=(0, LAST_FRAME / 1000))
    handles, labels = tiles.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def draw_defaults() -> plt.Figure:
    """What the defaults of mbpo have after 100k frames: median and quartiles, and the published means. For a phone."""
    rows = [row for row in read_rows(RESULTS / "mbpo-strong" / "paper.csv") if row.env_frames == 100_000]
    rows = [row for row in rows if row.metric == "eval/ep_rew_mean"]
    envs = sorted({row.env for row in rows}, key=lambda env: -np.median(_at(rows, env, "optimistic")))
    figure, axes = plt.subplots(figsize=(4.6, 5.4), layout="constrained")
    for height, env in enumerate(reversed(envs)):
        for shift, method in ((0.14, "optimistic"), (-0.14, "greedy")):
            look, values = MBPO_LOOKS[method], _at(rows, env, method)
            axes.hlines(height + shift, *np.percentile(values, [25, 75]), color=look.color, linewidth=5, alpha=0.35)
            label = f"sombrl, {method}" if height == 0 else None
            axes.plot(np.median(values), height + shift, "o", color=look.color, markersize=6, label=label)
        for method, (marker, colour) in MARKS.items():
            style = {"color": colour, "markersize": 6, "fillstyle": "none", "linestyle": ""}
            for mean in [float(p["mean"]) for p in _published() if (p["env"], p["method"]) == (env, method)]:
                axes.plot([mean], [height], marker, **style)
    for method, (marker, colour) in MARKS.items():
        axes.plot([], [], marker, color=colour, fillstyle="none", linestyle="", label=f"{method}, published")
    axes.set(xlabel="return after 100k frames", xlim=(-20, 1020), yticks=range(len(envs)))
    axes.set_yticklabels([TITLES[env] for env in reversed(envs)])
    axes.grid(axis="x", alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def draw_dreamer() -> plt.Figure:
    """CartPole from vectors and from pixels: every seed of ours; the published mean and a standard deviation around."""
    runs = {
        "dmc:cartpole-swingup": (["dreamer-proprio/paper.csv"], "vectors"),
        "dmc-vision:cartpole-swingup": (["dreamer-vision/three-seeds.csv", "dreamer-vision/one-seed.csv"], "pixels"),
    }
    figure, tiles = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    look = DREAMER_LOOKS["greedy"]
    for axes, (env, (paths, seen)) in zip(tiles, runs.items(), strict=True):
        for path in paths:
            rows = select(read_rows(RESULTS / path), method="greedy", metric="rollout/ep_rew_mean")
            frames, values = curves(rows, "env_frames")
            axes.plot(frames / 1000, values, color=look.color, linewidth=1.2, alpha=0.8)
        axes.lines[0].set_label("Dreamer, a line per seed")
        line = [p for p in _published() if p["env"] == env]
        x, mean, std = (np.array([float(p[name]) for p in line]) for name in ("env_frames", "mean", "std"))
        axes.plot(x / 1000, mean, ":", color="0.3", label="DreamerV3, published")
        axes.fill_between(x / 1000, mean - std, mean + std, color="0.3", alpha=0.12, linewidth=0)
        axes.set(title=f"CartPole from {seen}", xlabel="thousand frames", xlim=(0, LAST_FRAME / 1000))
    tiles[0].set_ylabel("return of training episodes")
    figure.legend(*tiles[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def draw_car() -> plt.Figure:
    """Three rewards: our medians and quartiles, and the paper's medians."""
    rows = read_rows(RESULTS / "rccar-margins" / "paper.csv")
    figure, tiles = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
    names = {20: "dense", 5: "sparse", 2: "very sparse"}
    for axes, (margin, name) in zip(tiles, names.items(), strict=True):
        env = f"rc-car margin_factor={margin}"
        for method, look in CAR_LOOKS.items():
            _, values = curves(select(rows, env=env, method=method, metric="rollout/ep_rew_mean"))
            _band(axes, np.arange(1, len(values) + 1), values, look)
            axes.plot(PUBLISHED_AT, PUBLISHED[env, method], ":", color=look.color, label=f"{look.label}, published")
        axes.set(title=f"margin factor {margin}, {name}", xlabel="episode", ylabel="return", xlim=(1, 20))
    handles, labels = tiles[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _at(rows: list[Row], env: str, method: str) -> np.ndarray:
    return np.array([row.value for row in rows if (row.env, row.method) == (env, method)])


def _published() -> list[dict[str, str]]:
    with (HERE / "published.csv").open() as file:
        return list(csv.DictReader(file))


def _band(axes: plt.Axes, x: np.ndarray, values: np.ndarray, look: Look) -> None:
    """The median of values [points, seeds] and its quartiles."""
    low, middle, high = np.nanpercentile(values, [25, 50, 75], axis=1)
    axes.plot(x, middle, look.dash, color=look.color, label=look.label)
    axes.fill_between(x, low, high, color=look.color, alpha=0.15, linewidth=0)


if __name__ == "__main__":
    plt.rcParams.update(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "sombrl"}
    )
    for name, draw in {
        "mbpo": draw_mbpo,
        "defaults": draw_defaults,
        "dreamer": draw_dreamer,
        "rccar": draw_car,
    }.items():
        draw().savefig(HERE / f"{name}.svg", metadata={"Date": None})
