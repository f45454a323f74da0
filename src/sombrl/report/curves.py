"""Curves over seeds on one grid of frames: median and interquartile mean with bootstrap intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sombrl.report.loading import Record
from sombrl.report.statistics import ENOUGH, curve_intervals, trimmed_mean

POINTS = 80
"""The most points of a curve: a screen shows no more."""
SEED_LINES = 10
"""With more seeds than this, lines of single seeds would merge into a grey area."""
HOLD = 0.05  # a seed keeps its last value this share of the way past its end: episodes end at different frames


def curve(seeds: Mapping[int, Record], points: int = POINTS, lines: bool = False) -> dict[str, Any]:
    """A method's curve as the page reads it; the names are one letter because there are thousands of them.

    x: frames; d: decisions, or r: frames per decision where that is one number; q and i: median and interquartile
    mean, with l and h the ends of their intervals; n: seeds; s: the seeds' own values.
    """
    records = list(seeds.values())
    grid = _grid(records, points)
    values = np.stack([_held(record, grid) for record in records], axis=1)
    there = np.isfinite(values).any(axis=1)
    grid, values = grid[there], values[there]
    number = np.isfinite(values).sum(axis=1)
    found = _statistics(values)
    content: dict[str, Any] = {"x": _numbers(grid), **_decisions(records, grid)}
    for name, (middle, low, high) in found.items():
        content |= {name: _numbers(middle)}
        if np.isfinite(low).any():
            content |= {f"{name}l": _numbers(low), f"{name}h": _numbers(high)}
    content["n"] = int(number.max(initial=0)) if len(set(number.tolist())) <= 1 else number.tolist()
    if lines and 1 < len(records) <= SEED_LINES:
        content["s"] = [_numbers(column) for column in values.T]
    return content


def _grid(records: Sequence[Record], points: int) -> np.ndarray:
    every = np.unique(np.concatenate([record.frames for record in records]))
    if len(every) <= points:
        return every
    return np.asarray(every[np.unique(np.linspace(0, len(every) - 1, points).round().astype(int))])


def _held(record: Record, grid: np.ndarray) -> np.ndarray:
    """The last value at or before each point of the grid; NaN before the first and well after the last."""
    place = np.searchsorted(record.frames, grid, side="right") - 1
    values = record.values[np.maximum(place, 0)].astype(float)
    values[(place < 0) | (grid > record.frames[-1] + HOLD * grid[-1])] = np.nan
    return values


def _statistics(values: np.ndarray) -> dict[str, np.ndarray]:
    """Median and interquartile mean at every point, over the seeds that are there; no interval for few of them."""
    names = ("q", "i")
    found = {name: np.full((3, len(values)), np.nan) for name in names}
    there = np.isfinite(values)
    for pattern in np.unique(there, axis=0):
        rows = (there == pattern).all(axis=1)
        those = values[rows][:, pattern]
        middles = [_median(those), trimmed_mean(those)]
        ends = curve_intervals(those, [_median, trimmed_mean]) if those.shape[1] >= ENOUGH else [None, None]
        for name, middle, end in zip(names, middles, ends, strict=True):
            found[name][0][rows] = middle
            if end is not None:
                found[name][1][rows], found[name][2][rows] = end[1:]
    return found


def _median(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.median(values, axis=-1))


def _decisions(records: Sequence[Record], grid: np.ndarray) -> dict[str, Any]:
    """Frames as decisions: a number of frames each, or a list where an episode's end changes that."""
    frames = np.concatenate([record.frames for record in records])
    decisions = np.concatenate([record.decisions for record in records])
    counted = decisions > 0
    ratios = np.unique(frames[counted] / decisions[counted])
    if len(ratios) == 1:
        return {"r": float(ratios[0])}
    order = np.argsort(frames)
    return {"d": _numbers(np.interp(grid, frames[order], decisions[order]))}


def _numbers(values: np.ndarray) -> list[float | int | None]:
    """Four significant digits: no screen shows more."""
    short = (float(f"{value:.4g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=float))
    return [int(value) if value is not None and value == int(value) else value for value in short]
