"""MBPO-Optimistic and its family: SAC on real and imagined transitions of an ensemble (section 5.3, appendix D.2).

`--explore` decides which of the family it is: optimistic, greedy (MBPO-Mean) or pets (MBPO-PETS). With
`--controller sac-mppi` the policy is learned in the same way, and decisions are short plans that begin with it and end
in its critics. With `--controller icem` there is no policy: the ensemble is planned with, as PETS does.

MBPO-PETS draws a member for every row of a batch; the authors' code draws one for a whole batch. MBPO-Optimistic and
MBPO-Mean imagine by the mean alone; the authors' code adds noise of 1e-3, as `--imagine-by noise` does.
"""

import dataclasses
from typing import Annotated, Literal

import tyro
from annotated_types import Ge

from sombrl.algorithms.base import NO_INFORMATION, Algorithm, Parts, Preset, windowed
from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice, Before
from sombrl.controllers.base import AbstractController
from sombrl.controllers.decoupled import Decoupled
from sombrl.controllers.horizon_value import HorizonValueConfig
from sombrl.controllers.icem import ICEM, PRESET_FIELDS, ICEMConfig
from sombrl.controllers.planned_policy import PlanConfig, PlannedPolicy
from sombrl.controllers.sac import SAC
from sombrl.controllers.sac_config import STRONG_NETWORKS, SACConfig
from sombrl.controllers.shield import Shield
from sombrl.dynamics.ensemble import EnsembleConfig, EnsembleLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.guards import require_vectors
from sombrl.exploration.config import ExploreConfig
from sombrl.records import SombrlError
from sombrl.settings import Setting
from sombrl.training.safety import SafetyConfig


def _explore() -> ExploreConfig:
    """The authors' MBPO: the mean of the members' disagreement, and a λ that starts at 1 and tunes itself."""
    return ExploreConfig(bonus_weight=1.0, schedule="auto", bonus="mean")


STRONG: Preset = {
    **STRONG_NETWORKS,
    "sac.mix": "half",
    "sac.imagined_action": "policy",
    "sac.imagined_weight": "certainty",
    "sac.bonus_rows": 64,
    "ensemble.steps_per_fit": 1,
}
"""The defaults of an agent that learns a policy, by the names of the settings: normalised networks with one critic, two
updates of critic and actor per decision and one of the ensemble, half of every batch imagined with the policy's own
action."""


def _sac() -> SACConfig:
    values = {name.removeprefix("sac."): value for name, value in STRONG.items() if name.startswith("sac.")}
    return SACConfig(**values)


PAPER_ENSEMBLE = EnsembleConfig(soft_reset_every=500_000)
PAPER: Preset = {
    **{name: getattr(SACConfig(), name.removeprefix("sac.")) for name in STRONG if name.startswith("sac.")},
    "ensemble.steps_per_fit": PAPER_ENSEMBLE.steps_per_fit,
    "horizon_value": "none",
}
"""The networks, batches and updates of the published code: what the defaults were before version 0.2."""


@dataclasses.dataclass(frozen=True)
class MBPOConfig(Configuration):
    """An ensemble of neural networks, and a policy that learns from it and from the world."""

    explore: Annotated[ExploreConfig, tyro.conf.arg(name="")] = dataclasses.field(default_factory=_explore)
    controller: Literal["sac", "sac-mppi", "sac-icem", "icem", "mppi"] = "sac"
    """Learn a policy and act by it (sac: MBPO), or by short plans around it (sac-mppi, in short mppi; sac-icem;
    --plan.*); or plan alone (icem: PETS)."""
    horizon_value: Annotated[Literal["fitted", "none"], Before("none")] = "fitted"
    """icem: what a plan is worth beyond its horizon. A value that is fitted inside the model (--value.*), or
    nothing."""
    capacity: Annotated[int, Ge(1)] = 1_000_000
    """Transitions kept per seed; the oldest are overwritten."""
    start_from: str | None = None
    """Begin with what another run of this algorithm has learned, and with its data; or with data alone, of a run of
    another algorithm, a Minari dataset or an .npz. The environment must be the same (docs/offline.md)."""
    ensemble: EnsembleConfig = dataclasses.field(
        default_factory=lambda: dataclasses.replace(PAPER_ENSEMBLE, steps_per_fit=None)
    )
    sac: SACConfig = dataclasses.field(default_factory=_sac)
    icem: ICEMConfig = dataclasses.field(default_factory=ICEMConfig)
    value: HorizonValueConfig = dataclasses.field(default_factory=HorizonValueConfig)
    plan: PlanConfig = dataclasses.field(default_factory=PlanConfig)
    replay_window: Annotated[int, Ge(1), Advice("leave it out to learn from everything that is kept")] | None = None
    """Learn from the last so many transitions alone, for a world that drifts (SW-OMBRL)."""
    safety: SafetyConfig = dataclasses.field(default_factory=SafetyConfig)


def build(config: MBPOConfig, envs: AbstractEnvs, setting: Setting) -> Parts:
    """The parts for one environment and setting."""
    spec, planning = envs.spec, config.controller == "icem"
    require_vectors(spec, "mbpo")
    if planning and config.explore.tuned:
        raise SombrlError(
            f"--schedule {config.explore.schedule} tunes λ against a policy, and a planner has none: use --schedule "
            "constant."
        )
    if not planning and config.explore.bonus_weight_units == "range":
        raise SombrlError(
            "--bonus-weight-units range is for planners; mbpo divides the bonus by its own spread instead: leave it "
            "out, or add --controller icem."
        )
    steps = config.ensemble.steps_per_fit
    if planning:  # the steps of a whole chunk at once
        steps = (5 if steps is None else steps) * setting.longest
    ensemble = dataclasses.replace(config.ensemble, steps_per_fit=1 if steps is None else steps)
    value = config.value.build(setting, spec.obs_dim, spec.action_dim) if config.horizon_value == "fitted" else None
    capacity = windowed(config.capacity, config.replay_window, "--capacity")
    if not planning and capacity < config.sac.learning_starts:
        raise SombrlError(
            f"--replay-window {capacity} never holds the {config.sac.learning_starts} transitions that a policy begins "
            "to learn with: raise it, or lower --sac.learning-starts."
        )
    safety = config.safety.build(envs, setting, config.explore)
    sac = SAC(spec.obs_dim, tuned(config.sac, config.explore))
    if config.explore.schedule == "decoupled" and config.explore.explore == "pessimistic":
        raise SombrlError(
            "--schedule decoupled has a policy for the bonus, and pessimism pays none: use --schedule constant or "
            "calibrated."
        )
    decoupled = config.explore.schedule == "decoupled" and config.explore.explore == "optimistic"
    if decoupled and config.controller != "sac":
        raise SombrlError("--schedule decoupled learns two policies and acts by them alone: use --controller sac.")
    if decoupled and safety is not None and safety.constrains:
        raise SombrlError("--schedule decoupled has no shield around its two policies: use --schedule auto here.")
    if decoupled and not setting.resets:
        raise SombrlError("--schedule decoupled: its policies take turns by episodes, so use --schedule auto here.")
    plans: dict[str, AbstractController] = {
        "none": sac,
        "mppi": PlannedPolicy(sac, config.plan, "mppi"),
        "icem": PlannedPolicy(sac, config.plan, "icem"),
    }
    if safety is not None and safety.constrains:
        plans = {name: Shield.around(plan, config.safety.horizon, ahead=sac) for name, plan in plans.items()}
    name = "none" if config.controller == "sac" else config.controller.removeprefix("sac-")
    return Parts(
        learner=EnsembleLearner(
            spec.obs_dim, spec.action_dim, True, ensemble, learn_cost=safety is not None and safety.learned
        ),
        exploration=config.explore.build(setting, spec.obs_dim),
        controller=ICEM(config.icem, value) if planning else Decoupled(sac) if decoupled else plans[name],
        capacity=capacity,
        safety=safety,
        online=not planning,
        plans={} if planning or decoupled else plans,
    )


def tuned(sac: SACConfig, explore: ExploreConfig) -> SACConfig:
    """λ tunes itself only where the schedule says so; that of a penalty is in units of reward."""
    if explore.explore == "pessimistic":
        return dataclasses.replace(sac, bonus_weight_lr=0.0, bonus_scale="none")
    return sac if explore.tuned else dataclasses.replace(sac, bonus_weight_lr=0.0)


MBPO = Algorithm(
    "mbpo",
    MBPOConfig,
    build,
    "an ensemble and a policy that learns from it (SAC), or plans in it (iCEM)",
    lacks=NO_INFORMATION,
    presets={
        **PRESET_FIELDS,
        "paper": PAPER,
        "authors": {**PAPER, "imagine_by": "noise"},
        "strong": STRONG,
    },
)
