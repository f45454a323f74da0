"""bounds-coverage: how often does the return of an episode lie inside J ± λ Σ‖σ‖, as the model said beforehand?"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from sombrl.config.run import RunConfig
from sombrl.paper.experiments.base import Cell, Experiment, TrainCell, recorded_as
from sombrl.paper.experiments.figures import new_figure, require, select, title_of
from sombrl.paper.experiments.gp import WEIGHT, episodes_of, gp_config
from sombrl.paper.experiments.mbpo import mbpo_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row
from sombrl.theory import bonus_weight, confidence
from sombrl.training.bounds import REALISED, RETURN, UNCERTAINTY, Past

SEEDS = {"smoke": 2, "small": 5, "paper": 5}
EPISODES = {"pendulum": 20, "mountain-car": 12}
"""Of the GP runs; the first has random actions, which are not predicted."""
DECISIONS, PERIOD = 4000, 200
"""Of mbpo, and between its evaluations; Pendulum has 200 in an episode."""
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
ASKED = 0.9
DELTA = 0.1
"""The theorem's interval fails with this probability."""
REWARD_MAX = {"pendulum": 5 * 16.3, "mountain-car": 500.0}
"""The range of the rewards of a decision of five frames."""
GAIN, NOISE = "model/information_gain", "model/noise_std"
MET = "explore/uncertainty"
"""Σ‖σ‖ along the real episode; of mbpo along the decisions of training before the evaluation."""
WINDOW = 5  # episodes that a point of the curves is averaged over


@recorded_as("sombrl.experiments.bounds_coverage.recorded")
def recorded(row: dict[str, Any]) -> dict[str, float]:
    """What was predicted and what came, where there is both, Σ‖σ‖ that was met, and what λ depends on."""
    if row.get(REALISED) is None:
        return {}
    names = (RETURN, UNCERTAINTY, REALISED, MET, WEIGHT, GAIN, NOISE)
    return {name: row[name] for name in names if row.get(name) is not None}


def cells(scale: str) -> list[Cell]:
    """GPs on both environments, and a policy with an ensemble on Pendulum."""
    found: list[Cell] = []
    fields: dict[str, Any] = {"seeds": SEEDS[scale], "record_bounds": True}
    for env, episodes in EPISODES.items():
        run = dataclasses.replace(episodes_of(env, scale, **fields), random_episodes=1)
        if scale != "smoke":
            run = dataclasses.replace(run, episodes=episodes)
        config = gp_config("optimistic", env, "smoke" if scale == "smoke" else "small")
        found.append(TrainCell(f"gp/{env}", "gp-icem", env, run, config, extra=recorded))
    decisions, period = (40, 10) if scale == "smoke" else (DECISIONS, PERIOD)
    run = RunConfig(env="pendulum", decisions=decisions, report_every=period, episode_length=period, **fields)
    run = dataclasses.replace(run, eval_every=period, eval_episodes=1)
    learned = mbpo_config("optimistic", "pendulum", "smoke" if scale == "smoke" else "small")
    cell = TrainCell("mbpo/pendulum", "mbpo", "pendulum", run, learned, algorithm="mbpo", metrics=(), extra=recorded)
    return [*found, cell]


def series(rows: list[Row], metric: str) -> np.ndarray:
    """Values of a metric of one run, [episodes, seeds]."""
    seeds = sorted({row.seed for row in rows})
    columns = [sorted(select(rows, metric=metric, seed=seed), key=lambda row: row.decisions) for seed in seeds]
    return np.array([[row.value for row in column] for column in columns]).T


def theorem(rows: list[Row], env: str) -> np.ndarray:
    """λ of the theorem, or a little less: of its information gain per coordinate the mean is known, not the maximum."""
    dim = {"pendulum": 3, "mountain-car": 2}[env]
    gain, noise = series(rows, GAIN) / dim, series(rows, NOISE)
    width = confidence.beta(
        jnp.asarray(gain), norm_bound=1.0, noise_std=noise, delta=DELTA, state_dim=dim, model_noise_std=noise
    )
    options: dict[str, Any] = {"horizon": 40, "state_dim": dim, "noise_std": noise, "c_max": REWARD_MAX[env]}
    return np.asarray(bonus_weight.finite_horizon(width, **options))


def add_covered(rows: list[Row]) -> list[Row]:
    """Per episode and seed, whether its return was inside: with λ before calibration, and calibrated on the past."""
    found = []
    for method, env in dict.fromkeys((row.method, row.env) for row in rows):
        here = select(rows, method=method, env=env)
        past = Past(*(series(here, name) for name in (RETURN, UNCERTAINTY, REALISED)))
        scores = past.scores
        factors = {f"calibrated-{level:g}": past.rolling(level)[:, None] for level in LEVELS}
        if method == "gp-icem":
            factors |= {"explored": series(here, WEIGHT), "theorem": theorem(here, env)}
        else:
            factors["one"] = np.ones(1)
        for seed in sorted({row.seed for row in here}):
            column = sorted({row.seed for row in here}).index(seed)
            for i, row in enumerate(select(here, metric=RETURN, seed=seed)):
                for name, factor in factors.items():
                    limit = np.broadcast_to(factor, scores.shape)[i, column]
                    if np.isfinite(limit):
                        inside = float(scores[i, column] <= limit)
                        found.append(dataclasses.replace(row, metric=f"covered/{name}", value=inside))
                        found.append(dataclasses.replace(row, metric=f"factor/{name}", value=float(limit)))
    return found


LABELS = {
    "theorem": ("theorem's λ, δ = 0.1", COLORS[6]),
    "explored": ("λ of exploration", COLORS[1]),
    "one": ("λ = 1", COLORS[1]),
    f"calibrated-{ASKED:g}": (f"calibrated to {ASKED:g}", COLORS[0]),
}


def draw(rows: list[Row]) -> Any:
    """Above, coverage over training; below, what was asked for against what came."""
    require(rows, RETURN)
    places = list(dict.fromkeys((row.method, row.env) for row in rows))
    figure = new_figure(4.4 * len(places), 7.0)
    above, below = figure.subplots(2, len(places), squeeze=False)
    for (method, env), curve, levels in zip(places, above, below, strict=True):
        here = select(rows, method=method, env=env)
        for name, (label, color) in LABELS.items():
            found = select(here, metric=f"covered/{name}")
            if not found:
                continue
            times = sorted({row.decisions for row in found})
            shares = [np.mean([row.value for row in found if row.decisions in near]) for near in _windows(times)]
            curve.plot(times, shares, color=color, linewidth=2.2, label=label)
            if not name.startswith("calibrated"):
                levels.axhline(np.mean([row.value for row in found]), color=color, linestyle="--", label=label)
        curve.axhline(ASKED, color="0.6", linewidth=1)
        curve.set(title=f"{method}, {title_of(env)}", xlabel="decisions", ylim=(-0.03, 1.03))
        kept = {x: select(here, metric=f"covered/calibrated-{x:g}") for x in LEVELS}
        realised = [np.mean([row.value for row in kept[x]]) if kept[x] else np.nan for x in LEVELS]
        levels.plot([0.4, 1.0], [0.4, 1.0], color="0.6", linewidth=1)
        levels.plot(LEVELS, realised, "o-", color=COLORS[0], label="calibrated")
        levels.set(xlabel="coverage asked for", ylim=(-0.03, 1.03))
    above[0].set_ylabel(f"share inside, over {WINDOW} episodes")
    below[0].set_ylabel("share inside, whole run")
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    count = len({row.seed for row in rows})
    title = f"Returns inside J ± λΣ‖σ‖, before and after calibration ({count} seeds)"
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=5)
    return figure


def _windows(times: list[int]) -> list[set[int]]:
    half = WINDOW // 2
    return [set(times[max(0, i - half) : i + half + 1]) for i in range(len(times))]


def markdown(rows: list[Row]) -> str:
    """The share of the returns that were inside, a line per run; whole runs, all seeds."""
    calibrated = {f"calibrated-{level:g}": f"calibrated to {level:.0%}" for level in LEVELS}
    heads = {"explored": "λ of exploration", "one": "λ = 1", "theorem": "the theorem's, 90%"} | calibrated
    lines = [f"| predicted by | episodes | {' | '.join(heads.values())} |", f"| --- |{' --- |' * (len(heads) + 1)}"]
    for method, env in dict.fromkeys((row.method, row.env) for row in rows):
        here = select(rows, method=method, env=env)
        inside = [[row.value for row in select(here, metric=f"covered/{name}")] for name in heads]
        shares = [f"{np.mean(values):.0%}" if values else "–" for values in inside]
        number = len(select(here, metric=RETURN))
        lines.append(f"| {method}, {title_of(env)} | {number} | {' | '.join(shares)} |")
    return "\n".join(lines)


BOUNDS_COVERAGE = Experiment(
    name="bounds-coverage",
    summary="how often returns lie inside the model's bounds J ± λΣ‖σ‖, before and after calibration",
    figure='beside the paper; lemma "optimism"',
    cells=cells,
    draw=draw,
    derive=add_covered,
    report=markdown,
)
"""How often do the model's own bounds on the return hold? Beside the paper (lemma "optimism", appendix B).

gp-icem (λ a tenth of the range of the rewards, as trained) predicts every training episode before it is played, from
its start and with the planner that then plays it. mbpo (λ = 1 reward per unit of ‖σ‖, for its own is in units of value)
predicts an evaluation every 200 decisions. Calibrated factors are conformal quantiles of the latest episodes before,
of all seeds (training/bounds.py); where there are too few yet, nothing is counted. How far they look back, 20 episodes,
was chosen on these very runs among 10 to 100: it hardly matters to the GPs, and mbpo at 90 % had 82 % inside with 100.
"""
