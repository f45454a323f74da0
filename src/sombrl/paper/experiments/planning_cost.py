"""planning-cost: what an equally good plan costs SOMBRL and H-UCRL as the state grows (sections 3 and 5 of the paper).

The paper calls H-UCRL expensive because it plans over hallucinated controls too: u + d numbers per decision instead of
u. Seconds per plan of one size (gp-compute-cost) do not show that: by themselves the additional controls cost little.
Here one decision is planned with more and more samples until the plan is good: until it has 90 and 95 % of what the
best plan has over doing nothing, each method by its own objective (r + λ‖σ‖ with λ = 10, or r under the most favourable
dynamics within β = 2).

The optimum is known. For masses between springs both objectives are concave, and `planning.linear_bound` says how much
the plan that was found can miss at most (`plan/gap`). For pendulums it is the best of many gradient ascents in float64
(`plan/agreeing`: the share of them that end within 1 % of it).

iCEM has its published numbers (horizon 20, its noise, kept elites, a tenth of the samples as elites), but the
population is tried in several sizes, and every method has the one that needs the fewest samples (median over seeds). A
search that has not reached the mark within `most` samples has not. The planner is not warm-started, and the models are
formulas: with a GP every sample takes longer, about equally for both. Seconds are those of the processor, all cores
together, and depend on the machine.

In the CSV `decisions` is d and `env_frames` the population.
"""

import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from sombrl.controllers.icem import ICEM, PRESETS
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.exploration.strategies import hucrl, optimistic
from sombrl.exploration.weight import Constant
from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell, recorded_as
from sombrl.paper.experiments.figures import LOOKS, finish, new_figure, require, select
from sombrl.paper.planning import SIGMA, SYSTEMS, Chain, Masses, ascend, imagined, linear_bound
from sombrl.storage.results import Row

BONUS_WEIGHT, BETA = 10.0, 2.0  # λ and β of the GP experiments
PUBLISHED = PRESETS["pendulum"]
HORIZON = PUBLISHED.horizon
MARKS = (90, 95)  # % of the optimum
MOTORS = {"each": "a motor per link", "one": "one motor"}
METHODS = ("optimistic", "hucrl")
DIMS = {"smoke": (2,), "small": (2, 4, 8, 12, 20), "paper": (2, 4, 8, 12, 20)}
SIGMAS = (0.05, 0.2)  # besides the usual 0.1
SIGMA_DIM = {"smoke": 2, "small": 8, "paper": 8}  # of the cells with other σ
EFFORT: dict[str, dict[str, Any]] = {
    "smoke": {"seeds": 2, "populations": [40, 160], "most": 4000, "iterations": 30, "starts": 2, "steps": 200},
    "small": {
        **{"seeds": 5, "populations": [40, 120, 360, 1080], "most": 86_400, "iterations": 80},
        **{"starts": 32, "steps": 1500},
    },
    "paper": {
        **{"seeds": 10, "populations": [20, 40, 80, 160, 320, 640, 1280, 2560, 5120], "most": 1_500_000},
        **{"iterations": 150, "starts": 256, "steps": 4000},
    },
}
SAMPLES, SECONDS = "plan/samples_{}", "plan/seconds_{}"
QUALITY, SIZE, GAP, AGREEING, VALUE = "plan/quality", "plan/size", "plan/gap", "plan/agreeing", "plan/optimum"
PER_SAMPLE = "plan/sample_s"
TRIED = "tried/samples_{}"  # with every population, not the best alone
ENOUGH = 2.0  # a population that needs so many times the samples of the best ends the search for a better one


def strategy(method: str) -> Exploration:
    """The exploration of a method."""
    return hucrl(BETA) if method == "hucrl" else optimistic(Constant(BONUS_WEIGHT))


@recorded_as("sombrl.experiments.planning_cost.measure")
def measure(
    system: str,
    motors: str,
    state_dim: int,
    method: str,
    sigma: float | None,
    seeds: int,
    populations: list[int],
    most: int,
    iterations: int,
    starts: int,
    steps: int,
) -> list[dict[str, Any]]:
    """Samples and seconds to each mark, for one method on one system; a seed is a start and the planner's noise."""
    driven = 1 if motors == "one" else state_dim // 2
    given = {} if sigma is None else {"sigma": sigma}
    chains = [SYSTEMS[system](state_dim, driven, seed=seed, **given) for seed in range(seeds)]
    problems = [imagined(chain, strategy(method)) for chain in chains]
    rows: list[dict[str, Any]] = []

    def add(metric: str, seed: int, value: float | int, population: int = 0) -> None:
        env = system if sigma is None else f"{system} sigma={sigma:g}"
        where = {"method": method, "env": env, "setting": MOTORS[motors], "metric": metric}
        counts = {"seed": seed, "env_frames": population, "decisions": state_dim}
        rows.append({**where, **counts, "value": float(value)})

    optima = []
    for seed, (chain, mdp) in enumerate(zip(chains, problems, strict=True)):
        # Two where every local optimum is the global one; the bound says so.
        number = min(starts, 2) if system == "masses" else starts
        optimum = ascend(mdp, chain.start, HORIZON, starts=number, steps=steps, key=jr.key(seed))
        optima.append(optimum)
        add(VALUE, seed, optimum.value)
        add(SIZE, seed, HORIZON * mdp.action_dim)
        add(AGREEING, seed, optimum.agreeing)
        if isinstance(chain, Masses):
            bound = linear_bound(chain, mdp, chain.start, optimum.plan)
            add(GAP, seed, bound / (optimum.value - optimum.idle))

    best: dict[int, tuple[float, int, list[float]]] = {}  # of each mark: median, population, samples of each seed
    highest = np.zeros(seeds)
    for population in populations:
        length = max(1, min(iterations, most // population))
        program = _compiled(chains[0], problems[0], population, length)
        searches = [
            np.asarray(program(mdp, chain.start, key=jr.key(1000 + seed)), np.float64)
            for seed, (chain, mdp) in enumerate(zip(chains, problems, strict=True))
        ]
        quality = np.array([optimum.quality(found) for optimum, found in zip(optima, searches, strict=True)])
        highest = np.maximum(highest, quality[:, -1])
        medians = {}
        for mark in MARKS:
            found = [_first(curve, mark / 100) * population for curve in quality]
            for seed, samples in enumerate(found):
                if math.isfinite(samples):
                    add(TRIED.format(mark), seed, samples, population)
            medians[mark] = float(np.median(found))
            reached = sum(map(math.isfinite, found))
            known = best.get(mark)
            if known is None or (medians[mark], -reached) < (known[0], -sum(map(math.isfinite, known[2]))):
                best[mark] = medians[mark], population, found
        print(f"  {population} samples: {', '.join(f'{m} % after {medians[m]:g}' for m in MARKS)}", flush=True)
        if all(medians[mark] > ENOUGH * best[mark][0] for mark in MARKS):  # never where none was reached: ∞ > ∞
            break
    for mark, (_, population, found) in best.items():
        for seed, samples in enumerate(found):
            if math.isfinite(samples):
                add(SAMPLES.format(mark), seed, samples, population)
    for seed, value in enumerate(highest):
        add(QUALITY, seed, value)
    return rows


@recorded_as("sombrl.experiments.planning_cost.time_samples")
def time_samples(dims: list[int], population: int, iterations: int, rounds: int) -> list[dict[str, Any]]:
    """Seconds of the processor per sample, the least of a few rounds: other work on the machine hardly shows."""
    rows = []
    for system, motors, dim, method in itertools.product(SYSTEMS, MOTORS, dims, METHODS):
        chain = SYSTEMS[system](dim, 1 if motors == "one" else dim // 2, seed=0)
        mdp = imagined(chain, strategy(method))
        program = _compiled(chain, mdp, population, iterations)
        times = []
        for round_key in jr.split(jr.key(0), rounds):
            start = time.process_time()
            program(mdp, chain.start, key=round_key).block_until_ready()
            times.append(time.process_time() - start)
        where = {"method": method, "env": system, "setting": MOTORS[motors], "metric": PER_SAMPLE, "seed": 0}
        seconds = min(times) / (population * iterations)
        rows.append({**where, "env_frames": population, "decisions": dim, "value": seconds})
    return rows


def _compiled(chain: Chain, mdp: ImaginedMDP, population: int, iterations: int) -> Any:
    """The progress of a search as a program of MDP, start and key."""
    elites = max(2, population // 10)
    config = dataclasses.replace(PUBLISHED, num_samples=population, num_elites=elites, iterations=iterations)
    planner = ICEM(config)
    state = planner.init(mdp, key=jr.key(0))
    program: Any = eqx.filter_jit(planner.progress)
    compiled = program.lower(state, mdp, chain.start, key=jr.key(0)).compile()
    return functools.partial(compiled, state)


def add_seconds(rows: list[Row]) -> list[Row]:
    """Seconds to each mark: the samples times what one takes."""
    each = {(row.env, row.setting, row.method, row.decisions): row.value for row in select(rows, metric=PER_SAMPLE)}
    found = []
    for mark in MARKS:
        for row in select(rows, metric=SAMPLES.format(mark)):
            seconds = each.get((row.env, row.setting, row.method, row.decisions))
            if seconds is not None:
                found.append(dataclasses.replace(row, metric=SECONDS.format(mark), value=row.value * seconds))
    return found


def _first(quality: np.ndarray, mark: float) -> float:
    """How many iterations it takes to reach the mark; ∞ if it is never reached."""
    reached = np.flatnonzero(quality >= mark)
    return float(reached[0] + 1) if len(reached) else math.inf


def cells(scale: str) -> list[Cell]:
    """One per system, motors, dimension and method; and a few with other σ."""
    found: list[Cell] = []

    def add(system: str, motors: str, state_dim: int, sigma: float | None = None) -> None:
        for method in METHODS:
            name = f"{system}/{motors}/d{state_dim}{'' if sigma is None else f'-sigma{sigma:g}'}/{method}"
            where = {"system": system, "motors": motors, "state_dim": state_dim, "method": method, "sigma": sigma}
            found.append(FunctionCell(name, measure, where | EFFORT[scale]))

    for state_dim in DIMS[scale]:
        for system in SYSTEMS:
            for motors in MOTORS:
                add(system, motors, state_dim)
    for sigma in SIGMAS:
        for system in SYSTEMS:
            add(system, "each", SIGMA_DIM[scale], sigma)
    timed = {"dims": list(DIMS[scale]), "population": 360, "iterations": 10, "rounds": 2 if scale == "smoke" else 5}
    found.append(FunctionCell("seconds", time_samples, timed))
    return found


def needed(rows: list[Row], metric: str, **where: Any) -> dict[int, list[float]]:
    """Per dimension, what every seed needed; ∞ for one that did not get there."""
    here = select(rows, **where)
    found: dict[int, list[float]] = {}
    for row in select(here, metric=QUALITY):  # every seed has one
        values = [r.value for r in select(here, metric=metric, seed=row.seed, decisions=row.decisions)]
        found.setdefault(row.decisions, []).append(values[0] if values else math.inf)
    return dict(sorted(found.items()))


def draw(rows: list[Row]) -> Any:
    """Samples above, seconds below, a column per system and number of motors."""
    require(rows, SAMPLES.format(90))
    columns = [(env, setting) for env in SYSTEMS for setting in MOTORS.values() if select(rows, env=env)]
    figure = new_figure(3.6 * len(columns), 7.4)
    grid = figure.subplots(2, len(columns), squeeze=False, sharex=True, sharey="row")
    for column, (env, setting) in enumerate(columns):
        for axes, metric in zip(grid[:, column], (SAMPLES, SECONDS), strict=True):
            for method in METHODS:
                for mark, dash in zip(MARKS, ("-", "--"), strict=True):
                    found = needed(rows, metric.format(mark), env=env, setting=setting, method=method)
                    _draw_needed(axes, found, f"{LOOKS[method].label}, {mark} %", LOOKS[method].color, dash)
            axes.set(yscale="log")
        grid[0, column].set_title(f"{env}, {setting}")
        grid[1, column].set_xlabel("coordinates of the state, d")
    grid[0, 0].set_ylabel("samples for 90 and 95 % of the optimum")
    grid[1, 0].set_ylabel("seconds of the processor")
    title = "What a good plan costs; × in less than half of the seeds reached"
    finish(figure, title, rows, "band: from the least to the most")
    return figure


def draw_sigmas(rows: list[Row]) -> Any:
    """Samples over the model's uncertainty."""
    require(rows, SAMPLES.format(90))
    figure = new_figure(4.6 * len(SYSTEMS), 4.4)
    for axes, system in zip(figure.subplots(1, len(SYSTEMS), squeeze=False, sharey=True)[0], SYSTEMS, strict=True):
        for method in METHODS:
            for mark, dash in zip(MARKS, ("-", "--"), strict=True):
                found = sigmas(rows, system, method, SAMPLES.format(mark))
                _draw_needed(axes, found, f"{LOOKS[method].label}, {mark} %", LOOKS[method].color, dash)
        title = f"{system}, d = {_sigma_dim(rows)}, {MOTORS['each']}"
        axes.set(xscale="log", yscale="log", title=title, xlabel="s, scale of σ")
        axes.set_xticks(sorted((*SIGMAS, SIGMA)), [f"{sigma:g}" for sigma in sorted((*SIGMAS, SIGMA))], minor=False)
        axes.xaxis.set_minor_formatter("")
        axes.set_ylabel("samples")
    title = "The scale of σ and the samples that a good plan needs"
    finish(figure, title, rows, "band: from the least to the most")
    return figure


def sigmas(rows: list[Row], system: str, method: str, metric: str) -> dict[float, list[float]]:
    """Per σ, what every seed needed, in the dimension that has been run with several."""
    found = {}
    dim = _sigma_dim(rows)
    for sigma in sorted((*SIGMAS, SIGMA)):
        env = system if sigma == SIGMA else f"{system} sigma={sigma:g}"
        values = needed(rows, metric, env=env, setting=MOTORS["each"], method=method).get(dim)
        if values:
            found[sigma] = values
    return found


def _sigma_dim(rows: list[Row]) -> int:
    return max((row.decisions for row in rows if " sigma=" in row.env), default=SIGMA_DIM["small"])


def _draw_needed(axes: Any, found: Mapping[Any, list[float]], label: str, color: str, dash: str) -> None:
    """The median with all seeds in a band, and crosses where there is no median."""
    x, many = list(found), list(found.values())
    middle = [statistics.median(values) for values in many]
    middle = [value if math.isfinite(value) else math.nan for value in middle]
    known = [[value for value in values if math.isfinite(value)] or [math.nan] for values in many]
    least, most = [min(values) for values in known], [max(values) for values in known]
    drawn = [math.isfinite(value) for value in middle]
    axes.fill_between(x, least, most, where=drawn, color=color, alpha=0.14, linewidth=0)
    axes.plot(x, middle, dash, color=color, linewidth=2.2, marker="o", markersize=4, label=label)
    missing = [place for place, there in zip(x, drawn, strict=True) if not there]
    if missing:
        height = 0.97 if dash == "-" else 0.92  # at the top, whatever the numbers
        axes.plot(missing, [height] * len(missing), "x", color=color, transform=axes.get_xaxis_transform())


def markdown(rows: list[Row]) -> str:
    """The table of docs/performance.md: medians over seeds, and how many times H-UCRL needs what SOMBRL needs."""
    heads = [
        "system",
        "d",
        "numbers in a plan",
        "samples for 90 %",
        "times",
        "for 95 %",
        "times",
        "seconds for 90 %",
        "times",
    ]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    for env in SYSTEMS:
        for setting in MOTORS.values():
            here = select(rows, env=env, setting=setting)
            for dim in sorted({row.decisions for row in here}):
                lines.append(_line(select(here, decisions=dim), f"{env}, {setting}", dim))
    return "\n".join(lines)


def _line(rows: list[Row], name: str, dim: int) -> str:
    sizes = [f"{select(rows, method=method, metric=SIZE)[0].value:.0f}" for method in METHODS]
    texts = [name, str(dim), " and ".join(sizes)]
    for metric in (SAMPLES.format(90), SAMPLES.format(95), SECONDS.format(90)):
        middles = [statistics.median(needed(rows, metric, method=method)[dim]) for method in METHODS]
        texts.append(" and ".join(_short(value) for value in middles))
        texts.append(f"{middles[1] / middles[0]:.1f}" if all(map(math.isfinite, middles)) else "–")
    return f"| {' | '.join(texts)} |"


def sigma_table(rows: list[Row]) -> str:
    """The samples for 90 % at other scales of σ."""
    scales = sorted((*SIGMAS, SIGMA))
    heads = ["system", "method", *(f"s = {sigma:g}" for sigma in scales)]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    for system in SYSTEMS:
        for method in METHODS:
            found = sigmas(rows, system, method, SAMPLES.format(90))
            texts = [_short(statistics.median(found[sigma])) if sigma in found else "–" for sigma in scales]
            lines.append(f"| {system} | {LOOKS[method].label} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def report(rows: list[Row]) -> str:
    """The table, and how sure the optimum is."""
    lines = [markdown(rows), "", sigma_table(rows), ""]
    for env in SYSTEMS:
        here = [row for row in rows if row.env.split(" ")[0] == env]
        gaps = [row.value for row in select(here, metric=GAP)]
        agreeing = [row.value for row in select(here, metric=AGREEING)]
        best = max(row.value for row in select(here, metric=QUALITY))
        sure = f"no plan is better by more than {100 * max(gaps):.2g} %" if gaps else "no proof that nothing is better"
        agree = f"{min(agreeing):.0%} to {max(agreeing):.0%} of the ascents end within 1 % of the best"
        lines.append(f"{env}: {sure}; {agree}; the best plan of any search has {best:.2%} of the optimum")
    return "\n".join(lines)


PLANNING_COST = Experiment(
    name="planning-cost",
    summary="samples and seconds for an equally good plan as the state grows: optimistic against hucrl",
    figure="sections 3 and 5.1, no figure",
    cells=cells,
    draw=draw,
    derive=add_seconds,
    more_figures={"sigma": draw_sigmas},
    report=report,
)
