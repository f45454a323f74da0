"""The work of a place done side by side by processes of this machine and watched as one: what ends one ends all."""

import contextlib
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sombrl.errors import RunFault, SombrlError
from sombrl.runs.signals import terminate_as_interrupt
from sombrl.runs.train import Interrupted
from sombrl.runs.work import AbstractWork
from sombrl.storage.files import refuse_links
from sombrl.storage.merged_metrics import Row
from sombrl.sweep.driver import Drive
from sombrl.sweep.local import LocalBackend, cores_here, visible_gpus
from sombrl.sweep.places import AbstractPlace
from sombrl.sweep.worker import Job
from sombrl.training.progress import Progress
from sombrl.training.report import SHOWN

RETRIES = 2
"""How often work whose process was killed is gone on with by itself."""
DEFAULT = "SOMBRL_JOBS"
"""The environment variable with the number of processes where --jobs is left out."""


def processes(jobs: int | None, most: int) -> int:
    """In how many processes to do work of `most` parts: as asked, or as many as cores or accelerators allow."""
    if jobs is not None and jobs < 1:
        raise SombrlError(f"--jobs must be at least 1, not {jobs}: leave it out to use all cores.")
    if jobs is None and most > 1:
        jobs = _default()
    return min(jobs or 1, most)


def _default() -> int:
    given = os.environ.get(DEFAULT)
    if given is not None:
        if not given.isdigit() or int(given) < 1:
            raise SombrlError(f"{DEFAULT} must be a number of processes, at least 1, not {given!r}.")
        return int(given)
    # JAX is not asked: it would take the device's memory, in the way that the first to ask it has set.
    if importlib.util.find_spec("libtpu") is not None:
        return 1
    gpus = visible_gpus() if importlib.util.find_spec("jax_plugins") is not None else []
    return len(gpus) or len(cores_here())


def run_side_by_side(
    place: AbstractPlace,
    command: Sequence[str],
    shown: Progress,
    look: Callable[[bool], None],
    *,
    saved: Callable[[], str],
) -> None:
    """Bring all work of a place to its end, a process for each.

    `look(True)` is called again and again, and `look(False)` once after a stop. `saved` then says what is saved and how
    to go on, or nothing.
    """
    works, said = place.folders(), Said(place.root / "logs")
    said.forget()
    drive = Drive(LocalBackend(len(works), shared=True), RETRIES, quiet=True)
    for name, work in works.items():
        if not work.finished:
            drive.add(Job(place, (name,), tuple(command)))
    try:
        with terminate_as_interrupt(), shown:
            while drive.busy:
                drive.step()
                look(True)
                said.tell()
                _raise_first(works, drive.failed)
    except (KeyboardInterrupt, RunFault, SombrlError) as stop:
        interrupted = isinstance(stop, KeyboardInterrupt)
        if interrupted:
            print("sombrl: stopping; every process saves what it has", file=sys.stderr, flush=True)
        drive.backend.close(drive.tasks)
        with contextlib.suppress(RunFault, SombrlError):  # the fault may have been that it cannot be written
            look(False)
        where = saved()
        if interrupted:
            raise Interrupted(where) from None
        if not where:
            raise
        kind = SombrlError if isinstance(stop, SombrlError) else RunFault
        raise kind(f"{str(stop).rstrip('.')}; {where}") from stop


def _raise_first(works: Mapping[str, AbstractWork], failed: Mapping[str, str]) -> None:
    """Raise the error that a process was given up for, as the kind that it was."""
    for name, reason in failed.items():
        last = next(event for event in reversed(works[name].attempts.events()) if event["event"] == "broke")
        raise SombrlError(reason) if last.get("refused") else RunFault(reason)


class Said:
    """What processes have to tell the user, a file each: their standard error, which the parent passes on."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._told: set[str] = set()

    @contextlib.contextmanager
    def by(self, name: str) -> Iterator[None]:
        """In the process: what Python writes to the standard error in here is kept for the parent."""
        self._folder.mkdir(parents=True, exist_ok=True)
        refuse_links(self._folder, [f"{name}.said"])
        with open(self._folder / f"{name}.said", "a", buffering=1) as file, contextlib.redirect_stderr(file):
            yield

    def forget(self) -> None:
        """In the parent: what was said in an earlier session was told then."""
        for path in self._folder.glob("*.said"):
            path.unlink()

    def tell(self) -> None:
        """In the parent: print what is new; what several processes say, once."""
        for path in sorted(self._folder.glob("*.said")):
            for line in path.read_text().splitlines():
                if line not in self._told:
                    self._told.add(line)
                    print(line, file=sys.stderr, flush=True)


def summary(parts: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """What `Progress.iteration` takes, from the metrics of an iteration that several processes have finished."""
    rows = [row for part in parts for row in part]
    returns = [row.get("rollout/ep_rew_mean") for row in rows]
    found = {
        shown: [row[name] for name in names for row in rows if row.get(name) is not None]
        for shown, names in SHOWN.items()
    }
    return {
        "iteration": rows[0]["iteration"],
        "return": [math.nan if value is None else value for value in returns],
        **{shown: values for shown, values in found.items() if values},
        "decisions_per_s": sum(part[0]["time/fps"] for part in parts),
    }
