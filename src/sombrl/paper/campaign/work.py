"""A campaign in its folder: what is done, what is left, and how quickly that gets on.

FOLDER/runs              the cells, as `sombrl experiment --runs` has them
FOLDER/progress.json     minutes spent and speeds measured, by cell
FOLDER/driver.json       for `sombrl status`
"""

from collections.abc import Sequence
from pathlib import Path

from sombrl.paper.campaign.merge import SETTINGS, merge, merged_records, settings_hash
from sombrl.paper.campaign.place import RUNS
from sombrl.paper.campaign.plan import Todo, columns
from sombrl.paper.campaign.spec import Campaign, Task
from sombrl.records import SombrlError
from sombrl.runs.cell import Cell, TrainCell
from sombrl.runs.cell_folder import CellFolder
from sombrl.storage.files import refuse_links
from sombrl.storage.results import read_rows
from sombrl.sweep.driver import DRIVERS
from sombrl.sweep.in_time import FIRST, closing_s, too_late
from sombrl.sweep.machine import Room
from sombrl.sweep.pace import FILE, Pace, Paces, name_of, share_done
from sombrl.sweep.worker import Job

DRIVER = "driver.json"
OWN = (FILE, RUNS, DRIVER, DRIVERS)
"""What is written in a campaign's folder."""


class Work:
    """What is to be done, from files alone: nothing is written but by `merge`."""

    def __init__(self, campaign: Campaign, folder: Path, results: Path, command: Sequence[str]):
        self.campaign, self.folder, self.results, self.command = campaign, folder, results, tuple(command)
        for path, flag in ((folder, "--out"), (results, "--results")):
            if path.exists() and not path.is_dir():
                raise SombrlError(f"{path} is a file: choose another {flag}.")
        begun = any((folder / name).exists() for name in (FILE, DRIVER))
        if folder.exists() and not begun and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise SombrlError(f"{folder} is not empty and no campaign: choose another --out.")
        refuse_links(folder, OWN)
        places = {task.place(folder / RUNS) for task in campaign.tasks}
        of = {place: place.folders() for place in places}
        self.tasks = {task: [of[task.place(folder / RUNS)][name] for name in task.cells] for task in campaign.tasks}
        """The folders of each task's cells, the first task first."""
        self.paces = Paces(folder)
        self._records = {}
        for place in places:
            self._records[place.name, place.scale] = merged_records(results, place.name, place.scale)
            if (table := results / place.name / f"{place.scale}.csv").is_file():
                read_rows(table)  # a damaged one is refused before anything runs
        for folders in self.tasks.values():
            for cell in folders:
                cell.check()

    def left(self, task: Task) -> list[str]:
        """The names of a task's cells that are not finished."""
        return [cell.cell.name for cell in self.tasks[task] if not self._finished(task, cell)]

    def jobs(self, room: Room) -> dict[Job, Task]:
        """What is to be run on a machine, the first one first; without what it has no room for."""
        found = {}
        for task in self.tasks:
            if (left := self.left(task)) and room.ever(task.need):
                found[Job(task.place(self.folder / RUNS), tuple(left), self.command)] = task
        return found

    def todos(self, *, measured: bool) -> list[Todo]:
        """What is left of every task that is not finished; `measured`: by what this machine has shown."""
        return [self._todo(task, measured) for task in self.tasks if self.left(task)]

    def least_s(self, task: Task) -> float:
        """Seconds until a task of which nothing has been measured has saved something."""
        whole = 60 * task.entry.minutes
        reports = _reports(self.tasks[task][0].cell)
        return whole if reports is None else FIRST + whole / reports  # a function has no checkpoints

    def merge(self) -> list[Path]:
        """Put the finished cells into the tables of their experiments."""
        by: dict[tuple[str, str], list[CellFolder]] = {}
        for task, folders in self.tasks.items():
            own = by.setdefault((task.entry.experiment, task.entry.scale), [])
            own += [cell for cell in folders if cell.finished]
        return [merge(*of, cells, self.results, self.command) for of, cells in by.items() if cells]

    def table(self, failed: dict[Task, str], room: Room, minutes: float) -> str:
        """Every task: how much of it is done, what that took, and what comes next; `minutes` is what a call has."""
        rows = [("cell", "done", "minutes", "next")]
        for task, folders in self.tasks.items():
            todo = self._todo(task, True)
            spent = self._pace(task).minutes
            if not self.left(task):
                says = "" if folders[0].finished else "results have it already"
            elif task in failed:
                says = f"failed: {failed[task]}"
            elif not room.ever(task.need):
                says = "this machine is too small for it"
            elif too_late(60 * minutes, todo.first_s, todo.pace):
                least = (todo.first_s + closing_s([todo.pace])) / 60
                says = f"needs {least:.1f} min to save anything: give more --minutes"
            else:
                says = f"{'goes on' if spent else 'begins'}, {todo.left_s / 60:.1f} min left"
            rows.append((task.name, f"{todo.done:.0%}", f"{spent:.1f}", says))
        return "\n".join(columns(rows))

    def _finished(self, task: Task, cell: CellFolder) -> bool:
        """In this folder, or on another machine, from where only its rows have come."""
        record = self._records[task.entry.experiment, task.entry.scale].get(cell.cell.name, {})
        return cell.finished or record.get(SETTINGS) == settings_hash(cell.cell)

    def _pace(self, task: Task) -> Pace:
        return self.paces[self._called(task)]

    def _called(self, task: Task) -> str:
        return name_of(Job(task.place(self.folder / RUNS), tuple(self.left(task) or task.cells), ()))

    def _todo(self, task: Task, measured: bool) -> Todo:
        left = self.left(task)
        done = min((share_done(cell) for cell in self.tasks[task] if cell.cell.name in left), default=1.0)
        pace = self._pace(task) if measured else Pace()
        seconds = 60 * task.entry.minutes * (1 - done)
        reports = _reports(self.tasks[task][0].cell)
        if reports and pace.first_s and pace.report_s:  # as quickly as so far
            seconds = pace.first_s + pace.report_s * max(0.0, (1 - done) * reports - 1)
        first = self.paces.first_s(self._called(task), self.least_s(task)) if measured else self.least_s(task)
        return Todo(task, done, seconds, min(first, max(seconds, 1.0)) if done else first, pace)


def _reports(cell: Cell) -> int | None:
    """How many reports a run makes, about; a function makes none."""
    if not isinstance(cell, TrainCell):
        return None
    run = cell.run
    return run.episodes if run.decisions is None else max(1, run.decisions // run.report_every)
