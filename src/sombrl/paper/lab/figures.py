"""Pictures made from nothing but rows. Each function draws into a matplotlib Figure and returns it; no pyplot.

Wrap the call in `sombrl.runs.plots.drawing(...)` for the house style.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sombrl.paper.lab.bounds_summary import held_table
from sombrl.paper.lab.regret import FACTORS
from sombrl.paper.lab.rows import Rows, curves, distinct, select
from sombrl.paper.lab.summary import decay_table, lemma_table, regret_table
from sombrl.records import SombrlError
from sombrl.runs.plots import COLORS

METHOD_COLORS = {
    "sombrl-theory": COLORS[4],
    "sombrl": COLORS[0],
    "greedy": COLORS[1],
    "thompson": COLORS[2],
    "hucrl": COLORS[5],
    "hucrl-theory": "#9d9da1",
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
    """R_N on log-log axes, settings across, random systems above and traps below; slopes in the legends.

    Below each panel: what λₙ was scaled by, and from which factor on the optimism lemma held in every system.
    """
    kept = select(rows, metric="lab/regret")
    if not kept:
        raise SombrlError("there are no rows about regret: run the parts regret and trap first.")
    settings = [s for (s,) in distinct(kept, "setting")]
    envs = [e for (e,) in distinct(kept, "env")]
    slopes = {(line.setting, line.env, line.method): line.slope for line in regret_table(rows)}
    least = {(line.setting, line.env): line.least for line in held_table(rows)}
    panels = figure.subplots(len(envs), len(settings), squeeze=False)
    for (i, env), (j, setting) in _pairs(envs, settings):
        axes = panels[i, j]
        here = select(kept, env=env, setting=setting)
        if not here:
            axes.set_axis_off()
            continue
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
        axes.set(xscale="log", yscale="log", title=f"{env}: {setting}", xlabel="decisions")
        if (setting, env) in least:
            held = least[setting, env]
            text = "with none that was tried" if held is None else f"from × {held:g} on"
            scaled = f"SOMBRL: λₙ × {FACTORS[setting]:g}; the lemma\nheld in every system {text}"
            axes.set_xlabel(f"decisions\n{scaled}", fontsize=9)
        axes.set_ylim(top=10.0 ** (0.55 * len(distinct(here, "method"))) * axes.get_ylim()[1])  # room for the legend
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


def draw_bounds(rows: Rows, figure: Any) -> Any:
    """Simple regret beside its bound; bounds over T; policies that take turns; R_N with a known Lyapunov function."""
    kept = select(rows, metric="lab/simple_regret", method="sombrl-theory")
    horizon = select(rows, metric="lab/horizon_bound")
    turns = select(rows, metric="lab/growth")
    known = select(rows, metric="lab/known_regret")
    if not (kept and horizon and turns and known):
        raise SombrlError("there are no rows about bounds: run the parts simple, horizon and lyapunov first.")
    (first, second), (third, fourth) = figure.subplots(2, 2)
    settings = [s for (s,) in distinct(kept, "setting")]
    for place, (setting, env) in enumerate(places := distinct(kept, "setting", "env")):
        color = COLORS[settings.index(setting) % len(COLORS)]
        for method, marker in (("sombrl-theory", "o"), ("sombrl", "^")):
            here = select(rows, setting=setting, env=env, method=method)
            _, regret = curves(select(here, metric="lab/simple_regret"))
            _, bound = curves(select(here, metric="lab/simple_regret_bound"))
            first.plot(place, np.max(regret / bound), marker, color=color)
    first.plot([], [], "o", color=GREY, label="λₙ of the theory")
    first.plot([], [], "^", color=GREY, label="λₙ of the regret figure")
    names = [f"{setting}, {env.removeprefix('random-')}" for setting, env in places]
    first.set_xticks(range(len(places)), names, rotation=40, ha="right", fontsize=8)
    first.axhline(1.0, color=GREY, linewidth=1)
    first.set(yscale="log", ylabel="largest rₙ/bound")
    first.set_title("simple regret over (2λₙ + λₙ²) Σₙ; above 1 it is broken")
    first.legend()
    for method, color in (("sombrl-theory", METHOD_COLORS["sombrl-theory"]), ("hucrl", METHOD_COLORS["hucrl"])):
        here = select(rows, method=method)
        for metric, style, label in (
            ("horizon_bound_first", ":", "bound at n = 1"),
            ("horizon_bound", "-", "bound at the last n"),
            ("horizon_regret", "--", "rₙ"),
        ):
            times, values = curves(select(here, metric=f"lab/{metric}"))
            middle = np.maximum(np.median(values, axis=0), 1e-3)
            second.plot(times, middle, style, color=color, label=f"{method.removesuffix('-theory')}: {label}")
    second.set(yscale="log", xlabel="T", ylabel="loss of an episode")
    second.set_title("what the proofs allow, and what is lost")
    second.legend(fontsize=8)
    times, growth = curves(turns)
    third.plot(times, growth[0], "o-", color=COLORS[0], label="growth of ‖x‖ per decision")
    minimum = float(select(rows, metric="lab/lyapunov_minimum")[0]["value"])
    third.axvline(minimum, color=COLORS[1], label=f"least T of the theory, {minimum:.0f}")
    third.axhline(1.0, color=GREY, linewidth=1)
    third.set(xlabel="decisions between two updates")
    third.set_title("two stable policies that take turns")
    third.legend()
    for (method,) in distinct(known, "method"):
        times, values = curves(select(known, method=method))
        middle = np.maximum(values.mean(axis=0), 1e-3)
        fourth.plot(times, middle, color=METHOD_COLORS.get(method, COLORS[4]), linewidth=2.2, label=method)
    fourth.set(xscale="log", yscale="log", xlabel="decisions", ylabel="cumulative regret")
    fourth.set_title("never reset, Lyapunov function known")
    fourth.legend()
    return figure


def _pairs(envs: Sequence[str], settings: Sequence[str]) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    return [(env, setting) for env in enumerate(envs) for setting in enumerate(settings)]


FIGURES = {
    "lemma": draw_lemma,
    "regret": draw_regret,
    "unsupervised": draw_unsupervised,
    "system": draw_system,
    "bounds": draw_bounds,
}
SIZES = {"lemma": (15, 6.5), "regret": (17, 8.5), "unsupervised": (8, 5), "system": (8, 5), "bounds": (13, 8.5)}
"""Width and height in inches that suit each."""
