"""`--minutes`, by a clock that the test turns: what is started, when it is stopped, what is remembered."""

import json
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sombrl.cli.main import main
from sombrl.records import SombrlError
from sombrl.storage.files import write_whole
from sombrl.storage.results import read_rows
from sombrl.sweep import driver, pace
from sombrl.sweep.driver import AbstractBackend, Ended, complete
from sombrl.sweep.in_time import CLOSING, FIRST, InTime, check_minutes, closing_s, too_late
from sombrl.sweep.local import LocalBackend
from sombrl.sweep.pace import Pace, Paces, name_of
from sombrl.sweep.places import SweepPlace
from sombrl.sweep.spec import read_spec
from sombrl.sweep.sweep import open_sweep, run_sweep
from sombrl.sweep.worker import Job
from tests.sweep.test_driver import finished
from tests.sweep.tiny import write

REPORTS = 12


class Clock:
    """A second passes at every look of the driver."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.0


class Runs(AbstractBackend):
    """Cells of 12 reports: the first after `first` seconds, then one every `report`; `save` seconds to stop."""

    slots = 1

    def __init__(self, clock: Clock, first: float = 10.0, report: float = 5.0, save: float = 2.0):
        self.clock, self.first, self.report, self.save = clock, first, report, save
        self.started: list[tuple[str, float]] = []
        self.stopped: list[float] = []

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        self.started += [(job.name, self.clock.now) for job in jobs]
        folders = [job.place.folders()[job.name] for job in jobs]
        for folder in folders:
            folder._begin()
            folder.attempts.note("started", iteration=self._reports(folder), planned=REPORTS)
        return [(folder, self.clock.now, self._reports(folder)) for folder in folders]

    def ended(self, task: Any) -> Ended | None:
        folder, begun, had = task
        since = self.clock.now - begun - self.first
        done = had + (1 + int(since // self.report) if since >= 0 else 0)
        if done > had:
            row = json.dumps({"iteration": min(done, REPORTS) - 1})
            write_whole(folder.path / "run" / "metrics.jsonl", row + "\n")
        if done < REPORTS:
            return None
        finished(folder)
        return Ended(0)

    def stop(self, tasks: Sequence[Any]) -> None:
        if tasks:
            self.clock.now += self.save
            self.stopped.append(self.clock.now)

    def _reports(self, folder: Any) -> int:
        path = folder.path / "run" / "metrics.jsonl"
        return json.loads(path.read_text())["iteration"] + 1 if path.exists() else 0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(driver, "time", types.SimpleNamespace(sleep=clock.sleep, monotonic=clock))
    return clock


@pytest.fixture
def place(tmp_path):
    spec = read_spec(write(tmp_path))
    return open_sweep(tmp_path / "sweep", spec.name, spec.cells(), LocalBackend)[0]


def run(place: SweepPlace, clock: Clock, minutes: float, **backend: float) -> Runs:
    runs = Runs(clock, **backend)
    paces = Paces(place.root)
    complete(
        place,
        list(place.folders()),
        runs,
        retries=0,
        command=["sombrl"],
        see_through=InTime(minutes, paces, clock=clock),
    )
    return runs


def test_it_stops_by_itself_and_goes_on(place, clock):
    """Two cells of 65 s in calls of two minutes: the second one is stopped in the first, finished in the second."""
    begun = clock.now
    first = run(place, clock, 2.0)
    assert [name[-1] for name, _ in first.started] == ["0", "2"] and len(first.stopped) == 1
    assert clock.now <= begun + 120  # also with the two seconds of saving
    assert clock.now >= begun + 120 - 2 - closing_s([Pace()])
    cells = list(place.folders().values())
    assert [cell.finished for cell in cells] == [True, False]
    second = run(place, clock, 2.0)
    assert [name[-1] for name, _ in second.started] == ["2"] and not second.stopped
    assert all(cell.finished for cell in place.folders().values())


def test_what_is_measured_is_remembered(place, clock):
    run(place, clock, 2.0)
    paces = Paces(place.root)
    one, two = (paces[name_of(Job(place, (name,), ()))] for name in place.folders())
    assert one.first_s == pytest.approx(10, abs=2) and one.report_s == pytest.approx(5, abs=0.5)
    assert one.minutes == pytest.approx(65 / 60, abs=0.1) and one.stop_s is None
    assert two.stop_s == 2.0 and two.minutes > 0.1
    assert closing_s([two]) == CLOSING + 1.5 * 2.0  # now it is known how long that one needs
    assert paces.first_s("sweep/another", 99.0) == one.first_s or two.first_s  # as the slowest of its kind
    assert paces.first_s("elsewhere/cell", 99.0) == 99.0


def test_nothing_is_started_that_cannot_save(place, clock):
    least = (FIRST + closing_s([Pace()])) / 60
    assert run(place, clock, least - 0.05).started == []
    assert len(run(place, clock, least + 0.05).started) == 1


def test_a_slow_start_that_was_measured_counts(place, clock):
    """The second cell needs 60 s until its first report, as the first one has shown: it waits for the next call."""
    runs = run(place, clock, 3.0, first=60.0)
    assert [name[-1] for name, _ in runs.started] == ["0"]


@pytest.mark.parametrize("stop_s", [5.0, 40.0])
def test_time_is_kept_for_saving(place, clock, stop_s):
    paces = Paces(place.root)
    for name in place.folders():
        paces[name_of(Job(place, (name,), ()))].stop_s = stop_s
    paces.save()
    begun = clock.now
    runs = run(place, clock, 2.0, save=stop_s, report=50.0)
    assert len(runs.stopped) == 1 and clock.now <= begun + 120 - CLOSING


def test_limits():
    assert not too_late(100.0, 50.0, Pace(stop_s=10.0)) and too_late(70.0, 50.0, Pace(stop_s=10.0))
    assert closing_s([]) == CLOSING
    assert closing_s([Pace(checkpoint_s=20.0)]) > closing_s([Pace()])
    for minutes in (0.0, -1.0, float("nan"), float("inf"), 1e9):
        with pytest.raises(SombrlError, match="--minutes must be more than 0"):
            check_minutes(minutes)


def test_a_broken_file_of_paces_is_refused(tmp_path):
    (tmp_path / pace.FILE).write_text('{"jobs": {"a": {"minutes": "many"}}}')
    with pytest.raises(SombrlError, match="delete it; only what is known of speeds is lost"):
        Paces(tmp_path)


def test_a_sweep_has_a_table_of_what_is_finished(place, clock, capsys):
    see_through = InTime(1.75, Paces(place.root), clock=clock)
    table = run_sweep(place, Runs(clock), retries=0, command=["sombrl", "sweep", "x"], see_through=see_through)
    assert table is not None and len(read_rows(table)) == 1
    assert "1 of 2 cells remain; go on with the same command: sombrl sweep x" in capsys.readouterr().out


def refused(capsys, *argv: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(argv))
    assert end.value.code == 2
    return capsys.readouterr().err


def test_minutes_on_the_command_line(tmp_path, capsys):
    spec = str(write(tmp_path))
    assert "--minutes must be more than 0" in refused(capsys, "sweep", spec, "--minutes", "0")
    assert "--minutes is for --backend local or slurm" in refused(
        capsys, "sweep", spec, "--backend", "ray", "--minutes", "5"
    )
    assert "--dry-run is for a campaign" in refused(capsys, "sweep", spec, "--dry-run")
    assert "--results is for a campaign" in refused(capsys, "sweep", spec, "--results", "r")
    assert "give a search so many --trials" in refused(capsys, "tune", spec, "--minutes", "5")
    assert not Path("sweeps").exists()
