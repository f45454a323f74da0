"""How quickly cells get on, measured while they run and remembered from one call to the next (progress.json)."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sombrl.config.json import from_json, to_json
from sombrl.records import SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.storage.files import read_file, refuse_links, write_whole
from sombrl.sweep.status import last_row
from sombrl.sweep.worker import Job

FILE = "progress.json"
SLACK = 1.0  # seconds between the start of a process and the first look at it, at most
SAVE_EVERY = 5.0  # seconds between two writes of it: what a kill of the driver costs


@dataclasses.dataclass
class Pace:
    """What is known of one job."""

    minutes: float = 0.0
    """That its processes have run, in all calls."""
    first_s: float | None = None
    """From the start of its process to the first report that is saved: imports, compiling, loading."""
    report_s: float | None = None
    """Between two reports."""
    checkpoint_s: float | None = None
    """The longest that a checkpoint took."""
    stop_s: float | None = None
    """The longest from being told to save and end to the end."""


class Paces:
    """The paces of all jobs of a folder, by name."""

    def __init__(self, folder: Path):
        self.path = folder / FILE
        refuse_links(folder, [FILE])
        try:
            data = json.loads(read_file(self.path))
            self._of = {str(name): from_json(Pace, own) for name, own in data["jobs"].items()}
        except (FileNotFoundError, NotADirectoryError):
            self._of = {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SombrlError) as error:
            raise SombrlError(
                f"cannot read {self.path} ({error}): delete it; only what is known of speeds is lost."
            ) from None

    def __getitem__(self, name: str) -> Pace:
        """The pace of a job by its name, empty where nothing is known."""
        return self._of.setdefault(name, Pace())

    def first_s(self, name: str, otherwise: float) -> float:
        """Until a job has saved something: as the last time, or as the slowest one beside it."""
        own = self[name].first_s
        like = [pace.first_s for other, pace in self._of.items() if _family(other) == _family(name) and pace.first_s]
        return own or max((known for known in like if known), default=otherwise)

    def save(self) -> None:
        """Write what is known, whole or not at all."""
        known = {name: to_json(pace) for name, pace in self._of.items() if pace != Pace()}
        write_whole(self.path, json.dumps({"format": 1, "jobs": known}, indent=1) + "\n")


def name_of(job: Job) -> str:
    """What a job is called in progress.json."""
    return f"{job.place.root.name}/{job.name}"


def share_done(folder: CellFolder) -> float:
    """How much of a cell is done, from its files; 0 also where nobody knows yet."""
    if folder.finished:
        return 1.0
    row = last_row(folder.path / "run" / "metrics.jsonl")
    planned = next((event.get("planned") for event in folder.attempts.events() if event.get("planned")), None)
    return min(1.0, (row["iteration"] + 1) / planned) if row and planned else 0.0


@dataclasses.dataclass
class _View:
    """A job that runs, as it was seen last."""

    folder: CellFolder
    start: float
    wall: float
    """The start in seconds since 1970, as events have it."""
    seen: float
    begun: dict[str, Any] | None = None
    """The event with which its process has begun to train."""
    first: tuple[float, int] | None = None
    """When it had made reports, and how many."""
    writes_since: float | None = None

    def reports(self) -> int | None:
        """How many reports there are, once this process has made one."""
        if self.begun is None:
            events = (event for event in self.folder.attempts.events() if event["event"] == "started")
            self.begun = next((event for event in events if event["time"] >= self.wall - SLACK), None)
            return None
        metrics = self.folder.path / "run" / "metrics.jsonl"
        if (row := last_row(metrics)) is None or metrics.stat().st_mtime < self.begun["time"]:
            return None  # what an earlier process has left is still to be cut back
        done = int(row["iteration"]) + 1
        return done if done > self.begun.get("iteration", 0) else None


class Watch:
    """Looks at jobs while they run, and keeps their paces."""

    def __init__(self, paces: Paces, clock: Callable[[], float] = time.monotonic):
        self.paces, self._clock = paces, clock
        self._views: dict[Job, _View] = {}
        self._saved = clock()

    def look(self, running: Sequence[Job]) -> None:
        """What has become of each since the last look."""
        now = self._clock()
        for job in running:
            if job not in self._views:
                folder = job.place.folders()[job.name]
                assert isinstance(folder, CellFolder)
                self._views[job] = _View(folder, now, time.time(), now)
            self._note(self._views[job], self.paces[name_of(job)], now)
        for job in [job for job in self._views if job not in running]:
            del self._views[job]
        if now - self._saved > SAVE_EVERY:
            self.paces.save()
            self._saved = now

    def stopped(self, jobs: Sequence[Job], seconds: float) -> None:
        """These were told to save and end, which took all of them so long."""
        for job in jobs:
            pace = self.paces[name_of(job)]
            pace.stop_s = max(seconds, pace.stop_s or 0.0)
            pace.minutes += seconds / 60

    def _note(self, view: _View, pace: Pace, now: float) -> None:
        pace.minutes += (now - view.seen) / 60
        view.seen = now
        self._note_checkpoint(view, pace, now)
        done = view.reports()
        if done is None:
            return
        if view.first is None:
            view.first, pace.first_s = (now, done), now - view.start
        elif done > view.first[1]:
            at, before = view.first
            pace.report_s = (now - at) / (done - before)

    def _note_checkpoint(self, view: _View, pace: Pace, now: float) -> None:
        """A checkpoint is written aside (storage/checkpoint.py): how long is that folder there?"""
        writes = any((view.folder.path / "run" / "checkpoints").glob(".tmp-*"))
        if writes and view.writes_since is None:
            view.writes_since = now
        elif not writes and view.writes_since is not None:
            pace.checkpoint_s = max(now - view.writes_since, pace.checkpoint_s or 0.0)
            view.writes_since = None


def _family(name: str) -> str:
    return name.partition("/")[0]
