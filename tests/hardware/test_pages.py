"""docs/hardware.md is true: its adapter drives, its table is the benchmark's, its rules have tests, its files exist."""

import json
import re
import sys

import numpy as np
from benchmarks import hardware

from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.registry import make_backend
from sombrl.hardware.supervisor import Supervisor
from tests.hardware.parts import ROOT, constant

PAGE = (ROOT / "docs" / "hardware.md").read_text()


def test_the_adapter_on_the_page_drives(tmp_path, monkeypatch):
    blocks = re.findall(r"^```text\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    source = next(block for block in blocks if "MyDriver" in block)
    (tmp_path / "my_car.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    backend = make_backend("my_car:car", ("mocap_id=1003", "warm_up=0.0"))
    backend.connect()
    assert backend.driver.mocap_id == 1003
    seen = backend.observe()
    np.testing.assert_allclose([*seen.pose[:2], abs(seen.pose[2])], [1.42, -1.04, np.pi])  # the start
    episode = run_episode(backend, constant(0.1, 0.5), Supervisor(backend), steps=5)
    assert episode.end == "completed"
    np.testing.assert_array_equal(backend.driver.command, [0.0, 0.0])  # and stands
    sys.modules.pop("my_car")


def test_the_table_is_that_of_the_benchmark():
    result = json.loads((ROOT / "results" / "bench" / "hardware.json").read_text())
    for name, cells in result["milliseconds"].items():
        numbers = [cells[f"{what}_{p}_ms"] for what in ("late", "work") for p in ("p50", "p99", "max")]
        line = f"| {name} | {' | '.join(f'{number:.2f}' for number in numbers)} | {cells['overruns']} |"
        assert line in PAGE
    tick = result["microseconds_of_a_tick"]
    assert round(1e-3 * (tick["encode"] + tick["policy 256 256"] + tick["supervisor"]), 2) < 0.03 + 0.005
    assert f"{result['seconds']:.0f} s each" in PAGE and result["machine"]["cores"] == 2


def test_the_benchmark_measures_a_loop_of_30_hz():
    cells = hardware.drive(0.5, hardware.actor(8))
    assert cells["ticks"] == 15 and 20 < cells["rate_hz"] <= 30.001
    with hardware.normal_priority():
        assert hardware.drive(0.1, hardware.actor(8))["scheduling"] == "normal"
    assert hardware.control_loop.real_time_priority is not None and hardware.microseconds(lambda: None, 100) < 1e3


def test_every_supervisors_flag_is_on_the_page_or_in_the_help():
    for flag in ("field-x", "field-y", "speed-cap", "stale-after", "fault-limit", "throttle-scale"):
        assert f"--supervisor.{flag}" in PAGE
