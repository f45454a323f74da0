"""What the numbers say, in plain words: one claim per pair of methods, with the interval behind it."""

import dataclasses
import math
from typing import Literal

import numpy as np

from sombrl.report import statistics
from sombrl.report.comparison import Comparison, Task
from sombrl.report.curves import ENOUGH

PROPOSED = ("optimistic", "sombrl")
"""Explorations whose claims a report is about, where they are there once."""
VERDICTS = Literal["better", "worse", "level", "few"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """One method against another on the tasks they share."""

    ours: str
    theirs: str
    verdict: VERDICTS
    sentence: str
    tasks: int
    seeds: tuple[int, int]
    """The fewest and the most seeds of either on a task."""
    difference: tuple[float, float, float] | None
    """Of the interquartile means of normalised scores, with its interval; None for too few seeds."""
    improvement: tuple[float, float, float] | None
    """Probability of improvement, with its interval."""


def claims(comparison: Comparison) -> tuple[list[Claim], str | None]:
    """A claim against every other method, and a word of warning where ours was chosen by the numbers."""
    scored = [method for method in comparison.methods if any(method in task.finals for task in comparison.tasks)]
    if len(scored) < 2:
        return [], None
    proposed = [method for method in scored if _exploration(method) in PROPOSED]
    warning = None
    if len(proposed) == 1:
        ours = proposed[0]
    else:
        ours = max(scored, key=lambda method: _overall(comparison, method))
        warning = f"{ours} is named first because it scores highest here; the best of several is flattered by chance."
    found = (_claim(comparison, ours, theirs) for theirs in scored if theirs != ours)
    return [claim for claim in found if claim is not None], warning


def number(value: float, like: float | None = None) -> str:
    """Three digits or so, with a real minus; as many decimals as a number of the size of `like` would have."""
    size = abs(value if like is None else like)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2
    if 0 < size < 0.1:
        decimals = min(9, 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".replace("-", "−")


def interval_text(middle: float, low: float, high: float) -> str:
    """0.21 [0.12, 0.30]."""
    like = max(abs(middle), abs(low), abs(high))
    return f"{number(middle, like)} [{number(low, like)}, {number(high, like)}]"


def _exploration(method: str) -> str:
    return method.split(" ")[0].split("/")[-1]


def _overall(comparison: Comparison, method: str) -> tuple[int, float]:
    """On how many tasks, and the interquartile mean there."""
    scores = [task.scores(method) for task in comparison.tasks if method in task.finals]
    return len(scores), float(statistics.iqm(scores))


def _claim(comparison: Comparison, ours: str, theirs: str) -> Claim | None:
    tasks = [task for task in comparison.tasks if ours in task.finals and theirs in task.finals]
    if not tasks:
        return None
    counts = [len(task.finals[method]) for task in tasks for method in (ours, theirs)]
    seeds = (min(counts), max(counts))
    ahead, ties = _ahead(tasks, ours, theirs)
    behind = len(tasks) - ahead - ties
    if seeds[0] < ENOUGH:
        few = "one seed" if seeds[0] == 1 else f"{seeds[0]} seeds"
        first, second, count = (ours, theirs, ahead) if ahead >= behind else (theirs, ours, behind)
        lead = f"{first} is ahead of {second} {_where(tasks, count, ties)}"
        if not count:
            lead = f"{ours} and {theirs} are level"
        return Claim(ours, theirs, "few", f"{few}: too few for an interval; {lead}", len(tasks), seeds, None, None)
    a, b = [task.scores(ours) for task in tasks], [task.scores(theirs) for task in tasks]
    difference = _with_interval(_difference, a, b)
    improvement = _with_interval(statistics.probability_of_improvement, a, b)
    shown, unit = difference, ""
    if len(tasks) == 1:  # a single task has units that mean more than a share of a range
        raw = [task.finals[method] for task in tasks for method in (ours, theirs)]
        shown = _with_interval(_difference, [raw[0]], [raw[1]])
        measure = tasks[0].measure
        unit = f" in {measure.label}" + ("" if measure.higher else ", lower is better")
    size = f"IQM difference {interval_text(*shown)}{unit}"
    verdict: VERDICTS = "better" if difference[1] > 0 else "worse" if difference[2] < 0 else "level"
    if verdict == "level":
        on = f" (ahead {_where(tasks, ahead, ties)})" if len(tasks) > 1 else ""
        sentence = f"{ours} and {theirs}: no difference within the interval, {size}{on}"
    else:
        sign, count = (">", ahead) if verdict == "better" else ("<", behind)
        where = _where(tasks, count, ties)
        if 2 * count <= len(tasks):  # a large difference on a few tasks
            where = f"over all tasks together, but only {where}"
        sentence = f"{ours} {sign} {theirs} {where}, {size}"
    return Claim(ours, theirs, verdict, sentence, len(tasks), seeds, difference, improvement)


def _difference(ours: statistics.Scores, theirs: statistics.Scores) -> statistics.Numbers:
    return statistics.iqm(ours) - statistics.iqm(theirs)


def _with_interval(statistic, *samples: statistics.Scores) -> tuple[float, float, float]:
    low, high = statistics.interval(statistic, *samples)
    return float(statistic(*samples)), float(low), float(high)


def _ahead(tasks: list[Task], ours: str, theirs: str) -> tuple[int, int]:
    """On how many tasks our interquartile mean is the better one, and on how many they are the same."""
    gaps = [statistics.trimmed_mean(t.oriented(ours)) - statistics.trimmed_mean(t.oriented(theirs)) for t in tasks]
    return sum(bool(gap > 0) for gap in gaps), sum(bool(np.isclose(gap, 0, atol=1e-12)) for gap in gaps)


def _where(tasks: list[Task], count: int, ties: int) -> str:
    if len(tasks) == 1:
        return f"on {tasks[0].name}"
    level = f" ({ties} level)" if ties else ""
    return f"on {count} of {len(tasks)} tasks{level}"
