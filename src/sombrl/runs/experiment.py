"""What an experiment is: cells that can be run one by one, and a figure drawn from their numbers alone."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sombrl.runs.cell import NAME, Cell, FunctionCell
from sombrl.runs.headlines import Headline
from sombrl.storage.results import Row

SCALES = ("smoke", "small", "paper")
"""smoke: does it run at all, seconds per cell; small: two CPU cores, about half an hour; paper: the paper's numbers."""


@dataclasses.dataclass(frozen=True)
class UserData:
    """Files that the project does not ship and the user must have: `--data`."""

    what: str
    """Which files, as the end of a sentence that asks for them."""
    check: Callable[[tuple[Path, ...]], None]
    """Refuses files that will not do."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A row of the table of experiments."""

    name: str
    summary: str
    figure: str
    """Which figure or section of the paper it is."""
    cells: Callable[[str], list[Cell]]
    """The cells of a scale, in the order of the CSV."""
    draw: Callable[[list[Row]], Any]
    """A matplotlib figure of the rows."""
    headlines: tuple[Headline, ...] = ()
    derive: Callable[[list[Row]], list[Row]] | None = None
    """Rows that need several cells, such as the regret against an oracle's return."""
    more_figures: Mapping[str, Callable[[list[Row]], Any]] = dataclasses.field(default_factory=dict)
    """Further figures, by the end of their file's name."""
    report: Callable[[list[Row]], str] | None = None
    """The closing text, where a table of headlines is not what one wants to know."""
    against: Callable[[list[Row], list[Row]], str] | None = None
    """What to say about the rows beside those of the last release, where its table is there (OUT/NAME/release.csv)."""
    data: UserData | None = None
    """What its function cells are given, where they need files."""

    def cells_at(self, scale: str, data: tuple[Path, ...] = ()) -> list[Cell]:
        """The cells of a scale, with names that can be folders beside each other."""
        cells = self.cells(scale)
        if data:
            cells = [dataclasses.replace(cell, data=data) if isinstance(cell, FunctionCell) else cell for cell in cells]
        names = [cell.name for cell in cells]
        assert all(NAME.fullmatch(name) for name in names), names
        assert len(set(names)) == len(names), names
        assert not any(a != b and b.startswith(f"{a}/") for a in names for b in names), names
        return cells
