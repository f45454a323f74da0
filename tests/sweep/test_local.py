"""Worker processes on this machine: what is killed goes on, what is finished is never run again, status tells."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sombrl.cli.main import main
from sombrl.storage.results import read_rows
from sombrl.sweep.local import LocalBackend, visible_gpus
from sombrl.sweep.places import SweepPlace
from sombrl.sweep.status import status_text
from sombrl.sweep.worker import Job, Worker
from tests.sweep.tiny import SPEC, alive, cells, checkpointed, events, finish, start, write
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The sweep, never disturbed, and what it said."""
    folder = tmp_path_factory.mktemp("reference")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(["sweep", str(write(folder)), "--out", str(folder / "sweep")])
    return folder / "sweep", out.getvalue()


def test_a_sweep_is_runs_and_a_table(reference, tmp_path):
    sweep, out = reference
    rows = read_rows(sweep / "results.csv")
    assert {row.seed for row in rows} == {0, 1, 2, 3} and {row.experiment for row in rows} == {"tiny"}
    assert {row.method for row in rows} == {"gp-icem/optimistic"}
    for cell in cells(sweep):
        logged = [json.loads(line) for line in (cell / "run" / "metrics.jsonl").read_text().splitlines()]
        returns = [row for row in read_rows(cell / "rows.csv") if row.metric == "rollout/ep_rew_mean"]
        assert [row.value for row in returns] == [line["rollout/ep_rew_mean"] for line in logged]
    names = list(json.loads((sweep / "results.json").read_text())["cells"])
    assert names == ["pendulum/gp-icem/optimistic-seed=0", "pendulum/gp-icem/optimistic-seed=2"]
    assert "[2/2] pendulum/gp-icem/optimistic-seed=2 done in" in out and "results.csv" in out
    text = status_text(sweep)
    assert "2 of 2 cells done" in text and "12/12" in text and "driver" not in text


@pytest.mark.slow
def test_a_run_is_the_one_that_train_would_have_made(reference, tmp_path):
    """The same numbers as `sombrl train` with the same settings: a cell is not a second implementation."""
    run, cell = tmp_path / "run", cells(reference[0])[0] / "run"
    flags = ["--env", "pendulum", "--seeds", "2", "--episodes", "12", "--action-repeat", "5", "--episode-length", "6"]
    for part, fields in (("gp", {"capacity": 128, "rank": 8, "fit-points": 16, "fit-steps": 3}), ("icem", ICEM)):
        flags += [word for name, value in fields.items() for word in (f"--{part}.{name}", str(value))]
    threads = str(LocalBackend().threads)
    trained = start("train", "gp-icem", "--model", "true", *flags, "--no-tensorboard", "--out", run, PJRT_NPROC=threads)
    finish(trained)
    assert (run / "config.json").read_text() == (cell / "config.json").read_text()
    assert untimed(run) == untimed(cell)


ICEM = {"num-samples": 12, "num-elites": 3, "iterations": 2, "horizon": 4, "particles": 2}


def untimed(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


@pytest.mark.thorough
def test_a_worker_and_later_the_driver_are_killed(reference, tmp_path):
    sweep = tmp_path / "sweep"
    command = ["sweep", write(tmp_path), "--out", sweep, "--workers", "1"]
    driver = start(*command)
    wait_for(lambda: bool(cells(sweep)), driver)
    first, second = cells(sweep)
    wait_for(lambda: checkpointed(first), driver)
    text = status_text(sweep)
    assert re.search(r"seed=0 +running +\d+/12", text) and re.search(r"seed=2 +waiting", text), text
    assert "0 of 2 cells done, 1 running, 1 waiting" in text and "no driver" not in text
    os.kill(events(first, "started")[0]["pid"], signal.SIGKILL)

    wait_for(lambda: checkpointed(second), driver)
    assert events(first, "broke")[0]["reason"].startswith("killed by signal 9")
    assert [event["iteration"] >= 1 for event in events(first, "started")] == [False, True]
    written = (first / "rows.csv").stat().st_mtime_ns
    driver.kill()
    driver.communicate()
    worker = events(second, "started")[0]["pid"]
    wait_for(lambda: not alive(worker))  # it saves and ends when its driver is gone
    assert not (second / "rows.csv").exists() or pytest.skip("the worker was quicker than the kill")
    text = status_text(sweep)
    assert re.search(r"seed=2 +waiting +\d+/12", text) and "no driver is running: go on with sombrl sweep" in text

    out, _ = finish(start(*command))
    assert "1 of 2 cells are finished already and are not run again" in out
    assert (first / "rows.csv").stat().st_mtime_ns == written
    assert [len(events(cell, "started")) for cell in (first, second)] == [2, 2]
    assert (sweep / "results.csv").read_bytes() == (reference[0] / "results.csv").read_bytes()


@pytest.mark.slow
def test_a_cell_that_always_dies_is_given_up_with_its_reason(reference, tmp_path):
    """A copy of the reference with one cell begun and not finished; its worker is killed, and may not try again."""
    sweep = copy_of(reference[0], tmp_path)
    driver = start("sweep", write(tmp_path), "--out", sweep, "--retries", "0")
    wait_for(lambda: worker_of(driver) is not None, driver)
    os.kill(worker_of(driver), signal.SIGKILL)
    out, err = finish(driver, code=1)
    assert "1 of 2 cells failed, pendulum/gp-icem/optimistic-seed=0: killed by signal 9 (kill -9, or" in err
    assert "1 of 2 cells are finished already" in out
    assert re.search(r"seed=0 +failed +12/12 +killed by signal 9", status_text(sweep)), status_text(sweep)
    assert [path.name for path in sweep.glob("results.*")] == []
    out, _ = finish(start("sweep", write(tmp_path), "--out", sweep))  # the same command tries it again
    assert (sweep / "results.csv").read_bytes() == (reference[0] / "results.csv").read_bytes()


@pytest.mark.slow
def test_ctrl_c_stops_the_workers_and_says_how_to_go_on(reference, tmp_path):
    sweep = copy_of(reference[0], tmp_path)
    driver = start("sweep", write(tmp_path), "--out", sweep)
    wait_for(lambda: worker_of(driver) is not None, driver)
    worker = worker_of(driver)
    driver.send_signal(signal.SIGINT)
    _, err = finish(driver, code=130)
    assert "1 of 2 cells are finished and kept" in err and f"--out {sweep}" in err and err.count("\n") == 1
    assert not alive(worker)


@pytest.mark.slow
def test_what_cannot_work_is_refused_once_and_not_tried_again(tmp_path, capsys):
    """A capacity below the episode's length is known only with the environment."""
    sweep = tmp_path / "sweep"
    text = SPEC.replace("[grid]", "[grid]\ngp.capacity = [128, 5]").replace("seed = [0, 2]", "")
    spec = write(
        tmp_path, text.replace("gp = { capacity = 128, rank", "gp = { rank").replace("episodes = 12", "episodes = 1")
    )
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(spec), "--out", str(sweep), "--partial"])
    err = capsys.readouterr().err
    assert stop.value.code == 1 and "raise --gp.capacity" in err and "1 of 2 cells failed" in err
    bad = cells(sweep)[1]
    assert len(events(bad, "broke")) == 1 and events(bad, "broke")[0]["final"]
    assert len(read_rows(sweep / "results.csv")) > 0  # --partial
    assert "failed" in status_text(sweep) and "raise --gp.capacity" in status_text(sweep)


@pytest.mark.parametrize(
    ("workers", "cores", "gpus", "slots", "threads"),
    [(None, 2, [], 1, 2), (None, 1, [], 1, 1), (None, 16, [], 8, 2), (3, 16, [], 3, 5), (None, 16, ["0", "1"], 2, 8)],
)
def test_how_many_workers(workers, cores, gpus, slots, threads):
    backend = LocalBackend(workers, cores=cores, gpus=gpus)
    assert (backend.slots, backend.threads) == (slots, threads)
    environment = backend.environment(0)
    assert environment["OPENBLAS_NUM_THREADS"] == environment["PJRT_NPROC"] == str(threads)
    devices = [backend.environment(place).get("CUDA_VISIBLE_DEVICES") for place in range(slots)]
    assert devices == (gpus or [None] * slots)


def test_workers_that_share_a_gpu_share_its_memory(monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    backend = LocalBackend(3, cores=8, gpus=["0"])
    assert [backend.environment(place)["CUDA_VISIBLE_DEVICES"] for place in range(3)] == ["0"] * 3
    assert float(backend.environment(0)["XLA_PYTHON_CLIENT_MEM_FRACTION"]) * 3 <= 1.0
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in LocalBackend(None, cores=8, gpus=["0"]).environment(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-8a")
    assert visible_gpus() == ["2", "GPU-8a"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []


@pytest.mark.slow
def test_threads_are_limited_where_xla_looks(tmp_path):
    """PJRT_NPROC is not documented by JAX: this is how we know that it is still read."""
    script = (
        "import os, jax, jax.numpy as jnp; jnp.ones(3).block_until_ready();"
        "tasks = [open(f'/proc/self/task/{t}/comm').read() for t in os.listdir('/proc/self/task')];"
        "print(sum('XLAEigen' in name for name in tasks))"
    )
    counts = [
        int(subprocess.check_output([sys.executable, "-c", script], env=os.environ | {"PJRT_NPROC": n}, text=True))
        for n in ("1", "3")
    ]
    assert counts[1] == counts[0] + 2


def test_a_worker_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\ntrap '' TERM\nsleep 60\n")
    deaf.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(deaf))
    worker = Worker(Job(SweepPlace(tmp_path), ("x",), ()).to_json(), {})
    assert worker.ended() is None
    worker.stop(grace=0.2)
    assert worker.wait() == -signal.SIGKILL


def copy_of(reference: Path, folder: Path) -> Path:
    """A sweep with its second cell finished, and the first one trained but without its rows."""
    sweep = folder / "sweep"
    shutil.copytree(reference, sweep)
    (cells(sweep)[0] / "rows.csv").unlink()
    for name in ("results.csv", "results.json"):
        (sweep / name).unlink()
    return sweep


def worker_of(driver) -> int | None:
    """The process that a driver has started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == driver.pid and b"sombrl.sweep.worker" in command:
            return int(path.parent.name)
    return None
