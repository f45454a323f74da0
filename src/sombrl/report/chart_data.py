"""What the script of the page draws, as JSON: curves, small charts, profiles and statistics of every comparison."""

from collections.abc import Sequence
from typing import Any

from sombrl.report.aggregate import STATISTICS, Aggregate
from sombrl.report.comparison import Comparison
from sombrl.report.curves import curve
from sombrl.report.measures import EXPLORATION_CHARTS, REGRET_CHARTS, SmallChart
from sombrl.report.tasks import ByMethod, Task
from sombrl.runs.colors import places

SMALL_POINTS = 50
"""The most points of a curve in a small chart."""


def chart_data(comparison: Comparison, overall: Aggregate | None) -> dict[str, Any]:
    """Everything that is drawn of a comparison. A method is its place in the list of methods, `m` in the JSON."""
    methods = comparison.methods
    return {
        "name": comparison.name,
        "methods": methods,
        "looks": places(methods),
        "tasks": [_task(comparison, task) for task in comparison.tasks],
        "profile": None if overall is None else _profiles(methods, overall),
        "aggregate": None if overall is None else _statistics(methods, overall),
    }


def _small_charts(comparison: Comparison, task: Task, charts: Sequence[SmallChart]) -> list[dict[str, Any]]:
    """The charts that a task has curves for; of several tasks in one environment the first has them."""
    if task is not next(other for other in comparison.tasks if other.place == task.place):
        return []
    found = []
    for chart in charts:
        seeds: ByMethod = {}
        for key, record in comparison.records.items():
            here = key.place == task.place and key.metric == chart.metric != task.measure.metric
            if here and key.method in comparison.methods:
                seeds.setdefault(key.method, {})[key.seed] = record
        if seeds:
            curves = _curves(comparison.methods, seeds, points=SMALL_POINTS)
            found.append({"title": chart.title, "ref": chart.reference, "curves": curves})
    return found


def _task(comparison: Comparison, task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "label": task.measure.label,
        "better": task.measure.direction,
        "axis": task.axis,
        "ref": {name: float(f"{level:.5g}") for name, level in task.references.items()},
        "curves": _curves(comparison.methods, task.records, lines=True),
        "regret": _small_charts(comparison, task, REGRET_CHARTS),
        "explore": _small_charts(comparison, task, EXPLORATION_CHARTS),
    }


def _curves(methods: list[str], seeds: ByMethod, **how: Any) -> list[dict[str, Any]]:
    drawn = [{"m": n, **curve(seeds[method], **how)} for n, method in enumerate(methods) if method in seeds]
    return [one for one in drawn if one["x"]]  # nothing is left where all values are damaged


def _profiles(methods: list[str], overall: Aggregate) -> list[dict[str, Any]]:
    x = _rounded(overall.thresholds)
    return [
        {"m": methods.index(method), "x": x, **dict(zip(("i", "il", "ih"), (_rounded(v) for v in lines), strict=False))}
        for method, lines in overall.profiles.items()
    ]


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 3) for value in values]


def _statistics(methods: list[str], overall: Aggregate) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "rows": [
                [methods.index(method), *(v if v is None else round(v, 4) for v in overall.statistics[method][name])]
                for method in overall.methods
            ],
        }
        for name in STATISTICS
    ]
