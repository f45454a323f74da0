"""GP dynamics in the paper's other settings: gp-nonepisodic, gp-discounted and gp-unsupervised."""

import dataclasses
from typing import Any

from sombrl.config.run import RunConfig
from sombrl.envs.mountain_car import GOAL_REWARD
from sombrl.envs.pendulum import DENSE_COST
from sombrl.paper.experiments.base import Cell, Evaluation, Experiment, Headline, TrainCell, recorded_as
from sombrl.paper.experiments.figures import (
    LOOKS,
    NONEPISODIC_LOOKS,
    Panel,
    draw_grid,
    draw_panel,
    finish,
    new_figure,
    require,
    select,
    title_of,
)
from sombrl.paper.experiments.gp import (
    ENVS,
    METHODS,
    REGRET,
    SEEDS,
    add_regret,
    episodes_of,
    gp_config,
    greedy_evaluation,
)
from sombrl.storage.results import Row

# gp-nonepisodic

AVERAGE, SUMMED_REGRET, AT_GOAL = "rollout/average_reward", "rollout/regret", "rollout/at_goal"
UPDATE_EVERY = 10
OWN_COST = {"pendulum": DENSE_COST, "mountain-car": 0.1}  # of actions, where a cell sets none


@recorded_as("sombrl.experiments.gp_nonepisodic.at_goal")
def at_goal(row: dict[str, Any]) -> dict[str, float]:
    """The share of the last chunk's frames that MountainCar spent at the goal, from its reward (c u² ≪ 100)."""
    frames = row["rollout/ep_len_mean"] * row["env_frames"] / row["decisions"]
    return {AT_GOAL: max(0.0, round(row["rollout/ep_rew_mean"] / (GOAL_REWARD * frames), 2))}


def nonepisodic_cells(scale: str) -> list[Cell]:
    """Every method on both environments, for every action cost; None: the environment's own."""
    all_costs: dict[str, dict[str, tuple[float | None, ...]]] = {
        "smoke": {env: (None,) for env in ENVS},
        "small": {"pendulum": (None, 0.1), "mountain-car": (None, 0.0)},
        "paper": {env: (0.0, 0.1, 0.2) for env in ENVS},
    }
    costs = all_costs[scale]
    return [
        _nonepisodic_cell(method, env, scale, cost)
        for env in ENVS
        for i, cost in enumerate(costs[env])
        for method in METHODS
        if scale == "paper" or i == 0 or method in ("optimistic", "greedy")
    ]


def _nonepisodic_cell(method: str, env: str, scale: str, cost: float | None) -> TrainCell:
    repeat = {"pendulum": 1, "mountain-car": 2 if scale == "paper" else 5}[env]
    run = RunConfig(
        env=env,
        env_kwargs=() if cost is None else (f"action_cost={cost}",),
        action_repeat=repeat,
        setting="non-episodic",
        update_every=UPDATE_EVERY,
        episodes=(30 if scale == "smoke" else 1000) // UPDATE_EVERY,
        seeds=SEEDS[scale],
    )
    # β and Pendulum's horizon (a decision is one frame here) are those of the published NeoRL code.
    horizon = 20 if env == "pendulum" else None
    refit_every = {"smoke": 2, "small": 5, "paper": 1}[scale]
    return TrainCell(
        name=f"{env}/{method}" if cost is None else f"{env}-c{cost}/{method}",
        method=method,
        env=" ".join([env, *run.env_kwargs]),
        run=run,
        config=gp_config(method, env, scale, beta=3.0, horizon=horizon, refit_every=refit_every),
        metrics=(AVERAGE, SUMMED_REGRET),
        extra=at_goal if env == "mountain-car" else None,
        checkpoint_every=5,
    )


def draw_nonepisodic(rows: list[Row]) -> Any:
    """The running average above, the regret below."""
    return draw_grid(
        rows,
        [
            Panel(AVERAGE, "average reward per decision", x="decisions"),
            Panel(SUMMED_REGRET, "regret $R_N$, $J^*$ per frame:\n0 Pendulum, 100 MountainCar", x="decisions"),
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
    cells=nonepisodic_cells,
    draw=draw_nonepisodic,
    headlines=(
        Headline(AVERAGE, "average reward"),
        Headline(SUMMED_REGRET, "regret R_N"),
        Headline(AT_GOAL, "share of the last 100 decisions at the goal", last=10),
        Headline(AT_GOAL, "seeds that stay there", last=10, at_least=0.9),
    ),
)
"""Figure 2, left, of the paper (sections 5.3 and D.4): average reward and R_N without resets.

SOMBRL against NeoRL, NePETS and NeMean, which are hucrl (β = 3), pets and greedy without resets, on Pendulum (dense,
from hanging) and MountainCar, also with action costs c. 1000 decisions, the model updated every 10 of them.
R_N = Σ_t J* - r_t with J* known exactly: 0 per frame on Pendulum (upright, no torque) and 100 on MountainCar (resting
on the right wall).

Differs from the paper: the published code runs a GP on Pendulum only (MountainCar with ensembles) and returns only the
last frame's reward of a decision; ours is a GP on both and sums. Scale paper: c in {0, 0.1, 0.2}. Scale small: light
planner; MountainCar with action repeat 5 instead of 2; lengthscales refitted every 5th update; one other c, for SOMBRL
and NeMean only.
"""

# gp-discounted

DISCOUNTED_RETURN, DISCOUNT = "rollout/discounted_return", 0.95


def discounted_cells(scale: str) -> list[Cell]:
    """The methods in growing episodes, the oracle in long ones."""
    methods = METHODS if scale == "paper" else ("optimistic", "constant-10", "hucrl", "greedy")
    found: list[Cell] = []
    for env in ENVS:
        # 14 decisions of 5 frames on Pendulum: the sparse reward is at the end of the swing.
        options, horizon = (("reward=sparse",), 14) if env == "pendulum" else ((), None)
        run = episodes_of(
            env,
            scale,
            env_kwargs=options,
            setting="discounted",
            discount=DISCOUNT,
            horizon_floor=2 if scale == "smoke" else 10,
            episode_length={"smoke": 8, "small": 60, "paper": 80}[scale],  # decisions; T(30) is 67
            episodes={"smoke": 3, "small": 15, "paper": 30}[scale],
        )
        label = " ".join([env, *options])
        found += [
            TrainCell(
                name=f"{env}/{method}",
                method=method,
                env=label,
                run=run,
                config=gp_config(method, env, scale, horizon=horizon),
                metrics=(DISCOUNTED_RETURN, "rollout/ep_len_mean"),
                evaluation=greedy_evaluation(scale),
            )
            for method in methods
        ]
        full = dataclasses.replace(run, growing_horizon=False, episodes=2 if scale == "smoke" else 5)
        oracle = gp_config("oracle", env, scale)
        found.append(TrainCell(f"{env}/oracle", "oracle", label, full, oracle, metrics=(DISCOUNTED_RETURN,)))
    return found


def draw_discounted(rows: list[Row]) -> Any:
    """Discounted returns above, regret below."""
    return draw_grid(
        rows,
        [
            Panel(DISCOUNTED_RETURN, "discounted return of the episode", reference="oracle"),
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
    cells=discounted_cells,
    draw=draw_discounted,
    headlines=(
        Headline(DISCOUNTED_RETURN, "discounted return, last 3 episodes", last=3),
        Headline("eval/ep_rew_mean", "return without exploring"),
        Headline(REGRET, "regret R_N"),
    ),
    derive=lambda rows: add_regret(rows, DISCOUNTED_RETURN),
)
"""The discounted setting of the paper's theory (sections 5.1 and B), for which the paper has no figure.

Episodes grow, T(n) = ⌈-ln n / ln γ⌉, and plans and returns are discounted. SOMBRL, H-UCRL and the mean planner (PETS
too at scale paper) on MountainCar and on Pendulum with the sparse reward. The dashed line is a larger planner on
the true system in episodes of full length; the regret is against it. Early episodes are too short to reach anything,
so every method begins with a regret that it cannot avoid. γ = 0.95, first episodes of at least 10 decisions.
"""

# gp-unsupervised

TASKS = {"pendulum": ("swing-up", "keep-down", "spin"), "mountain-car": ("goal-right", "goal-left")}
UNCERTAINTY = "eval/max_uncertainty"


def unsupervised_cells(scale: str) -> list[Cell]:
    """Optimistic and random exploration on both environments; the mean planner without a task acts at random."""
    episodes = {"smoke": 2, "small": 10, "paper": 20}[scale]
    repeats, every = 5 if scale == "paper" else 1, 1 if scale == "smoke" else 2
    return [
        TrainCell(
            name=f"{env}/{method}",
            method=method,
            env=env,
            run=episodes_of(
                env, scale, setting="unsupervised", downstream=TASKS[env], episodes=episodes, random_episodes=0
            ),
            config=gp_config(strategy, env, scale),
            metrics=("explore/uncertainty", "model/rmse"),
            evaluation=Evaluation(repeats, TASKS[env], uncertainty=True, every=every),
        )
        for env in ENVS
        for method, strategy in (("optimistic", "optimistic"), ("random", "greedy"))
    ]


def draw_unsupervised(rows: list[Row]) -> Any:
    """A line of panels per environment: Σ*_N, then the tasks."""
    require(rows, UNCERTAINTY)
    envs = [env for env in TASKS if select(rows, env=env)]
    columns = 1 + max(len(TASKS[env]) for env in envs)
    figure = new_figure(3.6 * columns, 3.3 * len(envs) + 0.9)
    grid = figure.subplots(len(envs), columns, squeeze=False)
    for line, env in zip(grid, envs, strict=True):
        here = select(rows, env=env)
        draw_panel(line[0], here, Panel(UNCERTAINTY, "", x="decisions"), LOOKS)
        line[0].set(title=f"{title_of(env)}: $Σ^*_N$ left to learn", xlabel="decisions of exploring", ylim=(0, None))
        for axes, task in zip(line[1:], TASKS[env], strict=False):
            draw_panel(axes, here, Panel(f"eval/{task}", "", x="decisions"), LOOKS)
            axes.set(title=task, xlabel="decisions of exploring")
        line[1].set_ylabel("zero-shot return")
        for axes in line[1 + len(TASKS[env]) :]:
            axes.set_axis_off()
    finish(figure, "GP dynamics explored without a task, then planned for tasks", rows)
    return figure


GP_UNSUPERVISED = Experiment(
    name="gp-unsupervised",
    summary="explore without a task, then plan for several, zero-shot; optimistic against random actions",
    figure="section B, no figure",
    cells=unsupervised_cells,
    draw=draw_unsupervised,
    headlines=(
        Headline(UNCERTAINTY, "Σ*_N at the end"),
        *(Headline(f"eval/{task}", task) for tasks in TASKS.values() for task in tasks),
    ),
)
"""SOMBRL without a task (section B, "pure intrinsic exploration": r = 0), then tasks that were unknown while exploring.

Explores for ‖σₙ‖ only; random actions (the mean planner, whose objective is 0 everywhere) are the comparison. After
every few episodes each downstream task is planned for, zero-shot, under the mean model: swing-up, keep-down and spin on
Pendulum, the goals right and left on MountainCar. Σ*_N, the largest policy uncertainty, which the theorem says decays,
is what the planner finds for ‖σ_N‖ only, however the model's data were collected; in units of each model's own
targets, so a model that has seen only slow motion gives fast motion more weight.

Differs from the paper: it states the setting and a bound for Σ*_N but shows no GP figure; the tasks are ours.
"""
