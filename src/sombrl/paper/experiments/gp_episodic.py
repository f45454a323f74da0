"""gp-episodic: figure 2, right, of the paper (sections 5.3 and D.4): J(πₙ) over episodes with GP dynamics.

SOMBRL (optimistic), H-UCRL, PETS and the mean planner on Pendulum (dense reward, from hanging) and MountainCar, with
known rewards. The dashed line is a larger planner on the true system: the reference J(π*) of the regret
R_N = Σₙ J(π*) - J(πₙ). A planner is not the optimum, so R_N may fall a little. `oracle-published` in the CSV is the
published planner there; it is why ours differs (see `PLAN` in gp.py).

Differs from the paper: it shows the return that was executed while exploring, as the paper's curves do, and keeps the
return without exploration (`eval/ep_rew_mean`) beside it. The paper gives no MountainCar budget; ours is 20 episodes of
200 frames. Scale small: light planner, MountainCar with 10 episodes and action repeat 5 instead of 2, PETS with 3
particles instead of 5.
"""

from typing import Any

import numpy as np

from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import LOOKS, Panel, draw_grid, select
from sombrl.paper.experiments.gp import ENVS, METHODS, episodes_of, gp_config, greedy_evaluation, oracle_cells
from sombrl.storage.results import Row
from sombrl.theory import episodic_regret

RETURN, REGRET = "rollout/ep_rew_mean", "regret"
METRICS = (RETURN, "explore/mean_std", "model/rmse")


def cells(scale: str) -> list[Cell]:
    """Every method and the oracle, on both environments."""
    found: list[Cell] = []
    for env in ENVS:
        run, evaluation = episodes_of(env, scale), greedy_evaluation(scale)
        for method in METHODS:
            config = gp_config(method, env, scale)
            found.append(TrainCell(f"{env}/{method}", method, env, run, config, metrics=METRICS, evaluation=evaluation))
        found += oracle_cells(env, scale, (RETURN,))
    return found


def add_regret(rows: list[Row], metric: str = RETURN) -> list[Row]:
    """R_N of every seed against the mean of all the oracle's returns."""
    regret = []
    for env in dict.fromkeys(row.env for row in rows):
        returns = select(rows, env=env, metric=metric)
        optimal = float(np.mean([row.value for row in returns if row.method == "oracle"]))
        for method, seed in dict.fromkeys((row.method, row.seed) for row in returns if "oracle" not in row.method):
            found = select(returns, method=method, seed=seed)
            for row, value in zip(found, episodic_regret(np.array([row.value for row in found]), optimal), strict=True):
                where = (row.experiment, row.method, row.env, row.setting, row.seed)
                regret.append(Row(*where, REGRET, row.env_frames, row.decisions, float(value)))
    return regret


def draw(rows: list[Row]) -> Any:
    """Returns above, regret below."""
    return draw_grid(
        rows,
        [Panel(RETURN, "return of the episode", reference="oracle"), Panel(REGRET, "cumulative regret $R_N$")],
        LOOKS,
        title="GP dynamics, episodic",
        xlabel="episode",
    )


GP_EPISODIC = Experiment(
    name="gp-episodic",
    summary="Pendulum and MountainCar with resets: optimistic, hucrl, pets, greedy",
    figure="figure 2, right",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "return, last 3 episodes", last=3),
        Headline("eval/ep_rew_mean", "without exploring"),
        Headline(REGRET, "regret R_N"),
    ),
    derive=add_regret,
)
