"""Pictures made from nothing but rows. Each function draws into a matplotlib Figure and returns it; no pyplot.

Wrap the call in `sombrl.runs.plots.drawing(...)` for the house style.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sombrl.paper.lab.rows import Rows, curves, distinct, select
from sombrl.paper.lab.summary import decay_table, lemma_table, regret_table
from sombrl.records import SombrlError
from sombrl.runs.plots import COLORS

METHOD_COLORS = {
    "sombrl-theory": COLORS[4],
    "sombrl": COLORS[0],
    "greedy": COLORS[1],
    "thompson": COLORS[2],
    "random": COLORS[3],
    "theory": COLORS[6],
}
GREY = "#888888"


def draw_lemma(rows: Rows, figure: Any) -> Any:
    """Left: the systems on which the lemma never failed. Right: what part of λₙ it would have needed, as n grows."""
    table = lemma_table(rows)
    if not table:
        raise SombrlError("there are no rows about the lemma: run the part optimism first.")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.4])
    places = np.arange(len(table))[::-1]
    for place, line in zip(places, table, strict=True):
        left.plot([line.systems.low, line.systems.high], [place] * 2, color=COLORS[0], linewidth=2.5)
        left.plot(line.systems.value, place, "o", color=COLORS[0])
        left.plot(line.calibrated.value, place, "|", color=COLORS[1], markersize=14, markeredgewidth=2)
    left.set_yticks(places, [f"{line.setting}, {line.env.removeprefix('random-')}" for line in table])
    left.axvline(0.9, color=GREY, linestyle=":")
    left.set(xlim=(0.0, 1.03), xlabel="share of systems, 95% interval; dotted 1 - δ")
    left.set_title("never failed (dot), calibrated (bar)")
    needed = select(rows, metric="lab/required_factor")
    settings = [s for (s,) in distinct(needed, "setting")]
    for setting, env in distinct(needed, "setting", "env"):
        times, values = curves(select(needed, setting=setting, env=env))
        worst = np.where(values.max(axis=0) > 0.0, values.max(axis=0), np.nan)
        name = env.removeprefix("random-")
        style = {"1d": "-", "2d": "--", "3d": ":"}.get(name[:2], "-.")
        color = COLORS[settings.index(setting) % len(COLORS)]
        right.plot(times + 1, worst, style, marker="o", markersize=3.5, color=color, label=f"{setting}, {name}")
    right.axhline(1.0, color=GREY, linewidth=1)
    right.set(xscale="log", yscale="log", xlabel="1 + decisions seen", ylabel="factor on λₙ; 1 is the theory")
    right.set_title("what the worst system and policy needed")
    right.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def draw_regret(rows: Rows, figure: Any) -> Any:
    """R_N on log-log axes, settings across, random systems above and traps below; slopes in the legends."""
    kept = select(rows, metric="lab/regret")
    if not kept:
        raise SombrlError("there are no rows about regret: run the parts regret and trap first.")
    settings = [s for (s,) in distinct(kept, "setting")]
    envs = [e for (e,) in distinct(kept, "env")]
    slopes = {(line.setting, line.env, line.method): line.slope for line in regret_table(rows)}
    panels = figure.subplots(len(envs), len(settings), squeeze=False)
    for (i, env), (j, setting) in _pairs(envs, settings):
        axes = panels[i, j]
        here = select(kept, env=env, setting=setting)
        for (method,) in distinct(here, "method"):
            times, values = curves(select(here, method=method))
            slope = slopes[setting, env, method]
            text = "" if slope is None else f": {slope.value:.2f} [{slope.low:.2f}, {slope.high:.2f}]"
            color = METHOD_COLORS.get(method, COLORS[4])
            low, high = np.percentile(values, [10, 90], axis=0)
            axes.fill_between(
                times, np.maximum(low, 1e-3), np.maximum(high, 1e-3), color=color, alpha=0.15, linewidth=0
            )
            axes.plot(times, np.maximum(values.mean(axis=0), 1e-3), color=color, linewidth=2.2, label=f"{method}{text}")
        middle = np.sqrt(times[0] * times[-1])
        height = np.exp(np.mean(np.log(np.maximum(values.mean(axis=0), 1e-3))))
        axes.plot(times, height * times / middle, ":", color=GREY, linewidth=1)
        axes.set(xscale="log", yscale="log", title=f"{env}: {setting}")
        axes.set_xlabel("decisions")
        axes.set_ylim(top=60.0 * axes.get_ylim()[1])  # room for the legend
        axes.legend(loc="upper left", fontsize=8.5, title="slope of log R_N over log N", title_fontsize=8.5)
        if j == 0:
            axes.set_ylabel("cumulative regret")
    return figure


def draw_unsupervised(rows: Rows, figure: Any) -> Any:
    """max_π Σ_N(π, f*) of SOMBRL without a reward and of random actions; dotted the shape of the theorem's rate."""
    kept = select(rows, metric="lab/max_uncertainty")
    if not kept:
        raise SombrlError("there are no rows about exploration: run the part unsupervised first.")
    axes = figure.subplots()
    slopes = {line.method: line.slope for line in decay_table(rows)}
    top = 1.0
    for (method,) in distinct(kept, "method"):
        times, values = curves(select(kept, method=method))
        slope = slopes[method]
        text = "" if slope is None else f", slope {slope.value:.2f} [{slope.low:.2f}, {slope.high:.2f}]"
        color = METHOD_COLORS.get(method, COLORS[4])
        low, high = np.percentile(values, [10, 90], axis=0)
        axes.fill_between(times, low, high, color=color, alpha=0.18, linewidth=0)
        axes.plot(times, values.mean(axis=0), color=color, linewidth=2.2, label=f"{method}{text}")
        top = values[:, 0].mean()
    times, rate = curves(select(rows, metric="lab/rate"))
    axes.plot(times, rate[0] * top / rate[0, 0], ":", color=GREY, label="√(Γ_N³/N), moved to start there")
    axes.set(xscale="log", yscale="log", xlabel="decisions", ylabel="max_π Σ_N(π, f*)")
    axes.set_title("what any policy could still find out")
    axes.legend()
    return figure


def draw_system(rows: Rows, figure: Any) -> Any:
    """One system along u = 0: truth, data, μₙ with its βσ band, and the projection fₙ."""
    kept = select(rows, env="picture")
    if not kept:
        raise SombrlError("there are no rows of a picture: run the part picture first.")

    def line(method: str) -> Iterator[np.ndarray]:
        return (curves(select(kept, method=method, metric=f"lab/{place}"))[1][0] for place in "xy")

    axes = figure.subplots()
    x, low = line("band-low")
    _, high = line("band-high")
    axes.fill_between(x, low, high, color=COLORS[0], alpha=0.15, linewidth=0, label="μₙ ± βₙσₙ")
    for method, label, color, style in (
        ("truth", "f*", "#222222", "-"),
        ("mean", "μₙ", COLORS[0], "-"),
        ("projection", "fₙ, ‖fₙ‖ <= B", COLORS[1], "--"),
    ):
        axes.plot(*line(method), style, color=color, linewidth=2.2, label=label)
    axes.plot(*line("data"), "o", color="#222222", markersize=5, label="data")
    axes.set(xlabel="x", ylabel="next x, at u = 0")
    axes.set_title("a system of known norm, noise of ±R, and what is known of it")
    axes.legend(ncols=2)
    return figure


def _pairs(envs: Sequence[str], settings: Sequence[str]) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    return [(env, setting) for env in enumerate(envs) for setting in enumerate(settings)]


FIGURES = {"lemma": draw_lemma, "regret": draw_regret, "unsupervised": draw_unsupervised, "system": draw_system}
SIZES = {"lemma": (15, 6.5), "regret": (15, 8.5), "unsupervised": (8, 5), "system": (8, 5)}
"""Width and height in inches that suit each."""
