"""gp-discounted: the discounted setting of the paper's theory (sections 5.1 and B), which its experiments leave out.

Episodes grow, T(n) = ⌈-ln n / ln γ⌉, and plans and returns are discounted. SOMBRL, H-UCRL and the mean planner (PETS
too at scale paper) on MountainCar and on Pendulum with the sparse reward. The dashed line is a larger planner on
the true system in episodes of full length; the regret is against it. Early episodes are too short to reach anything,
so all methods begin with a regret that is not theirs.

Ours alone: the paper has no figure for this setting, only the theorem. γ = 0.95, first episodes of at least 10
decisions.
"""

import dataclasses
from typing import Any

from sombrl.config.run import RunConfig
from sombrl.paper.experiments.base import Cell, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import LOOKS, Panel, draw_grid
from sombrl.paper.experiments.gp import ENVS, METHODS, episodes_of, gp_config, greedy_evaluation
from sombrl.paper.experiments.gp_episodic import REGRET, add_regret
from sombrl.storage.results import Row

RETURN = "rollout/discounted_return"
DISCOUNT = 0.95
EPISODES = {"smoke": 3, "small": 15, "paper": 30}
LONGEST = {"smoke": 8, "small": 60, "paper": 80}  # decisions; T(30) is 67
FLOOR = {"smoke": 2, "small": 10, "paper": 10}
HORIZON = {"pendulum": 14}  # decisions of 5 frames: the sparse reward is at the end of the swing
OPTIONS = {"pendulum": ("reward=sparse",), "mountain-car": ()}


def cells(scale: str) -> list[Cell]:
    """The methods in growing episodes, the oracle in long ones."""
    found: list[Cell] = []
    for env in ENVS:
        label = " ".join([env, *OPTIONS[env]])
        for method in METHODS if scale == "paper" else ("optimistic", "hucrl", "greedy"):
            found.append(
                TrainCell(
                    name=f"{env}/{method}",
                    method=method,
                    env=label,
                    run=_run(env, scale),
                    config=gp_config(method, env, scale, horizon=HORIZON.get(env)),
                    metrics=(RETURN, "rollout/ep_len_mean"),
                    evaluation=greedy_evaluation(scale),
                )
            )
        full = dataclasses.replace(_run(env, scale), growing_horizon=False, episodes=2 if scale == "smoke" else 5)
        found.append(
            TrainCell(f"{env}/oracle", "oracle", label, full, gp_config("oracle", env, scale), metrics=(RETURN,))
        )
    return found


def _run(env: str, scale: str) -> RunConfig:
    return episodes_of(
        *(env, scale),
        env_kwargs=OPTIONS[env],
        setting="discounted",
        discount=DISCOUNT,
        horizon_floor=FLOOR[scale],
        episode_length=LONGEST[scale],
        episodes=EPISODES[scale],
    )


def regret(rows: list[Row]) -> list[Row]:
    """R_N = Σₙ J_γ(π*) - J_γ(πₙ)."""
    return add_regret(rows, RETURN)


def draw(rows: list[Row]) -> Any:
    """Discounted returns above, regret below."""
    return draw_grid(
        rows,
        [
            Panel(RETURN, "discounted return of the episode", reference="oracle"),
            Panel(REGRET, "cumulative regret $R_N$"),
        ],
        LOOKS,
        title=f"GP dynamics, discounted with γ = {DISCOUNT}, episodes of T(n) = -ln n / ln γ decisions",
        xlabel="episode",
    )


GP_DISCOUNTED = Experiment(
    name="gp-discounted",
    summary="discounted returns in episodes that grow: optimistic, hucrl, greedy",
    figure="section 5.1, no figure",
    cells=cells,
    draw=draw,
    headlines=(
        Headline(RETURN, "discounted return, last 3 episodes", last=3),
        Headline("eval/ep_rew_mean", "return without exploring"),
        Headline(REGRET, "regret R_N"),
    ),
    derive=regret,
)
