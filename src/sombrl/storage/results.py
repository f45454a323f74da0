"""Metrics as one long table for the results/ folder: a row per run, seed, iteration and metric."""

import csv
import dataclasses
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sombrl.records import RunFault, SombrlError
from sombrl.storage.files import check_new, write_whole
from sombrl.storage.run_folder import RunFolder

COLUMNS = ("experiment", "method", "env", "setting", "seed", "metric", "env_frames", "decisions", "value")
METRICS = (
    "rollout/ep_rew_mean",
    "rollout/average_reward",
    "explore/mean_std",
    "explore/bonus_share",
    "model/rmse",
    "model/coverage",
)


def export_runs(runs: list[Path], out: Path, experiment: str) -> Path:
    """Write the metrics of finished or running runs as CSV, or as Parquet if `out` says so; refuses to overwrite."""
    check_new(out, "--out")
    lines: list[tuple[Any, ...]] = []
    for path in runs:
        folder = RunFolder.open(path)
        config, rows = folder.settings, folder.rows()
        if not rows:
            raise SombrlError(f"{path} has no metrics yet: train it first.")
        explore = config["config"].get("explore", {}).get("explore")
        method = "/".join(filter(None, (config["algorithm"], explore)))
        env, setting = config["run"]["env"], config["run"].get("setting", "finite-horizon")
        for row in rows:
            if missing := [name for name in ("seed", "env_frames", "decisions") if name not in row]:
                raise SombrlError(f"a row of {folder.metrics_path} has no {missing[0]}: restore it from a copy.")
            where = (experiment, method, env, setting, row["seed"])
            counts = (row["env_frames"], row["decisions"])
            lines += [(*where, m, *counts, row[m]) for m in METRICS if isinstance(row.get(m), int | float)]
    if out.suffix == ".parquet":
        from sombrl.storage.parquet import parquet_bytes

        write_whole(out, parquet_bytes(COLUMNS, lines))
    else:
        write_whole(out, _csv(lines))
    return out


@dataclasses.dataclass(frozen=True)
class Row:
    """One number of an experiment; the fields are COLUMNS."""

    experiment: str
    method: str
    env: str
    setting: str
    seed: int
    metric: str
    env_frames: int
    decisions: int
    value: float


def rows_text(rows: Iterable[Row]) -> str:
    """The table as CSV. A number is written so that reading it gives the same float again."""
    return _csv(dataclasses.astuple(row) for row in rows)


def _csv(lines: Iterable[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(lines)
    return text.getvalue()


def read_rows(path: Path) -> list[Row]:
    """The table of a CSV file; refuses, naming the line, what is no such table."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise SombrlError(f"there is no {path}.") from None
    except OSError as error:
        raise RunFault(f"cannot read {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError:
        raise SombrlError(f"{path} is no text; a table of results has the columns {', '.join(COLUMNS)}.") from None
    lines = csv.reader(io.StringIO(text))
    if tuple(next(lines, ())) != COLUMNS:
        raise SombrlError(f"{path} is no table of results: its first line must be {','.join(COLUMNS)}.")
    rows = []
    for line in lines:
        try:
            experiment, method, env, setting, seed, metric, frames, decisions, value = line
            row = Row(experiment, method, env, setting, int(seed), metric, int(frames), int(decisions), float(value))
        except ValueError:
            raise SombrlError(
                f"line {lines.line_num} of {path} is damaged: make the file again, or take it from where it came."
            ) from None
        if not math.isfinite(row.value):
            raise SombrlError(f"line {lines.line_num} of {path} has no finite value.")
        rows.append(row)
    if not text.endswith("\n"):
        raise SombrlError(f"{path} ends in the middle of a line: make the file again, or take it from where it came.")
    return rows
