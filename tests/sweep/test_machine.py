"""Who fits on a machine beside whom."""

import subprocess

import pytest

from sombrl.sweep import machine
from sombrl.sweep.machine import Machine, Need, Room, this_machine

H200 = Machine("one H200", 16, (139.0,), ("0",))


def fill(room: Room, need: Need) -> int:
    number = 0
    while room.take(number, need):
        number += 1
    return number


@pytest.mark.parametrize(
    ("need", "most"),
    [
        (Need(2, 20.0), 6),  # 0.95 · 139 = 132 GB
        (Need(3, 20.0), 5),  # 16 cores
        (Need(1, 140.0), 0),
        (Need(17, 1.0), 0),
    ],
)
def test_memory_and_cores_decide(need, most):
    assert fill(Room(H200), need) == most


def test_workers_decide_alone():
    room = Room(H200, workers=3)
    assert fill(room, Need(16, 500.0)) == 3


def test_devices_are_filled_evenly():
    room = Room(Machine("two", 16, (10.0, 10.0), ("4", "5")))
    for name in "abcd":
        assert room.take(name, Need(1, 4.0))
    assert not room.take("e", Need(1, 4.0))
    assert sorted(room.share(name)[1] for name in "abcd") == [0, 0, 1, 1]


def test_who_has_left_leaves_room():
    room = Room(Machine("small", 2, (8.0,)))
    assert room.take("a", Need()) and room.take("b", Need()) and not room.take("c", Need())
    room.keep(["b"])
    assert room.take("c", Need())
    assert room.ever(Need(2)) and not room.ever(Need(3)) and not room.ever(Need(1, 9.0))


def test_this_machine_without_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    here = this_machine()
    assert here.gpus == () and here.cores >= 1 and len(here.memory_gb) == 1 and here.memory_gb[0] > 0.5


def test_memory_of_gpus_is_asked(monkeypatch):
    listed = "0, GPU-aaa, 143771\n1, GPU-bbb, 81920\n"
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 0, stdout=listed))
    assert machine._gpu_memory(("1", "GPU-aaa", "7")) == (80.0, 143771 / 1024, 0.0)
