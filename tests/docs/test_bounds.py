"""docs/bounds.md says what the committed results say."""

import dataclasses

import numpy as np
import pytest

from sombrl.paper.experiments.bounds_coverage import LEVELS, MET, UNCERTAINTY, markdown, select
from sombrl.paper.lab.summary import lemma_table
from sombrl.storage.results import read_rows
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "bounds.md").read_text()


@pytest.fixture(scope="module")
def rows():
    return read_rows(ROOT / "results" / "bounds-coverage" / "small.csv")


def test_the_table_is_that_of_the_results(rows):
    assert markdown(rows) in PAGE
    assert len({row.seed for row in rows}) == 5


def test_what_the_page_says_about_them(rows):
    def share(method, env, name):
        inside = [row.value for row in select(rows, method=method, env=env, metric=f"covered/{name}")]
        return sum(inside) / len(inside)

    runs = {(row.method, row.env) for row in rows}
    missed = {(run, level): abs(share(*run, f"calibrated-{level:g}") - level) for run in runs for level in LEVELS}
    assert max(gap for (_, level), gap in missed.items() if level >= 0.8) <= 0.085  # 8 points
    assert max(missed, key=missed.get)[0] == ("gp-icem", "mountain-car") and round(max(missed.values()), 2) == 0.24
    theorem = [row.value for row in select(rows, metric="factor/theorem")]
    assert min(theorem) > 1e6 and {row.value for row in select(rows, metric="covered/theorem")} == {1.0}


def test_imagined_episodes_of_pendulum_leave_the_data(rows):
    here = {"method": "gp-icem", "env": "pendulum"}
    sigma, met = ([row.value for row in select(rows, **here, metric=name)] for name in (UNCERTAINTY, MET))
    said = " ".join(PAGE.split())
    assert f"a Σ‖σ‖ of {np.median(sigma):.1f}" in said and f"real episode met {np.median(met):.1f}" in said


@pytest.mark.thorough
def test_in_the_laboratory_the_theorem_holds_as_often_as_it_says():
    found = read_rows(ROOT / "results" / "theory-lab" / "small.csv")
    lines = lemma_table([dataclasses.asdict(row) for row in found])
    assert f"on 40 of 40 systems in each of {len(lines)} cases" in PAGE
    for line in lines:
        assert (line.both_sides.successes, line.both_sides.trials) == (40, 40)
        assert line.both_sides.value >= 1 - 0.1  # δ of the laboratory
