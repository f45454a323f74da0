"""Where work is stored, as plain data: a worker on another machine finds it again from a few words of JSON."""

import abc
import dataclasses
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sombrl.envs.trust import NO_WORD, Word, require_word
from sombrl.records import SombrlError
from sombrl.runs.cell import TrainCell
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.experiment import Experiment
from sombrl.runs.in_turn import run_in_turn
from sombrl.runs.work import AbstractWork
from sombrl.sweep.spec import cell_from_json


class AbstractPlace(abc.ABC):
    """Work that belongs together, by name."""

    final: ClassVar[tuple[type[Exception], ...]] = (SombrlError,)
    """The errors after which trying again is of no use."""

    @property
    @abc.abstractmethod
    def root(self) -> Path:
        """The folder that all of it is in."""

    @abc.abstractmethod
    def folders(self) -> Mapping[str, AbstractWork]:
        """Everything by its name, in order."""

    @abc.abstractmethod
    def run(self, names: Sequence[str], command: Sequence[str]) -> None:
        """Bring some of it to its end in this process."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """As `place_from_json` takes it: the kind, and what `from_json` of that kind reads."""

    @classmethod
    @abc.abstractmethod
    def from_json(cls, data: dict[str, Any]) -> "AbstractPlace":
        """The inverse of `to_json`."""


class AbstractCells(AbstractPlace):
    """A place whose work is cells."""

    @abc.abstractmethod
    def folders(self) -> dict[str, CellFolder]:
        """Every cell by its name, in the order of the CSV."""

    @property
    @abc.abstractmethod
    def shared(self) -> Path | None:
        """Where finished cells of others may be taken over from."""

    @abc.abstractmethod
    def at(self, root: Path) -> "AbstractCells":
        """The same in another folder: the one that it was moved to."""

    def run(self, names: Sequence[str], command: Sequence[str]) -> None:
        """One cell after the other, or those of a group in one program."""
        folders = self.folders()
        run_in_turn([folders[name] for name in names], list(names), self.shared, list(command))


@dataclasses.dataclass(frozen=True)
class SweepPlace(AbstractCells):
    """The cells of a sweep, as its folder has them in sweep.json; those of a search are in trials/."""

    path: Path
    word: Word = NO_WORD
    """What the user has said about environments that cells name."""

    @property
    def root(self) -> Path:
        """The sweep's folder."""
        return self.path

    @property
    def shared(self) -> Path | None:
        """Nothing is taken over."""
        return None

    def at(self, root: Path) -> "SweepPlace":
        """See `AbstractCells`. The word was for the folder as it was."""
        return SweepPlace(root)

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
        """See `AbstractPlace`."""
        return {"kind": "sweep", "path": str(self.path.absolute()), "word": self.word.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SweepPlace":
        """See `AbstractPlace`."""
        return cls(Path(data["path"]), Word.from_json(data.get("word", {})))

    def run(self, names: Sequence[str], command: Sequence[str]) -> None:
        """As the others, of environments that may be made."""
        cells = {name: folder.cell for name, folder in self.folders().items()}
        for name in names:
            cell = cells[name]
            if isinstance(cell, TrainCell):
                require_word(cell.run, self.word)
        super().run(names, command)


@dataclasses.dataclass(frozen=True)
class ExperimentPlace(AbstractCells):
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
        """The folder of this experiment at this scale."""
        return self.runs / f"{self.name}-{self.scale}"

    @property
    def shared(self) -> Path | None:
        """The cells of all experiments."""
        return self.runs

    def at(self, root: Path) -> "ExperimentPlace":
        """See `AbstractCells`. It stays where its driver was."""
        return self

    def folders(self) -> dict[str, CellFolder]:
        """Every cell by its name, in the order of the CSV."""
        experiments = of_sombrl(self.table)
        experiment = experiments.get(self.name) if isinstance(experiments, Mapping) else None
        if not isinstance(experiment, Experiment):
            raise SombrlError(f"{self.table} has no experiment {self.name}: the file that has it was changed by hand.")
        cells = experiment.cells_at(self.scale, self.data)
        return {cell.name: CellFolder(self.root / cell.name, self.name, cell, self.env_workers) for cell in cells}

    def to_json(self) -> dict[str, Any]:
        """See `AbstractPlace`."""
        return {
            "kind": "experiment",
            "table": self.table,
            "name": self.name,
            "scale": self.scale,
            "runs": str(self.runs.absolute()),
            "data": [str(path.absolute()) for path in self.data],
            "env_workers": self.env_workers,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ExperimentPlace":
        """See `AbstractPlace`."""
        paths = tuple(map(Path, data["data"]))
        table = data.get("table", FIRST_TABLE)
        return cls(table, data["name"], data["scale"], Path(data["runs"]), paths, data["env_workers"])


FIRST_TABLE = "sombrl.paper.experiments:EXPERIMENTS"
"""Of folders that were written before they named their table."""
KINDS: dict[str, type[AbstractPlace]] = {"sweep": SweepPlace, "experiment": ExperimentPlace}


def place_from_json(data: dict[str, Any]) -> AbstractPlace:
    """The inverse of `to_json`; a kind that is not in KINDS is module:CLASS of sombrl."""
    kind = KINDS.get(data["kind"]) or of_sombrl(data["kind"])
    if not (isinstance(kind, type) and issubclass(kind, AbstractPlace)):
        raise SombrlError(
            f"{data['kind']} is not a place where work is stored: the file that names it was changed by hand."
        )
    return kind.from_json(data)


def of_sombrl(where: str) -> Any:
    """What module:NAME stands for, which must be of sombrl: a file that somebody sends must not run their code."""
    module, _, name = str(where).partition(":")
    try:
        if module.startswith("sombrl."):
            return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        pass
    raise SombrlError(f"{where} is not a name of sombrl: the file that has it was changed by hand.")


def read_sweep(path: Path) -> dict[str, Any]:
    """What sweep.json of a sweep's folder says."""
    try:
        data: dict[str, Any] = json.loads((path / "sweep.json").read_text())
        return data
    except FileNotFoundError:
        raise SombrlError(f"{path} is not a sweep (no sweep.json): give the folder of `sombrl sweep --out`.") from None
    except (OSError, ValueError) as error:
        raise SombrlError(f"cannot read {path / 'sweep.json'} ({error}).") from None
