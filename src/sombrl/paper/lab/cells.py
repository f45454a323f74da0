"""The experiments by name, each a function of the scale: what a runner calls, one cell after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import NOISES, Gaussian, make_noise
from sombrl.paper.lab.optimism import optimism
from sombrl.paper.lab.picture import picture
from sombrl.paper.lab.regret import FACTORS, Draw, regret
from sombrl.paper.lab.rows import LabRow
from sombrl.paper.lab.settings import SETTINGS, ExactFiniteHorizon
from sombrl.paper.lab.sub_gaussian import sub_gaussian_optimism
from sombrl.paper.lab.systems import GridWorld, random_system, trap
from sombrl.paper.lab.unsupervised import unsupervised
from sombrl.records import SombrlError


@dataclass(frozen=True)
class Scale:
    """How much of everything."""

    dimensions: tuple[int, ...]  # of the state, where the lemma is tried
    lemma_systems: int
    lemma_episodes: int
    systems: int
    episodes: int  # decisions of a run without resets: ten times as many
    scan_systems: int
    scan_episodes: int


SCALES: dict[str, Scale] = {
    "smoke": Scale((1,), 3, 2, 2, 10, 2, 5),  # seconds a cell, nearly all of it compiling
    "small": Scale((1, 2, 3), 40, 16, 16, 300, 6, 100),
    "paper": Scale((1, 2, 3), 100, 32, 24, 1000, 12, 300),
}

GRIDS: dict[int, Grid] = {1: Grid(1, 31, 7), 2: Grid(2, 9, 5), 3: Grid(3, 5, 3)}
"""About the same number of inputs in every dimension. Coarse, but no less exact (see grid.py)."""
LEMMA_WORLDS: dict[int, GridWorld] = {
    dim: GridWorld(grid, noise=Gaussian(0.3), contraction=0.4, norm_bound=1.5) for dim, grid in GRIDS.items()
}
WORLDS: dict[str, tuple[GridWorld, Draw]] = {
    "random": (GridWorld(GRIDS[1], noise=Gaussian(0.2), contraction=0.5, norm_bound=2.0), random_system),
    "trap": (
        GridWorld(GRIDS[1], noise=Gaussian(0.15), lengthscales=(1.0, 0.5), contraction=0.8, norm_bound=1.5),
        trap,
    ),
}
SUB_GAUSSIAN_HORIZON = 5
"""λₙ of that setting grows as L̄ᵀ."""
SCAN_SEED, FRESH_SEED = 1, 2
"""The trap was shaped on systems of seed 0, the factors were chosen on seed 1; the regret is measured on neither."""
SCANNED = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The factors on λₙ that were tried for `FACTORS`."""


def scale_of(name: str) -> Scale:
    """The scale of that name."""
    if name not in SCALES:
        raise SombrlError(f"there is no scale {name!r}: take one of {', '.join(SCALES)}.")
    return SCALES[name]


def optimism_cell(setting: str, scale: str) -> list[LabRow]:
    """The optimism lemma in every dimension."""
    size = scale_of(scale)
    rows: list[LabRow] = []
    for dim in size.dimensions:
        rows += optimism(
            SETTINGS[setting],
            LEMMA_WORLDS[dim],
            f"random-{dim}d",
            systems=size.lemma_systems,
            episodes=size.lemma_episodes,
        )
    return rows


def sub_gaussian_cell(scale: str) -> list[LabRow]:
    """The lemma for plans under fₙ, with every noise in one dimension and the most un-Gaussian one in more."""
    size = scale_of(scale)
    cases = [(1, name) for name in NOISES] + [(dim, "rademacher") for dim in size.dimensions if dim > 1]
    rows: list[LabRow] = []
    for dim, name in cases:
        known = LEMMA_WORLDS[dim]
        world = GridWorld(
            known.grid, make_noise(name, known.noise.size), contraction=known.contraction, norm_bound=known.norm_bound
        )
        rows += sub_gaussian_optimism(
            ExactFiniteHorizon(SUB_GAUSSIAN_HORIZON),
            world,
            f"random-{dim}d-{name}",
            systems=size.lemma_systems,
            episodes=size.lemma_episodes,
        )
    return rows


def regret_cell(env: str, setting: str, scale: str) -> list[LabRow]:
    """SOMBRL with its factor and with λₙ as the theory has it, greedy and Thompson, on the same systems."""
    size = scale_of(scale)
    world, draw = WORLDS[env]
    return regret(
        SETTINGS[setting],
        world,
        draw,
        env,
        methods={
            "sombrl": (FACTORS[setting], False),
            "sombrl-theory": (1.0, False),
            "greedy": (0.0, False),
            "thompson": (0.0, True),
        },
        systems=size.systems,
        iterations=_iterations(setting, size.episodes),
        checkpoints=min(size.episodes, 50),
        seed=FRESH_SEED,
    )


def factors_cell(setting: str, scale: str) -> list[LabRow]:
    """SOMBRL with λₙ from a ten-thousandth of the theory to all of it, on other systems than the regret uses."""
    size = scale_of(scale)
    rows: list[LabRow] = []
    for env, (world, draw) in WORLDS.items():
        rows += regret(
            SETTINGS[setting],
            world,
            draw,
            env,
            methods={f"sombrl x{factor:g}": (factor, False) for factor in SCANNED},
            systems=size.scan_systems,
            iterations=_iterations(setting, size.scan_episodes),
            checkpoints=min(size.scan_episodes, 10),
            seed=SCAN_SEED,
        )
    return [row | {"metric": "lab/scan_regret"} for row in rows if row["metric"] == "lab/regret"]


def unsupervised_cell(scale: str) -> list[LabRow]:
    """Exploration without a reward."""
    size = scale_of(scale)
    world, draw = WORLDS["random"]
    return unsupervised(
        ExactFiniteHorizon(), world, draw, "random", systems=size.systems, episodes=size.episodes,
        checkpoints=min(size.episodes, 50),
    )  # fmt: skip


def picture_cell(scale: str) -> list[LabRow]:
    """One system to look at; the same at every scale."""
    scale_of(scale)
    return picture()


def _iterations(setting: str, episodes: int) -> int:
    return episodes if SETTINGS[setting].resets else 10 * episodes


CELLS: dict[str, Callable[[str], list[LabRow]]] = {
    **{f"optimism-{setting}": partial(optimism_cell, setting) for setting in SETTINGS},
    "optimism-sub-gaussian": sub_gaussian_cell,
    **{f"regret-{setting}": partial(regret_cell, "random", setting) for setting in SETTINGS},
    **{f"trap-{setting}": partial(regret_cell, "trap", setting) for setting in SETTINGS},
    **{f"factors-{setting}": partial(factors_cell, setting) for setting in SETTINGS},
    "unsupervised": unsupervised_cell,
    "picture": picture_cell,
}
PARTS = ("optimism", "regret", "trap", "factors", "unsupervised", "picture")


def run(part: str, scale: str) -> list[LabRow]:
    """The rows of one cell ("trap-discounted") or of all cells of a part ("trap")."""
    scale_of(scale)
    cells = [cell for cell in CELLS if cell == part or (part in PARTS and cell.split("-")[0] == part)]
    if not cells:
        raise SombrlError(f"the laboratory has no part {part!r}: take one of {', '.join((*PARTS, *CELLS))}.")
    return [row for cell in cells for row in CELLS[cell](scale)]
