"""What the Dreamer experiments share: the methods, the tasks, and how large they are at each scale.

Scale `paper` has the 12-million model and the published replay ratio, three seeds, and a GPU in mind; its budgets are
ours, a tenth to a fifth of the published frames. Returns are those of training episodes, with sampled actions, as
published. A report is as long as an episode of every environment. Scale `small` is for two CPU cores: two seeds, the
1-million model, an eighth of the replay, environments of vectors alone. Its curves are an impression.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from sombrl.config.run import RunConfig
from sombrl.dreamer.config import DreamerConfig
from sombrl.paper.experiments.base import SCALES, Evaluation, TrainCell
from sombrl.paper.experiments.figures import Look, Panel
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


def learned(row: dict[str, Any]) -> dict[str, float]:
    """What only rows have in which something was learned."""
    return {name: row[name] for name in LEARNED if row.get(name) is not None}
