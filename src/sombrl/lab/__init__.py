"""The laboratory: the paper's lemmas and theorems, tried on systems that satisfy their assumptions to the letter.

Systems are drawn from the RKHS with known norm, noise and kernel; the world lives on a grid, so plans, values and
regrets are exact. `run(part, scale)` returns long rows, `summary` turns rows into numbers, `figures` into pictures.
"""

from sombrl.lab.cells import CELLS, PARTS, SCALES, run
from sombrl.lab.grid import Grid
from sombrl.lab.noise import NOISES, make_noise
from sombrl.lab.optimism import optimism
from sombrl.lab.regret import FACTORS, regret
from sombrl.lab.settings import SETTINGS, Discounted, FiniteHorizon, NonEpisodic
from sombrl.lab.sub_gaussian import sub_gaussian_optimism
from sombrl.lab.summary import markdown
from sombrl.lab.systems import System, World, random_system, trap
from sombrl.lab.unsupervised import unsupervised

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
