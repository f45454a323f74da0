"""Conformal quantiles: by hand, against NumPy, and on data for which the theorem holds."""

import math

import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.theory.conformal import conformal_quantile, least_cases, rolling_quantiles


def test_by_hand():
    scores = np.array([3.0, 9.0, 1.0, 7.0, 5.0, 2.0, 8.0, 4.0, 6.0])
    assert conformal_quantile(scores, 0.9) == 9.0  # rank ⌈10 · 0.9⌉ = 9
    assert conformal_quantile(scores, 0.5) == 5.0
    assert conformal_quantile(scores, 0.41) == 5.0  # rounded up
    assert conformal_quantile(scores[:8], 0.9) == math.inf  # rank 9 of 8
    assert conformal_quantile(np.array([1.0, np.nan, 2.0]), 0.5) == 2.0  # a NaN is the largest
    assert conformal_quantile(np.array([1.0, np.nan, 2.0]), 0.7) == math.inf


@pytest.mark.parametrize(("coverage", "least"), [(0.9, 9), (0.5, 1), (0.95, 19), (0.8, 4), (0.75, 3)])
def test_the_fewest_cases_are_those_with_a_finite_quantile(coverage, least):
    assert least_cases(coverage) == least
    assert conformal_quantile(np.arange(least, dtype=float), coverage) == least - 1
    assert conformal_quantile(np.arange(least - 1, dtype=float), coverage) == math.inf


def test_it_is_numpys_quantile_at_a_higher_level():
    scores = np.random.default_rng(0).normal(size=37)
    for coverage in (0.5, 0.8, 0.9):
        level = math.ceil(38 * coverage) / 37
        assert conformal_quantile(scores, coverage) == np.quantile(scores, level, method="inverted_cdf")


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_exchangeable_cases_are_covered_as_often_as_asked(coverage):
    """Between c and c + 1/(n + 1), within four standard errors, for scores that are anything but Gaussian."""
    rng, trials, n = np.random.default_rng(1), 4000, 25
    drawn = rng.standard_cauchy((trials, n + 1)) ** 2 * rng.uniform(0.1, 10, (trials, 1))
    held = np.mean([row[-1] <= conformal_quantile(row[:-1], coverage) for row in drawn])
    error = 4 * math.sqrt(coverage * (1 - coverage) / trials)
    assert coverage - error <= held <= coverage + 1 / (n + 1) + error


def test_rolling_looks_back_and_never_ahead():
    scores = np.array([[1.0, 2.0], [3.0, np.nan], [9.0, 9.0], [0.0, 0.0]])
    found = rolling_quantiles(scores, 0.5, latest=2)
    assert found.tolist() == [math.inf, 2.0, 2.0, 9.0]  # of nothing; of 1 2; of 1 2 3; of 3 9 9
    later = scores.copy()
    later[2:] = 100.0
    assert rolling_quantiles(later, 0.5, latest=2)[:3].tolist() == found[:3].tolist()


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, math.nan])
def test_a_share_is_refused_that_is_none(coverage):
    with pytest.raises(SombrlError, match="between 0 and 1"):
        conformal_quantile(np.ones(3), coverage)
