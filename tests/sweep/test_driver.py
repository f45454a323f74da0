"""The driver alone, on a backend that does what it is told: retries, reasons, cells of others, what status says."""

import json
import re
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sombrl.cli.main import main
from sombrl.records import RunFault, SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.storage.files import write_whole
from sombrl.storage.results import Row, read_rows, rows_text
from sombrl.sweep import driver
from sombrl.sweep.driver import AbstractBackend, Ended, complete
from sombrl.sweep.on_ray import RayBackend
from sombrl.sweep.places import SweepPlace
from sombrl.sweep.spec import read_spec
from sombrl.sweep.status import cell_status, status_text
from sombrl.sweep.sweep import open_sweep, run_sweep
from sombrl.sweep.worker import BUSY, REFUSED, Job
from tests.sweep.tiny import write

ROW = {"iteration": 3, "seed": 0, "time/fps": 50.0}


class Told(AbstractBackend):
    """Every start of a cell does the next thing in its list: a function of its folder that returns how it ended."""

    def __init__(self, slots: int | None = 1, **lists: list[Callable[[CellFolder], Ended]]):
        self.slots, self.lists = slots, lists
        self.started: list[str] = []
        self.stopped: list[Any] = []

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        self.started += [job.name for job in jobs]
        return [(job.place.folders()[job.name], len(self.started), job.name[-1]) for job in jobs]

    def ended(self, task: Any) -> Ended | None:
        folder, _, seed = task
        return self.lists[f"seed{seed}"].pop(0)(folder)

    def stop(self, tasks: Sequence[Any]) -> None:
        self.stopped += tasks


def done(folder: CellFolder) -> Ended:
    finished(folder)
    return Ended(0)


def finished(folder: CellFolder, value: float = 1.5) -> None:
    """The files of a finished cell."""
    folder._begin()
    row = Row("tiny", "gp-icem/optimistic", "pendulum", "finite-horizon", 0, "rollout/ep_rew_mean", 5, 1, value)
    write_whole(folder.path / "finished.json", json.dumps({"seconds": 2.0}))
    write_whole(folder.rows_path, rows_text([row]))


def killed(folder: CellFolder) -> Ended:
    return Ended(-9)


def refused(folder: CellFolder) -> Ended:
    folder.attempts.note("broke", reason="raise --gp.capacity.", final=True)
    return Ended(REFUSED)


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(driver, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(driver, "ASK_EVERY", 0.01)


@pytest.fixture
def place(tmp_path):
    spec = read_spec(write(tmp_path))
    place, _ = open_sweep(tmp_path / "sweep", spec.name, spec.cells(), Told)
    return place


def run(place: SweepPlace, backend: Told, retries: int = 2, **options: Any) -> Path:
    return run_sweep(place, backend, retries=retries, command=["sombrl", "sweep", "tiny.toml"], **options)


def first(place: SweepPlace) -> CellFolder:
    return next(iter(place.folders().values()))


def test_what_dies_goes_on_at_once_and_is_given_up_after_its_retries(place, capsys):
    backend = Told(seed0=[killed, killed, done], seed2=[done])
    table = run(place, backend)
    assert [name[-1] for name in backend.started] == ["0", "0", "0", "2"]
    assert len(read_rows(table)) == 2
    printed = capsys.readouterr().out
    assert (
        "killed by signal 9 (kill -9, or the system was out of memory); again from its checkpoint (retry 2 of 2)"
        in printed
    )


def test_a_failure_does_not_stop_the_others(place, capsys):
    with pytest.raises(RunFault, match=r"1 of 2 cells failed, .*seed=0: killed by signal 9"):
        run(place, Told(seed0=[killed, killed], seed2=[done]), retries=1)
    assert not (place.path / "results.csv").exists()
    assert re.search(r"seed=0 +failed +killed by signal 9", status_text(place.path))
    again = Told(seed0=[done], seed2=[])
    assert len(read_rows(run(place, again))) == 2 and len(again.started) == 1  # the finished one is not run again
    assert "1 of 2 cells are finished already and are not run again" in capsys.readouterr().out


def test_partial_results(place):
    with pytest.raises(RunFault):
        run(place, Told(seed0=[killed], seed2=[done]), retries=0, partial=True)
    assert len(read_rows(place.path / "results.csv")) == 1


def test_a_refusal_is_not_tried_again(place):
    backend = Told(seed0=[refused], seed2=[done])
    with pytest.raises(RunFault, match=r"raise --gp\.capacity"):
        run(place, backend)
    assert len(backend.started) == 2


def test_a_worker_that_lost_the_race_for_a_cell_is_not_a_failure(place):
    backend = Told(seed0=[lambda folder: Ended(BUSY)] * 3 + [done], seed2=[done])
    run(place, backend, retries=0)
    assert [name[-1] for name in backend.started].count("0") == 4


def test_a_cell_that_another_process_has_is_waited_for(place, capsys):
    """A second driver, or an old worker whose driver is dead: the lock of the cell decides."""
    folder = first(place)

    def they_finish(other: CellFolder) -> Ended:
        finished(folder, value=7.0)
        return done(other)

    with folder.claimed() as mine:
        assert mine and folder.in_use
        with folder.claimed() as twice:
            assert not twice
        backend = Told(seed0=[], seed2=[they_finish])
        table = run(place, backend)
    assert not folder.in_use and [name[-1] for name in backend.started] == ["2"]
    assert [row.value for row in read_rows(table)] == [7.0, 1.5]
    printed = capsys.readouterr().out
    assert "seed=0 is in the hands of another process" in printed and "seed=0 was finished by another" in printed


def test_all_at_once_where_the_backend_has_a_queue(place):
    backend = Told(slots=None, seed0=[done], seed2=[done])
    run(place, backend)
    assert len(backend.started) == 2 and backend.stopped == []


def test_an_error_of_the_backend_stops_what_runs(place):
    def broken(folder: CellFolder) -> Ended:
        raise RuntimeError("the cluster is gone")

    backend = Told(slots=None, seed0=[broken], seed2=[])
    with pytest.raises(RuntimeError, match="gone"):
        run(place, backend)
    assert len(backend.stopped) == 2


@pytest.mark.thorough
def test_an_experiment_on_a_backend_is_the_same_table(tmp_path, capsys):
    name = ["experiment", "tolerance-reward", "--scale", "smoke", "--cells", "factor-1,factor-2", "--partial"]
    table = Path("tolerance-reward", "smoke.csv")
    for folder, backend in ((tmp_path / "a", []), (tmp_path / "b", ["--backend", "local"])):
        main([*name, "--out", str(folder), "--runs", str(folder / "runs"), *backend])
    assert (tmp_path / "a" / table).read_bytes() == (tmp_path / "b" / table).read_bytes()
    assert "2 of 5 cells done, 3 waiting" in status_text(tmp_path / "b" / "runs" / "tolerance-reward-smoke")
    with pytest.raises(SystemExit):
        main([*name, "--out", str(tmp_path / "c"), "--workers", "2"])
    assert "add --backend local" in capsys.readouterr().err and not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        ("InvalidAuthToken: missing", "RAY_AUTH_MODE=token"),
        ("version 2.9 is not 2.60", "cannot join the Ray cluster auto"),
    ],
)
def test_a_ray_cluster_that_does_not_let_us_in(cause, sentence, monkeypatch):
    def init(**options: Any) -> None:
        raise ConnectionError(f"failed, {cause}")

    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(init=init))
    with pytest.raises(SombrlError, match=sentence):
        RayBackend(None, cpus=1, gpus=0.0, address="auto")
    with pytest.raises(SombrlError, match="host:port"):
        RayBackend(None, cpus=1, gpus=0.0, address="nowhere")


def test_cells_of_a_group_are_one_job(tmp_path):
    """MBPO's methods share a program in mbpo-state: they must go to one process, or it would be compiled thrice."""
    from sombrl.paper.experiments import EXPERIMENTS
    from sombrl.sweep.places import ExperimentPlace, place_from_json

    name = next(n for n, e in EXPERIMENTS.items() if any(getattr(c, "group", None) for c in e.cells_at("smoke")))
    place = ExperimentPlace("sombrl.paper.experiments:EXPERIMENTS", name, "smoke", tmp_path)
    cells = EXPERIMENTS[name].cells_at("smoke")
    jobs = driver.jobs_of(place, [cell.name for cell in cells], ["x"])
    assert sorted(n for job in jobs for n in job.cells) == sorted(cell.name for cell in cells)
    groups = {cell.name: getattr(cell, "group", None) for cell in cells}
    for job in jobs:
        assert len({groups[n] for n in job.cells}) == 1 and (len(job.cells) == 1 or groups[job.name] is not None)
    assert len(jobs) < len(cells)
    assert place_from_json(json.loads(json.dumps(place.to_json()))) == place


def test_status_of_every_kind(place):
    folder = first(place)

    def status(now: float = 0.0):
        return cell_status("x", folder, now)

    assert status().state == "waiting" and status().planned is None
    folder._begin()
    began = time.time()
    folder.attempts.note("started", iteration=0, planned=10)
    metrics = folder.path / "run" / "metrics.jsonl"
    metrics.parent.mkdir()
    metrics.write_text(json.dumps(ROW) + "\n" + '{"half')
    logged = metrics.stat().st_mtime
    with folder.claimed():
        seen = status(now=logged)
        assert (seen.state, seen.iteration, seen.planned, seen.rate) == ("running", 4, 10, 50.0)
        # Four iterations since the start, six to go.
        assert seen.eta == pytest.approx((logged - began) / 4 * 6, abs=0.02)
    assert (status().state, status().iteration) == ("waiting", 4)
    folder.attempts.note("broke", reason="killed by signal 9", final=False)
    assert (status().state, status().note) == ("waiting", "broke: killed by signal 9")
    folder.attempts.note("failed", reason="killed by signal 9")
    assert (status().state, status().note) == ("failed", "killed by signal 9")
    with folder.claimed():
        assert status().state == "running"  # it is tried again
    finished(folder)
    assert (status().state, status().seconds) == ("done", 2.0)


def test_a_line_of_attempts_that_a_kill_has_cut_off(place):
    folder = first(place)
    folder.attempts.note("started")
    with open(folder.attempts.path, "a") as file:
        file.write('{"event": "bro')
    folder.attempts.note("failed", reason="x")
    assert [event["event"] for event in folder.attempts.events()] == ["started", "failed"]
    folder.check()  # such a folder is still a cell


def test_status_says_whether_a_driver_is_there(place):
    assert "no driver is running" in status_text(place.path)
    with driver.driving(place, ["sombrl", "sweep", "tiny.toml"]):
        assert "no driver" not in status_text(place.path)
        alone = driver.driving(place, ["alone"], alone=True)
        with driver.driving(place, ["again"]), pytest.raises(SombrlError, match="another process drives"), alone:
            pass
    assert "no driver is running: go on with again" in status_text(place.path)


def test_ctrl_c_closes_the_backend_and_says_how_to_go_on(place):
    from sombrl.runs.train import Interrupted

    def ctrl_c(folder: CellFolder) -> Ended:
        raise KeyboardInterrupt

    backend = Told(seed0=[done], seed2=[ctrl_c])
    with pytest.raises(Interrupted, match=r"1 of 2 cells are finished and kept.*same command: sombrl sweep tiny"):
        complete(place, list(place.folders()), backend, retries=0, command=["sombrl", "sweep", "tiny.toml"])
    assert len(backend.stopped) == 1


def test_folders_of_others_are_refused(place, tmp_path, capsys):
    def refused(out: Path, *overrides: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["sweep", str(write(tmp_path)), *overrides, "--out", str(out)])
        assert stop.value.code == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    sweep = place.path
    finished(first(place))
    before = sorted((path, path.stat().st_mtime_ns) for path in sweep.rglob("*") if path.is_file())
    assert "belongs to another sweep (tiny, 2 cells)" in refused(sweep, "gp.rank=4")
    assert "lies inside the sweep" in refused(sweep / "cells" / "mine")
    assert "is not empty and no sweep" in refused(sweep.parent)
    assert "is a file" in refused(tmp_path / "tiny.toml")
    assert sorted((path, path.stat().st_mtime_ns) for path in sweep.rglob("*") if path.is_file()) == before
    with pytest.raises(SombrlError, match="not a sweep"):
        status_text(tmp_path)


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        (Ended(-9), "killed by signal 9 (kill -9, or the system was out of memory)"),
        (Ended(-11), "killed by signal 11"),
        (Ended(130), "stopped from outside"),
        (Ended(7), "ended with exit code 7"),
        (Ended(None, "its node died"), "its node died"),
    ],
)
def test_how_a_process_ended_in_words(ended, sentence):
    assert ended.sentence() == sentence
