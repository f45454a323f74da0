"""SimFSVGD-Optimistic: a model with a simulator as its prior, and a policy found inside it (section 6, appendix D.2).

`--prior` says which simulator; with `--prior none` the model is FSVGD, or (`--model.inference svgd|ensemble`) SVGD or a
deep ensemble. `--use grey-box` and `--use system-id` fit the simulator to the data instead. `--explore pets` is the
published greedy SimFSVGD, whose imagined cars are sampled anew at every step.

Not the authors' are three defaults of the model (`ParticleConfig`: measurement points from data, textbook repulsion,
priors that count fully), the search (`SEARCH_SAC`: fewer and larger updates) and the integrator (`prior_integrator`).
"""

import dataclasses
from typing import Annotated, Literal

import tyro
from annotated_types import Ge

from sombrl.algorithms.base import EPISODIC, NO_INFORMATION, ONE_POLICY, Algorithm, Parts, Preset
from sombrl.config.check import Configuration
from sombrl.controllers.initial_states import initial_states_of
from sombrl.controllers.policy_search import SEARCH_SAC, PolicySearch, PolicySearchConfig
from sombrl.controllers.sac_config import SACConfig
from sombrl.dynamics.base import AbstractLearner
from sombrl.dynamics.coordinates import AbstractCoordinates, Differences
from sombrl.dynamics.grey_box import GreyBoxConfig, GreyBoxLearner
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.rc_car_prior import GAP_STD, LIKELIHOOD_STD, CarBodyFrame, CarSimulator, CarWorldFrame
from sombrl.envs.base import ENDLESS, AbstractEnvs
from sombrl.envs.guards import require_vectors
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.rc_car import RCCar
from sombrl.exploration.config import ExploreConfig
from sombrl.records import SombrlError
from sombrl.settings import Setting


def _explore() -> ExploreConfig:
    """As published: λ from 0.5 to 0 within ten episodes, imagined cars moved by the mean and its noise."""
    return ExploreConfig(
        bonus_weight=0.5, schedule="linear", bonus_weight_end=0.0, bonus_weight_steps=10, imagine_by="noise"
    )


@dataclasses.dataclass(frozen=True)
class SimFSVGDConfig(Configuration):
    """Particles with a simulator as their prior, and soft actor-critic inside the model."""

    explore: Annotated[ExploreConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=_explore)
    prior: Literal["low-fidelity", "high-fidelity", "none"] = "low-fidelity"
    """The simulator: kinematic, with tyres, or none."""
    use: Literal["prior", "grey-box", "system-id"] = "prior"
    """As a prior; fitted to the data, with networks for the rest; or fitted and taken as exact (then σ = 0)."""
    prior_gap: bool = True
    """Allow for what the simulator lacks by the published GP on top of it (--model.additive-scales: by another)."""
    prior_integrator: Literal["rk4", "legacy"] = "rk4"
    """How the simulator integrates; legacy is the published one."""
    frame: Literal["world", "body"] = "world"
    """Coordinates of the car's model: as published; or relative to the car, which drives alike wherever it stands."""
    capacity: Annotated[int, Ge(1)] = 10_000
    """Transitions kept per seed; the oldest are overwritten."""
    start_from: str | None = None
    """Begin with what another run of this algorithm has learned, and with its data; or with data alone, of a run of
    another algorithm, a Minari dataset or an .npz. The environment must be the same (docs/offline.md)."""
    model: ParticleConfig = dataclasses.field(default_factory=ParticleConfig)
    system: GreyBoxConfig = dataclasses.field(default_factory=GreyBoxConfig)
    search: PolicySearchConfig = dataclasses.field(default_factory=PolicySearchConfig)
    sac: SACConfig = SEARCH_SAC

    def refuse_combinations(self) -> None:
        """A simulator that is there, and used."""
        if self.prior == "none" and self.use != "prior":
            raise SombrlError(f"--use {self.use} needs a simulator: add --prior low-fidelity or high-fidelity.")
        if self.prior != "none" and self.use == "prior" and self.model.inference != "fsvgd":
            raise SombrlError(
                f"--model.inference {self.model.inference} has a prior of weights, not a simulator: add --prior none."
            )


def build(config: SimFSVGDConfig, envs: AbstractEnvs, setting: Setting) -> Parts:
    """The parts for one environment and setting."""
    spec = envs.spec
    require_vectors(spec, "sim-fsvgd")
    if envs.task is None:
        raise SombrlError(
            f"sim-fsvgd searches for policies with a known reward, and that of {spec.name} is not known to sombrl: use "
            "one of its own worlds (`sombrl list envs`), or sombrl train mbpo, which learns rewards."
        )
    if setting.resets and ENDLESS > spec.episode_length > config.capacity:
        raise SombrlError(
            f"an episode of {spec.episode_length} decisions does not fit --capacity {config.capacity}: raise it."
        )
    return Parts(
        learner=_learner(config, envs),
        exploration=config.explore.build(setting, spec.obs_dim),
        controller=PolicySearch(spec.obs_dim, initial_states_of(envs), config.search, config.sac),
        capacity=config.capacity,
    )


def _learner(config: SimFSVGDConfig, envs: AbstractEnvs) -> AbstractLearner:
    """The model, with what is known of its world."""
    spec = envs.spec
    world = envs.world if isinstance(envs, JaxEnvs) else None
    if not isinstance(world, RCCar):
        if config.prior != "none":
            raise SombrlError(
                f"sombrl has a simulator as a prior for rc-car alone, not for {spec.name}: add --prior none (then it "
                "is FSVGD), or give ParticleLearner one of your own (docs/extending.md)."
            )
        if config.frame != "world":
            raise SombrlError(f"--frame body is for rc-car; {spec.name} has only --frame world.")
        coordinates: AbstractCoordinates = Differences(spec.obs_dim, spec.action_dim)
        return ParticleLearner(coordinates, config.model)
    if spec.action_repeat != 1:
        raise SombrlError("the car's simulator knows decisions of one frame: leave out --action-repeat.")
    frame = (CarWorldFrame if config.frame == "world" else CarBodyFrame)(past=world.delay)
    fidelity = "high" if config.prior == "high-fidelity" else "low"
    simulator = CarSimulator(fidelity, world.car, config.prior_integrator, frame)
    model = config.model
    if model.additive_scales is None and config.prior_gap:
        scales = tuple(float(scale) for scale in frame.per_target(GAP_STD[fidelity]))
        model = dataclasses.replace(model, additive_scales=scales)
    noise_std = frame.per_target(LIKELIHOOD_STD)
    if config.use != "prior":
        system = dataclasses.replace(config.system, residual=config.use == "grey-box")
        return GreyBoxLearner(frame, simulator, system, config.model, noise_std=noise_std)
    if config.prior == "none":  # the units and the domain are still those of a car
        return ParticleLearner(frame, config.model, noise_std=noise_std, domain_of=simulator)
    return ParticleLearner(frame, model, simulator, noise_std=noise_std)


HALLUCINATED = "drives with hallucinated controls, which the policies of sim-fsvgd have not: use --explore optimistic."

AUTHORS: Preset = {
    "prior_integrator": "legacy",
    "model.neighbourhood_share": 0.0,
    "model.visited_share": 0.0,
    "model.repulsion": "legacy",
    "model.prior_scaling": "legacy",
    "model.draw_additive": True,
    "search.rounds": 247,
    "search.rollouts": 128,
    "search.updates": 2048,
    "search.horizon": 64,
    "search.judged_rollouts": 256,
    "search.judged_horizon": 128,
    "sac.batch_size": 64,
    "sac.actor_lr": 3e-4,
    "sac.critic_lr": 3e-4,
    "sac.temperature_lr": 3e-4,
    "sac.target_entropy_factor": 0.5,
    "sac.learning_starts": 2048,
    "episodes": 20,
    "episode_length": 100,
}
"""What their experiments ran with. It is slow: an update of the policy for every imagined decision."""


SIM_FSVGD = Algorithm(
    "sim-fsvgd",
    SimFSVGDConfig,
    build,
    "particles with a simulator as prior, and a policy found inside the model",
    lacks={
        **EPISODIC,
        **NO_INFORMATION,
        **ONE_POLICY,
        "schedule=auto": "is for policies that learn at every decision (mbpo): use linear or constant.",
        "explore=hucrl": HALLUCINATED,
        "explore=neorl": HALLUCINATED,
    },
    presets={"authors": AUTHORS},
)
