"""Our statistics are rliable's, by numbers that it wrote down (make_rliable_oracle.py), and SciPy's."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from sombrl.report import statistics

ORACLE = json.loads(Path(__file__).with_name("rliable_oracle.json").read_text())
CASES = [pytest.param(case, id=f"{len(case['ours'])} runs, {len(case['ours'][0])} tasks") for case in ORACLE["cases"]]
NAMES = ["iqm", "mean", "median", "optimality_gap"]

each_case = pytest.mark.parametrize("case", CASES)


def by_task(scores):
    """rliable's matrix [runs, tasks] as one array per task."""
    return list(np.asarray(scores).T)


def assert_ends(ours, theirs):
    """Both ends within a tenth of the interval: five standard errors of 2000 resamplings, and the steps of few runs."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.1 * (theirs[1] - theirs[0]) + 1e-12)


@each_case
@pytest.mark.parametrize("name", NAMES)
def test_point_estimates_equal_rliables(case, name):
    found = getattr(statistics, name)(by_task(case["ours"]))
    assert found == pytest.approx(case["statistics"][name]["point"], abs=1e-12)


@each_case
@pytest.mark.parametrize("name", NAMES)
def test_interval_ends_agree_with_rliables(case, name):
    ends = statistics.interval(getattr(statistics, name), by_task(case["ours"]), draws=20_000)
    assert_ends(ends, case["statistics"][name]["ends"])


@each_case
def test_probability_of_improvement_agrees_with_rliables(case):
    ours, theirs = by_task(case["ours"]), by_task(case["theirs"])
    expected = case["probability_of_improvement"]
    assert statistics.probability_of_improvement(ours, theirs) == pytest.approx(expected["point"], abs=1e-12)
    assert_ends(statistics.interval(statistics.probability_of_improvement, ours, theirs), expected["ends"])


@each_case
def test_profile_agrees_with_rliables(case):
    thresholds, ours = np.array(ORACLE["thresholds"]), by_task(case["ours"])
    found = statistics.performance_profile(ours, thresholds)
    np.testing.assert_allclose(found, case["profile"]["points"], rtol=0, atol=1e-12)
    low, high = statistics.interval(lambda s: statistics.performance_profile(s, thresholds), ours)
    expected_low, expected_high = np.array(case["profile"]["ends"])
    step = 1.01 / np.size(case["ours"])  # a share moves in steps of one run
    np.testing.assert_allclose(low, expected_low, rtol=0, atol=step)
    np.testing.assert_allclose(high, expected_high, rtol=0, atol=step)


def test_unequal_runs_per_task_pool_like_scipys_trimmed_mean():
    scores = [np.array([0.1, 0.9, 0.4]), np.array([0.2, 0.3, 0.8, 0.7, 0.5])]
    assert statistics.iqm(scores) == pytest.approx(scipy.stats.trim_mean(np.concatenate(scores), 0.25))
    assert statistics.mean(scores) == pytest.approx((1.4 / 3 + 0.5) / 2)


def test_probability_of_improvement_is_mann_whitneys_u():
    rng = np.random.default_rng(3)
    ours, theirs = rng.integers(0, 6, size=9).astype(float), rng.integers(0, 6, size=7).astype(float)
    u = scipy.stats.mannwhitneyu(ours, theirs).statistic
    assert statistics.probability_of_improvement([ours], [theirs]) == pytest.approx(u / 63)


def test_interval_is_a_function_of_the_scores_and_has_the_nominal_coverage():
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=40)]
    again = statistics.interval(statistics.mean, scores)
    assert statistics.interval(statistics.mean, scores) == again
    # Of a mean of 40 normal numbers the percentile interval is nearly Student's: it holds the truth in about 94 of 100.
    ends = [statistics.interval(statistics.mean, [rng.normal(size=40)], draws=400) for _ in range(400)]
    covered = np.mean([low <= 0.0 <= high for low, high in ends])
    assert 0.90 < covered < 0.98


def test_resampling_stays_within_tasks():
    scores = [np.full(5, 0.2), np.full(5, 0.8)]  # nothing varies within a task, so nothing varies at all
    assert statistics.interval(statistics.mean, scores) == pytest.approx((0.5, 0.5))


def test_curve_intervals_are_the_intervals_of_every_point():
    values = np.random.default_rng(1).normal(size=(4, 6))
    (middle, low, high), (median, *_) = statistics.curve_intervals(
        values, [statistics.trimmed_mean, lambda v: np.median(v, axis=-1)], draws=20_000
    )
    np.testing.assert_allclose(median, np.median(values, axis=1))
    for point in range(4):
        assert middle[point] == pytest.approx(scipy.stats.trim_mean(values[point], 0.25))
        expected = statistics.interval(statistics.iqm, [values[point]], draws=20_000)
        assert_ends((low[point], high[point]), expected)
