"""The tables of the benchmarks, from timings written by hand; nothing is measured here."""

import fcntl
import re

import numpy as np
import pytest
from benchmarks import mbpo, parking, playground, sac
from benchmarks.timing import ROOT, Block, alone, ratio, row

SLOW = [Block(4.0, 8.0), Block(6.0, 8.0), Block(9.0, 9.0)]
FAST = [Block(2.0, 1.0), Block(2.0, 1.0), Block(1.0, 2.0)]


def test_row():
    cells = row(SLOW, 10)
    assert cells["min_ms"] == pytest.approx(400)
    assert cells["median_ms"] == pytest.approx(600)
    assert cells["cpu_ms"] == pytest.approx(800)
    assert cells["blocks"] == 3 and cells["units_per_block"] == 10


def test_ratio_pairs_rounds():
    assert ratio(SLOW, FAST) == pytest.approx({"min": 4.0, "median": 3.0, "cpu": 8.0})
    assert ratio(SLOW, FAST[::-1])["median"] == pytest.approx(4.0)  # of 4, 3 and 4.5; the medians stay 6 and 2
    with pytest.raises(ValueError):
        ratio(SLOW, FAST[:2])


def test_sac_tables():
    blocks = {"small": {"sombrl": FAST, "SBX": SLOW}}
    rows = sac.table({"small": {"sombrl": [Block(7.0, 7.0)], "SBX": [Block(8.0, 8.0)]}}, blocks)
    assert rows["small"]["sombrl"]["steps_per_s"] == pytest.approx(sac.STEPS / 1.0)
    assert rows["small"]["SBX"]["median_steps_per_s"] == pytest.approx(sac.STEPS / 6.0)
    assert rows["small"]["SBX"]["first_calls_s"] == [8.0]
    assert sac.ratios(blocks) == {"small": {"SBX": ratio(SLOW, FAST)}}
    assert sac.ratios({"small": {"sombrl": FAST}}) == {"small": {}}  # no peers


def test_mbpo_tables():
    def run(blocks, seeds):
        stages = [{"improve": 99.0}, {"improve": 3.0}, {"improve": 5.0}, {"improve": 8.0}]
        return mbpo.Run(seeds, 2, iter(()), {"large": 2}, [Block(1.0, 1.0), *blocks], stages)

    optimistic = run(SLOW, 5)
    cells = optimistic.row()
    assert cells["min_ms"] == pytest.approx(2000) and cells["ms_per_seed"] == pytest.approx(400)
    assert cells["stages_ms"] == {"improve": pytest.approx(1500)}  # those of the least disturbed block, not the first
    assert mbpo.ratios({"optimistic": optimistic, "greedy": run(FAST, 5)}) == {"optimistic / greedy": ratio(SLOW, FAST)}
    rows = {"humanoid · optimistic · 5": cells, "humanoid · greedy · 5": cells, "cartpole · optimistic · 5": cells}
    times = {"min": 5 * 368.6 / 2000, "cpu": 5 * 713 / 4000}
    assert mbpo.against_theirs(rows) == {"humanoid · optimistic · 5": pytest.approx(times)}


def test_parking_table():
    def episode(fit):
        return {"fit": fit, "imagine": 0.5, "improve": 10.0, "collect": 1.0}

    cells = parking.table([episode(1.0), episode(7.0), episode(5.0), episode(6.0)])  # the first one compiles
    assert cells == {"fit_s": 5.0, "search_s": 10.0, "drive_s": 1.0, "episode_s": 16.5, "first_episode_s": 12.5}


def test_playground_table():
    cells = playground.table({"playground:A": SLOW, "dmc:a": FAST}, 1600)
    assert cells["playground:A"]["frames_per_s"] == pytest.approx(1600 / 4.0)
    assert cells["dmc:a"]["frames_per_s"] == pytest.approx(1600 / 1.0)


def test_one_measures_at_a_time(tmp_path):
    path = tmp_path / "lock"

    def free():
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    with alone(path):
        assert not free()
    assert free()
    with alone(None):
        assert free()


def test_stand_in_follows_its_seed():
    env = mbpo.StandIn(3, 1)
    starts = [env.reset(seed=seed)[0] for seed in (1, 1, 2)]
    assert starts[0].dtype == np.float32
    assert np.array_equal(starts[0], starts[1]) and not np.array_equal(starts[0], starts[2])


def test_peers_are_pinned_as_we_are():
    # The lock has more than one version of some, by Python's.
    ours, theirs = (ROOT / path for path in ("requirements.lock", "benchmarks/peers/requirements.txt"))
    shared = r"^(jax|jaxlib|optax|numpy|gymnasium)(?:\[[\w,-]+\])?==([\w.]+)"
    pinned = re.findall(shared, theirs.read_text(), re.M)
    assert len(pinned) == 5
    assert set(pinned) <= set(re.findall(shared, ours.read_text(), re.M))
