"""The backend of one machine for jobs that say what they need: each has its cores and its share of a GPU's memory."""

import time
from collections.abc import Sequence

from sombrl.sweep.driver import AbstractBackend, Ended
from sombrl.sweep.machine import Room
from sombrl.sweep.worker import GRACE, Job, Worker, thread_limits


class RoomBackend(AbstractBackend):
    """Worker processes on this machine. Whoever starts a job has taken its place in the `room`.

    A job has as many threads as it says, whatever runs beside it: so its numbers are always the same.
    """

    slots = None

    def __init__(self, room: Room):
        self.room = room

    def environment(self, job: Job) -> dict[str, str]:
        """The environment of a job's process."""
        need, device = self.room.share(job)
        machine, workers = self.room.machine, self.room.workers
        found = thread_limits(need.cores)
        if machine.gpus:
            size, beside = machine.memory_gb[device], -(-(workers or 1) // len(machine.gpus))
            share = 0.9 / beside if workers else need.memory_gb / size
            found["CUDA_VISIBLE_DEVICES"] = machine.gpus[device]
            found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{share:.4f}"
        return found

    def start(self, jobs: Sequence[Job]) -> list[Worker]:
        """A process for each job."""
        return [Worker(job.to_json(), self.environment(job)) for job in jobs]

    def ended(self, task: Worker) -> Ended | None:
        """The exit code, once there is one."""
        code = task.ended()
        return None if code is None else Ended(code)

    def stop(self, tasks: Sequence[Worker]) -> None:
        """All of them at the same time, and within a minute all together."""
        for task in tasks:
            task.let_go()
        until = time.monotonic() + GRACE
        for task in tasks:
            task.stop(max(0.0, until - time.monotonic()))
            task.ended()
