"""How many frames a method needs to reach a share of the best score, and what its decisions cost."""

import dataclasses

import numpy as np

from sombrl.report.comparison import Comparison
from sombrl.report.curves import curve
from sombrl.report.loading import Source
from sombrl.report.tasks import Task

SHARES = (0.5, 0.75, 0.9)
STAGES = ("time/fit_s", "time/imagine_s", "time/improve_s", "time/collect_s")


@dataclasses.dataclass(frozen=True)
class Reached:
    """When the seeds of a method first reach a threshold."""

    frames: float | None
    """The median over all seeds; None if fewer than half of them reach the threshold."""
    seeds: int
    of: int


def frames_to_reach(task: Task) -> tuple[list[float], dict[str, list[Reached]]] | None:
    """The thresholds of a task and when each method reaches them; None for measures of which less is better.

    A threshold lies so much of the way from the lowest first interquartile mean to the best one of any method.
    """
    if not task.measure.higher or task.measure.running or not task.records:
        return None
    curves = [[value for value in curve(seeds)["i"] if value is not None] for seeds in task.records.values()]
    if max(map(len, curves)) < 2:
        return None
    low, high = min(values[0] for values in curves), max(max(values) for values in curves)
    if high <= low:
        return None
    thresholds = [low + share * (high - low) for share in SHARES]
    return thresholds, {
        method: [_reached([_first(record.frames, record.values, at) for record in seeds.values()]) for at in thresholds]
        for method, seeds in task.records.items()
    }


def _first(frames: np.ndarray, values: np.ndarray, threshold: float) -> float:
    above = np.flatnonzero(values >= threshold)
    return float(frames[above[0]]) if len(above) else np.inf


def _reached(frames: list[float]) -> Reached:
    middle = float(np.median(frames)) if sum(np.isfinite(frames)) * 2 > len(frames) else np.inf
    return Reached(middle if np.isfinite(middle) else None, int(np.isfinite(frames).sum()), len(frames))


@dataclasses.dataclass(frozen=True)
class Cost:
    """The speed of a run and the seconds it spent."""

    method: str
    env: str
    seeds: int
    decisions_per_s: float | None
    """All seeds together; the median without the first iteration, which compiles."""
    stages: list[float | None]
    """Seconds in all, in the order of STAGES."""


def costs(comparison: Comparison) -> list[Cost]:
    """The cost of every run with recorded times."""
    found = (_cost(source) for source in comparison.sources if source.kind == "run")
    return [cost for cost in found if cost is not None]


def _cost(source: Source) -> Cost | None:
    first = next(iter(source.records))
    # The times of an iteration are those of all seeds together, and every seed's row has them.
    times = {key.metric: r.values for key, r in source.records.items() if key.metric.startswith("time/")}
    if not times:
        return None
    rate = times.get("time/fps")
    seeds = len({key.seed for key in source.records})
    warm = None if rate is None else float(np.median(rate[1:] if len(rate) > 1 else rate))
    return Cost(
        *(first.method, first.env, seeds, warm), [float(times[s].sum()) if s in times else None for s in STAGES]
    )
