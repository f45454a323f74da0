"""How a campaign ends: finished, stopped or failed; and what its processes are given."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sombrl.paper.campaign import run
from sombrl.sweep import driver
from sombrl.sweep.driver import AbstractBackend, Ended
from sombrl.sweep.machine import Machine, Need, Room
from sombrl.sweep.on_machine import RoomBackend
from sombrl.sweep.places import ExperimentPlace
from sombrl.sweep.worker import Job
from tests.small import call

CAMPAIGN = """
[[cell]]
experiment = "tolerance-reward"
scale = "smoke"
cells = "factor-20,factor-10"
minutes = 1
[[cell]]
experiment = "tolerance-reward"
scale = "smoke"
cells = "factor-5"
minutes = 50
[[cell]]
experiment = "tolerance-reward"
scale = "smoke"
cells = "factor-1"
minutes = 1
cores = 999
"""


class Here(AbstractBackend):
    """Computes cells in this process; `BREAKS` does not, and `STOPS` is where Ctrl-C is pressed."""

    slots = None
    BREAKS = STOPS = ""

    def __init__(self, room: Room):
        self.room = room

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        return list(jobs)

    def ended(self, task: Any) -> Ended | None:
        if task.name == self.STOPS:
            raise KeyboardInterrupt
        if task.name == self.BREAKS:
            return Ended(-9)
        task.place.folders()[task.name].complete(["sombrl"])
        return Ended(0)

    def stop(self, tasks: Sequence[Any]) -> None:
        pass


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "RoomBackend", Here)
    monkeypatch.setattr(driver, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(run, "this_machine", lambda: Machine("two cores", 2, (32.0,)))
    Path("c.toml").write_text(CAMPAIGN)


def line_of(out: str, name: str) -> str:
    return next(line for line in out.splitlines() if line.startswith(f"tolerance-reward-smoke {name} "))


def test_what_is_left_is_said(here, capsys):
    code, out, _ = call(["sweep", "c.toml", "--minutes", "5"], capsys)
    assert code == 0 and "100%" in line_of(out, "factor-20") and "100%" in line_of(out, "factor-10")
    assert "needs 50.5 min to save anything: give more --minutes" in line_of(out, "factor-5")
    assert "this machine is too small for it" in line_of(out, "factor-1")
    assert "2 remain; go on with the same command: sombrl sweep c.toml --minutes 5" in out
    code, out, _ = call(["sweep", "c.toml"], capsys)  # all the time that it takes
    assert code == 0 and "2 of 4 are finished" in out and "1 remain" in out and "100%" in line_of(out, "factor-5")
    assert len((Path("results") / "tolerance-reward" / "smoke.csv").read_text().splitlines()) == 1 + 3 * 10


def test_a_failure_is_told_after_the_others(here, capsys, monkeypatch):
    monkeypatch.setattr(Here, "BREAKS", "factor-20")
    code, out, err = call(["sweep", "c.toml", "--minutes", "5", "--retries", "1"], capsys)
    assert code == 1 and "1 failed, tolerance-reward-smoke factor-20: killed by signal 9" in err
    assert "failed: killed by signal 9" in line_of(out, "factor-20") and "100%" in line_of(out, "factor-10")
    assert "results/tolerance-reward/smoke.csv" in out
    monkeypatch.setattr(Here, "BREAKS", "")
    code, out, _ = call(["sweep", "c.toml", "--minutes", "5"], capsys)
    assert code == 0 and "100%" in line_of(out, "factor-20")


def test_ctrl_c_merges_what_is_finished(here, capsys, monkeypatch):
    monkeypatch.setattr(Here, "STOPS", "factor-10")
    code, out, err = call(["sweep", "c.toml", "--minutes", "5"], capsys)
    assert code == 130 and "3 remain, saved as they are; go on with the same command: sombrl sweep c.toml" in err
    assert "results/tolerance-reward/smoke.csv" in out


def test_a_process_gets_its_share_of_a_gpu(tmp_path):
    place = ExperimentPlace("sombrl.paper.experiments:EXPERIMENTS", "mbpo-state", "smoke", tmp_path)
    jobs = [Job(place, (name,), ("sombrl",)) for name in ("pendulum/optimistic", "pendulum/greedy")]
    room = Room(Machine("two", 16, (100.0, 50.0), ("3", "5")))
    backend = RoomBackend(room)
    assert room.take(jobs[0], Need(2, 20.0)) and room.take(jobs[1], Need(3, 90.0)) is False
    assert room.take(jobs[1], Need(3, 40.0))
    first, second = (backend.environment(job) for job in jobs)
    assert (first["CUDA_VISIBLE_DEVICES"], first["XLA_PYTHON_CLIENT_MEM_FRACTION"]) == ("3", "0.2000")
    assert (second["CUDA_VISIBLE_DEVICES"], second["XLA_PYTHON_CLIENT_MEM_FRACTION"]) == ("3", "0.4000")
    assert (first["OMP_NUM_THREADS"], second["OMP_NUM_THREADS"]) == ("2", "3")
    crowd = Room(room.machine, workers=4)
    assert crowd.take(jobs[0], Need(1, 500.0))
    assert RoomBackend(crowd).environment(jobs[0])["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.4500"
