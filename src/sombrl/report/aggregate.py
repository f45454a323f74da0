"""All tasks together: normalised scores, their statistics, performance profiles and probabilities of improvement."""

import dataclasses

import numpy as np

from sombrl.report import statistics
from sombrl.report.comparison import Comparison
from sombrl.report.statistics import ENOUGH, Estimate, Point
from sombrl.report.tasks import Task

STATISTICS = {
    "IQM": statistics.iqm,
    "median": statistics.median,
    "mean": statistics.mean,
    "optimality gap": statistics.optimality_gap,
}
THRESHOLDS = 41
Profile = tuple[np.ndarray, ...]
"""Shares of runs above the thresholds, with the ends of their intervals where there are enough seeds."""


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """The methods of a comparison over the tasks that all of them have."""

    tasks: list[Task]
    left_out: list[str]
    """Tasks that some method has no score on."""
    methods: list[str]
    seeds: int
    """The smallest number of seeds of any method on a task."""
    statistics: dict[str, dict[str, Estimate | Point]]
    """By method and name of the statistic."""
    thresholds: np.ndarray
    profiles: dict[str, Profile]
    improvement: dict[tuple[str, str], Estimate | Point]
    """How likely a run of the first beats one of the second."""


def aggregate(comparison: Comparison) -> Aggregate | None:
    """The aggregate, or None where fewer than two methods share a task."""
    scored = comparison.scored
    tasks = [task for task in comparison.tasks if all(method in task.finals for method in scored)]
    if len(scored) < 2 or not tasks:
        return None
    scores = {method: [task.scores(method) for task in tasks] for method in scored}
    seeds = min(len(runs) for those in scores.values() for runs in those)
    low = min(0.0, *(float(runs.min()) for those in scores.values() for runs in those))
    high = max(float(runs.max()) for those in scores.values() for runs in those)
    thresholds = np.linspace(low, max(high, 0.01), THRESHOLDS)
    return Aggregate(
        tasks=tasks,
        left_out=[task.name for task in comparison.tasks if task not in tasks],
        methods=scored,
        seeds=seeds,
        statistics={
            method: {name: _estimate(statistic, seeds, those) for name, statistic in STATISTICS.items()}
            for method, those in scores.items()
        },
        thresholds=thresholds,
        profiles={method: _profile(those, thresholds, seeds) for method, those in scores.items()},
        improvement={
            (ours, theirs): _estimate(statistics.probability_of_improvement, seeds, scores[ours], scores[theirs])
            for ours in scored
            for theirs in scored
            if ours != theirs
        },
    )


def _estimate(statistic: statistics.Statistic, seeds: int, *samples: statistics.Scores) -> Estimate | Point:
    return statistics.estimate(statistic, *samples) if seeds >= ENOUGH else (float(statistic(*samples)), None, None)


def _profile(scores: statistics.Scores, thresholds: np.ndarray, seeds: int) -> Profile:
    middle = statistics.performance_profile(scores, thresholds)
    if seeds < ENOUGH:
        return (middle,)
    return middle, *statistics.interval(lambda drawn: statistics.performance_profile(drawn, thresholds), scores)
