"""A real campaign, killed with -9 twice, ends with the tables of an undisturbed one, each call in its time."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.sweep.tiny import finish, start
from tests.waiting import wait_for

CAMPAIGN = """
[[cell]]
experiment = "mbpo-vs-model-free"
scale = "small"
cells = "pendulum/sac"
minutes = 0.5

[[cell]]
experiment = "tolerance-reward"
scale = "smoke"
cells = "factor-20"
minutes = 0.1
"""
CELL = Path("runs", "mbpo-vs-model-free-small", "pendulum", "sac")
TABLES = (Path("mbpo-vs-model-free", "small.csv"), Path("tolerance-reward", "smoke.csv"))


def command(folder: Path, *more: object) -> list[object]:
    (folder / "c.toml").write_text(CAMPAIGN)
    return ["sweep", "c.toml", "--out", "campaign", *more]


def reports(folder: Path) -> int:
    path = folder / "campaign" / CELL / "run" / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def worker_of(driver: int) -> list[int]:
    """The processes that a driver has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        found += [int(entry.name)] * (parent == driver)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The tables of one that nobody has disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start(*command(folder), folder=folder))
    return folder / "results"


@pytest.mark.thorough
def test_killed_twice_it_has_the_tables_of_an_undisturbed_one(whole, tmp_path):
    words = command(tmp_path, "--minutes", 1.5)
    first = start(*words, folder=tmp_path)
    wait_for(lambda: reports(tmp_path) >= 2, first)
    for pid in [first.pid, *worker_of(first.pid)]:  # nobody saves anything
        os.kill(pid, signal.SIGKILL)
    first.communicate()
    second = start(*words, folder=tmp_path)
    wait_for(lambda: len(starts(tmp_path)) == 2, second)
    before = starts(tmp_path)[1]["time"]
    metrics = tmp_path / "campaign" / CELL / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.stat().st_mtime > before + 1 and reports(tmp_path) >= 2, second)
    second.kill()  # its worker saves what it has and ends
    second.communicate()
    begun, out = time.monotonic(), ""
    for calls in range(1, 6):  # one, on a machine with nothing else to do
        out, _ = finish(start(*words, folder=tmp_path))
        assert time.monotonic() - begun < calls * 60 * (1.5 + 1)
        if "all is finished" in out:
            break
    assert "all is finished" in out
    assert starts(tmp_path)[-1]["iteration"] >= 1  # from what the worker has saved
    for table in TABLES:
        assert (tmp_path / "results" / table).read_bytes() == (whole / table).read_bytes()
    spent = json.loads((tmp_path / "campaign" / "progress.json").read_text())["jobs"]
    assert spent["mbpo-vs-model-free-small/pendulum/sac"]["minutes"] > 0.1


def starts(folder: Path) -> list[dict]:
    path = folder / "campaign" / CELL / "attempts.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [event for event in map(json.loads, lines) if event["event"] == "started"]
