"""gp-compute-cost: the time of a run of SOMBRL and of H-UCRL, the GP rows of table 3 of the paper (section D.5).

All methods run in one process, one after the other, with the paper's planners: first one episode that compiles
(`time/first_episode_s`), then a whole run with the same compiled program (`time/warm_s`). A method that would take too
long runs fewer episodes; compare those by `time/decision_s`, warm seconds per decision and seed. The paper has, on a
machine it does not name, 30 min (Pendulum) and 13.8 min (MountainCar) for SOMBRL and 3.0 and 2.3 times that for H-UCRL.

Differs from the paper: our H-UCRL shares the planner and the GP with SOMBRL and only adds controls to the plan. The
times depend on the machine, so this CSV is never the same twice; nothing else may run at the same time.
"""

import contextlib
import copy
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from sombrl.agent.agent import Agent
from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell, Headline, recorded_as
from sombrl.paper.experiments.figures import LOOKS, new_figure, require, select, title_of
from sombrl.paper.experiments.gp import ENVS, episodes_of, gp_config
from sombrl.storage.results import Row

COLD, WARM, DECISION, RATIO = "time/first_episode_s", "time/warm_s", "time/decision_s", "time/over_optimistic"
HORIZON = {"pendulum": 20, "mountain-car": 50}  # the published
PUBLISHED_RATIO = {"pendulum": 3.0, "mountain-car": 2.3}  # hucrl over optimistic

Episodes = dict[str, int]
"""Of each method."""
SMOKE: list[tuple[int, Episodes]] = [(1, {"optimistic": 1, "hucrl": 1})]
PAPER: list[tuple[int, Episodes]] = [(n, {"optimistic": 20, "hucrl": 20, "greedy": 20, "pets": 20}) for n in (1, 5)]
RUNS: dict[tuple[str, str], list[tuple[int, Episodes]]] = {  # (environment, scale): (seeds, episodes of each method)
    ("pendulum", "smoke"): SMOKE,
    ("mountain-car", "smoke"): SMOKE,
    ("pendulum", "small"): [
        (1, {"optimistic": 20, "hucrl": 20, "greedy": 20, "pets": 3}),
        (5, {"optimistic": 5}),
    ],
    ("mountain-car", "small"): [(1, {"optimistic": 2, "hucrl": 2, "greedy": 2})],
    ("pendulum", "paper"): PAPER,
    ("mountain-car", "paper"): PAPER,
}


@recorded_as("sombrl.experiments.gp_compute_cost.measure")
def measure(env: str, scale: str, seeds: int, episodes: Episodes) -> list[dict[str, Any]]:
    """Seconds of whole runs of several methods, first with compilation and then without."""
    rows = []
    planner = scale if scale == "smoke" else "paper"
    warm: dict[str, float] = {}
    with _without_cache():
        for method, number in episodes.items():
            run = dataclasses.replace(episodes_of(env, planner), episodes=number, seeds=seeds, random_episodes=0)
            agent = Agent("gp-icem", gp_config(method, env, planner, horizon=HORIZON[env]), run)
            decisions = number * agent.window
            cold, again = (_seconds(agent, length) for length in (agent.window, decisions))
            warm[method] = again / (decisions * seeds)
            found = {COLD: cold, WARM: again, DECISION: warm[method], RATIO: warm[method] / warm["optimistic"]}
            print(f"  {method}: {cold:.1f} s for the first episode, {again:.1f} s warm for {number}", flush=True)
            where = {"method": method, "env": env, "setting": f"{seeds} seed{'s' * (seeds > 1)}"}
            counts = {"seed": 0, "env_frames": decisions * agent.envs.spec.action_repeat, "decisions": decisions}
            rows += [where | counts | {"metric": name, "value": value} for name, value in found.items()]
    return rows


def _seconds(agent: Agent, decisions: int) -> float:
    """Seconds of training from the start; the copy shares what is compiled, and the agent itself stays untrained."""
    fresh = copy.copy(agent)
    fresh.trainer = copy.copy(agent.trainer)
    start = time.perf_counter()
    fresh.learn(decisions)
    return time.perf_counter() - start


@contextlib.contextmanager
def _without_cache() -> Iterator[None]:
    """Compile again: programs kept by earlier processes would make a cold run warm."""
    enabled = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)
        compilation_cache.reset_cache()


def cells(scale: str) -> list[Cell]:
    """One per environment and number of seeds: the methods that are compared share a process."""
    return [
        FunctionCell(
            f"{env}/{seeds}-seed{'s' * (seeds > 1)}",
            measure,
            {"env": env, "scale": scale, "seeds": seeds, "episodes": episodes},
        )
        for env in ENVS
        for seeds, episodes in RUNS[env, scale]
    ]


def draw(rows: list[Row]) -> Any:
    """Bars of warm seconds per decision and seed, a panel per environment."""
    require(rows, DECISION)
    envs = list(dict.fromkeys(row.env for row in rows))
    figure = new_figure(4.8 * len(envs), 4.2)
    for axes, env in zip(figure.subplots(1, len(envs), squeeze=False)[0], envs, strict=True):
        here = select(rows, env=env, metric=DECISION)
        settings = list(dict.fromkeys(row.setting for row in here))
        methods = [name for name in LOOKS if any(row.method == name for row in here)]
        for i, setting in enumerate(settings):
            found = [row for row in here if row.setting == setting]
            places = np.array([methods.index(row.method) for row in found]) + 0.8 * (i + 0.5) / len(settings) - 0.4
            bars = axes.bar(
                places,
                [1e3 * row.value for row in found],
                0.75 / len(settings),
                color=[LOOKS[row.method].color for row in found],
                alpha=1.0 if i == 0 else 0.5,
            )
            ratios = {row.method: row.value for row in select(rows, env=env, setting=setting, metric=RATIO)}
            axes.bar_label(bars, [f"{ratios[row.method]:.2f}×" for row in found], padding=2, fontsize=9)
        axes.set_xticks(range(len(methods)), [LOOKS[name].label for name in methods])
        title = f"{title_of(env)}, {' and '.join(settings)} (paper: H-UCRL {PUBLISHED_RATIO.get(env, 1):g}×)"
        axes.set(title=title, ylabel="ms per decision and seed")
        axes.grid(axis="x", visible=False)
        axes.margins(y=0.12)
    figure.suptitle("Time of a run after compiling, and as a multiple of SOMBRL's", fontsize=11, x=0.01, ha="left")
    return figure


GP_COMPUTE_COST = Experiment(
    name="gp-compute-cost",
    summary="seconds of a run of optimistic, hucrl, greedy and pets in one process, compiling and not",
    figure="table 3, GP rows",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(COLD, "s first episode, compiling"),
        Headline(WARM, "s whole run, compiled"),
        Headline(DECISION, "s per decision and seed"),
        Headline(RATIO, "over optimistic"),
    ),
)
