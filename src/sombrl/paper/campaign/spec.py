"""The file of a campaign: which cells of which experiments, how long they take, what they need, what they decide.

name = "paper"

[machine]                             # for which the minutes hold
name = "one H200"
gpus = 1
cores = 16
memory_gb = 139                       # of each GPU

[[cell]]
experiment = "mbpo-state"
scale = "paper"
cells = "humanoid-walk/*"             # patterns, as of `sombrl experiment --cells`
minutes = 30                          # of each, or of those that are trained in one program
memory_gb = 16
cores = 2
env_workers = 1
priority = 1                          # 1 first; equal ones in the order of the file
claim = "optimism helps where most is unknown"

The file names experiments that sombrl has, and no code.
"""

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sombrl.config.suggestions import nearest
from sombrl.paper.experiments import EXPERIMENTS, SCALES, TrainCell
from sombrl.paper.experiments.runner import match
from sombrl.records import SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.sweep.machine import Machine, Need
from sombrl.sweep.places import ExperimentPlace

TABLE = "sombrl.paper.experiments:EXPERIMENTS"
SEE = "docs/campaigns.md"
KEYS = ("name", "machine", "cell")
MACHINE_KEYS = ("name", "gpus", "cores", "memory_gb")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A [[cell]] of the file."""

    experiment: str
    minutes: float
    """That each takes, on the machine of the file."""
    scale: str = "paper"
    cells: str = "*"
    """Patterns of names."""
    memory_gb: float = 8.0
    """Of the GPU, or of the machine where there is none."""
    cores: int = 1
    env_workers: int = 0
    priority: int = 1
    """1 comes first; equal ones in the order of the file."""
    claim: str = ""
    """What is decided by it."""


ENTRY_KEYS = tuple(field.name for field in dataclasses.fields(Entry))


@dataclasses.dataclass(frozen=True)
class Task:
    """What one process trains: a cell, or those of a group."""

    entry: Entry
    cells: tuple[str, ...]
    """Names in the experiment."""

    @property
    def name(self) -> str:
        """In tables."""
        more = f" + {len(self.cells) - 1}" if len(self.cells) > 1 else ""
        scale = "" if self.entry.scale == "paper" else f"-{self.entry.scale}"
        return f"{self.entry.experiment}{scale} {self.cells[0]}{more}"

    @property
    def need(self) -> Need:
        """What its process takes."""
        return Need(self.entry.cores, self.entry.memory_gb)

    def place(self, runs: Path) -> ExperimentPlace:
        """Where its cells are."""
        entry = self.entry
        return ExperimentPlace(TABLE, entry.experiment, entry.scale, runs, (), entry.env_workers)

    def folders(self, runs: Path) -> dict[str, CellFolder]:
        """Of its cells, by name."""
        found = self.place(runs).folders()
        return {name: found[name] for name in self.cells}


@dataclasses.dataclass(frozen=True)
class Campaign:
    """A file that was read."""

    name: str
    machine: Machine | None
    tasks: tuple[Task, ...]
    """The first one first."""


def campaign_of(path: Path, table: dict[str, Any]) -> Campaign:
    """The campaign that the file at `path` has; refuses what cannot be, in one sentence."""
    for key in table:
        if key not in KEYS:
            raise nearest(key, KEYS, f"key of {path.name}", see=SEE)
    name = table.get("name", path.stem)
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise SombrlError(f"name must be a text that can be a folder, not {name!r}.")
    given = table["cell"]
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise SombrlError(f"{path} has no cells: write [[cell]], with two brackets, and its experiment below it.")
    entries = [_entry(number, one) for number, one in enumerate(given, 1)]
    tasks = [task for entry in entries for task in _tasks(entry)]
    _refuse_twice(tasks)
    tasks.sort(key=lambda task: task.entry.priority)
    return Campaign(name, _machine(table.get("machine")), tuple(tasks))


def _entry(number: int, given: dict[str, Any]) -> Entry:
    """One [[cell]]; `number` of the file."""
    at = f"[[cell]] {number}"
    for key in given:
        if key not in ENTRY_KEYS:
            raise nearest(key, ENTRY_KEYS, f"key of {at}", see=SEE)
    for key, example in (("experiment", '"mbpo-state"'), ("minutes", "20")):
        if key not in given:
            raise SombrlError(f"{at} has no {key}: write, for example, {key} = {example}.")
    for key in ("experiment", "scale", "cells", "claim"):
        if not isinstance(given.get(key, ""), str):
            raise SombrlError(f"{key} of {at} must be a text, not {given[key]!r}.")
    if given["experiment"] not in EXPERIMENTS:
        raise nearest(given["experiment"], EXPERIMENTS, f"experiment (of {at})", see="sombrl list experiments")
    if EXPERIMENTS[given["experiment"]].data is not None:
        raise SombrlError(f"{given['experiment']} of {at} needs files of yours: run it with sombrl experiment --data.")
    if given.get("scale", "paper") not in SCALES:
        raise nearest(given["scale"], SCALES, f"scale (of {at})")
    for key in ("minutes", "memory_gb"):
        _number(given.get(key, 1), f"{key} of {at}")
    for key, least in (("cores", 1), ("priority", 0), ("env_workers", 0)):
        _count(given.get(key, least), f"{key} of {at}", least)
    values = given | {key: float(given[key]) for key in ("minutes", "memory_gb") if key in given}
    return Entry(**{str(key): value for key, value in values.items()})


def _tasks(entry: Entry) -> Iterable[Task]:
    """The cells of an entry, those of a group together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in match(EXPERIMENTS[entry.experiment].cells_at(entry.scale), entry.cells, entry.experiment):
        group = cell.group if isinstance(cell, TrainCell) else None
        groups.setdefault(("cell", cell.name) if group is None else ("group", group), []).append(cell.name)
    return [Task(entry, tuple(names)) for names in groups.values()]


def _refuse_twice(tasks: Iterable[Task]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for task in tasks:
        for name in task.cells:
            if (key := (task.entry.experiment, task.entry.scale, name)) in seen:
                raise SombrlError(f"{name} of {key[0]} (scale {key[1]}) is there twice: leave it out of one [[cell]].")
            seen.add(key)


def _machine(given: Any) -> Machine | None:
    """The machine that the minutes hold for."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise SombrlError("machine must be a table: write [machine] and its cores and memory_gb below it.")
    for key in given:
        if key not in MACHINE_KEYS:
            raise nearest(key, MACHINE_KEYS, "key of [machine]", see=SEE)
    gpus, cores, memory = given.get("gpus", 0), given.get("cores", 1), given.get("memory_gb", 8)
    _count(gpus, "gpus of [machine]", 0)
    _count(cores, "cores of [machine]", 1)
    _number(memory, "memory_gb of [machine]")
    if gpus > 64:
        raise SombrlError(f"gpus of [machine] must be at most 64, not {gpus}.")
    name = given.get("name", "the machine of the file")
    if not isinstance(name, str):
        raise SombrlError(f"name of [machine] must be a text, not {name!r}.")
    return Machine(name, cores, (float(memory),) * max(1, gpus), tuple(map(str, range(gpus))))


def _number(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SombrlError(f"{what} must be a number of more than 0, not {value!r}.")


def _count(value: Any, what: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SombrlError(f"{what} must be a whole number of at least {least}, not {value!r}.")
