"""The closing table of an experiment or a sweep: median [quartiles] over seeds of a few metrics."""

import dataclasses
import statistics
from collections.abc import Iterable

import numpy as np

from sombrl.storage.results import Row


@dataclasses.dataclass(frozen=True)
class Headline:
    """A column of the closing table: per seed the mean of the last few values, then median [quartiles] over seeds."""

    metric: str
    label: str
    last: int = 1
    at_least: float | None = None
    """If given, the column says how many seeds have that instead."""


def table(rows: list[Row], headlines: Iterable[Headline]) -> str:
    """Median [quartiles] over seeds of the headline metrics, a line per environment, setting and method."""
    headlines = [line for line in headlines if any(row.metric == line.metric for row in rows)]
    series: dict[tuple[str, str, str], dict[str, dict[int, list[float]]]] = {}
    for row in rows:
        metrics = series.setdefault((row.env, row.setting, row.method), {})
        metrics.setdefault(row.metric, {}).setdefault(row.seed, []).append(row.value)
    lines = [("environment", "setting", "method", *(line.label for line in headlines))]
    for where, metrics in series.items():
        texts = []
        for line in headlines:
            seeds = [statistics.fmean(values[-line.last :]) for values in metrics.get(line.metric, {}).values()]
            texts.append(_text(seeds, line.at_least))
        if any(text != "–" for text in texts):
            lines.append((*where, *texts))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(text)


def _text(values: list[float], at_least: float | None) -> str:
    if not values:
        return "–"
    if at_least is not None:
        return f"{sum(value >= at_least for value in values)}/{len(values)}"
    low, middle, high = np.percentile(values, [25, 50, 75])
    return f"{_short(middle)} [{_short(low)}, {_short(high)}]" if len(values) > 1 else _short(middle)


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
