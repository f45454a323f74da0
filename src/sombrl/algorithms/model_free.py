"""SAC and MaxInfoSAC: the policy of MBPO with real data alone, without a model or with one for the bonus only."""

import dataclasses
from typing import Annotated

import tyro
from annotated_types import Ge

from sombrl.algorithms.base import NO_INFORMATION, NO_OFFLINE, ONE_POLICY, Algorithm, Parts
from sombrl.algorithms.mbpo import tuned
from sombrl.config.check import Configuration
from sombrl.config.kinds import kinds_of
from sombrl.controllers.sac import SAC
from sombrl.controllers.sac_config import MODEL_FREE, STRONG_NETWORKS, SACConfig
from sombrl.dynamics.ensemble import EnsembleConfig, EnsembleLearner
from sombrl.dynamics.none import NoLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.guards import require_vectors
from sombrl.exploration.config import ExploreConfig
from sombrl.exploration.strategies import NONEPISODIC_NAMES, STRATEGIES
from sombrl.records import SombrlError
from sombrl.settings import Setting


def _task_alone() -> ExploreConfig:
    return ExploreConfig(explore="greedy")


def _information() -> ExploreConfig:
    return ExploreConfig(bonus_weight=1.0, schedule="auto", bonus="mean-information-gain")


@dataclasses.dataclass(frozen=True)
class SACAlgorithmConfig(Configuration):
    """Soft actor-critic."""

    explore: Annotated[ExploreConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=_task_alone)
    capacity: Annotated[int, Ge(1)] = 1_000_000
    """Transitions kept per seed; the oldest are overwritten."""
    sac: SACConfig = MODEL_FREE


@dataclasses.dataclass(frozen=True)
class MaxInfoSACConfig(Configuration):
    """Soft actor-critic with a bonus for information about the dynamics (Sukhija et al., 2025)."""

    explore: Annotated[ExploreConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=_information)
    capacity: Annotated[int, Ge(1)] = 1_000_000
    """Transitions kept per seed; the oldest are overwritten."""
    ensemble: EnsembleConfig = dataclasses.field(
        default_factory=lambda: EnsembleConfig(steps_per_fit=1, gradient_clip=None, soft_reset_every=None)
    )
    sac: SACConfig = MODEL_FREE


def build_sac(config: SACAlgorithmConfig, envs: AbstractEnvs, setting: Setting) -> Parts:
    """A policy and no model."""
    require_vectors(envs.spec, "sac")
    _require_real(config.sac, "sac")
    return Parts(
        learner=NoLearner(envs.spec.obs_dim),
        exploration=config.explore.build(setting, envs.spec.obs_dim),
        controller=SAC(envs.spec.obs_dim, config.sac),
        capacity=config.capacity,
        online=True,
    )


def build_maxinfo_sac(config: MaxInfoSACConfig, envs: AbstractEnvs, setting: Setting) -> Parts:
    """A policy, and an ensemble that is only asked how much it disagrees."""
    require_vectors(envs.spec, "maxinfo-sac")
    _require_real(config.sac, "maxinfo-sac")
    spec = envs.spec
    return Parts(
        learner=EnsembleLearner(spec.obs_dim, spec.action_dim, True, config.ensemble),
        exploration=config.explore.build(setting, spec.obs_dim),
        controller=SAC(spec.obs_dim, tuned(config.sac, config.explore)),
        capacity=config.capacity,
        online=True,
    )


def _require_real(sac: SACConfig, name: str) -> None:
    if sac.imagined != "none":
        raise SombrlError(f"{name} is model-free: leave --sac.imagined none, or use sombrl train mbpo.")
    if sac.expansion:
        raise SombrlError(
            f"{name} is model-free: leave --sac.critic-expansion and --sac.actor-expansion 0, or use sombrl train mbpo."
        )


NO_MODEL = (
    "cannot be: sac has no model to be uncertain about, so use sombrl train maxinfo-sac or mbpo, or --explore greedy."
)
NO_BONUS = "does nothing in sac, which explores by its entropy alone: leave it out, or use sombrl train maxinfo-sac."
NOT_IMAGINED = {
    f"sac.{name}": "is about data that a model imagines, and model-free algorithms have none: leave it out, or use "
    "sombrl train mbpo."
    for name in ("imagined_action", "imagined_weight", "rollout_length", "rollout_stop", "mix", "real_every")
}
"""What an algorithm lacks that learns from real data alone."""

NO_PLAN = {"stop_when_gap": "compares two plans, and model-free algorithms make none: leave it out."}

SAC_ALGORITHM = Algorithm(
    "sac",
    SACAlgorithmConfig,
    build_sac,
    "soft actor-critic, model-free",
    lacks={
        **NO_INFORMATION,
        **{
            f"explore={name}": NO_MODEL
            for name in (*STRATEGIES, *NONEPISODIC_NAMES)
            if name not in ("greedy", "nemean")
        },
        **{name: NO_BONUS for name in kinds_of(ExploreConfig) if name not in ("explore", "theory")},
        **{f"sac.{name}": NO_BONUS for name in ("bonus_weight_lr", "bonus_enters", "bonus_scale", "bonus_rows")},
        **NOT_IMAGINED,
        **NO_PLAN,
        "record_bounds": "is about what a model expects, and sac has none: leave it out, or use sombrl train mbpo.",
        **{name: why for name, why in NO_OFFLINE.items() if "=" not in name},
    },
    presets={"strong": STRONG_NETWORKS},
)
MAXINFO_SAC = Algorithm(
    "maxinfo-sac",
    MaxInfoSACConfig,
    build_maxinfo_sac,
    "soft actor-critic with a bonus for information, model-free",
    lacks={
        **NO_INFORMATION,
        **ONE_POLICY,
        **NOT_IMAGINED,
        **NO_PLAN,
        **NO_OFFLINE,
        "explore=pessimistic": "is for learning from data in a model: use sombrl train mbpo.",
        "bonus_weight_units=range": "is for planners; maxinfo-sac divides the bonus by its own spread instead: leave "
        "it out.",
    },
    presets={"strong": STRONG_NETWORKS},
)
