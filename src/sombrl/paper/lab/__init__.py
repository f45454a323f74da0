"""The laboratory: the paper's lemmas and theorems, tried on systems that satisfy their assumptions to the letter.

Systems are drawn from the RKHS with known norm, noise and kernel; the world lives on a grid, so plans, values and
regrets are exact. `run(part, scale)` returns long rows, `summary` turns rows into numbers, `figures` into pictures.
"""

from sombrl.paper.lab.cells import CELLS, PARTS, SCALES, run
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import NOISES, make_noise
from sombrl.paper.lab.optimism import optimism
from sombrl.paper.lab.regret import FACTORS, regret
from sombrl.paper.lab.settings import SETTINGS, Discounted, FiniteHorizon, NonEpisodic
from sombrl.paper.lab.sub_gaussian import sub_gaussian_optimism
from sombrl.paper.lab.summary import markdown
from sombrl.paper.lab.systems import System, World, random_system, trap
from sombrl.paper.lab.unsupervised import unsupervised

__all__ = [
    "CELLS",
    "FACTORS",
    "NOISES",
    "PARTS",
    "SCALES",
    "SETTINGS",
    "Discounted",
    "FiniteHorizon",
    "Grid",
    "NonEpisodic",
    "System",
    "World",
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
