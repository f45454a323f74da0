"""theory-lab: the theorems checked where everything is computable; the paper proves them and shows no such figure.

Systems drawn from the GP prior itself, with known kernel, norm and noise: the optimism lemma at the theoretical λ, the
growth of the regret in the three settings against greedy, and the decay of the unsupervised uncertainty. The systems
and the measurements are in `sombrl.paper.lab`; here they are cells.
"""

import dataclasses
import functools
from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell
from sombrl.paper.experiments.figures import new_figure
from sombrl.storage.results import Row


def lab_cell(cell: str, scale: str) -> list[dict]:
    """The rows of one of the laboratory's measurements."""
    from sombrl.paper.lab import CELLS

    return CELLS[cell](scale)


def cells(scale: str) -> list[Cell]:
    """All of the laboratory's."""
    from sombrl.paper.lab import CELLS

    return [FunctionCell(name, lab_cell, {"cell": name, "scale": scale}) for name in CELLS]


def draw(rows: list[Row], figure: str = "regret", size: tuple[float, float] = (13.0, 7.5)) -> Any:
    """One of the laboratory's own figures."""
    from sombrl.paper.lab import figures

    return getattr(figures, f"draw_{figure}")([dataclasses.asdict(row) for row in rows], new_figure(*size))


def report(rows: list[Row]) -> str:
    """Coverage of the lemma, slopes of the regret and of the uncertainty, with their intervals."""
    from sombrl.paper.lab import markdown

    return markdown([dataclasses.asdict(row) for row in rows])


THEORY_LAB = Experiment(
    name="theory-lab",
    summary="optimism lemma, regret slopes and decay of uncertainty on systems drawn from the prior",
    figure="sections 5.1 and B, no figure",
    cells=cells,
    draw=draw,
    more_figures={
        "lemma": functools.partial(draw, figure="lemma", size=(13.0, 5.0)),
        "unsupervised": functools.partial(draw, figure="unsupervised", size=(8.0, 5.0)),
        "system": functools.partial(draw, figure="system", size=(8.0, 5.0)),
    },
    report=report,
)
