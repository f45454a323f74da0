"""The backend of one machine: a process per cell, as many at a time as its GPUs or cores can take."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence

import numpy as np

from sombrl.records import SombrlError
from sombrl.sweep.driver import AbstractBackend, Ended
from sombrl.sweep.worker import GRACE, Job, Worker, thread_limits

CORES_PER_WORKER = 2  # a cell of small networks or a GP does not use more


class LocalBackend(AbstractBackend):
    """Worker processes on this machine, each with a share of the cores and at most one GPU."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        cores: int | None = None,
        gpus: Sequence[str] | None = None,
        shared: bool = False,
    ):
        """By default one worker per GPU, or one per two cores where there is none.

        A worker has as many threads as its share of the cores. With `shared` it has as many as this process would have,
        on its share of the cores: XLA rounds a sum by the number of its threads, so the numbers are this process's.
        """
        self.shared = shared
        cores = len(cores_here()) if cores is None else cores
        self.gpus = list(visible_gpus() if gpus is None else gpus)
        if workers is not None and workers < 1:
            raise SombrlError(f"--workers must be at least 1, not {workers}.")
        self.slots: int = workers or len(self.gpus) or max(1, cores // CORES_PER_WORKER)
        self.threads = max(1, cores // self.slots)
        self._places: dict[Worker, int] = {}

    def environment(self, place: int) -> dict[str, str]:
        """The environment of the worker in one of the `slots` places."""
        limits = thread_limits(self.threads)
        if self.shared:
            limits = {name: os.environ.get(name, total) for name, total in thread_limits(len(cores_here())).items()}
        if not self.gpus:
            return limits
        limits["CUDA_VISIBLE_DEVICES"] = self.gpus[place % len(self.gpus)]
        beside = -(-self.slots // len(self.gpus))
        if beside > 1 and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            limits["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.9 / beside:.3f}"  # JAX would take 0.75 for the first
        return limits

    def cores(self, place: int) -> list[int]:
        """The cores of the worker in one of the `slots` places."""
        cores = cores_here()
        if self.slots > len(cores):
            return [cores[place % len(cores)]]
        return [int(core) for core in np.array_split(cores, self.slots)[place]]

    def start(self, jobs: Sequence[Job]) -> list[Worker]:
        """A process for each job."""
        return [self._launch(job) for job in jobs]

    def ended(self, task: Worker) -> Ended | None:
        """The exit code, once there is one."""
        code = task.ended()
        if code is None:
            return None
        self._places.pop(task, None)
        return Ended(code)

    def stop(self, tasks: Sequence[Worker]) -> None:
        """All of them at the same time, and within a minute all together."""
        for task in tasks:
            task.let_go()
        until = time.monotonic() + GRACE
        for task in tasks:
            task.stop(max(0.0, until - time.monotonic()))
            task.ended()
            self._places.pop(task, None)

    def _launch(self, job: Job) -> Worker:
        place = min(set(range(self.slots)) - set(self._places.values()))
        worker = Worker(job.to_json(), self.environment(place))
        if self.shared and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # it has ended, or this machine does not allow it: only slower
                os.sched_setaffinity(worker.pid, self.cores(place))
        self._places[worker] = place
        return worker


def cores_here() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def gpu_left_free() -> Iterator[None]:
    """A process that only looks at configurations must not take the memory that its workers need."""
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


def visible_gpus() -> list[str]:
    """The GPUs as CUDA_VISIBLE_DEVICES names them, without starting JAX on them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(i) for i, line in enumerate(line for line in listed.splitlines() if line.startswith("GPU "))]
