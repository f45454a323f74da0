"""MBPO: mbpo-state, mbpo-vs-model-free, mbpo-action-cost, and what all MBPO experiments share.

Scale `paper` has the networks, batches and updates of the published code and five seeds; it is for a GPU. Its budgets
are ours: those of the paper, in decisions, are 25k for MountainCar, 200k for sparse CartPole, Reacher, Finger and
Walker, 500k for Hopper, and 2.5 million for Quadruped and Humanoid.

Scale `small` is for two CPU cores: networks of width 64, batches of 64, two seeds, and environments that can be learned
in 15000 decisions; sparse CartPole and the other tasks of the DeepMind Control Suite need more than that. Here these
are MountainCar, where the goal must be found, and Pendulum, where optimism must not hurt.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from sombrl.algorithms.mbpo import PAPER_ENSEMBLE, MBPOConfig
from sombrl.algorithms.model_free import MaxInfoSACConfig, SACAlgorithmConfig
from sombrl.config.run import RunConfig
from sombrl.controllers.sac_config import SACConfig
from sombrl.paper.experiments.base import SCALES, Cell, Evaluation, Experiment, Headline, TrainCell
from sombrl.paper.experiments.figures import LOOKS, Look, Panel, draw_action_costs, draw_tiles
from sombrl.runs.plots import COLORS

METHODS = ("optimistic", "greedy", "pets")
"""MBPO-Optimistic, MBPO-Mean and MBPO-PETS."""
MODEL_FREE = ("sac", "maxinfo-sac")
MBPO_LOOKS = {
    "optimistic": Look("MBPO-Optimistic", COLORS[0]),
    "greedy": Look("MBPO-Mean", COLORS[3], "-."),
    "pets": Look("MBPO-PETS", COLORS[2]),
    "maxinfo-sac": Look("MaxInfoSAC", COLORS[1]),
    "sac": Look("SAC", LOOKS["oracle"].color, "--"),
}

RETURN = "eval/ep_rew_mean"
EARNED, WEIGHT, SIGMA = "rollout/average_reward", "policy/bonus_weight", "explore/mean_std"
# Not rollout/ep_rew_mean: it is null where no episode ended since the last report.
METRICS = (EARNED, SIGMA, WEIGHT)
RETURNS = Panel(RETURN, "return without exploring", x="env_frames")
LAST_RETURNS = Headline(RETURN, "return, last 3 evaluations", last=3)
LAST_EARNED, LAST_WEIGHT = Headline(EARNED, "reward per decision, exploring"), Headline(WEIGHT, "last λ")


@dataclasses.dataclass(frozen=True)
class Env:
    """A row of the table of environments."""

    id: str
    decisions: Mapping[str, int]
    """Per seed, at the scales that have this environment; at scale smoke always `SMOKE_DECISIONS`."""
    action_repeat: int = 2
    episode_length: int = 500
    """In decisions: the limit of the suite, 1000 frames for DeepMind Control."""
    width: int = 256
    evaluations: int = 10
    """At scale paper, in equal distances; always `SMALL_EVALUATIONS` at scale small."""


CAR = {"action_repeat": 1, "episode_length": 999}
WIDE = {"width": 512}  # as published for these bodies
ENVS = {
    "mountain-car": Env("MountainCarContinuous-v0", {"small": 15_000, "paper": 25_000}, **CAR),
    "pendulum": Env("Pendulum-v1", {"small": 5_000, "paper": 10_000}, action_repeat=1, episode_length=200),
    "cartpole": Env("dmc:cartpole-swingup", {"small": 10_000, "paper": 50_000}),
    "cartpole-sparse": Env("dmc:cartpole-swingup_sparse", {"paper": 100_000}, evaluations=20),
    "cartpole-sparse-short": Env("dmc:cartpole-swingup_sparse", {"paper": 50_000}),
    "reacher-hard": Env("dmc:reacher-hard", {"paper": 50_000}),
    "finger-spin": Env("dmc:finger-spin", {"paper": 50_000}),
    "hopper-hop": Env("dmc:hopper-hop", {"paper": 50_000}),
    "walker-run": Env("dmc:walker-run", {"paper": 50_000}),
    "quadruped-run": Env("dmc:quadruped-run", {"paper": 100_000}, **WIDE),
    "humanoid-walk": Env("dmc:humanoid-walk", {"paper": 100_000}, **WIDE),
}
SEEDS = dict(zip(SCALES, (2, 2, 5), strict=True))
REPORT_EVERY = dict(zip(SCALES, (20, 500, 500), strict=True))
CHECKPOINT_EVERY = 10  # reports
EPISODES = dict(zip(SCALES, (1, 2, 3), strict=True))  # of an evaluation, with the policy's mode
SMOKE_DECISIONS, SMOKE_LENGTH, SMOKE_EVALUATIONS = 40, 10, 2
SMALL_EVALUATIONS = 10
SIZES: dict[str, dict[str, Any]] = {  # of policies and ensembles; at scale paper they have their own
    "smoke": {"hidden": (8, 8), "batch_size": 8},
    "small": {"hidden": (64, 64), "batch_size": 64},
}

Config = MBPOConfig | SACAlgorithmConfig | MaxInfoSACConfig


def mbpo_config(method: str, env: str, scale: str, **changes: Mapping[str, Any]) -> Config:
    """The algorithm of a method, model-free or not. `changes` are fields of its parts, such as sac={"tau": 0.01}."""
    config: Any
    match method:
        case "sac":
            config = SACAlgorithmConfig()
        case "maxinfo-sac":
            config = MaxInfoSACConfig()
        case _:
            config = MBPOConfig(ensemble=PAPER_ENSEMBLE, sac=SACConfig())
            config = dataclasses.replace(config, explore=dataclasses.replace(config.explore, explore=method))
    width = ENVS[env].width
    sizes = SIZES.get(scale, {"hidden": (width, width)})
    fields = {name: dict(sizes) for name in ("sac", "ensemble") if hasattr(config, name)}
    for part, given in changes.items():
        fields[part] = fields.get(part, {}) | dict(given)
    parts = {name: dataclasses.replace(getattr(config, name), **given) for name, given in fields.items()}
    found: Config = dataclasses.replace(config, **parts)
    return found


def decisions_of(env: str, scale: str, **changes: Any) -> RunConfig:
    """A run of an environment. `changes` are fields of the run."""
    row, smoke = ENVS[env], scale == "smoke"
    fields: dict[str, Any] = {
        "env": row.id,
        "action_repeat": row.action_repeat,
        "episode_length": SMOKE_LENGTH if smoke else row.episode_length,
        "decisions": SMOKE_DECISIONS if smoke else row.decisions[scale],
        "report_every": REPORT_EVERY[scale],
        "seeds": SEEDS[scale],
    }
    return RunConfig(**(fields | changes))


def evaluations(env: str, scale: str) -> Evaluation:
    """Episodes without exploring, in equal distances."""
    number = {"smoke": SMOKE_EVALUATIONS, "small": SMALL_EVALUATIONS, "paper": ENVS[env].evaluations}[scale]
    reports = (decisions_of(env, scale).decisions or 0) // REPORT_EVERY[scale]
    return Evaluation(EPISODES[scale], every=reports // number)


def mbpo_cell(
    method: str,
    env: str,
    scale: str,
    config: Config | None = None,
    *,
    action_cost: float = 0.0,
    metrics: tuple[str, ...] | None = None,
    group: str | None = None,
) -> TrainCell:
    """One method on one environment, evaluated as it learns; `config` if it is not the method's own."""
    run = decisions_of(env, scale, action_cost=action_cost)
    return TrainCell(
        name=f"{env}-k{action_cost}/{method}" if action_cost else f"{env}/{method}",
        method=method,
        env=f"{run.env} K={action_cost}" if action_cost else run.env,
        run=run,
        config=mbpo_config(method, env, scale) if config is None else config,
        algorithm=method if method in MODEL_FREE else "mbpo",
        metrics=metrics or ((EARNED,) if method == "sac" else METRICS),  # SAC has no model and no bonus
        evaluation=evaluations(env, scale),
        checkpoint_every=CHECKPOINT_EVERY,
        group=group,
    )


# mbpo-state


def state_cells(scale: str) -> list[Cell]:
    """Every method on every environment."""
    envs = {
        "smoke": ("pendulum", "cartpole-sparse"),
        "small": ("mountain-car", "pendulum"),
        "paper": (
            *("mountain-car", "cartpole-sparse", "reacher-hard", "finger-spin"),
            *("hopper-hop", "walker-run", "quadruped-run", "humanoid-walk"),
        ),
    }
    return [mbpo_cell(method, env, scale, group=env) for env in envs[scale] for method in METHODS]


MBPO_STATE = Experiment(
    name="mbpo-state",
    summary="policies on an ensemble: MBPO-Optimistic, MBPO-Mean and MBPO-PETS",
    figure="figure 3, left",
    cells=state_cells,
    draw=partial(draw_tiles, panel=RETURNS, looks=MBPO_LOOKS, title="MBPO from state", xlabel="frames"),
    headlines=(LAST_RETURNS, LAST_EARNED, LAST_WEIGHT, Headline(SIGMA, "last mean ‖σ‖")),
)
"""Figure 3, left, of the paper (section 6, appendix D.1): policies that learn from state and a model.

MBPO-Optimistic, MBPO-Mean (λ = 0) and MBPO-PETS (the next state of a random member), which differ in nothing else, on
MountainCar, sparse CartPole and six more tasks of the DeepMind Control Suite. The x-axis counts frames of the
simulator: decisions times action repeat.

Differs from the paper: the budgets. Its text does not say which environments the figure shows; it names MountainCar,
CartPole, Quadruped and Humanoid. Differs from the authors' code: MBPO-PETS draws a member for every row, not one for a
whole batch, and imagined next states of the other two have no noise (theirs: 1e-3).
"""

# mbpo-vs-model-free


def model_free_cells(scale: str) -> list[Cell]:
    """Two methods that learn from a model, two that do not."""
    envs = {
        "smoke": ("pendulum",),
        "small": ("mountain-car", "pendulum"),
        "paper": ("mountain-car", "cartpole-sparse", "walker-run"),
    }
    found: list[Cell] = []
    for env in envs[scale]:
        found += [mbpo_cell(method, env, scale, group=env) for method in ("optimistic", "greedy")]
        found += [mbpo_cell(method, env, scale) for method in MODEL_FREE]
    return found


MBPO_VS_MODEL_FREE = Experiment(
    name="mbpo-vs-model-free",
    summary="MBPO-Optimistic and MBPO-Mean against SAC and MaxInfoSAC",
    figure="figure 6",
    cells=model_free_cells,
    draw=partial(draw_tiles, panel=RETURNS, looks=MBPO_LOOKS, title="With and without a model", xlabel="frames"),
    headlines=(LAST_RETURNS, LAST_EARNED, LAST_WEIGHT),
)
"""Figure 6 of the paper (appendix C, "Experiments with MBPO"): what the model is good for.

MBPO-Optimistic and MBPO-Mean against SAC and MaxInfoSAC, which has the bonus but learns its policy from real data
only. The model-free ones are as published: one update per decision and plain critics, where MBPO has five and residual
ones; so the figure compares algorithms at equal data, not at equal computation.

Differs from the paper: the budgets; MBPO-Mean is added to tell the bonus from the model.
"""

# mbpo-action-cost


def action_cost_cells(scale: str) -> list[Cell]:
    """The methods on every environment, for every cost."""
    envs = {"smoke": ("pendulum",), "small": ("mountain-car",), "paper": ("mountain-car", "cartpole-sparse")}
    costs = {"smoke": (0.1,), "small": (0.1, 0.4), "paper": (0.1, 0.25, 0.4)}
    methods = METHODS if scale == "paper" else ("optimistic", "greedy")
    return [
        mbpo_cell(method, env, scale, action_cost=cost, group=f"{env}-k{cost}")
        for env in envs[scale]
        for cost in costs[scale]
        for method in methods
    ]


MBPO_ACTION_COST = Experiment(
    name="mbpo-action-cost",
    summary="the same with a cost for every action: who still moves?",
    figure="section 6; figure 4, left, has it for Dreamer",
    cells=action_cost_cells,
    draw=partial(draw_action_costs, panel=RETURNS, looks=MBPO_LOOKS, title="MBPO with action costs K‖u‖ per frame"),
    headlines=(LAST_RETURNS, Headline(RETURN, "seeds above 10", last=3, at_least=10.0), LAST_EARNED, LAST_WEIGHT),
)
"""When actions cost something, greedy agents learn to keep still (section 6 of the paper).

MBPO-Optimistic against MBPO-Mean and MBPO-PETS with a cost K‖u‖₂ on every frame, u in physical units, on MountainCar
(besides its own 0.1 u²) and sparse CartPole. Costs are part of the return, so keeping still is worth 0.

Differs from the paper: it shows action costs with Dreamer (figure 4, left); the K are those that the published MBPO
code names and does not run. Scale small: MountainCar with the smallest and the largest K, without MBPO-PETS.
"""
