"""docs/bounds.md says what the committed results say."""

import dataclasses

from sombrl.paper.lab.summary import lemma_table
from sombrl.storage.results import read_rows
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "bounds.md").read_text()


def test_in_the_laboratory_the_theorem_holds_as_often_as_it_says():
    found = read_rows(ROOT / "results" / "theory-lab" / "small.csv")
    lines = lemma_table([dataclasses.asdict(row) for row in found])
    assert f"on 40 of 40 systems in each of {len(lines)} cases" in PAGE
    for line in lines:
        assert (line.both_sides.successes, line.both_sides.trials) == (40, 40)
        assert line.both_sides.value >= 1 - 0.1  # δ of the laboratory
