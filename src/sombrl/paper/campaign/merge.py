"""Rows of finished cells go into the table of their experiment; what others have put there stays.

results/NAME/SCALE.json says of every merged cell which settings it was made with, so that a machine that has the
results alone, and none of the runs, knows what is done.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sombrl.paper.experiments import EXPERIMENTS, TrainCell
from sombrl.paper.experiments.runner import write_results
from sombrl.records import SombrlError
from sombrl.runs.cell import Cell
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.in_turn import cells_manifest
from sombrl.storage.files import read_file
from sombrl.storage.results import Row, read_rows

SETTINGS = "settings_sha256"
"""In the record of a cell."""
Where = tuple[str, str, str]
"""Method, environment and setting: the rows of one cell."""


def settings_hash(cell: Cell) -> str:
    """What the numbers of a cell depend on, whoever runs it."""
    return hashlib.sha256(json.dumps(cell.settings(), sort_keys=True).encode()).hexdigest()


def merged_records(results: Path, experiment: str, scale: str) -> dict[str, dict[str, Any]]:
    """What the manifest of a table says of its cells; nothing where there is none."""
    path = results / experiment / f"{scale}.json"
    try:
        found = json.loads(read_file(path)).get("cells", {})
        if not all(isinstance(record, dict) for record in found.values()):
            raise ValueError("its cells are no records")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise SombrlError(f"cannot read {path} ({error}): restore it from a copy.") from None
    return dict(found)


def merge(experiment: str, scale: str, folders: Sequence[CellFolder], results: Path, command: Sequence[str]) -> Path:
    """Put the rows of finished cells into the table of their experiment; its path. Rows they replace are left out."""
    what = EXPERIMENTS[experiment]
    path = results / experiment / f"{scale}.csv"
    new = [row for folder in folders for row in folder.rows()]
    old = merged_records(results, experiment, scale)
    kept = _not_in(read_rows(path), new) if path.is_file() else []
    if what.derive:
        kept = _without(kept, what.derive(kept + new))
    cells = what.cells_at(scale)
    rows = sorted(kept + new, key=lambda row: _rank(cells, row))
    rows += what.derive(rows) if what.derive else []

    def manifest() -> dict[str, Any]:
        own = cells_manifest(list(folders), list(command))
        for folder in folders:
            own["cells"][folder.cell.name][SETTINGS] = settings_hash(folder.cell)
        records = old | own["cells"]
        order = [cell.name for cell in cells if cell.name in records]
        order += [name for name in records if name not in order]
        about = {"experiment": experiment, "figure": what.figure, "scale": scale}
        return {**about, **own, "cells": {name: records[name] for name in order}}

    write_results(what, rows, path, manifest)
    return path


def _where(row: Row) -> Where:
    return row.method, row.env, row.setting


def _not_in(old: list[Row], new: list[Row]) -> list[Row]:
    replaced = {_where(row) for row in new}
    return [row for row in old if _where(row) not in replaced]


def _without(rows: list[Row], derived: list[Row]) -> list[Row]:
    """Without what is computed anew from the others."""
    keys = {(_where(row), row.seed, row.metric) for row in derived}
    return [row for row in rows if (_where(row), row.seed, row.metric) not in keys]


def _rank(cells: Sequence[Cell], row: Row) -> int:
    """The place of a row's cell in the experiment; rows of functions and of cells that are no more come last."""
    own = ((cell.method, cell.env, cell.run.setting) if isinstance(cell, TrainCell) else None for cell in cells)
    return next((i for i, where in enumerate(own) if where == _where(row)), len(cells))
