"""What a report reads: runs, cells of experiments and tables of results, found in folders, and what was skipped.

A page is shown to others, and a folder may come from others: no link in a folder is followed, so that nothing gets into
the page that does not lie there. Only the paths that the user gives may be links.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from sombrl.errors import RunFault, SombrlError
from sombrl.optional import first_line
from sombrl.storage.files import read_file, refuse_links
from sombrl.storage.results import COLUMNS, Row, read_rows
from sombrl.storage.run_folder import RunFolder, is_text

MEDIA = {".gif": "image/gif", ".png": "image/png", ".mp4": "video/mp4"}
FRAMES, ITERATIONS = "env frames", "iterations"
Point = tuple[int | float, int | float, int | float]
"""Frames, decisions and a value, as files have them."""


class Key(NamedTuple):
    """Which numbers a record holds."""

    method: str
    env: str
    setting: str
    metric: str
    seed: int

    @property
    def place(self) -> tuple[str, str]:
        """Environment and setting."""
        return self.env, self.setting


class Record(NamedTuple):
    """One metric of one seed over time."""

    frames: np.ndarray
    decisions: np.ndarray
    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Source:
    """One run, cell or table, with all that its files say about it."""

    path: Path
    comparison: str
    """Sources with the same name here are compared with each other."""
    kind: Literal["run", "table"]
    records: dict[Key, Record]
    axis: str = FRAMES
    """What `frames` of its records counts: iterations for a run that does not count frames."""
    config: dict[str, Any] | None = None
    """As in config.json: algorithm, config and run."""
    manifest: dict[str, Any] | None = None
    cells: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """From an experiment's manifest: when, where and in how many seconds each cell was made."""
    evaluations: tuple[dict[str, Any], ...] = ()
    """As in eval.json."""
    media: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Found:
    """Everything that lies under some paths."""

    sources: list[Source]
    skipped: list[tuple[Path, str]]
    """What looked like results and could not be read, and why."""


def find(paths: Sequence[Path]) -> Found:
    """Everything that can be reported under `paths`, in the order of their names; refuses a path that is not there."""
    found = Found([], [])
    for path in dict.fromkeys(map(Path, paths)):
        if not path.exists():
            raise SombrlError(f"there is no {path}: give run folders, tables of results or folders that contain some.")
        _look(path, found)
    return found


def _look(path: Path, found: Found) -> None:
    try:
        if path.is_file():
            found.sources.extend(_tables(path))
        elif (path / "settings.json").is_file() and ((path / "rows.csv").is_file() or (path / "run").is_dir()):
            found.sources.extend(_cell(path))
        elif _is_run(path):
            found.sources.append(_run(path))
        elif (path / "sweep.json").is_file() and (path / "cells").is_dir() and not (path / "cells").is_symlink():
            _look(path / "cells", found)  # its results.csv has the same numbers, of finished cells alone
        else:
            inside = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
            for entry in inside:
                if entry.suffix == ".csv" and entry.is_symlink():
                    found.skipped.append((entry, "is a link: give the table itself."))
                elif (entry.is_dir() and not entry.is_symlink()) or entry.suffix == ".csv":
                    _look(entry, found)
    except (SombrlError, RunFault) as error:
        found.skipped.append((path, str(error).removeprefix(f"{path} ")))
    except OSError as error:
        found.skipped.append((path, f"cannot be read: {error.strerror or error}."))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as error:  # somebody changed a file by hand
        found.skipped.append((path, f"has a damaged file ({first_line(error)}): restore it from a copy."))


def _is_run(path: Path) -> bool:
    """Whether a folder is a run, complete or not. A manifest alone may belong to a table."""
    here = {name for name in ("config.json", "metrics.jsonl", "manifest.json", "checkpoints") if (path / name).exists()}
    return bool(here & {"config.json", "metrics.jsonl"}) or {"manifest.json", "checkpoints"} <= here


def _run(path: Path) -> Source:
    refuse_links(path, ("config.json", "manifest.json", "metrics.jsonl", "eval.json"))
    folder = RunFolder.open(path)
    manifest = folder.manifest
    if manifest.get("kind") == "campaign":
        raise SombrlError("it is a campaign on hardware, with a page of its own: see sombrl hardware status.")
    config = folder.settings
    try:
        method, env = _method(config), _task(config["run"])
        setting = config["run"].get("setting", "finite-horizon")
    except (KeyError, TypeError, AttributeError):
        raise SombrlError("its config.json names no algorithm, environment or exploration.") from None
    rows = folder.rows()
    records, axis = _records(rows, method, env, setting)
    if not records:
        raise SombrlError("it has no metrics yet." if not rows else "its metrics name no seed and no iteration.")
    return Source(
        path, "Runs", "run", records, axis, config, manifest, evaluations=_evaluations(path), media=_media(path)
    )


def _records(rows: list[dict[str, Any]], method: str, env: str, setting: str) -> tuple[dict[Key, Record], str]:
    """The numbers of metrics.jsonl by metric and seed. Where a metric is null it has no record."""
    rows = [row for row in rows if {"iteration", "seed"} <= row.keys()]
    counted = all({"env_frames", "decisions"} <= row.keys() for row in rows)
    frames, decisions = ("env_frames", "decisions") if counted else ("iteration", "iteration")
    numbers = (
        (Key(method, env, setting, metric, int(row["seed"])), (row[frames], row[decisions], value))
        for row in rows
        for metric, value in row.items()
        if "/" in metric and isinstance(value, int | float)
    )
    return _by_key(numbers), FRAMES if counted else ITERATIONS


def _by_key(numbers: Iterable[tuple[Key, Point]]) -> dict[Key, Record]:
    """A record for each key. The last of several numbers at the same frames counts."""
    points: dict[Key, dict[float, Point]] = {}
    for key, point in numbers:
        points.setdefault(key, {})[point[0]] = point
    return {key: Record(*np.array(sorted(those.values()), dtype=float).T) for key, those in points.items()}


def _method(config: dict[str, Any]) -> str:
    explore = config["config"].get("explore") or {}
    return "/".join(filter(None, (config["algorithm"], explore.get("explore"))))


def _task(run: dict[str, Any]) -> str:
    """The environment with the options that make it another task, as experiments write it."""
    cost = f"action_cost={run['action_cost']}" if run.get("action_cost") else None
    return " ".join(filter(None, (run["env"], *run.get("env_kwargs", ()), cost)))


def _evaluations(path: Path) -> tuple[dict[str, Any], ...]:
    try:
        evaluations = json.loads(read_file(path / "eval.json"))
        if not is_text(evaluations):
            raise ValueError("no text")
        found = tuple(one for one in evaluations if {"settings", "returns"} <= one.keys())
        for one in found:
            one["settings"].keys()
            for values in one["returns"].values():
                math.fsum(values)  # refuses what is not a number
        return found
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SombrlError(f"its eval.json cannot be read ({error}).") from None


def _media(path: Path) -> tuple[Path, ...]:
    folders = (path, *(folder for folder in (path / "videos", path / "plots") if not folder.is_symlink()))
    return tuple(file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()) if _is_medium(file))


def _is_medium(path: Path) -> bool:
    """Whether a file has the name of one; a link is one that is not shown."""
    return path.suffix.lower() in MEDIA and (path.is_symlink() or path.is_file()) and not path.name.startswith(".")


def _cell(path: Path) -> list[Source]:
    """A cell of an experiment: its run, finished or not, under the names of the experiment; without a run its rows."""
    refuse_links(path, ("settings.json", "finished.json", "rows.csv", "evaluations", "run"))
    settings = _json(path / "settings.json")
    experiment = settings.get("experiment", path.parent.name)
    above = (parent.name for parent in path.absolute().parents)
    root = next((name for name in above if name.startswith(f"{experiment}-")), experiment)
    scale = root.removeprefix(experiment).removeprefix("-")
    name, finished = f"{experiment} · {scale} (cells)" if scale else experiment, _json(path / "finished.json", {})
    cells = {"/".join(path.absolute().parts[-2:]): finished} if finished else {}
    rows = _table(read_rows(path / "rows.csv")) if (path / "rows.csv").is_file() else {}
    if not (path / "run").is_dir():
        return [Source(path, name, "table", rows, manifest=finished, cells=cells)]
    run = _run(path / "run")
    method, env = settings.get("method"), settings.get("env")
    records = {key._replace(method=method or key.method, env=env or key.env): r for key, r in run.records.items()}
    # Metrics that the experiment computes from a run are only in its rows.
    records |= {key: record for key, record in rows.items() if key not in records}
    for key, record in _cell_evaluations(path, records).items():
        records.setdefault(key, record)
    return [dataclasses.replace(run, path=path, comparison=name, records=records, cells=cells)]


def _cell_evaluations(path: Path, records: dict[Key, Record]) -> dict[Key, Record]:
    """The evaluations of an unfinished cell: a file each, named by the iteration, values in the order of the seeds."""
    if not records or (path / "rows.csv").is_file():
        return {}
    some = next(iter(records))
    counts = {key.seed: record for key, record in sorted(records.items()) if key.metric == some.metric}
    return _by_key(
        (some._replace(metric=metric, seed=seed), (record.frames[at], record.decisions[at], value))
        for file in sorted((path / "evaluations").glob("*.json"))
        if not file.is_symlink()
        for at in [int(file.stem) - 1]
        for metric, values in _json(file).items()
        for (seed, record), value in zip(counts.items(), values, strict=False)
        if 0 <= at < len(record.frames)
    )


def _tables(path: Path) -> list[Source]:
    """The experiments of a CSV file, with the manifest beside it."""
    if path.suffix != ".csv":
        raise SombrlError("it is neither a folder nor a .csv file.")
    with open(path, "rb") as file:
        if not file.readline().startswith(",".join(COLUMNS).encode()):
            raise SombrlError(f"it is not a table of results: the first line of one is {','.join(COLUMNS)}.")
    rows = read_rows(path)
    if not rows:
        raise SombrlError("it has no rows.")
    beside = path.with_suffix(".json")
    beside = beside if beside.is_file() else path.with_name("manifest.json")
    manifest = None if beside.is_symlink() else _json(beside, None)
    cells = manifest.pop("cells", {}) if manifest else {}
    if manifest and isinstance(manifest.get("manifest"), dict):  # some were put together from several processes
        manifest = {key: value for key, value in manifest.items() if key != "manifest"} | manifest["manifest"]
    config = manifest.pop("config", None) if manifest else None
    experiments: dict[str, list[Row]] = {}
    for row in rows:
        experiments.setdefault(row.experiment, []).append(row)
    return [
        Source(
            *(path, path.stem if name == "run" else f"{name} · {path.stem}", "table", _table(those)),
            config=config if isinstance(config, dict) and "config" in config else None,
            manifest=manifest,
            cells=cells if isinstance(cells, dict) else {},
        )
        for name, those in experiments.items()
    ]


def _table(rows: Iterable[Row]) -> dict[Key, Record]:
    return _by_key(
        (Key(row.method, row.env, row.setting, row.metric, row.seed), (row.env_frames, row.decisions, row.value))
        for row in rows
    )


_REFUSE = object()


def _json(path: Path, missing: Any = _REFUSE) -> Any:
    """The dictionary of a JSON file; `missing`, if given, where there is none that can be read."""
    try:
        content = json.loads(read_file(path))
        if not isinstance(content, dict) or not is_text(content):
            raise ValueError("not a dictionary of texts and numbers")
        return content
    except (OSError, ValueError, RecursionError) as error:
        if missing is not _REFUSE:
            return missing
        raise SombrlError(f"its {path.name} cannot be read ({error}).") from None
