"""lambda-rules: how λ is chosen, on cheap tasks where optimism decides and where it only costs (beside the paper).

`greedy` has λ = 0, `auto` is the default. `recent` divides the bonus by its spread over the last forty decisions or so:
the default's reaches back to an untrained model, beside which all that is uncertain later looks small. `decoupled` is
`recent` for a second policy (`--schedule decoupled`). Scale `small` has small networks; scale `paper` has those of the
strong preset.
"""

import dataclasses
from functools import partial
from typing import Any

from sombrl.paper.experiments.base import Cell, Experiment
from sombrl.paper.experiments.figures import Look, draw_tiles
from sombrl.paper.experiments.ladder import ADAPTIVE, LADDER, STRONG, agent_cell
from sombrl.paper.experiments.mbpo import LAST_RETURNS, LAST_WEIGHT, RETURNS
from sombrl.runs.plots import COLORS

RULES: dict[str, dict[str, Any]] = {
    "greedy": {"explore": "greedy"},
    "auto": {},
    "recent": {"sac.bonus_memory": 10_000},
    "decoupled": ADAPTIVE,
}
LIGHT: dict[str, Any] = {
    "sac.hidden": (64, 64),
    "sac.actor_hidden": (64, 64),
    "sac.batch_size": 64,
    "ensemble.hidden": (64, 64),
    "ensemble.batch_size": 64,
}
"""Small networks and batches: a decision takes about an eighth of the time."""
DECISIONS = {"pendulum-sparse": 5_000, "cartpole": 5_000, "deceptive-chain": 5_000, "mountain-car": 15_000}
TASKS = {name: dataclasses.replace(LADDER[name], decisions=decisions) for name, decisions in DECISIONS.items()}
SEEDS, EVALUATIONS, EPISODES = 3, 5, 2
LOOKS = {
    "greedy": Look("greedy", COLORS[3], "-."),
    "auto": Look("auto", COLORS[0]),
    "recent": Look("auto, recent spread", COLORS[1]),
    "decoupled": Look("decoupled, recent spread", COLORS[2]),
}


def rule_cells(scale: str) -> list[Cell]:
    """Every rule on every task."""
    tasks, base = list(TASKS), STRONG | (LIGHT if scale == "small" else {})
    evaluation = (2, 1) if scale == "smoke" else (EVALUATIONS, EPISODES)
    return [
        agent_cell(f"{task}/{rule}", TASKS[task], base | options, scale, seeds=SEEDS, evaluation=evaluation)
        for task in (tasks[:1] if scale == "smoke" else tasks)
        for rule, options in RULES.items()
    ]


LAMBDA_RULES = Experiment(
    name="lambda-rules",
    summary="rules for λ beside the default one, on small tasks, sparse and dense",
    figure="beside the paper, no figure",
    cells=rule_cells,
    draw=partial(draw_tiles, panel=RETURNS, looks=LOOKS, title="Rules for λ", xlabel="frames"),
    headlines=(LAST_RETURNS, LAST_WEIGHT),
)
"""Does a rule for λ lose to the better of λ = 0 and the default, anywhere? (beside the paper)"""
