"""Where cells are, as plain data: a worker on another machine finds them again from a few words of JSON."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from sombrl.records import SombrlError
from sombrl.runs.cells import CellFolder
from sombrl.sweep.spec import cell_from_json


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
    """The cells of one of the paper's experiments at one scale."""

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
        from sombrl.paper.experiments import EXPERIMENTS

        cells = EXPERIMENTS[self.name].cells_at(self.scale, self.data)
        return {cell.name: CellFolder(self.root / cell.name, self.name, cell, self.env_workers) for cell in cells}

    def to_json(self) -> dict[str, Any]:
        """As `place_from_json` takes it."""
        return {
            "kind": "experiment",
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
    return ExperimentPlace(data["name"], data["scale"], Path(data["runs"]), paths, data["env_workers"])


def read_sweep(path: Path) -> dict[str, Any]:
    """What sweep.json of a sweep's folder says."""
    try:
        return json.loads((path / "sweep.json").read_text())
    except FileNotFoundError:
        raise SombrlError(f"{path} is no sweep (no sweep.json): give the folder of `sombrl sweep --out`.") from None
    except (OSError, ValueError) as error:
        raise SombrlError(f"cannot read {path / 'sweep.json'} ({error}).") from None
