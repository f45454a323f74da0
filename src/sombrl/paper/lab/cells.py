"""The experiments by name, each a function of the scale: what a runner calls, one cell after the other."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.held import held
from sombrl.paper.lab.horizon import horizons
from sombrl.paper.lab.hucrl import hallucinate
from sombrl.paper.lab.lipschitz import lipschitz_held, lipschitz_regret
from sombrl.paper.lab.lyapunov import energy, switching
from sombrl.paper.lab.noise import NOISES, Gaussian, make_noise
from sombrl.paper.lab.optimism import optimism
from sombrl.paper.lab.picture import picture
from sombrl.paper.lab.regret import FACTORS, REACH, Draw, choose, regret
from sombrl.paper.lab.rows import LabRow
from sombrl.paper.lab.settings import SETTINGS, ExactFiniteHorizon
from sombrl.paper.lab.simple_regret import simple_regret
from sombrl.paper.lab.sub_gaussian import NAME as SUB_GAUSSIAN
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
    watched_systems: int  # where many policies are valued at every episode
    watched_episodes: int
    held_episodes: int  # and that for every factor
    horizons: tuple[int, ...]  # T of the comparison over the horizon
    horizon_episodes: int


SCALES: dict[str, Scale] = {
    "smoke": Scale((1,), 3, 2, 2, 10, 2, 5, 2, 5, 3, (1, 2), 3),  # seconds a cell, nearly all of it compiling
    "small": Scale((1, 2, 3), 40, 16, 16, 300, 6, 100, 8, 100, 30, (1, 2, 4, 8), 30),
    "paper": Scale((1, 2, 3), 100, 32, 24, 1000, 12, 300, 16, 300, 100, (1, 2, 4, 8, 12), 100),
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
SCANNED_REACHES = (1e-2, 1e-1, 1.0)
"""The factors on βₙ that were tried for `REACH`."""
SCANNED_SUB_GAUSSIAN = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
"""That λₙ grows as L̄ᵀ, so its factors are smaller."""
HELD: dict[str, tuple[float, ...]] = {
    "finite-horizon": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "discounted": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "non-episodic": (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
    SUB_GAUSSIAN: (1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5),
}
"""The factors with which the lemma is tried again, in halves of a power of ten about those of the figures."""
KNOWN = GridWorld(Grid(1, 61, 7, half_width=6.0), noise=Gaussian(0.2), contraction=0.5, norm_bound=1.0)
"""So wide that the Lyapunov function keeps the state from the edge, and not the edge itself: K/(1 - a) is below 3."""


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
    return _scanned(rows)


def simple_regret_cell(setting: str, scale: str) -> list[LabRow]:
    """The simple-regret lemma in every dimension, at λₙ of the theory and at that of the regret figures."""
    size = scale_of(scale)
    rows: list[LabRow] = []
    for dim in size.dimensions:
        rows += simple_regret(
            SETTINGS[setting],
            LEMMA_WORLDS[dim],
            f"random-{dim}d",
            methods={"sombrl-theory": 1.0, "sombrl": FACTORS[setting]},
            systems=size.lemma_systems,
            episodes=size.lemma_episodes,
        )
    return rows


def hucrl_cell(setting: str, scale: str) -> list[LabRow]:
    """H-UCRL on the systems of the regret figures, with βₙ as the theory has it and scaled; and the scan for that."""
    size = scale_of(scale)
    rows: list[LabRow] = []
    for env, (world, draw) in WORLDS.items():
        rows += regret(
            SETTINGS[setting],
            world,
            draw,
            env,
            methods={"hucrl": (REACH, False), "hucrl-theory": (1.0, False)},
            systems=size.watched_systems,
            iterations=_iterations(setting, size.episodes),
            checkpoints=min(size.episodes, 50),
            seed=FRESH_SEED,
            chooser=hallucinate,
        )
        scan = regret(
            SETTINGS[setting],
            world,
            draw,
            env,
            methods={f"hucrl x{factor:g}": (factor, False) for factor in SCANNED_REACHES},
            systems=size.scan_systems,
            iterations=_iterations(setting, size.scan_episodes),
            checkpoints=min(size.scan_episodes, 10),
            seed=SCAN_SEED,
            chooser=hallucinate,
        )
        rows += _scanned(scan)
    return rows


def held_cell(setting: str, scale: str) -> list[LabRow]:
    """The optimism lemma with scaled λₙ on the systems of the regret figures."""
    size = scale_of(scale)
    rows: list[LabRow] = []
    for env, (world, draw) in WORLDS.items():
        sizes = {"systems": size.watched_systems, "episodes": size.held_episodes, "seed": FRESH_SEED}
        if setting == SUB_GAUSSIAN:
            short = ExactFiniteHorizon(SUB_GAUSSIAN_HORIZON)
            rows += lipschitz_held(short, _tossed(world), draw, env, factors=HELD[setting], **sizes)
        else:
            rows += held(SETTINGS[setting], world, draw, env, factors=HELD[setting], **sizes)
    return rows


def lipschitz_cell(env: str, scale: str) -> list[LabRow]:
    """The regret theorem for sub-Gaussian noise: SOMBRL under fₙ, greedy and H-UCRL over Lipschitz policies."""
    size = scale_of(scale)
    world, draw = WORLDS[env]
    return lipschitz_regret(
        ExactFiniteHorizon(SUB_GAUSSIAN_HORIZON),
        _tossed(world),
        draw,
        env,
        methods={
            "sombrl": (FACTORS[SUB_GAUSSIAN], False),
            "sombrl-theory": (1.0, False),
            "greedy": (0.0, False),
            "hucrl": (REACH, True),
            "hucrl-theory": (1.0, True),
        },
        systems=size.watched_systems,
        episodes=size.watched_episodes,
        checkpoints=min(size.watched_episodes, 50),
        seed=FRESH_SEED,
    )


def lipschitz_factors_cell(scale: str) -> list[LabRow]:
    """The same over factors, on other systems."""
    size = scale_of(scale)
    rows: list[LabRow] = []
    for env, (world, draw) in WORLDS.items():
        rows += lipschitz_regret(
            ExactFiniteHorizon(SUB_GAUSSIAN_HORIZON),
            _tossed(world),
            draw,
            env,
            methods={f"sombrl x{factor:g}": (factor, False) for factor in SCANNED_SUB_GAUSSIAN},
            systems=size.scan_systems,
            episodes=size.watched_episodes // 2,
            checkpoints=min(size.watched_episodes // 2, 10),
            seed=SCAN_SEED,
        )
    return _scanned(rows)


def horizon_cell(scale: str) -> list[LabRow]:
    """SOMBRL and H-UCRL over the horizon, noise of ±R."""
    size = scale_of(scale)
    world, draw = WORLDS["random"]
    return horizons(
        _tossed(world), draw, "random", lengths=size.horizons, systems=size.scan_systems,
        episodes=size.horizon_episodes, seed=FRESH_SEED,
    )  # fmt: skip


def lyapunov_cell(scale: str) -> list[LabRow]:
    """Energy that is bounded by a known Lyapunov function, policies that take turns, and the regret there."""
    size = scale_of(scale)
    rows = energy(KNOWN, random_system, "wide", systems=size.systems, seed=FRESH_SEED) + switching()
    known: list[LabRow] = []
    for methods, chooser in (
        ({"sombrl": (FACTORS["non-episodic"], False), "greedy": (0.0, False)}, choose),
        ({"hucrl": (REACH, False)}, hallucinate),
    ):
        known += regret(
            SETTINGS["non-episodic"],
            KNOWN,
            random_system,
            "wide",
            methods=methods,
            systems=size.systems,
            iterations=_iterations("non-episodic", size.episodes),
            checkpoints=min(size.episodes, 50),
            seed=FRESH_SEED,
            chooser=chooser,
        )
    return rows + [row | {"metric": "lab/known_regret"} for row in known if row["metric"] == "lab/regret"]


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


def _tossed(world: GridWorld) -> GridWorld:
    """The same world with noise of ±R, the most un-Gaussian of that size."""
    return dataclasses.replace(world, noise=make_noise("rademacher", world.noise.size))


def _scanned(rows: list[LabRow]) -> list[LabRow]:
    """The regrets of a scan, under a name of their own."""
    return [row | {"metric": "lab/scan_regret"} for row in rows if row["metric"] == "lab/regret"]


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
    **{f"simple-{setting}": partial(simple_regret_cell, setting) for setting in SETTINGS},
    **{f"hucrl-{setting}": partial(hucrl_cell, setting) for setting in SETTINGS},
    **{f"lipschitz-{env}": partial(lipschitz_cell, env) for env in WORLDS},
    "lipschitz-factors": lipschitz_factors_cell,
    **{f"held-{setting}": partial(held_cell, setting) for setting in (*SETTINGS, SUB_GAUSSIAN)},
    "horizon": horizon_cell,
    "lyapunov": lyapunov_cell,
}
PARTS = (
    "optimism",
    "regret",
    "trap",
    "factors",
    "unsupervised",
    "picture",
    "simple",
    "hucrl",
    "lipschitz",
    "held",
    "horizon",
    "lyapunov",
)


def run(part: str, scale: str) -> list[LabRow]:
    """The rows of one cell ("trap-discounted") or of all cells of a part ("trap")."""
    scale_of(scale)
    cells = [cell for cell in CELLS if cell == part or (part in PARTS and cell.split("-")[0] == part)]
    if not cells:
        raise SombrlError(f"the laboratory has no part {part!r}: take one of {', '.join((*PARTS, *CELLS))}.")
    return [row for cell in cells for row in CELLS[cell](scale)]
