"""The backend of a Ray cluster (extra `ray`): a task per job, with its share of the cluster's cores and GPUs.

A task only starts the same worker process as every backend and waits for it, so that each cell has a fresh JAX. When a
node dies, so do its tasks; the driver starts them again, and Ray finds another node. The folder of the cells must be
one that all nodes share.
"""

import os
import socket
from collections.abc import Sequence
from typing import Any

from sombrl.optional import require
from sombrl.records import SombrlError
from sombrl.sweep.driver import AbstractBackend, Ended
from sombrl.sweep.worker import Job, Worker, thread_limits

REACH = 5.0  # seconds in which a cluster must answer; Ray itself would try for minutes


class RayBackend(AbstractBackend):
    """Tasks of a cluster that is there, or of one that is started on this machine for the time of the sweep."""

    def __init__(self, workers: int | None, *, cpus: int, gpus: float, address: str | None):
        """`address` of the cluster, default RAY_ADDRESS; neither: start one."""
        ray = require("ray", "ray", "Ray is not installed: pip install 'sombrl[ray]', or use --backend local.")
        self._ray, self.slots = ray, workers
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        _require_reachable(address)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == "local":
            quiet["include_dashboard"] = False
        try:
            ray.init(address=address, **quiet)
        except Exception as error:
            told = f"{error} {error.__cause__}"
            if (
                "AuthToken" in told or "AuthenticationError" in told
            ):  # a cluster of `ray start` may ask, by Ray's default
                raise SombrlError(
                    f"the Ray cluster {address} wants a token: set RAY_AUTH_MODE=token here, and see that its token is "
                    "where Ray looks for it."
                ) from None
            raise SombrlError(f"cannot join the Ray cluster {address}: {' '.join(str(error).split())[:200]}") from None
        self._require_room(cpus, gpus)
        # The driver counts the retries, on every backend; and a fresh process per task frees what the last one held.
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0, max_calls=1)(attend)
        self._threads = max(1, cpus)

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        """Put tasks in the cluster's queue."""
        return [self._task.remote(job.to_json(), self._threads) for job in jobs]

    def ended(self, task: Any) -> Ended | None:
        """The exit code of the worker process, or that the task died with its node."""
        ready, _ = self._ray.wait([task], timeout=0)
        if not ready:
            return None
        try:
            return Ended(self._ray.get(task))
        except self._ray.exceptions.TaskCancelledError:
            return Ended(130)
        except self._ray.exceptions.RayTaskError as error:
            return Ended(None, " ".join(str(error.cause or error).split()))
        except self._ray.exceptions.RayError as error:
            return Ended(None, f"its Ray worker or node died ({type(error).__name__})")

    def stop(self, tasks: Sequence[Any]) -> None:
        """Interrupt tasks, which save and end, and take those that wait from the queue."""
        for task in tasks:
            self._ray.cancel(task, force=False)
        if tasks:
            self._ray.wait(list(tasks), num_returns=len(tasks), timeout=60)

    def close(self, tasks: Sequence[Any]) -> str:
        """Leave the cluster; one that was started for the sweep ends."""
        try:
            self.stop(tasks)
        finally:
            self._ray.shutdown()
        return ""

    def _require_room(self, cpus: int, gpus: float) -> None:
        """Refuse a cell that no node could ever hold: Ray would wait for one without end."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
            most = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
            self._ray.shutdown()
            raise SombrlError(f"no Ray node has {cpus} CPUs and {gpus:g} GPUs for a cell (there are: {most}).")


def attend(job: dict[str, Any], threads: int) -> int:
    """Run a job in a process of its own and return its exit code: this is the Ray task."""
    worker = Worker(job, thread_limits(threads))
    try:
        return worker.wait()
    except KeyboardInterrupt:  # ray.cancel
        worker.stop()
        raise


def _require_reachable(address: str) -> None:
    """Ask the address itself whether anybody is there."""
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise SombrlError(f"a Ray address is host:port, as `ray start --head` prints it, not {address!r}.")
    try:
        socket.create_connection((host, int(port)), timeout=REACH).close()
    except OSError as error:
        raise SombrlError(
            f"no Ray cluster answers at {address} ({error.strerror or error}): start it with `ray start --head`, or "
            "leave out the address to have one for the sweep."
        ) from None
    except OverflowError:
        raise SombrlError(f"a Ray address is host:port, not {address!r}.") from None
