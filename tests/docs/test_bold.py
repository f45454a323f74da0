"""In the tables of results a number is bold only where its quartiles overlap those of no other method."""

import re

import pytest

from tests.docs.test_numbers import ROOT

NUMBER = r"-?\d+(?:\.\d+)?"
CELL = re.compile(rf"(?P<middle>{NUMBER})(?: \[(?P<low>{NUMBER}), (?P<high>{NUMBER})\])?")
NOT_OURS = ("true system",)
PAGES = ["results/README.md", "docs/reproducing.md", "docs/ladder.md"]


def quartiles(cell: str) -> tuple[float, float] | None:
    """Of a cell `median [quartile, quartile]`; without brackets both are the median. None: another kind of cell."""
    found = CELL.fullmatch(cell.replace("**", ""))
    if found is None:
        return None
    low, high = found["low"] or found["middle"], found["high"] or found["middle"]
    return float(low), float(high)


def overlaps(text: str) -> list[str]:
    """Rows whose bold number is within the noise of another; methods are columns."""
    rows, heads = [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        heads = heads if cells and heads else cells
        by_method = "episode 3" not in heads  # there methods are rows
        bold = [n for n, cell in enumerate(cells) if cell.startswith("**") and "[" in cell and quartiles(cell)]
        for n in bold if by_method else []:
            low, high = quartiles(cells[n])
            others = [
                found
                for m, cell in enumerate(cells[1:], 1)
                if m != n and not any(name in heads[m] for name in NOT_OURS) and (found := quartiles(cell))
            ]
            if not others or any(low <= other[1] and other[0] <= high for other in others):
                rows.append(line)
    return rows


@pytest.mark.parametrize("page", PAGES)
def test_bold_numbers_are_apart_from_all_others(page):
    assert overlaps((ROOT / page).read_text()) == []


def test_overlap_is_found():
    table = "| task | a | b |\n| --- | --- | --- |\n| one | **3** [2, 4] | 1 [0, {}] |"
    assert overlaps(table.format("2.5")) and not overlaps(table.format("1.5"))
    assert overlaps("| task | a | b |\n| --- | --- | --- |\n| one | **3** [0, 4] | 1 |")
