"""planning-cost: what a mark is, what is counted, and the whole of it at scale smoke."""

import math

import numpy as np
import pytest

from sombrl.paper.experiments import EXPERIMENTS, run_experiment
from sombrl.paper.experiments.planning_cost import EFFORT, MARKS, _first, markdown, measure, needed
from sombrl.storage.results import Row, read_rows


def test_a_mark_is_reached_by_the_first_iteration_that_has_it():
    quality = np.array([-0.5, 0.2, 0.9, 0.94, 0.99])
    assert [_first(quality, mark) for mark in (0.1, 0.9, 0.95, 0.995)] == [2, 3, 5, math.inf]


@pytest.fixture(scope="module")
def rows():
    effort = EFFORT["smoke"] | {"seeds": 3, "most": 1600, "iterations": 40}
    found = measure("masses", "one", 4, "hucrl", None, **effort)
    return [Row("planning-cost", **row) for row in found]


def test_what_is_counted(rows):
    """Whole iterations of one population, the one with the least median; and as many seconds as samples."""
    value = {(row.metric, row.seed): row for row in rows if row.metric.startswith("plan/")}
    assert {row.value for row in rows if row.metric == "plan/size"} == {20 * (1 + 4)}
    for mark in MARKS:
        for seed in range(3):
            row = value.get((f"plan/samples_{mark}", seed))
            assert (row is not None) == (value["plan/quality", seed].value >= mark / 100) or row is None
            if row is not None:
                assert row.value % row.env_frames == 0 < row.value <= 1600 and row.decisions == 4
                tried = [r for r in rows if (r.metric, r.env_frames) == (f"tried/samples_{mark}", row.env_frames)]
                assert row.value in [r.value for r in tried if r.seed == seed]
    rates = {
        row.value / value[row.metric.replace("seconds", "samples"), row.seed].value
        for row in rows
        if "seconds_90" in row.metric
    }
    assert len({f"{rate:.6g}" for rate in rates}) == 1
    medians = {}
    for population in EFFORT["smoke"]["populations"]:
        tried = [r.value for r in rows if (r.metric, r.env_frames) == ("tried/samples_90", population)]
        medians[population] = np.median(tried + [math.inf] * (3 - len(tried)))
    assert {r.env_frames for r in rows if r.metric == "plan/samples_90"} == {min(medians, key=medians.get)}


def test_no_plan_beats_the_optimum(rows):
    assert all(0.5 < row.value <= 1.0 + 1e-5 for row in rows if row.metric == "plan/quality")
    assert all(0.0 <= row.value < 0.01 for row in rows if row.metric == "plan/gap")


def test_seeds_that_do_not_get_there_need_infinitely_many():
    def row(seed, metric, value):
        return Row("planning-cost", "hucrl", "masses", "one motor", seed, metric, 0, 8, value)

    found = [row(seed, "plan/quality", 0.8) for seed in range(3)] + [row(1, "plan/samples_90", 600.0)]
    assert needed(found, "plan/samples_90", method="hucrl") == {8: [math.inf, 600.0, math.inf]}


@pytest.mark.thorough
def test_from_start_to_figure(tmp_path):
    places = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    path = run_experiment(EXPERIMENTS["planning-cost"], "smoke", **places)
    found = read_rows(path)
    assert len(markdown(found).splitlines()) == 2 + 4
    assert len(path.with_suffix(".png").read_bytes()) > 10_000
    assert path.with_name("smoke-sigma.png").exists()
