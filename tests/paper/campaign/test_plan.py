"""What would be done in a time, reckoned: priorities, room, and nothing that comes too late."""

import tomllib
from pathlib import Path

import pytest

from sombrl.paper.campaign.plan import LATE, Todo, plan
from sombrl.paper.campaign.spec import campaign_of
from sombrl.sweep.in_time import FIRST, closing_s
from sombrl.sweep.machine import Machine
from sombrl.sweep.pace import Pace
from tests.small import call

ROOT = Path(__file__).resolve().parents[3]
TWO = Machine("two cores", 2, (8.0,))
END = 600.0 - closing_s([Pace()])  # of ten minutes


def todos(*minutes: float, cores: int = 1, memory_gb: float = 1.0, first_s: float = FIRST) -> list[Todo]:
    text = "".join(
        f"[[cell]]\nexperiment = 'tolerance-reward'\nscale = 'smoke'\ncells = 'factor-{factor}'\nminutes = {own}\n"
        f"cores = {cores}\nmemory_gb = {memory_gb}\n"
        for own, factor in zip(minutes, (20, 10, 5, 2, 1), strict=False)
    )
    tasks = campaign_of(Path("c.toml"), tomllib.loads(text)).tasks
    return [Todo(task, 0.0, 60 * task.entry.minutes, first_s) for task in tasks]


def test_two_at_a_time_in_their_order():
    first, second, third, fourth = plan(todos(3.0, 2.0, 4.0, 20.0), TWO, 600.0)
    assert [one.start for one in (first, second, third, fourth)] == [0.0, 0.0, 120.0, 180.0]
    assert [one.end for one in (first, second, third)] == [180.0, 120.0, 360.0]
    assert third.done == 1.0 and fourth.end == END
    assert fourth.done == pytest.approx((END - 180) / 1200)


def test_what_is_done_counts():
    (todo,) = todos(20.0)
    half = Todo(todo.task, 0.5, 600.0, FIRST)
    (planned,) = plan([half], TWO, 600.0)
    assert planned.done == pytest.approx(0.5 + 0.5 * END / 600)


def test_nothing_starts_too_late():
    _, _, third = plan(todos(9.0, 9.0, 4.0, first_s=50.0), TWO, 600.0)
    assert third.start is None and third.why == LATE and third.done == 0.0
    assert all(one.start is None for one in plan(todos(1.0), TWO, 30.0))


def test_what_fits_goes_before_what_does_not():
    small, large = todos(9.4, cores=1)[0], todos(9.0, cores=2)[0]
    later = Todo(todos(1.0, 1.0)[1].task, 0.0, 60.0, FIRST)
    planned = plan([small, Todo(todos(1.0, 1.0, 1.0, cores=2)[2].task, 0.0, 540.0, FIRST), later], TWO, 600.0)
    assert [one.start for one in planned] == [0.0, None, 0.0]
    (alone,) = plan([large], Machine("one core", 1, (8.0,)), 600.0)
    assert alone.why == "this machine is too small for it"


def test_the_paper_on_one_h200_in_25_minutes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, out, _ = call(["sweep", str(ROOT / "campaigns/paper.toml"), "--minutes", "25", "--dry-run"], capsys)
    assert code == 0 and "paper: what 25 minutes do on one H200 (16 cores, 139 GB)" in out
    started = out.partition("for a later call")[0].splitlines()
    names = [line for line in started if "dreamer-" in line]
    assert sum(line.startswith("0.0") for line in names) == 16  # a core each
    assert "dreamer-k-curve" in names[0] and "100%" in names[0]
    assert "24.5" in names[-1]  # the minute in which it is told to save
    assert not list(tmp_path.iterdir())
