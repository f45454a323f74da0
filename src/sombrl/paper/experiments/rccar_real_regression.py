"""rccar-real-regression: predicting a real car from recordings of it (beside the paper; the project ships no data).

`--data` names recordings (docs/recordings.md); the last one is tested on, the others are trained on. From these, N rows
are drawn per seed, and the next state is predicted in the car's own frame with a memory of six actions. Networks are
stopped by the latest fifth of their N rows. Ridge regression on products of two inputs is what they have to beat, its
strengths fixed beforehand; `ridge-3` remembers three actions. How the networks learn is in rccar_real.py.
"""

import dataclasses
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.dynamics.rc_car_prior import CarBodyFrame
from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell, UserData
from sombrl.paper.experiments.figures import Look, Panel, draw_panel, finish, new_figure, require
from sombrl.paper.experiments.rccar_real import BUDGETS, MODELS, PAST, PRIORS, SCALED, Budget, fitted, simulator_of
from sombrl.paper.recordings.car_models import ridge_car, simulated_car, standing_car
from sombrl.paper.recordings.car_scores import AbstractCarModel, constant_nll, judge, open_loop
from sombrl.paper.recordings.rc_car_logs import CarLog, joined, read_recording
from sombrl.records import SombrlError
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

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
UNTAUGHT = ("persistence", "simulator-low", "simulator-high")
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
"""(RMSE, NLL with constant std) of ridge regressions done before: trained on both recordings, tested on a third."""


def logs_of(data: tuple[Path, ...], past: int = PAST) -> tuple[CarLog, CarLog]:
    """What is trained and what is tested on."""
    *train, test = (read_recording(path).log(past) for path in data)
    return joined(train), test


def check(data: tuple[Path, ...]) -> None:
    """Refuse too few or damaged recordings."""
    if len(data) < 2:
        raise SombrlError(
            f"one recording ({', '.join(map(str, data))}) cannot be trained and tested on: give another one to --data."
        )
    logs_of(data)


def drawn(log: CarLog, number: int | None, seed: int) -> CarLog:
    """`number` rows in the order of time, others for every seed; None or more than there are: all."""
    if number is None or number >= len(log):
        return log
    return log.take(np.sort(np.random.default_rng(seed).choice(len(log), number, replace=False)))


def regress(
    method: str,
    sizes: list[int | None],
    seeds: int,
    past: int,
    data: tuple[Path, ...],
    budget: dict[str, int] | None = None,
    model: dict[str, Any] | None = None,
    prior: dict[str, Any] | None = None,
) -> list[dict]:
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
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in rows:
        values.setdefault((row.method, row.decisions), {}).setdefault(row.metric, []).append(row.value)
    return {where: {name: statistics.median(v) for name, v in found.items()} for where, found in values.items()}


def markdown(rows: list[Row]) -> str:
    """The table of the documentation: a line per method, for few, some and all rows."""
    found = medians(rows)
    sizes = sorted({size for _, size in found})
    lines = []
    for size in sizes:
        heads = [f"N = {size}", *COLUMNS.values()]
        lines += ["", f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
        here = {method: found[method, size] for method in METHODS if (method, size) in found}
        best = {metric: min(scores[metric] for scores in here.values()) for metric in COLUMNS}
        for method, scores in here.items():
            texts = [_bold(scores[metric], best[metric], metric) for metric in COLUMNS]
            lines.append(f"| {METHODS[method].label} | {' | '.join(texts)} |")
    return "\n".join(lines[1:])


def _bold(value: float, best: float, metric: str) -> str:
    text = f"{value:.2f}" if metric == NLL else f"{value:.3f}"
    return f"**{text}**" if value == best else text


def report(rows: list[Row]) -> str:
    """The tables, our ridge regression beside the one that was done before, and what is better than ours."""
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
        # What runs away, or is sure and wrong, would leave the others no room.
        shown = [scores[panel.metric] for (method, _), scores in medians(rows).items() if method not in UNTAUGHT]
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
