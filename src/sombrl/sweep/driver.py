"""Brings jobs to their end on a backend: what died is started again from its checkpoint, what is finished stays so.

Everything that must survive the driver is in the cells' folders. So there may be two drivers, or a new one after the
old one's death: each cell is locked by the process that works on it, and a job whose cell is not to be had waits.
"""

import abc
import collections
import contextlib
import dataclasses
import fcntl
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sombrl.records import RunFault, SombrlError
from sombrl.runs.cell import TrainCell
from sombrl.runs.in_turn import duration
from sombrl.runs.train import Interrupted, terminate_as_interrupt
from sombrl.runs.work import AbstractWork
from sombrl.storage.files import is_locked, write_whole
from sombrl.sweep.places import AbstractCells, AbstractPlace
from sombrl.sweep.worker import BUSY, Job

LOOK_EVERY = 0.2  # seconds between two looks at the backend
DRIVERS = ".drivers"  # a file that every driver has locked
ASK_EVERY = 1.0  # seconds between two attempts at a cell that another process has


@dataclasses.dataclass(frozen=True)
class Ended:
    """How the process of a job ended: its exit code, or what is known where there is none."""

    code: int | None
    reason: str = ""

    def sentence(self) -> str:
        """Why it did not finish, where it left no word itself."""
        if self.reason:
            return self.reason
        if self.code is not None and self.code < 0:
            cause = " (kill -9, or the system was out of memory)" if self.code == -9 else ""
            return f"killed by signal {-self.code}{cause}"
        return "stopped from outside" if self.code == 130 else f"ended with exit code {self.code}"


class AbstractBackend(abc.ABC):
    """Where jobs run."""

    slots: int | None
    """How many at a time; None: all, because the backend has a queue of its own."""

    @abc.abstractmethod
    def start(self, jobs: Sequence[Job]) -> list[Any]:
        """Start jobs, and return what stands for each."""

    @abc.abstractmethod
    def ended(self, task: Any) -> Ended | None:
        """How a job ended; None while it runs or waits."""

    @abc.abstractmethod
    def stop(self, tasks: Sequence[Any]) -> None:
        """Have jobs save and end, and wait for it."""

    def close(self, tasks: Sequence[Any]) -> str:
        """Leave, with these jobs still there; returns what became of them, for the closing words."""
        self.stop(tasks)
        return ""


def to_the_end(drive: "Drive") -> None:
    """Until nothing waits or runs."""
    while drive.busy:
        drive.step()


def complete(
    place: AbstractCells,
    names: Sequence[str],
    backend: AbstractBackend,
    *,
    retries: int,
    command: Sequence[str],
    see_through: Callable[["Drive"], None] = to_the_end,
) -> None:
    """Bring cells to their end by their names; raises a fault when some failed, and closes the backend in any case.

    `see_through` may leave some unfinished, saved.
    """
    folders = place.folders()
    drive = Drive(backend, retries)
    if already := sum(folders[name].finished for name in names):
        print(f"{already} of {len(names)} cells are finished already and are not run again", flush=True)
    for job in jobs_of(place, names, command):
        drive.add(job)
    try:
        with terminate_as_interrupt(), driving(place, command):
            see_through(drive)
    except KeyboardInterrupt:
        became = backend.close(drive.tasks)
        done = sum(folders[name].finished for name in names)
        raise Interrupted(
            f"{done} of {len(names)} cells are finished and kept, as is what the others have saved{became}; go on with "
            f"the same command: {' '.join(command)}"
        ) from None
    except BaseException:
        backend.close(drive.tasks)
        raise
    backend.close([])
    if drive.failed:
        name, reason = next(iter(drive.failed.items()))
        others = f" (and {len(drive.failed) - 1} more: sombrl status {place.root})" if len(drive.failed) > 1 else ""
        raise RunFault(
            f"{len(drive.failed)} of {len(names)} cells failed, {name}: {reason.rstrip('.')}{others}; the same command "
            "tries them again."
        )


def jobs_of(place: AbstractCells, names: Sequence[str], command: Sequence[str]) -> list[Job]:
    """A job per cell that is not finished, and one per group of cells that are trained in one program."""
    folders = place.folders()
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        cell = folders[name].cell
        group = cell.group if isinstance(cell, TrainCell) else None
        if not folders[name].finished:
            groups.setdefault(("cell", name) if group is None else ("group", group), []).append(name)
    return [Job(place, tuple(members), tuple(command)) for members in groups.values()]


@contextlib.contextmanager
def driving(place: AbstractPlace, command: Sequence[str], *, alone: bool = False) -> Iterator[None]:
    """Be known as a driver to `sombrl status`; several may be, unless one wants to be `alone`."""
    what = {"place": place.to_json(), "command": list(command)}
    try:
        place.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place.root / DRIVERS, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunFault(f"cannot write in {place.root}: {error.strerror or error}.") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except BlockingIOError:
            raise SombrlError(f"another process drives {place.root}: wait for it to end.") from None
        except OSError:  # a file system that cannot lock: status will not know
            pass
        write_whole(place.root / "driver.json", json.dumps(what, indent=1))
        yield
    finally:
        os.close(descriptor)


def is_driven(root: Path) -> bool:
    """Whether a driver is at work on a folder."""
    return is_locked(root / DRIVERS, fcntl.LOCK_EX)  # drivers share theirs


class Drive:
    """Jobs on their way. `add` them, and `step` while it is `busy`."""

    def __init__(self, backend: AbstractBackend, retries: int, *, quiet: bool = False):
        """`quiet` tells only what goes wrong and is tried again; `failed` has the rest."""
        self.backend, self.retries, self.quiet = backend, retries, quiet
        self.given_up: dict[Job, str] = {}
        """The jobs that failed, and why."""
        self.called: Callable[[Job], str] = lambda job: " + ".join(job.cells)
        """What a job is called to the user."""
        self.admit: Callable[[Job, Sequence[Job]], bool] = lambda job, beside: True
        """Whether a job may be started now, beside these; where not, it is asked for again."""
        self._folders: dict[Job, list[AbstractWork]] = {}
        self._waiting: collections.deque[Job] = collections.deque()
        self._running: dict[Any, Job] = {}
        self._tries: collections.Counter[Job] = collections.Counter()
        self._breaks: dict[Job, int] = {}
        self._elsewhere: dict[Job, float] = {}  # in the hands of another process; when to ask again
        self._seconds: list[float] = []

    @property
    def busy(self) -> bool:
        """Whether anything waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def failed(self) -> dict[str, str]:
        """Why jobs failed, by their names."""
        return {job.name: reason for job, reason in self.given_up.items()}

    @property
    def tasks(self) -> list[Any]:
        """The backend's tasks that have not ended."""
        return list(self._running)

    @property
    def running(self) -> list[Job]:
        """The jobs that were started and have not ended."""
        return list(self._running.values())

    @property
    def waiting(self) -> list[Job]:
        """The jobs that are to be started, the next one first."""
        return list(self._waiting)

    def add(self, job: Job) -> None:
        """Another job to be done."""
        everything = job.place.folders()
        self._folders[job] = [everything[name] for name in job.cells]
        self._waiting.append(job)

    def step(self) -> list[Job]:
        """Start what there is room for, wait a moment, and return the jobs that were finished or given up meanwhile."""
        settled = self._start()
        time.sleep(LOOK_EVERY)
        for task, job in list(self._running.items()):
            if (ended := self.backend.ended(task)) is not None:
                del self._running[task]
                settled += [job] * self._settle(job, ended)
        return settled

    def stop(self) -> None:
        """Have everything that runs save and end; what was finished in that moment counts."""
        self.backend.stop(self.tasks)
        self._running.clear()

    def withdraw(self, job: Job) -> None:
        """Have a job save and end, for good."""
        task = next(task for task, ours in self._running.items() if ours is job)
        self.backend.stop([task])
        del self._running[task]

    def _start(self) -> list[Job]:
        free = len(self._waiting) if self.backend.slots is None else self.backend.slots - len(self._running)
        chosen: list[Job] = []
        settled: list[Job] = []
        for _ in range(len(self._waiting)):  # once round, which leaves their order as it was
            job = self._waiting.popleft()
            if len(chosen) >= free:
                self._waiting.append(job)
            elif self._finished(job):
                self._say(job, "was finished by another process")
                settled.append(job)
            elif self._is_elsewhere(job) or not self.admit(job, [*self._running.values(), *chosen]):
                self._waiting.append(job)
            else:
                chosen.append(job)
        self._breaks |= {job: self._broken(job) for job in chosen}
        if chosen:
            self._running |= dict(zip(self.backend.start(chosen), chosen, strict=True))
        for job in chosen:
            self._say(job, "…", usual=True)
        return settled

    def _is_elsewhere(self, job: Job) -> bool:
        """Whether another process works on it: then it is asked for again in a while."""
        if time.monotonic() < self._elsewhere.get(job, 0.0):
            return True
        if not any(folder.in_use for folder in self._folders[job]):
            return False
        if job not in self._elsewhere:
            self._say(job, "is in the hands of another process, waiting for it")
        self._elsewhere[job] = time.monotonic() + ASK_EVERY
        return True

    def _settle(self, job: Job, ended: Ended) -> bool:
        """What becomes of a job whose process has ended; whether that was the last one."""
        if self._finished(job):
            self._seconds.append(max(folder.seconds for folder in self._folders[job]))
            self._say(job, f"done in {duration(self._seconds[-1])} ({self._left()})", usual=True)
            return True
        if ended.code == BUSY:
            self._elsewhere[job] = time.monotonic() + ASK_EVERY
            self._waiting.append(job)
            return False
        reason, final = self._reason(job, ended)
        if not final and self._tries[job] < self.retries:
            self._tries[job] += 1
            self._say(job, f"{reason}; again from its checkpoint (retry {self._tries[job]} of {self.retries})")
            self._waiting.appendleft(job)
            return False
        self.given_up[job] = reason
        for folder in self._unfinished(job):
            folder.attempts.note("failed", reason=reason)
        self._say(job, f"failed: {reason}", usual=True)
        return True

    def _reason(self, job: Job, ended: Ended) -> tuple[str, bool]:
        """Why a job broke, in its own words where it left some; and whether trying again is of no use."""
        first = self._unfinished(job)[0]
        if self._broken(job) == self._breaks[job]:
            first.attempts.note("broke", reason=ended.sentence(), final=False)
        last = next(event for event in reversed(first.attempts.events()) if event["event"] == "broke")
        return last["reason"], last["final"]

    def _broken(self, job: Job) -> int:
        return sum(event["event"] == "broke" for folder in self._unfinished(job) for event in folder.attempts.events())

    def _unfinished(self, job: Job) -> list[AbstractWork]:
        return [folder for folder in self._folders[job] if not folder.finished]

    def _finished(self, job: Job) -> bool:
        return not self._unfinished(job)

    def _left(self) -> str:
        left = len(self._waiting) + len(self._running)
        if not left:
            return "0 left"
        busy = sum(any(folder.in_use for folder in self._folders[job]) for job in self._running.values())
        at_once = max(1, min(left, self.backend.slots or busy))
        return f"{left} left, ETA {duration(statistics.fmean(self._seconds) * left / at_once)}"

    def _say(self, job: Job, words: str, *, usual: bool = False) -> None:
        if self.quiet:
            if not usual:
                print(f"sombrl: {self.called(job)} {words}", file=sys.stderr, flush=True)
            return
        number = list(self._folders).index(job) + 1
        print(f"[{number}/{len(self._folders)}] {self.called(job)} {words}", flush=True)
