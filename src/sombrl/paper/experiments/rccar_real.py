"""rccar-real-regression: predicting a real car from recordings of it (beside the paper; the project ships no data).

`--data` names recordings (docs/recordings.md); the last one is tested on, the others are trained on. From these, N rows
are drawn per seed, and the next state is predicted in the car's own frame with a memory of six actions. Networks are
stopped by the latest fifth of their N rows. The comparison that they have to beat is ridge regression on products of
two inputs, its strengths fixed beforehand; `ridge-3` remembers three actions.

How the networks learn was chosen within the first recording, trained on its first four fifths and judged by the last.
"""

import dataclasses
import functools
import statistics
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from sombrl.dynamics.ensemble import EnsembleConfig, EnsembleLearner
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.rc_car_prior import GAP_STD, CarBodyFrame, CarSimulator
from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell, UserData, recorded_as
from sombrl.paper.experiments.figures import Look, Panel, draw_panel, finish, new_figure, require
from sombrl.paper.recordings.car_models import (
    EnsembleCar,
    ParticleCar,
    ensemble_rows,
    fit_until_worse,
    ridge_car,
    simulated_car,
    standing_car,
    statistics_of,
)
from sombrl.paper.recordings.car_scores import AbstractCarModel, constant_nll, judge, open_loop
from sombrl.paper.recordings.rc_car_logs import CarLog, joined, read_recording
from sombrl.records import SombrlError
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

# How the networks learn

PAST = 6  # actions that are remembered; more did not help
PRIORS: dict[str, dict[str, Any]] = {
    "sim-fsvgd-low": {"fidelity": "low", "car": 1, "delay": 5, "gap": 2.0},
    "sim-fsvgd-high": {"fidelity": "high", "car": 1, "delay": 5, "gap": 2.0},
}
"""The simulators; `gap` is a factor on the published scales of what they lack. It is not known which car was used."""
MODELS: dict[str, dict[str, Any]] = {
    "ensemble": {
        **{"members": 5, "hidden": [64, 64], "learn_std": True, "noise_floor": 0.1, "batch_size": 64},
        **{"learning_rate": 1e-3, "weight_decay": 1e-3, "gradient_clip": None},
    },
    "svgd": {"inference": "svgd", "bandwidth": None},
    "fsvgd": {"bandwidth": None, "resolution": 0.1, "prior_lengthscale": 10.0},
    "sim-fsvgd-low": {"bandwidth": None, "resolution": 0.1, "functions": 64},
    "sim-fsvgd-high": {"bandwidth": None, "resolution": 0.1, "functions": 64},
}
"""Fields of the learners' configurations that are not their defaults."""
FEW: dict[str, Any] = {"hidden": [8], "batch_size": 8}
SCALED: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        "ensemble": FEW | {"members": 2},
        **{method: FEW | {"particles": 2, "measurement_points": 4} for method in ("svgd", "fsvgd")},
        **{method: FEW | {"particles": 2, "measurement_points": 4, "functions": 4} for method in PRIORS},
    },
    "small": {},
    "paper": {method: {"functions": 512} for method in PRIORS},
}
"""The fields that a scale changes."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long a network may learn, in calls of `fit`; the model is scored after each."""

    steps: int
    """Gradient steps of one call."""
    rounds: int
    """At most so many calls."""
    patience: int
    """Stop after so many calls without a better score."""


BUDGETS = {
    "smoke": dict.fromkeys(MODELS, Budget(2, 2, 2)),
    "small": dict.fromkeys(MODELS, Budget(250, 32, 6)) | {"ensemble": Budget(50, 120, 30)},
    "paper": dict.fromkeys(MODELS, Budget(500, 60, 8)) | {"ensemble": Budget(50, 400, 60)},
}


def simulator_of(frame: CarBodyFrame, prior: dict[str, Any]) -> CarSimulator:
    """The simulator of an entry of `PRIORS`."""
    return CarSimulator(prior["fidelity"], prior["car"], coordinates=frame, delay=prior["delay"], box="driven")


def fitted(
    method: str,
    log: CarLog,
    past: int,
    *,
    capacity: int,
    seed: int,
    budget: Budget,
    model: dict[str, Any],
    prior: dict[str, Any] | None,
) -> tuple[AbstractCarModel, int]:
    """One network model, and how many gradient steps it took."""
    frame = CarBodyFrame(past=past)
    fit = functools.partial(
        fit_until_worse, capacity=capacity, rounds=budget.rounds, patience=budget.patience, key=jr.key(seed)
    )
    if method == "ensemble":
        members = EnsembleLearner(6, 2 + 2 * past, False, EnsembleConfig(steps_per_fit=budget.steps, **_tuples(model)))
        found, rounds = fit(members, lambda d: EnsembleCar(frame, d), log, rows=lambda rows: ensemble_rows(frame, rows))
        return found, rounds * budget.steps
    simulator, gap = None, None
    if prior is not None:
        simulator = simulator_of(frame, prior)
        gap = tuple(prior["gap"] * float(std) for std in frame.per_target(GAP_STD[simulator.fidelity]))
    config = ParticleConfig(
        # Every call goes on from the last. The latest rows are held out, not every fifth: its neighbours are seen.
        held_out=0.0,
        fresh=False,
        steps=budget.steps,
        check_every=budget.steps,
        additive_scales=gap,
        **_tuples(model),
    )
    particles = ParticleLearner(frame, config, simulator, statistics=statistics_of(frame, log))
    found, rounds = fit(particles, lambda d: ParticleCar(frame, d), log)
    return found, rounds * budget.steps


def _tuples(model: dict[str, Any]) -> dict[str, Any]:
    """The fields with tuples for lists; JSON has no tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in model.items()}


# The regression

STRENGTHS = ((1000, 3.0), (None, 0.1))  # of the ridge, below so many rows
METHODS = {
    "persistence": Look("nothing changes", COLORS[6], ":"),
    "simulator-low": Look("kinematic simulator", COLORS[4], ":"),
    "simulator-high": Look("simulator with tyres", COLORS[0], ":"),
    "ridge-3": Look("ridge, 3 past actions", COLORS[6], "--"),
    "ridge": Look("ridge, 6 past actions", COLORS[6]),
    "ensemble": Look("deep ensemble", COLORS[3], "-."),
    "svgd": Look("SVGD", COLORS[5]),
    "fsvgd": Look("FSVGD", COLORS[1]),
    "sim-fsvgd-low": Look("SimFSVGD, kinematic", COLORS[4], "--"),
    "sim-fsvgd-high": Look("SimFSVGD, tyres", COLORS[0]),
}
NOT_TRAINED = ("persistence", "simulator-low", "simulator-high")
SIZES: dict[str, list[int | None]] = {
    "smoke": [12, None],
    "small": [50, 200, 800, 3200, None],
    "paper": [50, 200, 800, 3200, None],
}
SEEDS = {"smoke": 2, "small": 3, "paper": 5}
NLL, RMSE, OMEGA, CALIBRATION, POSITION = "nll", "rmse", "rmse/omega", "calibration", "open_loop/position"
CONSTANT = "nll/constant"
PANELS = (
    Panel(NLL, "negative log-likelihood", "decisions"),
    Panel(RMSE, "RMSE", "decisions"),
    Panel(CALIBRATION, "calibration error", "decisions"),
    Panel(POSITION, "position error after 10 steps, m", "decisions"),
)
COLUMNS = {NLL: "NLL", RMSE: "RMSE", OMEGA: "of ω", CALIBRATION: "calibration", POSITION: "10 steps, m"}
ELSEWHERE: dict[str, dict[int | None, tuple[float, float]]] = {
    "ridge-3": {
        **{50: (0.280, -14.9), 200: (0.234, -17.5), 800: (0.204, -19.5), 3200: (0.255, -19.2)},
        None: (0.199, -20.0),
    },
    "ridge": {
        **{50: (0.282, -12.2), 200: (0.238, -16.4), 800: (0.195, -19.9), 3200: (0.186, -20.5)},
        None: (0.194, -20.4),
    },
}
"""(RMSE, NLL with constant std) of earlier ridge regressions: trained on both recordings, tested on a third."""


def logs_of(data: tuple[Path, ...], past: int = PAST) -> tuple[CarLog, CarLog]:
    """The rows to train on and the rows to test on."""
    *train, test = (read_recording(path).log(past) for path in data)
    return joined(train), test


def check(data: tuple[Path, ...]) -> None:
    """Refuse too few or damaged recordings."""
    if len(data) < 2:
        raise SombrlError(
            f"one recording ({', '.join(map(str, data))}) is not enough to train and test on: give --data another one."
        )
    logs_of(data)


def drawn(log: CarLog, number: int | None, seed: int) -> CarLog:
    """`number` random rows in the order of time, different ones for every seed; None or too many: all rows."""
    if number is None or number >= len(log):
        return log
    return log.take(np.sort(np.random.default_rng(seed).choice(len(log), number, replace=False)))


@recorded_as("sombrl.experiments.rccar_real_regression.regress")
def regress(
    method: str,
    sizes: list[int | None],
    seeds: int,
    past: int,
    data: tuple[Path, ...],
    budget: dict[str, int] | None = None,
    model: dict[str, Any] | None = None,
    prior: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """All scores of one method, for every number of rows and every seed."""
    train, test = logs_of(data, past)
    rows = []
    for number in sizes:
        for seed in range(seeds):
            log = drawn(train, number, seed)
            scores: dict[str, float] = {}
            if method == "persistence":
                found: AbstractCarModel = standing_car(log, past)
            elif model is None and prior is not None:
                frame = CarBodyFrame(past=past)
                found = simulated_car(log, simulator_of(frame, prior), frame)
            elif method.startswith("ridge"):
                strength = next(value for below, value in STRENGTHS if below is None or len(log) < below)
                found = ridge_car(log, past, strength)
                scores[CONSTANT] = constant_nll(found, log, test)
            else:
                limits, settings = Budget(**(budget or {})), model or {}
                found, steps = fitted(
                    *(method, log, past), capacity=len(train), seed=seed, budget=limits, model=settings, prior=prior
                )
                scores["steps"] = float(steps)
            scores |= judge(found, test) | open_loop(found, test)
            print(f"  N = {len(log)}, seed {seed}: NLL {scores[NLL]:.2f}, RMSE {scores[RMSE]:.4f}", flush=True)
            where = {"method": method, "env": "rc-car recordings", "setting": "regression", "seed": seed}
            where |= {"env_frames": len(log), "decisions": len(log)}
            rows += [where | {"metric": metric, "value": value} for metric, value in scores.items()]
    return rows


def cells(scale: str) -> list[Cell]:
    """One per method."""
    found: list[Cell] = []
    for method in METHODS:
        options: dict[str, Any] = {"method": method, "sizes": SIZES[scale], "seeds": SEEDS[scale]}
        options["past"] = 3 if method == "ridge-3" else PAST
        if method in MODELS:
            options["budget"] = dataclasses.asdict(BUDGETS[scale][method])
            options["model"] = MODELS[method] | SCALED[scale].get(method, {})
            options["prior"] = PRIORS.get(method)
        elif method.startswith("simulator"):
            options["prior"] = PRIORS[method.replace("simulator", "sim-fsvgd")]
        found.append(FunctionCell(method, regress, options))
    return found


def medians(rows: list[Row]) -> dict[tuple[str, int], dict[str, float]]:
    """Per method and number of rows, the median over seeds of every metric."""
    return {where: {m: statistics.median(v) for m, v in found.items()} for where, found in _values(rows).items()}


def _values(rows: list[Row]) -> dict[tuple[str, int], dict[str, list[float]]]:
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in rows:
        values.setdefault((row.method, row.decisions), {}).setdefault(row.metric, []).append(row.value)
    return values


def markdown(rows: list[Row]) -> str:
    """The table of the documentation: a line per method, for few, some and all rows; bold: apart from all others."""
    found, values = medians(rows), _values(rows)
    sizes = sorted({size for _, size in found})
    lines = []
    for size in sizes:
        heads = [f"N = {size}", *COLUMNS.values()]
        lines += ["", f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
        here = {method: found[method, size] for method in METHODS if (method, size) in found}
        for method, scores in here.items():
            others = [values[other, size] for other in here if other != method]
            texts = []
            for metric in COLUMNS:
                apart = all(max(values[method, size][metric]) < min(other[metric]) for other in others)
                text = f"{scores[metric]:.2f}" if metric == NLL else f"{scores[metric]:.3f}"
                texts.append(f"**{text}**" if apart else text)
            lines.append(f"| {METHODS[method].label} | {' | '.join(texts)} |")
    return "\n".join(lines[1:])


def report(rows: list[Row]) -> str:
    """The tables, our ridge regression beside the earlier one, and which models are better than ours."""
    found = medians(rows)
    most = max(size for _, size in found)
    lines = [
        markdown(rows),
        "",
        "ridge regression, RMSE and NLL with constant std: here, and as done before on a third recording",
    ]
    for method, numbers in ELSEWHERE.items():
        for size, there in numbers.items():
            ours = found.get((method, size or most))
            if ours:
                here, size = (ours[RMSE], ours[CONSTANT]), size or most
                lines.append(f"  {METHODS[method].label}, N = {size}: {_pair(here)}; before {_pair(there)}")
    names = [method for method in METHODS if (method, most) in found]
    ridges = [method for method in names if method.startswith("ridge")]
    for metric in (NLL, RMSE):
        if ridges and len(names) > len(ridges):
            bar = min(found[method, most][metric] for method in ridges)
            better = [METHODS[m].label for m in names if m not in ridges and found[m, most][metric] < bar]
            lines.append(f"with all rows, better than ridge ({bar:.3f}) by {metric}: {', '.join(better) or 'none'}")
    return "\n".join(lines)


def _pair(scores: tuple[float, float]) -> str:
    return f"{scores[0]:.3f} {scores[1]:.2f}"


def draw(rows: list[Row]) -> Any:
    """Scores over the number of rows."""
    figure = new_figure(9.6, 7.6)
    for axes, panel in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        require(rows, panel.metric)
        draw_panel(axes, rows, panel, METHODS)
        axes.set(xscale="log", xlabel="rows of training data, N", ylabel=panel.label)
        # Models that diverge, or are certain and wrong, would leave no room for the others.
        shown = [scores[panel.metric] for (method, _), scores in medians(rows).items() if method not in NOT_TRAINED]
        least = min(shown, default=0.0) - 1.0 if panel.metric == NLL else 0.0
        most = min(max(shown, default=1.0), least + 17.0)
        axes.set_ylim(least, most + 0.1 * (most - least))
    finish(figure, "Predicting a real car, tested on another recording", rows)
    return figure


RCCAR_REAL_REGRESSION = Experiment(
    name="rccar-real-regression",
    summary="SVGD, FSVGD, SimFSVGD, an ensemble and ridge regression on recordings of a real car",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    report=report,
    data=UserData("recordings of the car (docs/recordings.md)", check),
)
