"""Statistics over runs and tasks as Agarwal et al. (2021) define them, with stratified bootstrap intervals.

Scores are one array of runs per task, `[..., runs]`: tasks may have different numbers of runs, and axes in front are
carried along, which is how a thousand resamplings are one call.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Scores = Sequence[np.ndarray]
Statistic = Callable[..., np.ndarray]
"""Takes the scores of one or several methods; returns one number per resampling, or just one."""

ENOUGH = 3
"""Seeds that an interval needs. With two, a bootstrap draws one of three values."""
DRAWS = 2000
"""Resamplings behind an interval: its ends then move by a few hundredths of its width with the random numbers."""
LEVEL = 0.95
TRIM = 0.25  # of the runs on either side: what is left between the quartiles
GAMMA = 1.0  # the score from which on there is no gap to optimality


class Estimate(NamedTuple):
    """A number with the ends of its interval."""

    value: float
    low: float
    high: float


Point = tuple[float, None, None]
"""A number without an interval, because there are too few seeds."""


def iqm(scores: Scores) -> np.ndarray:
    """The interquartile mean of all runs of all tasks: the mean without the best and the worst quarter."""
    return trimmed_mean(_pooled(scores))


def mean(scores: Scores) -> np.ndarray:
    """The mean over tasks of the mean over runs."""
    return np.asarray(_task_means(scores).mean(axis=-1))


def median(scores: Scores) -> np.ndarray:
    """The median over tasks of the mean over runs."""
    return np.asarray(np.median(_task_means(scores), axis=-1))


def optimality_gap(scores: Scores, gamma: float = GAMMA) -> np.ndarray:
    """How far the runs fall short of `gamma` on average; scores above it count as `gamma`."""
    return np.asarray(gamma - np.minimum(_pooled(scores), gamma).mean(axis=-1))


def performance_profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs above each threshold, `[..., thresholds]`."""
    pooled = np.sort(_pooled(scores), axis=-1)
    return np.asarray((pooled[..., None, :] > thresholds[:, None]).mean(axis=-1))


def probability_of_improvement(ours: Scores, theirs: Scores) -> np.ndarray:
    """How likely a run of ours beats one of theirs on a task taken at random; a tie counts one half."""
    tasks = []
    for a, b in zip(ours, theirs, strict=True):
        a, b = a[..., :, None], b[..., None, :]
        tasks.append((0.5 * (a > b) + 0.5 * (a >= b)).mean(axis=(-2, -1)))
    return np.asarray(np.mean(tasks, axis=0))


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """The interquartile mean over the last axis."""
    number = values.shape[-1]
    cut = int(TRIM * number)
    return np.asarray(np.sort(values, axis=-1)[..., cut : number - cut].mean(axis=-1))


def interval(
    statistic: Statistic, *samples: Scores, draws: int = DRAWS, level: float = LEVEL, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile bootstrap interval of a statistic of one or several methods' scores.

    Stratified: runs are drawn again within each task and method, tasks are not. A function of the scores alone.
    """
    rng = np.random.default_rng(seed)
    drawn = [[runs[rng.integers(len(runs), size=(draws, len(runs)))] for runs in scores] for scores in samples]
    low, high = np.percentile(statistic(*drawn), _ends(level), axis=0)
    return np.asarray(low), np.asarray(high)


def estimate(statistic: Statistic, *samples: Scores) -> Estimate:
    """A statistic with its interval."""
    low, high = interval(statistic, *samples)
    return Estimate(float(statistic(*samples)), float(low), float(high))


def curve_intervals(
    values: np.ndarray, statistics: Sequence[Statistic], draws: int = DRAWS // 2
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Each statistic over the seeds of `values` [points, seeds], with the ends of its interval.

    A resampling is of whole seeds, the same at every point. The statistics work on the last axis.
    """
    seeds = values.shape[1]
    chosen = np.random.default_rng(0).integers(seeds, size=(draws, seeds))
    drawn = np.sort(values[:, chosen], axis=-1)  # sorted once for all statistics
    found = []
    for statistic in statistics:
        low, high = np.percentile(statistic(drawn), _ends(LEVEL), axis=1)
        found.append((statistic(values), low, high))
    return found


def _ends(level: float) -> list[float]:
    return [50 * (1 - level), 50 * (1 + level)]


def _pooled(scores: Scores) -> np.ndarray:
    return np.concatenate(scores, axis=-1)


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([runs.mean(axis=-1) for runs in scores], axis=-1)
