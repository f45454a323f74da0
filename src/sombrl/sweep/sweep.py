"""`sombrl sweep`: the folder of a sweep, its cells brought to their end, and its table.

FOLDER/sweep.json        the cells, as they were asked for
FOLDER/cells/NAME/run    the run of each, as `sombrl train` writes it
FOLDER/logs              what their processes printed
FOLDER/results.csv       the numbers of all, with results.json beside it
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sombrl.envs.trust import NO_WORD, Word
from sombrl.records import RunFault, SombrlError
from sombrl.runs.cell import TrainCell
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.headlines import Headline, table
from sombrl.runs.in_turn import cells_manifest
from sombrl.storage.files import refuse_links, write_whole
from sombrl.storage.results import rows_text
from sombrl.sweep.driver import AbstractBackend, Drive, complete, to_the_end
from sombrl.sweep.places import SweepPlace, read_sweep
from sombrl.sweep.spec import cell_to_json

OWN = (
    "sweep.json",
    "driver.json",
    ".drivers",
    "jobs.json",
    "cells",
    "trials",
    "logs",
    "results.csv",
    "results.json",
    "study.db",
    "progress.json",
)
"""What is written in a sweep's folder."""
HEADLINES = (
    Headline("rollout/ep_rew_mean", "return, last 3", last=3),
    Headline("rollout/average_reward", "reward per decision"),
    Headline("eval/ep_rew_mean", "without exploring"),
)


def open_sweep(
    path: Path,
    name: str,
    cells: Sequence[TrainCell],
    backend: Callable[[], AbstractBackend],
    word: Word = NO_WORD,
    **more: Any,
) -> tuple[SweepPlace, AbstractBackend]:
    """The folder of a sweep, new or the one that was begun with the same cells; refuses any other.

    The backend is made in between: where it is not to be had, nothing is left behind. `more` is what else must be the
    same, plain JSON: what `sombrl tune` searches over. `word` is what the user has said about environments of cells.
    """
    asked = {"format": 1, "name": name, "cells": [cell_to_json(cell) for cell in cells], **more}
    ours = json.loads(json.dumps(asked))
    for parent in path.absolute().parents:
        if (parent / "sweep.json").exists():
            raise SombrlError(f"{path} lies inside the sweep {parent}: choose another --out.")
    if path.exists() and not path.is_dir():
        raise SombrlError(f"{path} is a file: choose another --out.")
    refuse_links(path, OWN)
    begun = (path / "sweep.json").exists()
    if begun:
        _require_same(path, ours)
    elif path.exists() and any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise SombrlError(f"{path} is not empty and no sweep: choose another --out.")
    place, made = SweepPlace(path, word), backend()
    if not begun:
        _write_new(path / "sweep.json", json.dumps(ours, indent=1))
        _require_same(path, ours)  # another process may have been quicker
    return place, made


def run_sweep(
    place: SweepPlace,
    backend: AbstractBackend,
    *,
    retries: int,
    partial: bool = False,
    command: Sequence[str],
    see_through: Callable[[Drive], None] = to_the_end,
) -> Path | None:
    """Bring the cells to their end, write the table and return its path; `partial` writes it also when some failed.

    Where `see_through` leaves some unfinished, the table has the others; there is none where nothing is finished.
    """
    folders = place.folders()
    try:
        complete(place, list(folders), backend, retries=retries, command=command, see_through=see_through)
    except RunFault:
        if partial and any(folder.finished for folder in folders.values()):
            publish(place.path, list(folders.values()), list(command))
        raise
    left = sum(not folder.finished for folder in folders.values())
    table = publish(place.path, list(folders.values()), list(command)) if left < len(folders) else None
    if left:
        print(f"{left} of {len(folders)} cells remain; go on with the same command: {' '.join(command)}")
    return table


def publish(path: Path, folders: list[CellFolder], command: list[str]) -> Path:
    """Write the table of finished cells, if it is not there yet or differs, and say where it is."""
    folders = [folder for folder in folders if folder.finished]
    rows = [row for folder in folders for row in folder.rows()]
    text, out = rows_text(rows), path / "results.csv"
    same = out.is_file() and out.read_bytes() == text.encode()
    if not same:
        write_whole(out, text)
    if not (same and out.with_suffix(".json").is_file()):
        manifest = {"sweep": read_sweep(path)["name"], **cells_manifest(folders, command)}
        write_whole(out.with_suffix(".json"), json.dumps(manifest, indent=1) + "\n")
    over = "\nmedian [quartiles] over seeds" if len({row.seed for row in rows}) > 1 else ""
    print(f"\n{table(rows, HEADLINES)}{over}\n\ntable    {out}")
    return out


def _require_same(path: Path, ours: dict[str, Any]) -> None:
    theirs = read_sweep(path)
    if theirs != ours:
        raise SombrlError(
            f"{path} belongs to another sweep ({theirs.get('name')}, {len(theirs.get('cells', []))} cells): choose "
            "another --out, or give the spec and overrides that it was begun with."
        )
    for folder in SweepPlace(path).folders().values():
        folder.check()


def _write_new(path: Path, text: str) -> None:
    """Write a file whole, unless another process has just done so."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        write_whole(aside, text)
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise RunFault(f"cannot create the sweep {path.parent}: {error.strerror or error}.") from error
    finally:
        aside.unlink(missing_ok=True)
