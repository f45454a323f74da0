"""Blocks of timings, and the tables made of them. No benchmark is run by importing this."""

import contextlib
import fcntl
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sombrl.storage.provenance import versions

ROOT = Path(__file__).resolve().parents[1]


class Block(NamedTuple):
    """One measurement."""

    wall: float  # seconds
    cpu: float  # seconds of all threads of the process: the steadier number on a shared machine


def timed(call: Callable[[], Any]) -> tuple[Any, Block]:
    """The result of a call that waits for its device, and how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, Block(time.perf_counter() - wall, time.process_time() - cpu)


@contextlib.contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Hold a lock file: benchmarks that share one get ready side by side and measure one after the other."""
    with contextlib.ExitStack() as stack:
        if lock is not None:
            fcntl.flock(stack.enter_context(lock.open("a")), fcntl.LOCK_EX)
        yield


def row(blocks: Sequence[Block], units: int) -> dict[str, float]:
    """Milliseconds per unit, of which each block did `units`: min is least disturbed, median is pessimistic."""
    return {
        "min_ms": 1e3 * min(block.wall for block in blocks) / units,
        "median_ms": 1e3 * statistics.median(block.wall for block in blocks) / units,
        "cpu_ms": 1e3 * min(block.cpu for block in blocks) / units,
        "blocks": len(blocks),
        "units_per_block": units,
    }


def ratio(above: Sequence[Block], below: Sequence[Block]) -> dict[str, float]:
    """How many times as long `above` takes: by the minima, and by the median over rounds in which both ran."""
    pairs = zip(above, below, strict=True)
    return {
        "min": min(block.wall for block in above) / min(block.wall for block in below),
        "median": statistics.median(a.wall / b.wall for a, b in pairs),
        "cpu": min(block.cpu for block in above) / min(block.cpu for block in below),
    }


def machine(*packages: str) -> dict[str, Any]:
    """Where it was measured: cores, load, versions."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": os.getloadavg(),
        "cpu": _cpu_name(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(*packages),
    }


def _cpu_name() -> str:
    """As Linux calls it; elsewhere the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def write(path: Path, result: dict[str, Any]) -> None:
    """As JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwrote {path}")
