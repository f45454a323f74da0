"""A kill of each kind of run that no other test kills; `tools/kill_runs.py` does it hundreds of times."""

import random

import pytest

from tests.kills.killing import disturbed, left_in_peace
from tests.kills.modes import MODES

ELSEWHERE = (
    *("gp-icem", "gp-icem --jobs 2", "mbpo in worker processes", "dreamer", "experiment", "sweep"),
    "hardware, simulated",
)
"""Killed in tests/runs, tests/sweep, tests/dreamer, tests/paper and tests/hardware."""
ALIKE = ("gp-icem, discounted", "mbpo --preset paper", "mbpo --controller sac-icem", "sac --preset strong")
"""Saved and read as another one of these."""
KILLED = [
    pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in MODES if name not in ELSEWHERE
]


@pytest.mark.thorough
@pytest.mark.parametrize("name", KILLED)
def test_killed_and_gone_on_with(name, tmp_path):
    result, gaps = left_in_peace(MODES[name], tmp_path / "peace")
    found, kills = disturbed(MODES[name], tmp_path / "run", random.Random(name), gaps, again=0.0, at_writes=True)
    assert kills and found == result, kills
