"""GP dynamics planned with iCEM: the paper's "Application of SOMBRL with GP dynamics" (section 5.3, appendix D.4)."""

import dataclasses
from typing import Annotated, Literal

import tyro

from sombrl.algorithms.base import EPISODIC, Algorithm, Parts
from sombrl.config.check import Configuration
from sombrl.controllers.base import AbstractController
from sombrl.controllers.icem import ICEM, ICEMConfig, cem
from sombrl.controllers.mppi import MPPI, MPPIConfig
from sombrl.dynamics.base import AbstractLearner
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.dynamics.true import TrueLearner
from sombrl.envs.base import ENDLESS, AbstractEnvs
from sombrl.envs.guards import require_vectors
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.exploration.config import ExploreConfig
from sombrl.records import SombrlError
from sombrl.settings import Setting


@dataclasses.dataclass(frozen=True)
class GPICEMConfig(Configuration):
    """Gaussian-process dynamics of bounded rank, model-predictive control with iCEM."""

    explore: Annotated[ExploreConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=ExploreConfig)
    model: Literal["gp", "true"] = "gp"
    """What is planned with. true: sombrl's own world itself, nothing learned; its return is the reference J(π*)."""
    reward: Literal["auto", "known", "learned"] = "auto"
    """Plan with the environment's own reward and termination, or with learned ones; auto: known where it is."""
    controller: Literal["icem", "cem", "mppi"] = "icem"
    """The planner. cem is icem without its improvements."""
    gp: GPConfig = dataclasses.field(default_factory=GPConfig)
    icem: ICEMConfig = dataclasses.field(default_factory=ICEMConfig)
    mppi: MPPIConfig = dataclasses.field(default_factory=MPPIConfig)


def build(config: GPICEMConfig, envs: AbstractEnvs, setting: Setting) -> Parts:
    """The parts for one environment and setting."""
    spec, task = envs.spec, envs.task
    require_vectors(spec, "gp-icem")
    if config.reward == "known" and task is None:
        raise SombrlError(f"the reward of {spec.name} is not known to sombrl: use --reward learned (or auto).")
    if ENDLESS > spec.episode_length > config.gp.capacity:
        raise SombrlError(
            f"an episode of {spec.episode_length} decisions does not fit the GP's capacity of {config.gp.capacity}: "
            "raise --gp.capacity, or shorten the episode with --episode-length or --action-repeat."
        )
    learn_task = config.reward == "learned" or task is None
    learner: AbstractLearner = GPLearner(spec.obs_dim, spec.action_dim, learn_task, config.gp)
    if config.model == "true":
        if not isinstance(envs, JaxEnvs):
            raise SombrlError(
                f"--model true needs one of sombrl's own worlds (`sombrl list envs`): {spec.name} is not one."
            )
        learner = TrueLearner(envs.world, spec.action_repeat)
    if config.explore.schedule == "theoretical" and config.gp.kernel == "linear":
        raise SombrlError("--schedule theoretical needs a bounded kernel: use --gp.kernel rbf or matern52.")
    return Parts(
        learner=learner,
        exploration=config.explore.build(setting, spec.obs_dim),
        controller=_controller(config),
        capacity=config.gp.capacity,
    )


def _controller(config: GPICEMConfig) -> AbstractController:
    match config.controller:
        case "icem":
            return ICEM(config.icem)
        case "cem":
            return cem(config.icem)
        case _:
            return MPPI(config.mppi)


GP_ICEM = Algorithm(
    "gp-icem",
    GPICEMConfig,
    build,
    "GP dynamics of bounded rank, planned with iCEM (small state spaces)",
    lacks={**EPISODIC, "schedule=auto": "tunes λ against a policy, and a planner has none: use --schedule constant."},
)
