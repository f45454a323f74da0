"""Dreamer: vectors, pixels, action costs, Atari and ways to choose λ, and what these experiments share.

Scale `paper` has the 12-million model, the published replay ratio and three seeds; it is for a GPU. Its budgets are
ours, a tenth to a fifth of the published frames. Returns are those of training episodes, with sampled actions, as
published. A report is as long as an episode of every environment. Scale `small` is for two CPU cores: two seeds, the
1-million model, an eighth of the replay, mostly observations of vectors. It gives a rough picture only.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from sombrl.config.run import RunConfig
from sombrl.dreamer.config import DreamerConfig
from sombrl.paper.experiments.base import SCALES, Cell, Evaluation, Experiment, Headline, TrainCell, recorded_as
from sombrl.paper.experiments.figures import Look, Panel, draw_action_costs, draw_grid, draw_tiles
from sombrl.runs.plots import COLORS

METHODS = ("optimistic", "greedy")
"""Dreamer-Optimistic and Dreamer."""
DREAMER_LOOKS = {
    "optimistic": Look("Dreamer-Optimistic", COLORS[0]),
    "greedy": Look("Dreamer", COLORS[3], "-."),
}
RETURN, EARNED = "rollout/ep_rew_mean", "rollout/average_reward"
WEIGHT, SIGMA, SHARE = "explore/bonus_weight", "explore/mean_std", "explore/bonus_share"
LEARNED = (WEIGHT, SIGMA, SHARE, "explore/bonus_gap", "model/loss")
METRICS = (RETURN, EARNED)
RETURNS = Panel(RETURN, "return of training episodes", x="env_frames")
LAST_RETURNS = Headline(RETURN, "return, last 3 reports", last=3)
LAST_WEIGHT, LAST_SHARE = Headline(WEIGHT, "last λ"), Headline(SHARE, "last bonus share")
EPISODE = 500  # decisions of DeepMind Control with action repeat 2

SEEDS = dict(zip(SCALES, (2, 2, 3), strict=True))
ENVS = dict(zip(SCALES, (2, 2, 4), strict=True))  # environments per seed
DECISIONS = dict(zip(SCALES, (80, 10_000, 50_000), strict=True))
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"size": "tiny", "ratio": 8.0, "batch_size": 2, "batch_length": 4, "horizon": 3},
    "small": {"size": "1m", "ratio": 64.0, "batch_size": 8, "batch_length": 32},
    "paper": {},
}


def dreamer_config(method: str, scale: str, explore: Mapping[str, Any] | None = None, **fields: Any) -> DreamerConfig:
    """Dreamer at a scale; `explore` are fields of the exploration, `fields` those of the algorithm."""
    config = DreamerConfig(envs=ENVS[scale], **SIZES[scale])
    hidden: dict[str, Any] = {"hidden": (8, 8)} if scale == "smoke" and method != "greedy" else {}
    exploration = dataclasses.replace(config.explore, explore=method, **hidden, **(explore or {}))
    return dataclasses.replace(config, explore=exploration, **fields)


def dreamer_cell(
    method: str,
    env: str,
    scale: str,
    config: DreamerConfig | None = None,
    *,
    action_cost: float = 0.0,
    env_kwargs: tuple[str, ...] = (),
    decisions: int | None = None,
    episode: int = EPISODE,
    evaluation: Evaluation | None = None,
) -> TrainCell:
    """One method on one environment; with an `evaluation`, where episodes have no fixed length."""
    config = dreamer_config(method, scale) if config is None else config
    length = 10 if scale == "smoke" else episode
    run = RunConfig(
        env=env,
        env_kwargs=env_kwargs,
        action_cost=action_cost,
        episode_length=length if scale == "smoke" or evaluation is None else None,
        decisions=DECISIONS[scale] if decisions is None or scale == "smoke" else decisions,
        report_every=config.envs * (length + 1),  # a record more than decisions: the start
        seeds=SEEDS[scale],
    )
    options, names = list(env_kwargs), [option.partition("=")[2] for option in env_kwargs]
    if action_cost:
        options, names = [*options, f"K={action_cost}"], [*names, f"k{action_cost}"]
    task = "-".join([env.replace(":", "-").replace("_", "-").lower(), *names])
    return TrainCell(
        name=f"{task}/{method}",
        method=method,
        env=" ".join([env, *options]),
        run=run,
        config=config,
        algorithm="dreamer",
        metrics=METRICS if evaluation is None else (EARNED,),
        extra=learned,
        evaluation=evaluation,
        checkpoint_every=1 if scale == "smoke" else 10,
    )


@recorded_as("sombrl.experiments.dreamer.learned")
def learned(row: dict[str, Any]) -> dict[str, float]:
    """The metrics that only rows after the first update have."""
    return {name: row[name] for name in LEARNED if row.get(name) is not None}


# dreamer-proprio


def proprio_cells(scale: str) -> list[Cell]:
    """Both methods on every task."""
    if scale != "paper":
        return [dreamer_cell(method, "dmc:cartpole-swingup", scale) for method in METHODS]
    tasks = (
        *("cartpole-swingup", "cartpole-swingup_sparse", "finger-spin", "finger-turn_hard"),
        *("reacher-hard", "walker-walk", "walker-run"),
    )
    return [dreamer_cell(method, f"dmc:{task}", scale, decisions=100_000) for task in tasks for method in METHODS]


DREAMER_PROPRIO = Experiment(
    name="dreamer-proprio",
    summary="Dreamer-Optimistic against Dreamer, observations of vectors",
    figure="figure 8",
    cells=proprio_cells,
    draw=partial(draw_tiles, panel=RETURNS, looks=DREAMER_LOOKS, title="Dreamer on vectors", xlabel="frames"),
    headlines=(LAST_RETURNS, LAST_WEIGHT, LAST_SHARE),
)
"""Dreamer-Optimistic against Dreamer on vectors (figure 8 of the paper).

Differs from the paper: 200k frames instead of 500k at scale paper, four environments per seed.
"""

# dreamer-vision


def vision_cells(scale: str) -> list[Cell]:
    """Both methods on every task."""
    tasks = ["cartpole-swingup"]
    if scale == "paper":
        tasks += ["cartpole-swingup_sparse", "finger-spin", "finger-turn_hard", "reacher-hard", "walker-run"]
    decisions = 4000 if scale == "small" else None
    return [
        dreamer_cell(method, f"dmc-vision:{task}", scale, decisions=decisions) for task in tasks for method in METHODS
    ]


DREAMER_VISION = Experiment(
    name="dreamer-vision",
    summary="Dreamer-Optimistic against Dreamer, observations of 64 x 64 pixels",
    figure="figure 7",
    cells=vision_cells,
    draw=partial(draw_tiles, panel=RETURNS, looks=DREAMER_LOOKS, title="Dreamer from pixels", xlabel="frames"),
    headlines=(LAST_RETURNS, LAST_WEIGHT, LAST_SHARE),
)
"""Dreamer-Optimistic against Dreamer from pixels (figure 7 of the paper).

Differs from the paper: 100k frames instead of a million at scale paper, four environments per seed. On a machine
without a GPU, run scale smoke only.
"""

# dreamer-action-cost

COST_METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # the exploration of each, and its fields
    "optimistic": ("optimistic", {}),
    "norm": ("optimistic", {"sigma": "norm"}),
    "greedy": ("greedy", {}),
}
COST_LOOKS = DREAMER_LOOKS | {"norm": Look("Dreamer-Optimistic, norm of σ", COLORS[1], "--")}


def action_cost_cells(scale: str) -> list[Cell]:
    """Every method on every task, for every cost."""
    tasks, costs = ["dmc:cartpole-swingup"], [0.25]
    if scale == "paper":
        tasks += ["dmc:finger-spin", "dmc-vision:cartpole-swingup", "dmc-vision:finger-spin"]
        costs = [0.1, 0.25, 0.4]
    return [
        dreamer_cell(name, task, scale, dreamer_config(strategy, scale, fields), action_cost=cost)
        for task in tasks
        for cost in costs
        for name, (strategy, fields) in COST_METHODS.items()
    ]


DREAMER_ACTION_COST = Experiment(
    name="dreamer-action-cost",
    summary="Dreamer with a cost for every action: who still moves?",
    figure="figure 4, left; figure 9",
    cells=action_cost_cells,
    draw=partial(draw_action_costs, panel=RETURNS, looks=COST_LOOKS, title="Dreamer with action costs K‖u‖ per frame"),
    headlines=(LAST_RETURNS, Headline(RETURN, "seeds above 10", last=3, at_least=10.0), LAST_WEIGHT, LAST_SHARE),
)
"""Dreamer where actions cost something (figure 4, left, and figure 9 of the paper).

A cost K‖u‖₂ on every frame, u in physical units, on CartPole and Finger, from vectors and from pixels. Costs are part
of the return, so keeping still is worth 0. Dreamer-Optimistic with both readings of ‖σ‖: the mean over the latents, our
default, and the norm, which is √512 times larger or more at the same λ.

Differs from the paper, which does not print its K: these are the ones that the authors' published code names. Scale
small: CartPole from vectors with the middle K.
"""

# dreamer-atari

GAME_RETURN = "eval/ep_rew_mean"


def atari_cells(scale: str) -> list[Cell]:
    """Both methods on every game, evaluated by whole games: they have no fixed length."""
    fields: dict[str, Any] = {}
    setups: list[tuple[str, tuple[str, ...]]] = [("atari:Venture", ())]
    decisions, evaluation = 2000, Evaluation(1, explore=True)  # scale smoke has decisions of its own
    if scale == "paper":
        fields = {"envs": 1}
        setups += [(f"atari:{game}", ()) for game in ("Freeway", "MontezumaRevenge", "Frostbite")]
        setups.append(("atari:Venture", ("protocol=atari200m",)))
        # A game in which nothing happens takes 27000 decisions.
        decisions, evaluation = 100_000, Evaluation(3, every=40, explore=True)
    return [
        dreamer_cell(
            method,
            game,
            scale,
            dreamer_config(method, scale, **fields),
            env_kwargs=options,
            decisions=decisions,
            evaluation=evaluation,
        )
        for game, options in setups
        for method in METHODS
    ]


DREAMER_ATARI = Experiment(
    name="dreamer-atari",
    summary="Dreamer-Optimistic against Dreamer on Venture and other games that are hard to explore",
    figure="figure 7, Venture",
    cells=atari_cells,
    draw=partial(
        draw_tiles,
        panel=Panel(GAME_RETURN, "return of a game", x="env_frames"),
        looks=DREAMER_LOOKS,
        title="Dreamer on Atari",
        xlabel="frames",
    ),
    headlines=(
        Headline(GAME_RETURN, "return of a game"),
        Headline(EARNED, "reward per decision, exploring"),
        LAST_WEIGHT,
        LAST_SHARE,
    ),
)
"""Dreamer-Optimistic against Dreamer on games whose rewards are hard to find (figure 7 of the paper).

Venture first, on which DreamerV3 earns nothing in 200 million frames; then Freeway, Montezuma's Revenge and Frostbite.
Evaluated with sampled actions, as published.

Differs from the paper, which does not say how its Venture is set up: here the games are as in the Atari 100k benchmark
(64 x 64 pixels in colour, no sticky actions), with its budget of 100k decisions at scale paper. There Venture is also
as in the benchmark of 200 million frames (96 x 96 in grey, sticky actions), with its replay ratio and the same budget.
"""

# dreamer-lambda

LAMBDA_VARIANTS: dict[str, dict[str, Any]] = {
    "auto": {},
    "faster": {"bonus_weight_lr": 1e-4},
    "fastest": {"bonus_weight_lr": 3e-4},
    "constant": {"schedule": "constant"},
    "norm": {"sigma": "norm", "bonus_weight": 2.0 / math.sqrt(512)},
    "variance": {"sigma": "variance"},
}
LAMBDA_LOOKS = {
    "auto": Look("auto, learning rate 4e-5", DREAMER_LOOKS["optimistic"].color),
    "faster": Look("auto, 1e-4", COLORS[1]),
    "fastest": Look("auto, 3e-4", COLORS[2]),
    "constant": Look("constant λ", COLORS[3], "-."),
    "norm": Look("norm of σ", COLORS[4], "--"),
    "variance": Look("mean variance", COLORS[5], ":"),
}


def lambda_cells(scale: str) -> list[Cell]:
    """Every variant; at scale smoke two of them."""
    env = "dmc:cartpole-swingup_sparse" if scale == "paper" else "dmc:cartpole-swingup"
    names = ("auto", "faster") if scale == "smoke" else LAMBDA_VARIANTS
    configs = {name: dreamer_config("optimistic", scale, LAMBDA_VARIANTS[name]) for name in names}
    return [dreamer_cell(name, env, scale, config) for name, config in configs.items()]


DREAMER_LAMBDA = Experiment(
    name="dreamer-lambda",
    summary="learning rates of λ, and what σ is, in Dreamer-Optimistic",
    figure="beside the paper, no figure",
    cells=lambda_cells,
    draw=partial(
        draw_grid,
        panels=[RETURNS, Panel(WEIGHT, "λ", x="env_frames"), Panel(SIGMA, "σ on the replay", x="env_frames")],
        looks=LAMBDA_LOOKS,
        title="What drives λ in Dreamer-Optimistic",
        xlabel="frames",
    ),
    headlines=(LAST_RETURNS, LAST_WEIGHT, Headline(SIGMA, "last σ"), LAST_SHARE),
)
"""What drives λ in Dreamer-Optimistic, and what σ is (beside the paper).

The policy and its target policy differ so little that the term α λ decides: λ falls at the pace of its learning rate.
Three rates, a constant λ, and σ as the norm over all latents (as the paper writes; with λ smaller by √512) or as
the mean variance instead of the mean standard deviation. On sparse CartPole, from vectors.
"""
