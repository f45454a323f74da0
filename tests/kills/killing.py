"""A run is killed at a random point with kill -9, gone on with, and compared with one that was left in peace."""

import contextlib
import dataclasses
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kills.sitecustomize import LINE

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 1800.0  # seconds until a process counts as hung; a busy machine takes minutes to compile
LONGEST = 3.0  # seconds that a kill comes after a write


@dataclasses.dataclass(frozen=True)
class Mode:
    """A kind of run in a folder: the words after `python` that begin it and that go on with it, and what came out."""

    begin: Callable[[Path], list[str]]
    again: Callable[[Path], list[str]]
    begun: Callable[[Path], bool]
    """Whether there is something to go on with."""
    result: Callable[[Path], Any]
    """Everything that must be the same, bit for bit."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """When to kill: at a write (before or after it, or with half of it on disk), or some seconds after one."""

    write: int
    how: str
    delay: float = 0.0
    whom: str = "all"
    """later: all processes, the first one, or another."""

    def __str__(self) -> str:
        if self.how == "later":
            return f"{1e3 * self.delay:.0f} ms after write {self.write}, {self.whom}"
        return {"torn": "in the middle of"}.get(self.how, self.how) + f" write {self.write}"

    @classmethod
    def draw(cls, rng: random.Random, gaps: list[float], at_writes: bool = False) -> "Moment":
        """One of those that a run with these seconds between its writes has; `at_writes`: not between two of them."""
        write = rng.randrange(at_writes, len(gaps))
        how = rng.choice(["before", "torn", "after"] + ["later"] * (not at_writes) * 3)
        if write == 0 or how == "later":
            delay = rng.uniform(0.0, min(gaps[write], LONGEST))
            return cls(write, "later", delay, rng.choice(["all", "all", "first", "other"]))
        return cls(write, how)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended: its code, whether the kill reached anything, what it said."""

    code: int
    met: bool
    said: str
    gaps: list[float]


def left_in_peace(mode: Mode, folder: Path) -> tuple[Any, list[float]]:
    """What comes out of an undisturbed run, and the seconds before its first write, between writes, after the last."""
    ended = run(mode.begin(folder), folder)
    assert ended.code == 0, ended.said
    return mode.result(folder), ended.gaps


def disturbed(
    mode: Mode,
    folder: Path,
    rng: random.Random,
    gaps: list[float],
    *,
    again: float,
    at_writes: bool = False,
) -> tuple[Any, list[Moment]]:
    """What comes out of a run that is killed, with probability `again` once more when it goes on; and the kills."""
    kills: list[Moment] = []
    ended = None
    while ended is None or (ended.met and ended.code != 0 and rng.random() < again):
        moment = Moment.draw(rng, gaps, at_writes)
        ended = run(_words(mode, folder), folder, moment)
        kills += [moment] * ended.met
    if ended.code != 0:
        ended = run(_words(mode, folder), folder)
    if ended.code != 0 and not (ended.code == 2 and " is complete" in ended.said):
        raise Broken(f"code {ended.code}: {ended.said.strip()[-500:]}", kills)
    return mode.result(folder), kills


class Broken(Exception):
    """It did not go on; after which kills."""

    def __init__(self, why: str, kills: list[Moment]):
        super().__init__(f"{why}; killed {' and '.join(map(str, kills))}")
        self.kills = kills


def _words(mode: Mode, folder: Path) -> list[str]:
    return mode.again(folder) if mode.begun(folder) else mode.begin(folder)


def run(words: list[str], folder: Path, moment: Moment | None = None) -> Ended:
    """A process, its kill, and the end of all processes that it started.

    Compiled programs are shared by all of them where JAX_COMPILATION_CACHE_DIR says where.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, said = folder.parent / f"{folder.name}.writes", folder.parent / f"{folder.name}.said"
    log.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        ),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "KILL_UNDER": str(folder),
        "KILL_LOG": str(log),
        "KILL_AT": str(moment.write if moment is not None and moment.how != "later" else 0),
        "KILL_HOW": moment.how if moment is not None else "",
    }
    began = time.monotonic()
    with open(said, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        met = moment is not None and moment.how == "later" and _kill(process, moment, log)
        code = process.wait(PATIENCE)
        _wait_for_others(log)
    finally:
        for pid in processes(log):
            _send_kill(pid)
    times = [began, *_times(log), time.monotonic()]
    if moment is not None and moment.how != "later":
        met = len(times) - 2 >= moment.write
    text = said.read_text(errors="replace")
    if "Traceback" in text or "error in sombrl itself" in text:
        raise Broken(text, [moment] if moment is not None else [])
    return Ended(code, met, text, [after - before for before, after in itertools.pairwise(times)])


def _kill(process: subprocess.Popen[bytes], moment: Moment, log: Path) -> bool:
    """Wait for the moment and kill; whether anything was still there."""
    deadline = time.monotonic() + PATIENCE
    while len(_times(log)) < moment.write and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(moment.delay)
    others = [pid for pid in processes(log) if pid != process.pid]
    if process.poll() is not None:
        return False
    if moment.whom == "other" and others:
        return _send_kill(random.Random(moment.write).choice(others))
    process.kill()
    for pid in others if moment.whom == "all" else ():
        _send_kill(pid)
    return True


def _wait_for_others(log: Path) -> None:
    """The processes that a run started end with it."""
    deadline = time.monotonic() + PATIENCE
    while left := processes(log):
        if time.monotonic() > deadline:
            raise Broken(f"processes {left} are left behind", [])
        time.sleep(0.05)


def processes(log: Path) -> list[int]:
    """All processes of the run with that log, by a variable that they inherit."""
    found, mark = [], f"KILL_LOG={log}\0".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (path / "environ").read_bytes() and b") Z" not in (path / "stat").read_bytes():
                found.append(int(path.name))
    return found


def _send_kill(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _times(log: Path) -> list[float]:
    text = log.read_bytes() if log.exists() else b""
    return [float(line) for line in text[: len(text) // LINE * LINE].splitlines()]
