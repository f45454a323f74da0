"""safe-exploration: what a budget of costs prevents while an agent learns, and what it costs in return."""

import dataclasses
import math
from typing import Any

import numpy as np

from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.algorithms.mbpo import MBPOConfig
from sombrl.algorithms.settings import configured, find_field
from sombrl.config.run import RunConfig
from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import Look, Panel, draw_panel, finish, new_figure, require, select, title_of
from sombrl.paper.experiments.gp import RETURN, SEEDS, episodes_of, gp_config
from sombrl.paper.experiments.mbpo import EARNED
from sombrl.runs.plots import COLORS
from sombrl.storage.results import Row
from sombrl.training.safety import SafetyConfig

BUDGET = 0.9
"""Of an episode: below 1, so that no violation fits."""
START = 0.3
"""Largest action of the first, random episode: what is known to be safe before there is a model."""
COUNTED, LIMITED = (SafetyConfig(budget=budget, random_size=START) for budget in (math.inf, BUDGET))
GP_TASKS = {"pendulum": ("speed_limit=7",), "mountain-car": ("cliff=-1.1",)}
METHODS: dict[str, tuple[str, SafetyConfig]] = {
    "optimistic": ("optimistic", COUNTED),
    "safe": ("optimistic", LIMITED),
    "greedy": ("greedy", COUNTED),
    "safe-greedy": ("greedy", LIMITED),
    "safe-mean": ("optimistic", dataclasses.replace(LIMITED, weight=0.0)),
}
"""How it explores and what it may cost. `safe-mean` trusts the mean of the model (λc = 0)."""
SAFE_LOOKS = {
    "optimistic": Look("SOMBRL", COLORS[0]),
    "greedy": Look("Mean", COLORS[3], "-."),
    "safe": Look("SOMBRL within a budget", COLORS[2]),
    "safe-greedy": Look("Mean within a budget", COLORS[1], "-."),
    "safe-mean": Look("SOMBRL, budget for the mean alone", COLORS[4], ":"),
}
COMPARED = {"pendulum": tuple(METHODS), "mountain-car": ("optimistic", "safe"), "mbpo": ("optimistic", "safe")}
SHIELD_DECISIONS = 1200
EPISODES = {"pendulum": 10, "mountain-car": 8}
RATE, VIOLATIONS, INTERVENTIONS = "safety/violations_per_1000", "safety/violations", "safety/interventions"
ALL, CLEAN = "violations", "without violation"


def cells(scale: str) -> list[Cell]:
    """GP agents on Pendulum and MountainCar, and a shielded policy on Pendulum."""
    found: list[Cell] = []
    for env, options in GP_TASKS.items():
        length = {} if scale == "smoke" else {"episodes": EPISODES[env]}
        run = episodes_of(env, scale, env_kwargs=options, **length)
        for name in COMPARED[env]:
            explore, safety = METHODS[name]
            config = dataclasses.replace(gp_config(explore, env, scale), safety=safety)
            found.append(_cell(f"{env}/{name}", name, f"{env} {options[0]}", run, config, "gp-icem", RETURN))
    return found + [_shielded(name, scale) for name in COMPARED["mbpo"]]


def _cell(
    path: str, name: str, env: str, run: RunConfig, config: GPICEMConfig | MBPOConfig, algorithm: str, paid: str
) -> Cell:
    limited = config.safety.budget is not None and math.isfinite(config.safety.budget)
    metrics = (paid, VIOLATIONS, RATE, *((INTERVENTIONS,) if limited else ()))
    return TrainCell(path, name, env, run, config, algorithm=algorithm, metrics=metrics, checkpoint_every=4)


def _shielded(name: str, scale: str) -> Cell:
    """MBPO, its policy in a shield or free."""
    explore, safety = METHODS[name]
    small = {"sac.hidden": (64, 64), "sac.actor_hidden": (64, 64), "sac.batch_size": 64, "ensemble.hidden": (64, 64)}
    tiny = {"sac.hidden": (8, 8), "sac.actor_hidden": (8, 8), "sac.batch_size": 8, "ensemble.hidden": (8, 8)}
    given = (tiny if scale == "smoke" else small if scale == "small" else {}) | {"explore": explore}
    _, config = configured("mbpo", {find_field(key, ("mbpo",))["mbpo"]: value for key, value in given.items()})
    decisions, every = (40, 20) if scale == "smoke" else (SHIELD_DECISIONS, 200)
    run = RunConfig(
        env="pendulum",
        env_kwargs=GP_TASKS["pendulum"],
        action_repeat=5,
        episode_length=10 if scale == "smoke" else 40,
        decisions=decisions,
        report_every=every,
        random_episodes=1,
        seeds=SEEDS[scale],
    )
    config = dataclasses.replace(config, safety=safety)
    return _cell(f"mbpo/{name}", name, "pendulum speed_limit=7 mbpo", run, config, "mbpo", EARNED)


def add_totals(rows: list[Row]) -> list[Row]:
    """Per seed, all violations of training, and 1 where there was none."""
    found = []
    for env, method, seed in dict.fromkeys((row.env, row.method, row.seed) for row in rows):
        own = select(rows, env=env, method=method, seed=seed, metric=VIOLATIONS)
        total = sum(row.value for row in own)
        found.append(dataclasses.replace(own[-1], metric=ALL, value=total))
        found.append(dataclasses.replace(own[-1], metric=CLEAN, value=float(total == 0)))
    return found


def draw(rows: list[Row]) -> Any:
    """Returns above; below, the violations so far."""
    require(rows, VIOLATIONS)
    envs = list(dict.fromkeys(row.env for row in rows))
    figure = new_figure(4.6 * len(envs), 6.8)
    above, below = figure.subplots(2, len(envs), squeeze=False)
    for env, returns, violations in zip(envs, above, below, strict=True):
        here = select(rows, env=env)
        paid = RETURN if select(here, metric=RETURN) else EARNED
        draw_panel(returns, here, Panel(paid, ""), SAFE_LOOKS)
        for method, look in SAFE_LOOKS.items():
            for seed in sorted({row.seed for row in select(here, method=method)}):
                own = select(here, method=method, seed=seed, metric=VIOLATIONS)
                total = np.cumsum([row.value for row in own])
                options = {"color": look.color, "linestyle": look.dash, "linewidth": 1.2, "alpha": 0.8}
                violations.plot([row.decisions for row in own], total, **options)
        returns.set(title=title_of(env), ylabel="return" if paid == RETURN else "reward per decision")
        violations.set(xlabel="decisions", ylabel="violations so far, every seed")
    finish(figure, "Exploring within a budget of costs", rows)
    return figure


SAFE_EXPLORATION = Experiment(
    name="safe-exploration",
    summary="violations while learning, with and without a budget of costs: Pendulum, MountainCar, a shielded policy",
    figure="beside the paper, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(ALL, "violations"),
        Headline(RATE, "per 1000 decisions"),
        Headline(CLEAN, "seeds without", at_least=1.0),
        Headline(RETURN, "return, last 3 episodes", last=3),
        Headline(EARNED, "reward per decision"),
    ),
    derive=add_totals,
)
"""Does a budget of costs prevent violations while the agent explores (beside the paper; contribution 2, lemma)?

Pendulum with a speed limit of 7 rad/s and MountainCar with a cliff at -1.1, in decisions of five frames, planned with a
GP; and Pendulum with a policy that MBPO learns, in a shield. A decision that ends at a cost of 1 or more is a
violation; the first, random episode counts too, with actions of at most 0.3, the same for all. The budget of an
episode is 0.9, in which no violation fits, with λc = 0.2 (the default) and 0.
"""
