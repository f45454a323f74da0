"""What the numbers say, in plain words: one claim per pair of methods, with the interval behind it."""

import dataclasses
from typing import Literal

import numpy as np

from sombrl.report import statistics
from sombrl.report.comparison import Comparison
from sombrl.report.statistics import ENOUGH, Estimate
from sombrl.report.tasks import Task
from sombrl.report.wording import interval_text
from sombrl.runs.colors import exploration

PROPOSED = ("optimistic", "sombrl")
"""Explorations that the claims are about, if exactly one method uses one of them."""
Verdict = Literal["better", "worse", "level", "few"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """One method against another on the tasks they share."""

    ours: str
    theirs: str
    verdict: Verdict
    sentence: str
    tasks: int
    seeds: tuple[int, int]
    """The smallest and the largest number of seeds of either method on a task."""
    difference: Estimate | None
    """The difference of the interquartile means of normalised scores, with its interval; None for too few seeds."""
    improvement: Estimate | None
    """Probability of improvement, with its interval."""


def claims(comparison: Comparison) -> tuple[list[Claim], str | None]:
    """A claim against every other method, and a warning if the first method was chosen by its scores."""
    scored = comparison.scored
    if len(scored) < 2:
        return [], None
    proposed = [method for method in scored if exploration(method) in PROPOSED]
    warning = None
    if len(proposed) == 1:
        ours = proposed[0]
    else:
        ours = max(scored, key=lambda method: _overall(comparison, method))
        warning = f"{ours} is named first because it scores highest here; the best of several looks better than it is."
    found = (_claim(comparison, ours, theirs) for theirs in scored if theirs != ours)
    return [claim for claim in found if claim is not None], warning


def _overall(comparison: Comparison, method: str) -> tuple[int, float]:
    """The number of tasks with a score, and the interquartile mean over them."""
    scores = [task.scores(method) for task in comparison.tasks if method in task.finals]
    return len(scores), float(statistics.iqm(scores))


def _claim(comparison: Comparison, ours: str, theirs: str) -> Claim | None:
    tasks = [task for task in comparison.tasks if ours in task.finals and theirs in task.finals]
    if not tasks:
        return None
    counts = [len(task.finals[method]) for task in tasks for method in (ours, theirs)]
    seeds = (min(counts), max(counts))
    if seeds[0] < ENOUGH:
        sentence = _sentence_without_interval(tasks, ours, theirs, seeds[0])
        return Claim(ours, theirs, "few", sentence, len(tasks), seeds, None, None)
    scores = [task.scores(ours) for task in tasks], [task.scores(theirs) for task in tasks]
    difference = statistics.estimate(_difference, *scores)
    improvement = statistics.estimate(statistics.probability_of_improvement, *scores)
    verdict: Verdict = "better" if difference.low > 0 else "worse" if difference.high < 0 else "level"
    sentence = _sentence(tasks, ours, theirs, verdict, difference)
    return Claim(ours, theirs, verdict, sentence, len(tasks), seeds, difference, improvement)


def _sentence_without_interval(tasks: list[Task], ours: str, theirs: str, seeds: int) -> str:
    ahead, behind, ties = _ahead(tasks, ours, theirs)
    first, second, most = (ours, theirs, ahead) if ahead >= behind else (theirs, ours, behind)
    lead = f"{first} is ahead of {second} {_where(tasks, most, ties)}" if most else f"{ours} and {theirs} are level"
    return f"{'one seed' if seeds == 1 else f'{seeds} seeds'}: too few for an interval; {lead}"


def _sentence(tasks: list[Task], ours: str, theirs: str, verdict: Verdict, difference: Estimate) -> str:
    ahead, behind, ties = _ahead(tasks, ours, theirs)
    shown, unit = difference, ""
    if len(tasks) == 1:  # the units of a single task say more than a share of its range
        shown = statistics.estimate(_difference, [tasks[0].finals[ours]], [tasks[0].finals[theirs]])
        unit = f" in {tasks[0].measure.label}" + ("" if tasks[0].measure.higher else ", lower is better")
    size = f"IQM difference {interval_text(*shown)}{unit}"
    if verdict == "level":
        on = f" (ahead {_where(tasks, ahead, ties)})" if len(tasks) > 1 else ""
        return f"{ours} and {theirs}: no difference within the interval, {size}{on}"
    sign, most = (">", ahead) if verdict == "better" else ("<", behind)
    where = _where(tasks, most, ties)
    if 2 * most <= len(tasks):  # a large difference on a few tasks
        where = f"over all tasks together, but only {where}"
    return f"{ours} {sign} {theirs} {where}, {size}"


def _difference(ours: statistics.Scores, theirs: statistics.Scores) -> np.ndarray:
    return np.asarray(statistics.iqm(ours) - statistics.iqm(theirs))


def _ahead(tasks: list[Task], ours: str, theirs: str) -> tuple[int, int, int]:
    """On how many tasks our interquartile mean is the better one, the worse one, and the same."""
    gaps = [statistics.trimmed_mean(t.oriented(ours)) - statistics.trimmed_mean(t.oriented(theirs)) for t in tasks]
    ahead, ties = sum(bool(gap > 0) for gap in gaps), sum(bool(np.isclose(gap, 0, atol=1e-12)) for gap in gaps)
    return ahead, len(tasks) - ahead - ties, ties


def _where(tasks: list[Task], number: int, ties: int) -> str:
    if len(tasks) == 1:
        return f"on {tasks[0].name}"
    return f"on {number} of {len(tasks)} tasks{f' ({ties} level)' if ties else ''}"
