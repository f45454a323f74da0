"""gp-nonepisodic: figure 2, left, of the paper (sections 5.3 and D.4): average reward and R_N without resets.

SOMBRL against NeoRL, NePETS and NeMean, which are hucrl (β = 3), pets and greedy without resets, on Pendulum (dense,
from hanging) and MountainCar, also with action costs c. 1000 decisions, the model updated every 10 of them.
R_N = Σ_t J* - r_t with J* known exactly: 0 per frame on Pendulum (upright, no torque) and 100 on MountainCar (resting
on the right wall).

Differs from the paper: the published code runs a GP on Pendulum alone (MountainCar with ensembles) and returns only the
last frame's reward of a decision; ours is a GP on both and sums. Scale paper: c in {0, 0.1, 0.2}. Scale small: light
planner; MountainCar with action repeat 5 instead of 2; lengthscales refitted every 5th update; one other c, for SOMBRL
and NeMean alone.
"""

from typing import Any

from sombrl.config.run import RunConfig
from sombrl.envs.mountain_car import GOAL_REWARD
from sombrl.envs.pendulum import DENSE_COST
from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import NONEPISODIC_LOOKS, Panel, draw_grid, title_of
from sombrl.paper.experiments.gp import ENVS, METHODS, SEEDS, gp_config
from sombrl.storage.results import Row

AVERAGE, REGRET, AT_GOAL = "rollout/average_reward", "rollout/regret", "rollout/at_goal"
BETA = 3.0  # the published NeoRL code's for GPs
UPDATE_EVERY = 10
DECISIONS = {"smoke": 30, "small": 1000, "paper": 1000}
REPEAT = {
    ("pendulum", "smoke"): 1,
    ("pendulum", "small"): 1,
    ("pendulum", "paper"): 1,
    ("mountain-car", "smoke"): 5,
    ("mountain-car", "small"): 5,
    ("mountain-car", "paper"): 2,
}
HORIZON = {"pendulum": 20}  # the published; here a decision is one frame
REFIT_EVERY = {"smoke": 2, "small": 5, "paper": 1}
OWN_COST = {"pendulum": DENSE_COST, "mountain-car": 0.1}
COSTS: dict[tuple[str, str], tuple[float | None, ...]] = {  # None: the environment's own
    ("pendulum", "smoke"): (None,),
    ("mountain-car", "smoke"): (None,),
    ("pendulum", "small"): (None, 0.1),
    ("mountain-car", "small"): (None, 0.0),
    ("pendulum", "paper"): (0.0, 0.1, 0.2),
    ("mountain-car", "paper"): (0.0, 0.1, 0.2),
}


def at_goal(row: dict) -> dict[str, float]:
    """The share of the last chunk's frames that MountainCar spent at the goal, read off its reward (c u² ≪ 100)."""
    frames = row["rollout/ep_len_mean"] * row["env_frames"] / row["decisions"]
    return {AT_GOAL: max(0.0, round(row["rollout/ep_rew_mean"] / (GOAL_REWARD * frames), 2))}


def cells(scale: str) -> list[Cell]:
    """Every method on both environments, for every action cost."""
    return [
        _cell(method, env, scale, cost)
        for env in ENVS
        for i, cost in enumerate(COSTS[env, scale])
        for method in METHODS
        if scale == "paper" or i == 0 or method in ("optimistic", "greedy")
    ]


def _cell(method: str, env: str, scale: str, cost: float | None) -> TrainCell:
    run = RunConfig(
        env=env,
        env_kwargs=() if cost is None else (f"action_cost={cost}",),
        action_repeat=REPEAT[env, scale],
        setting="non-episodic",
        update_every=UPDATE_EVERY,
        episodes=DECISIONS[scale] // UPDATE_EVERY,
        seeds=SEEDS[scale],
    )
    return TrainCell(
        name=f"{env}/{method}" if cost is None else f"{env}-c{cost}/{method}",
        method=method,
        env=" ".join([env, *run.env_kwargs]),
        run=run,
        config=gp_config(method, env, scale, beta=BETA, horizon=HORIZON.get(env), refit_every=REFIT_EVERY[scale]),
        metrics=(AVERAGE, REGRET),
        extra=at_goal if env == "mountain-car" else None,
        checkpoint_every=5,
    )


def draw(rows: list[Row]) -> Any:
    """The running average above, the regret below."""
    return draw_grid(
        rows,
        [
            Panel(AVERAGE, "average reward per decision", x="decisions"),
            Panel(REGRET, "regret $R_N$, $J^*$ per frame:\n0 Pendulum, 100 MountainCar", x="decisions"),
        ],
        NONEPISODIC_LOOKS,
        title="GP dynamics, one trajectory without resets",
        xlabel="decisions",
        env_title=lambda env: title_of(env if " " in env else f"{env} action_cost={OWN_COST[env]}"),
    )


GP_NONEPISODIC = Experiment(
    name="gp-nonepisodic",
    summary="the same without resets: SOMBRL, NeoRL, NePETS, NeMean; also with action costs",
    figure="figure 2, left",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(AVERAGE, "average reward"),
        Headline(REGRET, "regret R_N"),
        Headline(AT_GOAL, "share of the last 100 decisions at the goal", last=10),
        Headline(AT_GOAL, "seeds that stay there", last=10, at_least=0.9),
    ),
)
