"""drift: a world that changes for good, with a sliding window of data and without."""

import dataclasses
from typing import Any

import numpy as np

from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import Look, Panel, draw_panel, finish, new_figure, require, select, title_of
from sombrl.paper.experiments.gp import RETURN, episodes_of, gp_config
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row

CHANGE, EPISODES = 8, 20
"""The first episode that is different, of so many."""
SMOKE_CHANGE = 1
ORACLE_CHANGE, ORACLE_EPISODES = 2, 4
"""It learns nothing, so a few episodes of either kind are enough."""
WINDOW = 3
"""Episodes in the window."""
TASKS = {"pendulum": (-1.0, 0.5)}
"""What the torque is multiplied by: the motor is reversed, or fades to a half."""
LEARNERS = {
    "all": Look("all data", COLORS[3], "-."),
    "window": Look("the last three episodes", COLORS[0]),
}
SCORE, REGRET, RECOVERY, RECOVERED = "score", "dynamic_regret", "episodes until recovered", "recovered"
ENOUGH, OVER = 0.8, 3
"""Recovered is a score of 0.8, the mean of three successive episodes."""


def cells(scale: str) -> list[Cell]:
    """All data, a window, and plans on the true system as it is in every episode."""
    found: list[Cell] = []
    change = SMOKE_CHANGE if scale == "smoke" else CHANGE
    for env, factors in TASKS.items():
        for factor in factors:
            length = {} if scale == "smoke" else {"episodes": EPISODES}
            run = episodes_of(env, scale, env_kwargs=_options(factor, change), **length)
            short = dataclasses.replace(
                run, env_kwargs=_options(factor, ORACLE_CHANGE), episodes=min(ORACLE_EPISODES, run.episodes)
            )
            label = f"{env} torque={factor:g}"
            window = WINDOW * (run.episode_length or 1)
            plain = gp_config("optimistic", env, scale)
            configs = {
                "all": plain,
                "window": dataclasses.replace(plain, replay_window=window),
                "oracle": gp_config("oracle", env, scale),
            }
            place = f"{env}-{factor:g}".replace("--", "-minus-")
            found += [
                TrainCell(f"{place}/{name}", name, label, own, config, metrics=(RETURN,), checkpoint_every=4)
                for name, config in configs.items()
                for own in [short if name == "oracle" else run]
            ]
    return found


def _options(factor: float, change: int) -> tuple[str, ...]:
    """The options of a world."""
    return ("drift=torque", f"drift_from={change}", f"drift_factor={factor:g}")


def add_regret(rows: list[Row]) -> list[Row]:
    """Against the mean of the oracle's returns in the episodes before the change, and in those after it.

    The score of an episode is 0 for the return of random actions and 1 for the oracle's. Dynamic regret is the sum of
    what is missing to the oracle of the episode.
    """
    found = []
    for env in dict.fromkeys(row.env for row in rows):
        returns = select(rows, env=env, metric=RETURN)
        by_seed = {
            (method, seed): select(returns, method=method, seed=seed)
            for method, seed in dict.fromkeys((row.method, row.seed) for row in returns)
        }
        length = min(len(own) for (name, _), own in by_seed.items() if name != "oracle")
        change = CHANGE if length > CHANGE else SMOKE_CHANGE
        true = np.mean([[row.value for row in own] for (name, _), own in by_seed.items() if name == "oracle"], axis=0)
        before, after = np.mean(true[:ORACLE_CHANGE]), np.mean(true[ORACLE_CHANGE:])
        optimal = np.where(np.arange(length) < change, before, after)
        for (method, _), own in by_seed.items():
            if method == "oracle":
                continue
            values = np.array([row.value for row in own])
            random = values[0]  # the first episode has random actions
            scores = (values - random) / np.maximum(optimal - random, 1e-9)
            regret = np.cumsum(optimal - values)
            found += [
                dataclasses.replace(row, metric=SCORE, value=float(v)) for row, v in zip(own, scores, strict=True)
            ]
            found += [
                dataclasses.replace(row, metric=REGRET, value=float(v)) for row, v in zip(own, regret, strict=True)
            ]
            windows = [float(np.mean(scores[k : k + OVER])) for k in range(change, length - OVER + 1)]
            passed = next((k for k, score in enumerate(windows) if score >= ENOUGH), None)
            found.append(dataclasses.replace(own[-1], metric=RECOVERED, value=float(passed is not None)))
            if passed is not None:
                found.append(dataclasses.replace(own[-1], metric=RECOVERY, value=float(passed)))
    return found


def draw(rows: list[Row]) -> Any:
    """Returns above, dynamic regret below."""
    require(rows, RETURN)
    envs = list(dict.fromkeys(row.env for row in rows))
    figure = new_figure(4.4 * len(envs), 6.6)
    above, below = figure.subplots(2, len(envs), squeeze=False)
    for env, returns, regret in zip(envs, above, below, strict=True):
        here = select(rows, env=env)
        draw_panel(returns, here, Panel(RETURN, ""), LEARNERS)
        draw_panel(regret, here, Panel(REGRET, ""), LEARNERS)
        for axes in (returns, regret):
            axes.axvline(CHANGE + 0.5, color="0.6", linewidth=1)
        returns.set(title=title_of(env))
        regret.set(xlabel="episode")
    above[0].set_ylabel("return of the episode")
    below[0].set_ylabel("dynamic regret")
    finish(figure, "A motor that is reversed, or fades", rows)
    return figure


DRIFT = Experiment(
    name="drift",
    summary="a motor that is reversed or fades in mid-run: all data, or the last three episodes alone",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(SCORE, "score, last 3 episodes", last=3),
        Headline(RECOVERED, "seeds that recover", at_least=1.0),
        Headline(RECOVERY, "episodes until then"),
        Headline(REGRET, "dynamic regret"),
    ),
    derive=add_regret,
)
"""Does a sliding window follow a world that changes (beside the paper; SW-OMBRL)?

From the ninth of 20 episodes on the torque is multiplied by -1 or 0.5. `all` fits the GP to everything, `window` to the
last three episodes (`--replay-window 120`); the reference plans on the true system of the episode (`--model true`).
"""
