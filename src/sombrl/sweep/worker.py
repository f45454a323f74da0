"""The process that does one job, wherever a backend starts it: `python -m sombrl.sweep.worker`.

The job comes as one line of JSON on standard input. The pipe then stays open as a lifeline: when it closes, the parent
is gone or wants this process to stop, so it saves what it has and ends.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sombrl.output import guarded
from sombrl.storage.files import refuse_links
from sombrl.sweep.places import AbstractPlace, place_from_json

BUSY = 75
"""The exit code where another process has the cell (EX_TEMPFAIL)."""
REFUSED = 2
GRACE = 60.0  # seconds to save and end in; longer than any checkpoint takes


@dataclasses.dataclass(frozen=True)
class Job:
    """Work that is done in one process: one cell, or those of a group."""

    place: AbstractPlace
    cells: tuple[str, ...]
    """The names of the work in its place."""
    command: tuple[str, ...]
    """What the user typed, for the manifests."""

    @property
    def name(self) -> str:
        """The name of its first cell."""
        return self.cells[0]

    @property
    def log(self) -> Path:
        """Where its processes write what they print, one after the other."""
        return self.place.root / "logs" / f"{self.name.replace('/', '_')}.log"

    def to_json(self) -> dict[str, Any]:
        """As `job_from_json` takes it."""
        return {
            "place": self.place.to_json(),
            "cells": list(self.cells),
            "command": list(self.command),
            "folder": os.getcwd(),
            # For --env module:Id-v0 with a module of the user's.
            "imports_from_here": bool({"", os.getcwd()} & set(sys.path)),
            # What decides how programs are compiled, and so their last bits, is the same on every node.
            "environment": {name: os.environ[name] for name in os.environ if name.startswith(("JAX_", "XLA_"))},
        }


def job_from_json(data: dict[str, Any]) -> Job:
    """The inverse of `Job.to_json`."""
    return Job(place_from_json(data["place"]), tuple(data["cells"]), tuple(data["command"]))


class Worker:
    """The process of a job, as its parent sees it."""

    def __init__(self, job: dict[str, Any], environment: Mapping[str, str]):
        """`job` is `Job.to_json()`; `environment` is added to this process's own."""
        log = job_from_json(job).log
        log.parent.mkdir(parents=True, exist_ok=True)
        refuse_links(log.parent, [log.name])
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                # -P: the current folder may be a stranger's.
                [sys.executable, "-P", "-m", "sombrl.sweep.worker"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **job["environment"], **environment},
                cwd=job["folder"] if os.path.isdir(job["folder"]) else None,
                start_new_session=True,  # a Ctrl-C of the terminal is for the driver alone
            )
        assert self._process.stdin is not None
        self._lifeline = self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it is dead already, and `ended` will say so
            self._lifeline.write(json.dumps(job).encode() + b"\n")
            self._lifeline.flush()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ended(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self.let_go()
        return code

    def wait(self) -> int:
        """The exit code, when it has ended."""
        while (code := self.ended()) is None:
            time.sleep(0.1)
        return code

    def let_go(self) -> None:
        """Ask it to save and end."""
        with contextlib.suppress(BrokenPipeError):
            self._lifeline.close()

    def stop(self, grace: float = GRACE) -> None:
        """Ask it to save and end, and see that it does."""
        self.let_go()
        deadline = time.monotonic() + grace
        while self._alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._alive():
            os.kill(self.pid, signal.SIGKILL)
            while self._alive():
                time.sleep(0.05)

    def _alive(self) -> bool:
        # Not Popen's poll: a signal handler calls this, perhaps from within it, where it would wait for its own lock.
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False


def thread_limits(threads: int) -> dict[str, str]:
    """The environment in which XLA and the libraries of linear algebra use so many threads."""
    names = ("PJRT_NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def run(job: Job) -> int:
    """Bring the work of a job to its end in this process; the exit code. What broke is noted beside the work."""
    from sombrl.records import RunFault, SombrlError
    from sombrl.runs.train import Interrupted, terminate_as_interrupt

    folders = job.place.folders()
    ours = [folders[name] for name in job.cells]
    try:
        with terminate_as_interrupt():
            job.place.run(job.cells, job.command)
    except (KeyboardInterrupt, Interrupted) as stopped:
        print(f"stopped: {stopped}" if str(stopped) else "stopped", flush=True)
        return 130
    except Exception as error:
        known = isinstance(error, SombrlError | RunFault)
        sentence = str(error) if known else f"an error in sombrl itself, {type(error).__name__}: {error}"
        if not known:
            traceback.print_exc()
        print(f"failed: {sentence}", flush=True)
        refused = isinstance(error, SombrlError)
        for folder in ours:
            if not folder.finished:
                reason, final = " ".join(sentence.split()), isinstance(error, job.place.final)
                folder.attempts.note("broke", reason=reason, final=final, refused=refused)
        return REFUSED if refused else 1
    return 0 if all(folder.finished for folder in ours) else BUSY


def main() -> None:
    """Read the job, watch the lifeline, run."""
    job = json.loads(sys.stdin.buffer.readline())
    # Slurm sends its warning to every process of a job; the one that started us acts on it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_lifeline, daemon=True).start()

    from sombrl.envs.trust import import_from_here
    from sombrl.storage.program_cache import keep_programs

    if job.get("imports_from_here"):
        import_from_here()
    keep_programs()
    with guarded():
        code = run(job_from_json(job))
    sys.exit(code)


def _end_with_the_lifeline() -> None:
    while os.read(0, 4096):  # not sys.stdin: a thread that waits in its buffer keeps Python from ending
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
