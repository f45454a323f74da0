"""Cells brought to their end one after the other in this process."""

import contextlib
import hashlib
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sombrl.records import RunFault
from sombrl.runs.cell import TrainCell
from sombrl.runs.cell_folder import CellFolder
from sombrl.storage.provenance import provenance

RunCells = Callable[[list[CellFolder], list[str], Path | None, list[str]], None]
"""Cells, their names, the folder of all experiments' cells if there is one, and the command."""


def run_in_turn(folders: list[CellFolder], names: list[str], runs: Path | None, command: list[str]) -> None:
    """Bring cells to their end, one after the other, in this process; what others have finished in `runs` is taken."""
    total = len(folders)
    left = [i for i, folder in enumerate(folders) if not folder.finished]
    skipped = total - len(left)
    if skipped:
        print(f"{skipped} of {total} cells are finished already and are not run again")
    seconds: list[float] = []
    for i in left:
        folder, at = folders[i], f"[{i + 1}/{total}] {names[i]}"
        with folder.claimed() as mine:
            if not mine:
                print(f"{at} is in the hands of another process, left to it", flush=True)
                skipped += 1
                continue
            if folder.finished:  # another process was quicker
                skipped += 1
                continue
            if runs is not None and (theirs := folder.adopt(runs)):
                print(f"{at} … taken over from {theirs}", flush=True)
                skipped += 1
                continue
            with contextlib.ExitStack() as stack:
                beside = [j for j in left if j > i and _beside(folder, folders[j], stack)]
                print(" + ".join([at, *(names[j] for j in beside)]), "…", flush=True)
                try:
                    seconds.append(folder.complete(command, [folders[j] for j in beside]))
                except RunFault as fault:
                    raise RunFault(f"cell {names[i]}: {fault}") from fault
        remaining = sum(not folders[j].finished for j in left if j > i)
        eta = f", ETA {duration(statistics.fmean(seconds) * remaining)}" if remaining else ""
        print(f"{at} … done in {duration(seconds[-1])} ({skipped} skipped, {remaining} left{eta})", flush=True)


def _beside(folder: CellFolder, other: CellFolder, stack: contextlib.ExitStack) -> bool:
    """Whether the other cell is of the same group and ours to run; then it is held until the stack is closed."""
    ours, theirs = folder.cell, other.cell
    if not (isinstance(ours, TrainCell) and isinstance(theirs, TrainCell)):
        return False
    same = ours.group is not None and ours.group == theirs.group
    return same and not other.finished and stack.enter_context(other.claimed()) and not other.finished


def cells_manifest(folders: list[CellFolder], command: list[str]) -> dict[str, Any]:
    """What one needs to know to get the rows of finished cells again."""
    settings = json.dumps([folder.settings for folder in folders], sort_keys=True)
    return {
        **provenance(command),
        "settings_sha256": hashlib.sha256(settings.encode()).hexdigest(),
        "cells": {folder.cell.name: folder.record() for folder in folders},
    }


def duration(seconds: float) -> str:
    """A few words for a time."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
