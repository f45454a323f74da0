"""Metrics as one long table for the results/ folder: a row per run, seed, iteration and metric."""

import csv
import dataclasses
import io
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from sombrl.errors import RunFault, SombrlError
from sombrl.storage.files import check_new, refuse_links, write_whole
from sombrl.storage.run_folder import RunFolder

T = TypeVar("T")
COLUMNS = ("experiment", "method", "env", "setting", "seed", "metric", "env_frames", "decisions", "value")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins with one of these is a formula to a spreadsheet."""
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
    if not runs:
        raise SombrlError("there is nothing to export: name at least one run, sombrl export runs/p --out p.csv.")
    lines = [line for own in readable(runs, lambda path: _lines(path, experiment)) for line in own]
    if out.suffix == ".parquet":
        from sombrl.storage.parquet import parquet_bytes

        write_whole(out, parquet_bytes(COLUMNS, lines))
    else:
        write_whole(out, _csv(lines))
    return out


def readable(runs: list[Path], read: Callable[[Path], T]) -> list[T]:
    """What can be read of several runs; the others are named on the standard error. Refuses if none can be."""
    found, refusals = [], []
    for path in dict.fromkeys(runs):
        try:
            RunFolder.open(path)
        except SombrlError:  # a slip of the keyboard, and no damage
            raise
        try:
            found.append(read(path))
        except (SombrlError, RunFault) as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    for refusal in refusals:
        print(f"sombrl: left out: {refusal}", file=sys.stderr)
    return found


def _lines(path: Path, experiment: str) -> list[tuple[Any, ...]]:
    """The numbers of one run as lines of the table."""
    folder = RunFolder.open(path)
    refuse_links(path, ("config.json", "metrics.jsonl"))
    config, rows = folder.settings, folder.rows()
    if not rows:
        raise SombrlError(f"{path} has no metrics yet: train it first.")
    explore = config["config"].get("explore", {}).get("explore")
    method = "/".join(filter(None, (config["algorithm"], explore)))
    env, setting = config["run"]["env"], config["run"].get("setting", "finite-horizon")
    lines: list[tuple[Any, ...]] = []
    for row in rows:
        if missing := [name for name in ("seed", "env_frames", "decisions") if name not in row]:
            raise SombrlError(f"a row of {folder.metrics_path} has no {missing[0]}: restore it from a copy.")
        where = (experiment, method, env, setting, row["seed"])
        counts = (row["env_frames"], row["decisions"])
        lines += [(*where, m, *counts, row[m]) for m in METRICS if isinstance(row.get(m), int | float)]
    return lines


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
    table.writerows([_harmless(cell) for cell in line] for line in lines)
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula; `_plain` is the inverse."""
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip("'").startswith(FORMULA) else cell


def _plain(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell.lstrip("'").startswith(FORMULA) else cell


def read_rows(path: Path) -> list[Row]:
    """The table of a CSV file; refuses anything else, naming the line."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise SombrlError(f"there is no {path}.") from None
    except OSError as error:
        raise RunFault(f"cannot read {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError:
        raise SombrlError(
            f"{path} is not a text file; a table of results has the columns {', '.join(COLUMNS)}."
        ) from None
    lines = csv.reader(io.StringIO(text))
    if tuple(next(lines, ())) != COLUMNS:
        raise SombrlError(f"{path} is not a table of results: its first line must be {','.join(COLUMNS)}.")
    rows = []
    for line in lines:
        try:
            *texts, seed, metric, frames, decisions, value = line
            experiment, method, env, setting, metric = map(_plain, (*texts, metric))
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
