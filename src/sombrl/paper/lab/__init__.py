"""The laboratory: the paper's lemmas and theorems, tested on systems that satisfy every assumption.

Systems are drawn from the RKHS with known norm, noise and kernel; the world lives on a grid, so plans, values and
regrets are exact. `run(part, scale)` returns long rows, `summary` turns rows into numbers, `figures` into pictures.
"""

import warnings

from sombrl.paper.lab.cells import CELLS, PARTS, SCALES, run
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import NOISES, make_noise
from sombrl.paper.lab.optimism import optimism
from sombrl.paper.lab.regret import FACTORS, regret
from sombrl.paper.lab.settings import SETTINGS, ExactDiscounted, ExactFiniteHorizon, ExactNonEpisodic
from sombrl.paper.lab.sub_gaussian import sub_gaussian_optimism
from sombrl.paper.lab.summary import markdown
from sombrl.paper.lab.systems import GridWorld, System, random_system, trap
from sombrl.paper.lab.unsupervised import unsupervised

RENAMED = {
    "Discounted": ExactDiscounted,
    "FiniteHorizon": ExactFiniteHorizon,
    "NonEpisodic": ExactNonEpisodic,
    "World": GridWorld,
}
"""Names of sombrl 0.1, which training's settings and environments have too."""


def __getattr__(name: str) -> type:
    if name not in RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = RENAMED[name]
    warnings.warn(f"{__name__}.{name} is now {new.__name__}; the old name works until sombrl 0.3.", FutureWarning, 2)
    return new


__all__ = [
    "CELLS",
    "FACTORS",
    "NOISES",
    "PARTS",
    "SCALES",
    "SETTINGS",
    "ExactDiscounted",
    "ExactFiniteHorizon",
    "ExactNonEpisodic",
    "Grid",
    "GridWorld",
    "System",
    "make_noise",
    "markdown",
    "optimism",
    "random_system",
    "regret",
    "run",
    "sub_gaussian_optimism",
    "trap",
    "unsupervised",
]
