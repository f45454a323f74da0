"""Long rows: one number each, ready for a CSV, and the arrays they become again."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from sombrl.records import SombrlError

LabRow = dict[str, str | int | float]
Rows = Sequence[Mapping[str, Any]]
"""Rows to read; from a CSV their numbers may be text."""
KEYS = ("method", "env", "setting", "seed", "metric", "decisions", "env_frames", "value")


def make_rows(
    method: str,
    env: str,
    setting: str,
    decisions: Int[np.ndarray, " times"],
    metrics: Mapping[str, Shaped[np.ndarray, "seeds times"]],
) -> list[LabRow]:
    """Rows of several metrics, each an array [seeds, times]. A decision is a frame here."""
    rows: list[LabRow] = []
    for metric, values in metrics.items():
        for seed, curve in enumerate(values):
            for when, value in zip(decisions.tolist(), curve, strict=True):
                rows.append(
                    {
                        "method": method,
                        "env": env,
                        "setting": setting,
                        "seed": seed,
                        "metric": metric,
                        "decisions": when,
                        "env_frames": when,
                        "value": float(value),
                    }
                )
    return rows


def select(rows: Iterable[Mapping[str, Any]], **wanted: str) -> list[Mapping[str, Any]]:
    """The rows with these values, e.g. metric="lab/regret"."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def distinct(rows: Iterable[Mapping[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    """The combinations of these columns, in the order in which they first appear."""
    return list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))


def curves(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The decisions, and the values as an array [seeds, decisions]; every seed must have every decision."""
    times = sorted({int(row["decisions"]) for row in rows})
    seeds = sorted({int(row["seed"]) for row in rows})
    values = np.full((len(seeds), len(times)), np.nan)
    place = {when: i for i, when in enumerate(times)}
    line = {seed: i for i, seed in enumerate(seeds)}
    for row in rows:
        values[line[int(row["seed"])], place[int(row["decisions"])]] = float(row["value"])
    if len(rows) != values.size:
        raise SombrlError(
            f"{len(rows)} rows for {len(seeds)} seeds and {len(times)} times: some are missing or duplicated."
        )
    return np.asarray(times), values
