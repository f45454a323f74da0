"""`sombrl status`: what has become of every cell, from the files alone, whether a driver runs or not."""

import dataclasses
import json
import os
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sombrl.records import SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.in_turn import duration
from sombrl.sweep.driver import is_driven
from sombrl.sweep.places import AbstractCells, SweepPlace, place_from_json

TAIL = 65536  # bytes of metrics.jsonl: more than the rows of the last iteration
STATES = ("done", "running", "waiting", "failed", "pruned")


@dataclasses.dataclass(frozen=True)
class CellStatus:
    """A line of the table."""

    name: str
    state: str
    """One of STATES."""
    iteration: int = 0
    planned: int | None = None
    rate: float | None = None
    """Decisions per second, all seeds together."""
    eta: float | None = None
    """Seconds."""
    seconds: float | None = None
    """That a finished cell took."""
    note: str = ""


def find_place(path: Path) -> tuple[AbstractCells, list[str]]:
    """The cells of a sweep's or an experiment's folder, and the command that goes on with them."""
    if not path.is_dir():
        raise SombrlError(f"there is no {path}: give the folder of `sombrl sweep --out`.")
    try:
        data = json.loads((path / "driver.json").read_text())
        place, command = place_from_json(data["place"]), data["command"]
    except FileNotFoundError:
        return SweepPlace(path), []
    except (OSError, ValueError, KeyError) as error:
        raise SombrlError(f"cannot read {path / 'driver.json'} ({error}).") from None
    if not isinstance(place, AbstractCells):
        raise SombrlError(f"{path} is not a sweep: give the folder of `sombrl sweep --out`.")
    # The folder may have been moved, or be mounted elsewhere.
    return place.at(path), command


def cell_status(name: str, folder: CellFolder, now: float) -> CellStatus:
    """What has become of one cell."""
    attempts = folder.attempts.events()
    started = next((event for event in reversed(attempts) if event["event"] == "started"), None)
    last = attempts[-1] if attempts else {"event": ""}
    row = last_row(folder.path / "run" / "metrics.jsonl")
    status = CellStatus(name, "waiting", row["iteration"] + 1 if row else 0, (started or {}).get("planned"))
    if folder.finished:
        record = folder.record()
        note = f"taken over from {record['taken from']}" if "taken from" in record else ""
        return dataclasses.replace(status, state="done", seconds=record["seconds"], note=note)
    if folder.in_use:
        status = dataclasses.replace(status, state="running")
        if started is None or last["event"] != "started":  # it compiles, or loads its checkpoint
            return status
        where = f"process {started['pid']} on {started['host']}"
        rate = row.get("time/fps") if row else None
        return dataclasses.replace(status, rate=rate, eta=_eta(status, started, folder, now), note=where)
    if last["event"] in ("failed", "pruned"):
        return dataclasses.replace(status, state=last["event"], note=last.get("reason", ""))
    return dataclasses.replace(status, note=f"broke: {last['reason']}" if last["event"] == "broke" else "")


def status_text(path: Path) -> str:
    """The table of cells and a line that sums it up."""
    place, command = find_place(path)
    now = time.time()
    cells = [cell_status(name, folder, now) for name, folder in place.folders().items()]
    lines: list[tuple[str, ...]] = [("cell", "state", "iterations", "decisions/s", "ETA", "")]
    lines += [_line(cell) for cell in cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "  ".join("─" * width for width in widths[:-1]))
    return "\n".join([*text, "", _summary(cells, is_driven(place.root), command)])


def _line(cell: CellStatus) -> tuple[str, ...]:
    iterations = f"{cell.iteration}/{cell.planned}" if cell.planned else ""
    rate = f"{cell.rate:.4g}" if cell.rate else ""
    took = f"in {duration(cell.seconds)}" if cell.seconds is not None and not cell.note else ""
    eta = duration(cell.eta) if cell.eta is not None else ""
    return (cell.name, cell.state, iterations, rate, eta, cell.note or took)


def _summary(cells: list[CellStatus], driven: bool, command: list[str]) -> str:
    counts = Counter(cell.state for cell in cells)
    parts = [f"{counts['done']} of {len(cells)} cells done"]
    parts += [f"{counts[state]} {state}" for state in STATES[1:] if counts[state]]
    text = ", ".join(parts)
    if (left := _time_left(cells)) is not None:
        text += f"; about {duration(left)} left"
    if not driven and counts["done"] + counts["pruned"] < len(cells):
        text += "\nno driver is running" + (f": go on with {' '.join(command)}" if command else "")
    return text


def _time_left(cells: list[CellStatus]) -> float | None:
    """Seconds until all are done, if those that wait take as long as those that are done."""
    running = [cell.eta for cell in cells if cell.eta is not None]
    took = [cell.seconds for cell in cells if cell.seconds is not None]
    waiting = sum(cell.state == "waiting" for cell in cells)
    if not running or (waiting and not took):
        return None
    return (sum(running) + waiting * (statistics.fmean(took) if took else 0.0)) / len(running)


def _eta(status: CellStatus, started: dict[str, Any], folder: CellFolder, now: float) -> float | None:
    """From the pace since the process started, its compiling included."""
    done = status.iteration - started.get("iteration", 0)
    if status.planned is None or done < 1:
        return None
    logged = (folder.path / "run" / "metrics.jsonl").stat().st_mtime
    each: float = (logged - started["time"]) / done
    return max(0.0, each * (status.planned - status.iteration) - (now - logged))


def last_row(path: Path) -> dict[str, Any] | None:
    """The last whole row of metrics, or None."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - TAIL))
            lines = file.read().split(b"\n")[:-1]
        return json.loads(lines[-1]) if lines else None
    except (OSError, ValueError):
        return None
