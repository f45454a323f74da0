"""A sweep on a Ray cluster of two nodes: a node dies, later the driver; the same command goes on, and nothing is lost.

Needs the extra `ray`.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.sweep.tiny import LEARNING, cells, checkpointed, events, finish, start, write
from tests.waiting import wait_for

pytest.importorskip("ray", reason="needs the extra `ray`")
pytestmark = pytest.mark.slow

GRID = [LEARNING, "explore=optimistic,greedy", f"seed={','.join(map(str, range(0, 24, 2)))}"]  # 24 cells of two seeds


def free_port() -> int:
    """A port that Ray's own processes will not take meanwhile: they draw from below 20000 and above 32767."""
    for port in random.sample(range(20000, 32000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class Cluster:
    """Two `ray start` processes on loopback with a core each."""

    def __init__(self, folder: Path):
        self.address, self.folder = f"127.0.0.1:{free_port()}", folder
        port = self.address.rpartition(":")[2]
        self.processes: list[subprocess.Popen] = []
        try:
            self._start("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
            self._wait_for_nodes(1)
            self.node = self._start(f"--address={self.address}")
            self._wait_for_nodes(2)
        except BaseException:
            self.stop()
            raise

    def _start(self, *flags: str) -> subprocess.Popen:
        ray = Path(sys.executable).with_name("ray")
        command = [str(ray), "start", "--node-ip-address=127.0.0.1", "--num-cpus=1", "--block", *flags]
        environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}  # and RAY_AUTH_MODE, see `plain_clusters`
        with open(self.folder / "start.log", "ab") as log:
            self.processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return self.processes[-1]

    def _wait_for_nodes(self, number: int) -> None:
        script = (
            f"import ray; ray.init(address='{self.address}', log_to_driver=False, logging_level='ERROR');"
            "print(sum(node['Alive'] for node in ray.nodes()))"
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                host, _, port = self.address.rpartition(":")
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                time.sleep(0.5)
                continue
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
            if done.stdout.strip() == str(number):
                return
            time.sleep(0.5)
        raise AssertionError(f"the cluster did not start: {(self.folder / 'start.log').read_text()}")

    def stop(self) -> None:
        kill_all([pid for process in self.processes for pid in family(process.pid)])
        for process in self.processes:
            process.wait()


@pytest.fixture(autouse=True)
def plain_clusters(monkeypatch):
    """Clusters on loopback without a token: by default Ray would write one to the user's home, or ask for theirs."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@pytest.fixture
def cluster(plain_clusters):
    # Not pytest's folder: the path of a socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder))
        yield made
        made.stop()


def finished(sweep: Path) -> list[Path]:
    return [cell for cell in cells(sweep) if (cell / "rows.csv").exists()]


def test_a_node_and_the_driver_die(cluster, tmp_path):
    spec, sweep, whole = write(tmp_path), tmp_path / "sweep", tmp_path / "whole"
    command = ["sweep", spec, *GRID, "--backend", "ray", "--address", cluster.address, "--workers", "3"]

    driver = start(*command, "--out", sweep)
    wait_for(lambda: len(finished(sweep)) >= 3, driver)

    def training_there() -> list[Path]:
        starts = {cell: events(cell, "started") for cell in cells(sweep) if cell not in finished(sweep)}
        here = set(family(cluster.node.pid))
        return [cell for cell, seen in starts.items() if seen and seen[-1]["pid"] in here and checkpointed(cell)]

    wait_for(lambda: bool(training_there()), driver)
    (orphan,) = training_there()
    doomed = family(cluster.node.pid)
    kill_all(doomed)  # the node with everything on it, the cell's process too
    wait_for(lambda: len(events(orphan, "started")) == 2, driver)  # on the other node
    resumed = events(orphan, "started")[1]
    assert resumed["iteration"] >= 1 and resumed["pid"] not in doomed
    assert "died" in events(orphan, "broke")[0]["reason"]

    wait_for(lambda: len(finished(sweep)) >= 8, driver)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    kept = {cell: (cell / "rows.csv").stat().st_mtime_ns for cell in finished(sweep)}
    starts = {cell: len(events(cell, "started")) for cell in kept}
    assert 8 <= len(kept) < 24

    out, _ = finish(start(*command, "--out", sweep), timeout=580)
    assert f"{len(kept)} of 24 cells are finished already and are not run again" in out
    assert {cell: (cell / "rows.csv").stat().st_mtime_ns for cell in kept} == kept
    assert {cell: len(events(cell, "started")) for cell in kept} == starts  # nothing finished was run again
    everything = [len(events(cell, "started")) for cell in cells(sweep)]
    # One start more than cells for the node, one for the driver (none if it died between two cells).
    assert len(everything) == 24 and sum(everything) in (25, 26)

    finish(start(*command, "--out", whole), timeout=580)
    assert (sweep / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()
    assert [len(events(cell, "started")) for cell in cells(whole)] == [1] * 24


def test_no_server_answers(tmp_path):
    command = ["sweep", write(tmp_path), "--backend", "ray", "--address", f"127.0.0.1:{free_port()}"]
    began = time.monotonic()
    _, err = finish(start(*command, "--out", tmp_path / "sweep"), code=2)
    assert "no Ray cluster answers at 127.0.0.1" in err and err.count("\n") == 1
    assert time.monotonic() - began < 60 and not (tmp_path / "sweep").exists()


def test_a_cluster_of_its_own_without_room(tmp_path):
    command = ["sweep", write(tmp_path), "--backend", "ray", "--cpus-per-cell", "1000"]
    _, err = finish(start(*command, "--out", tmp_path / "sweep"), code=2)
    assert "no Ray node has 1000 CPUs" in err and err.count("\n") == 1
    assert not (tmp_path / "sweep").exists()
