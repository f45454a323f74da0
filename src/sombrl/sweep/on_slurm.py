"""The backend of a SLURM cluster (extra `slurm`): job arrays through submitit.

Before the time limit, and where SLURM preempts, submitit is sent a signal: the job then has its cell saved and goes
back to the queue, to go on from there. Jobs do not need the driver: Ctrl-C only stops watching them, and the same
command finds them again by the numbers in slurm/jobs.json.
"""

import contextlib
import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sombrl.optional import require
from sombrl.records import RunFault, SombrlError
from sombrl.storage.files import write_whole
from sombrl.sweep.driver import AbstractBackend, Ended
from sombrl.sweep.worker import Job, Worker, thread_limits

TIMEOUTS = 1000  # how often a job may reach its time limit and go on; a cell may need many
SAVE_IN = 90  # seconds before the time limit at which a job is told to save


class SlurmBackend(AbstractBackend):
    """Jobs of a cluster, or with `local` the same machinery in processes of this machine."""

    def __init__(
        self,
        root: Path,
        workers: int | None,
        *,
        cpus: int,
        gpus: float,
        minutes: int,
        memory: int,
        partition: str | None,
        local: bool,
    ):
        """`root` is the folder of the cells; `minutes` and `memory` (GB) are what a job asks for."""
        missing = "submitit is not installed: pip install 'sombrl[slurm]', or use --backend local."
        submitit = require("submitit", "submitit", missing)
        if gpus != int(gpus):
            raise SombrlError(f"SLURM gives out whole GPUs: --gpus-per-cell cannot be {gpus:g}.")
        self._submitit, self._local, self._threads = submitit, local, max(1, cpus)
        self._folder = root.absolute() / "slurm"
        if not local and submitit.SlurmExecutor.affinity() < 0:
            raise SombrlError("there is no SLURM here (no srun): use --slurm-local to try it, or --backend local.")
        if local:  # it has no queue, so there must not be more jobs than cores
            self.slots = workers or max(1, len(os.sched_getaffinity(0)) // self._threads)
            self._asks: dict[str, Any] = {"timeout_min": minutes, "gpus_per_node": int(gpus)}
        else:
            self.slots = None
            self._asks = {"job_name": "sombrl", "time": minutes, "mem": f"{memory}GB", "cpus_per_task": cpus}
            self._asks |= {"gpus_per_node": int(gpus)} if gpus else {}
            self._asks |= {"partition": partition} if partition else {}
            self._asks |= {"array_parallelism": workers} if workers else {}

    @functools.cached_property
    def _executor(self) -> Any:
        """Made when there is something to submit, because it makes its folder."""
        kind = self._submitit.LocalExecutor if self._local else self._submitit.SlurmExecutor
        executor = kind(folder=self._folder / "%j", max_num_timeout=TIMEOUTS)
        executor.update_parameters(signal_delay_s=SAVE_IN, **self._asks)
        return executor

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        """Find the jobs that are queued or running already, and submit the others as one array."""
        tasks = {job: self._queued(job) for job in jobs}
        new = [job for job, task in tasks.items() if task is None]
        if new:
            calls = [Attend(job.to_json(), self._threads) for job in new]
            try:
                submitted = self._executor.submit_array(calls)
            except Exception as error:  # what sbatch says, in the words of submitit
                raise RunFault(f"SLURM took no jobs: {' '.join(str(error).split())[-300:]}") from error
            tasks |= dict(zip(new, submitted, strict=True))
            self._remember({job.name: task.job_id for job, task in zip(new, submitted, strict=True)})
        return [tasks[job] for job in jobs]

    def ended(self, task: Any) -> Ended | None:
        """The exit code of the worker process, or the state of a job that left none."""
        if not task.done():
            return None
        if task.paths.result_pickle.exists():
            try:
                return Ended(task.result())
            except Exception as error:  # submitit's own: the job raised
                return Ended(None, " ".join(str(error).split())[-300:])
        return Ended(None, f"its SLURM job {task.job_id} ended without a result (state {task.state})")

    def stop(self, tasks: Sequence[Any]) -> None:
        """Cancel jobs; their cells are saved."""
        for task in tasks:
            task.cancel(check=False)

    def close(self, tasks: Sequence[Any]) -> str:
        """Jobs go on without the driver."""
        return f"; {len(tasks)} jobs are queued or running and go on without this command" if tasks else ""

    def _queued(self, job: Job) -> Any:
        """The job that an earlier driver has submitted and that has not ended; None if there is none."""
        number = self._remembered().get(job.name)
        if self._local or number is None:  # a process of an earlier driver is known by the lock of its cell alone
            return None
        task = self._submitit.SlurmJob(folder=self._folder / "%j", job_id=number, tasks=[0])
        return None if task.done(force_check=True) else task

    def _remembered(self) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):
            numbers: dict[str, str] = json.loads((self._folder / "jobs.json").read_text())
            return numbers
        return {}

    def _remember(self, numbers: dict[str, str]) -> None:
        write_whole(self._folder / "jobs.json", json.dumps(self._remembered() | numbers, indent=1))


class Attend:
    """What submitit runs: a job in a process of its own. On preemption it is saved and goes back to the queue."""

    def __init__(self, job: dict[str, Any], threads: int):
        self.job, self.threads = job, threads
        self.worker: Worker | None = None

    def __call__(self) -> int:
        """Run the job; its exit code."""
        self.worker = Worker(self.job, thread_limits(self.threads))
        return self.worker.wait()

    def checkpoint(self) -> Any:
        """Called by submitit in its signal handler: save, and be submitted again."""
        from submitit.helpers import DelayedSubmission

        if self.worker is not None:
            self.worker.stop(grace=SAVE_IN - 30)
        return DelayedSubmission(Attend(self.job, self.threads))
