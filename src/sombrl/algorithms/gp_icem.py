"""GP dynamics planned with iCEM: the paper's "Application of SOMBRL with GP dynamics" (section 5.3, appendix D.4)."""

import dataclasses
import math
from typing import Annotated, Literal

import tyro
from annotated_types import Ge

from sombrl.algorithms.base import EPISODIC, ONE_POLICY, Algorithm, Parts, Preset, windowed
from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice, Before
from sombrl.controllers.base import AbstractController
from sombrl.controllers.horizon_value import HorizonValueConfig
from sombrl.controllers.icem import ICEM, PRESET_FIELDS, ICEMConfig, cem
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
from sombrl.training.safety import SafetyConfig


def _icem() -> ICEMConfig:
    """Wide and slowly changing noise: long pushes, which sluggish systems need."""
    return ICEMConfig(noise_exponent=2.0, init_std=1.0)


def _explore() -> ExploreConfig:
    """λ is a tenth of the range of the rewards seen so far, for tasks of any scale."""
    return ExploreConfig(bonus_weight=0.1, bonus_weight_units="range")


@dataclasses.dataclass(frozen=True)
class GPICEMConfig(Configuration):
    """Gaussian-process dynamics of bounded rank, model-predictive control with iCEM."""

    explore: Annotated[ExploreConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=_explore)
    model: Literal["gp", "true"] = "gp"
    """What is planned with. true: sombrl's own world itself, nothing learned; its return is the reference J(π*)."""
    reward: Literal["auto", "known", "learned"] = "auto"
    """Plan with the environment's own reward and termination, or with learned ones; auto: known where it is."""
    start_point: Annotated[bool, Before(False)] = False
    """Begin with one point of data, as the authors' GP script does: without an action the first state stays as it is.
    For tasks that start at rest."""
    controller: Literal["icem", "cem", "mppi"] = "icem"
    """The planner. cem is icem without its improvements."""
    horizon_value: Annotated[Literal["fitted", "none"], Before("none")] = "fitted"
    """What a plan is worth beyond its horizon: a value that is fitted inside the model (--value.*), or nothing."""
    start_from: str | None = None
    """Begin with what another run of this algorithm has learned, and with its data; or with data alone, of a run of
    another algorithm, a Minari dataset or an .npz. The environment must be the same (docs/offline.md)."""
    gp: GPConfig = dataclasses.field(default_factory=GPConfig)
    icem: ICEMConfig = dataclasses.field(default_factory=_icem)
    mppi: MPPIConfig = dataclasses.field(default_factory=MPPIConfig)
    value: HorizonValueConfig = dataclasses.field(default_factory=HorizonValueConfig)
    replay_window: Annotated[int, Ge(1), Advice("leave it out to learn from everything that is kept")] | None = None
    """Learn from the last so many transitions alone, for a world that drifts (SW-OMBRL)."""
    safety: SafetyConfig = dataclasses.field(default_factory=SafetyConfig)


def build(config: GPICEMConfig, envs: AbstractEnvs, setting: Setting) -> Parts:
    """The parts for one environment and setting."""
    spec, task = envs.spec, envs.task
    require_vectors(spec, "gp-icem")
    if config.reward == "known" and task is None:
        raise SombrlError(f"the reward of {spec.name} is not known to sombrl: use --reward learned (or auto).")
    capacity = windowed(config.gp.capacity, config.replay_window, "--gp.capacity")
    if ENDLESS > spec.episode_length > config.gp.capacity:
        raise SombrlError(
            f"an episode of {spec.episode_length} decisions does not fit the GP's capacity of {config.gp.capacity}: "
            "raise --gp.capacity, or shorten the episode with --episode-length or --action-repeat."
        )
    learn_task = config.reward == "learned" or task is None
    safety = config.safety.build(envs, setting, config.explore)
    learns_cost = safety is not None and safety.learned
    learner: AbstractLearner = GPLearner(spec.obs_dim, spec.action_dim, learn_task, config.gp, learns_cost)
    if config.model == "true":
        if learns_cost:
            raise SombrlError("--model true learns nothing, and so no cost: use --safety.cost-model known.")
        if not isinstance(envs, JaxEnvs) or task is None:
            raise SombrlError(
                f"--model true needs one of sombrl's own worlds (`sombrl list envs`): {spec.name} is not one."
            )
        learner = TrueLearner(envs.world, spec.action_repeat)
    if config.explore.schedule == "theoretical" and config.gp.kernel == "linear":
        raise SombrlError("--schedule theoretical needs a bounded kernel: use --gp.kernel rbf or matern52.")
    return Parts(
        learner=learner,
        exploration=config.explore.build(setting, spec.obs_dim),
        controller=_controller(config, setting, spec.obs_dim, spec.action_dim),
        capacity=capacity,
        safety=safety,
        random_episodes=0 if config.model == "true" else 1,
        start_point=config.start_point,
    )


def _controller(config: GPICEMConfig, setting: Setting, obs_dim: int, action_dim: int) -> AbstractController:
    value = config.value.build(setting, obs_dim, action_dim) if config.horizon_value == "fitted" else None
    match config.controller:
        case "icem":
            return ICEM(config.icem, value)
        case "cem":
            return cem(config.icem, value)
        case _:
            return MPPI(config.mppi, value)


PAPER: Preset = {
    "icem.noise_exponent": 0.25,
    "icem.init_std": 0.5,
    "random_episodes": 0,
    "bonus_weight": 10.0,
    "bonus_weight_units": "reward",
    "horizon_value": "none",
    "gp.least_action": 0.0,
}
"""The paper's λ and plain plans, with this library's GP and search: what the defaults were before version 0.2."""
AUTHORS: Preset = {
    **PAPER,
    **PRESET_FIELDS["pendulum"],
    "gp.lengthscale": 0.49,  # softplus(N(0, 1)) has its centre at 0.693, and their kernel lacks the factor 1/2
    "gp.lengthscale_prior_std": math.inf,
    "gp.noise_std": 0.0316,
    "gp.fit_points": 2048,
    "gp.fit_steps": 2000,
    "gp.fit_learning_rate": 0.01,
    "gp.rank": 512,
}
"""Their non-episodic code on Pendulum, as far as options reach. It is slow: the likelihood of all data, many steps."""


GP_ICEM = Algorithm(
    "gp-icem",
    GPICEMConfig,
    build,
    "GP dynamics of bounded rank, planned with iCEM (small state spaces)",
    lacks={
        **EPISODIC,
        **ONE_POLICY,
        "schedule=auto": "tunes λ against a policy, and a planner has none: use --schedule constant.",
    },
    presets={**PRESET_FIELDS, "paper": PAPER, "authors": AUTHORS},
)
