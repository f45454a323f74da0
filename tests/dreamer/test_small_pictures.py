"""Dreamer on a world made of pixels: a resumed run is the same run, and seeds may share a program."""

import jax
import numpy as np
import pytest

import sombrl

from .test_agent import SETTINGS, reports, without_time

pytestmark = pytest.mark.thorough
PIXELS = SETTINGS | {"report_every": 16, "seeds": 2}  # the second report is in the middle of an episode


def agent():
    return sombrl.make("dreamer", "pixel:mountain-car", **PIXELS)


def test_a_resumed_run_is_the_same_run(tmp_path):
    whole, half = agent(), agent()
    rows = reports(whole, 4)
    reports(half, 2)
    half.save(tmp_path / "run")
    resumed = sombrl.load(tmp_path / "run")
    np.testing.assert_equal(without_time(reports(resumed, 4)), without_time(rows[2:]))
    for ours, theirs in zip(jax.tree.leaves(resumed.state), jax.tree.leaves(whole.state), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    ours, theirs = resumed.trainer.loop.replay_state(), whole.trainer.loop.replay_state()
    assert any("image" in name for name in ours)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_seeds_share_a_program_on_an_accelerator(monkeypatch):
    """Small pictures only. Rounding apart, they learn what they learn one by one."""
    apart = without_time(reports(agent(), 1))
    asked = []

    def together(rows, apart):
        asked.append(apart)
        return [slice(0, rows)]

    monkeypatch.setattr("sombrl.dreamer.loop.shards_of", together)
    one_program = without_time(reports(agent(), 1))
    assert asked and not any(asked)
    for ours, theirs in zip(one_program[0], apart[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4, nan_ok=True)
