"""Promises of docs/reliability.md that no other test holds, and the page itself."""

import re
from pathlib import Path

import numpy as np
import pytest

from sombrl.records import RunFault
from sombrl.training.episodic import refuse_nan

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_stops_the_run_with_its_name(value):
    refuse_nan({"model/nll": np.array([1.0, 2.0])}, [3, 5], 7)
    with pytest.raises(RunFault, match=r"model/nll is not finite for seed 5 in iteration 7\."):
        refuse_nan({"model/rmse": np.ones(2), "model/nll": np.array([1.0, value])}, [3, 5], 7)


def test_every_promise_names_a_test_that_is_there():
    page = (ROOT / "docs" / "reliability.md").read_text()
    tables = [
        line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| promise"))
    ]
    assert len(tables) > 25
    for line in tables:
        named = re.findall(r"`(tests/[\w/.]+)`", line.rsplit("|", 2)[1])
        assert named or "make docs" in line, line
        assert all((ROOT / name).exists() for name in named), line
