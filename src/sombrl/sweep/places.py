"""Where cells are, as plain data: a worker on another machine finds them again from a few words of JSON."""

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

from sombrl.records import SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.experiment import Experiment
from sombrl.sweep.spec import cell_from_json

FIRST_TABLE = "sombrl.paper.experiments:EXPERIMENTS"
"""Of folders that were written before they named their table."""


@dataclasses.dataclass(frozen=True)
class SweepPlace:
    """The cells of a sweep, as its folder has them in sweep.json; those of a search are in trials/."""

    path: Path

    @property
    def root(self) -> Path:
        """The folder that all of it is in."""
        return self.path

    @property
    def shared(self) -> Path | None:
        """Where finished cells of others may be taken over from."""
        return None

    def folders(self) -> dict[str, CellFolder]:
        """Every cell by its name, in the order of the CSV."""
        data = read_sweep(self.path)
        trials = (json.loads(path.read_text()) for path in sorted((self.path / "trials").glob("[0-9]*.json")))
        cells = map(cell_from_json, [*data["cells"], *trials])
        return {
            cell.name: CellFolder(self.path / "cells" / cell.name, data["name"], cell, cell.run.env_workers)
            for cell in cells
        }

    def to_json(self) -> dict[str, Any]:
        """As `place_from_json` takes it."""
        return {"kind": "sweep", "path": str(self.path.absolute())}


@dataclasses.dataclass(frozen=True)
class ExperimentPlace:
    """The cells of an experiment at one scale."""

    table: str
    """Where the experiment is found by its name: module:NAME of a dictionary of experiments in sombrl."""
    name: str
    scale: str
    runs: Path
    data: tuple[Path, ...] = ()
    env_workers: int = 0

    @property
    def root(self) -> Path:
        """The folder that all of it is in."""
        return self.runs / f"{self.name}-{self.scale}"

    @property
    def shared(self) -> Path | None:
        """Where finished cells of others may be taken over from."""
        return self.runs

    def folders(self) -> dict[str, CellFolder]:
        """Every cell by its name, in the order of the CSV."""
        cells = _table(self.table)[self.name].cells_at(self.scale, self.data)
        return {cell.name: CellFolder(self.root / cell.name, self.name, cell, self.env_workers) for cell in cells}

    def to_json(self) -> dict[str, Any]:
        """As `place_from_json` takes it."""
        return {
            "kind": "experiment",
            "table": self.table,
            "name": self.name,
            "scale": self.scale,
            "runs": str(self.runs.absolute()),
            "data": [str(path.absolute()) for path in self.data],
            "env_workers": self.env_workers,
        }


Place = SweepPlace | ExperimentPlace


def place_from_json(data: dict[str, Any]) -> Place:
    """The inverse of `to_json`."""
    if data["kind"] == "sweep":
        return SweepPlace(Path(data["path"]))
    paths = tuple(map(Path, data["data"]))
    table = data.get("table", FIRST_TABLE)
    return ExperimentPlace(table, data["name"], data["scale"], Path(data["runs"]), paths, data["env_workers"])


def _table(where: str) -> dict[str, Experiment]:
    module, _, name = where.partition(":")
    if not module.startswith("sombrl."):  # a file that somebody sends must not run their code
        raise SombrlError(f"{where} is not a table of experiments of sombrl: give the folder of your own experiment.")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def read_sweep(path: Path) -> dict[str, Any]:
    """What sweep.json of a sweep's folder says."""
    try:
        return json.loads((path / "sweep.json").read_text())
    except FileNotFoundError:
        raise SombrlError(f"{path} is no sweep (no sweep.json): give the folder of `sombrl sweep --out`.") from None
    except (OSError, ValueError) as error:
        raise SombrlError(f"cannot read {path / 'sweep.json'} ({error}).") from None
