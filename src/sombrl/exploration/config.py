"""The exploration flags, the same for every algorithm."""

import dataclasses
from typing import Annotated, Literal

import tyro
from annotated_types import Ge

from sombrl.config.check import Configuration
from sombrl.config.kinds import Before, OneOf
from sombrl.exploration.base import AbstractBonus, AbstractPropagation, Exploration
from sombrl.exploration.bonus import EpistemicMean, EpistemicNorm, InformationGain, MeanInformationGain, Units
from sombrl.exploration.propagation import Mean, NoisyMean, Resampled
from sombrl.exploration.strategies import (
    NONEPISODIC_NAMES,
    STRATEGIES,
    greedy,
    hucrl,
    optimistic,
    pessimistic,
    pets,
    thompson,
    unsupervised,
)
from sombrl.exploration.weight import AbstractWeight, Constant, Exponential, Linear, TheoryConfig, theoretical
from sombrl.records import SombrlError
from sombrl.settings import Setting


@dataclasses.dataclass(frozen=True)
class ExploreConfig(Configuration):
    """How to explore."""

    explore: Annotated[str, OneOf.of(STRATEGIES, NONEPISODIC_NAMES), tyro.conf.arg(metavar="|".join(STRATEGIES))] = (
        "optimistic"
    )
    """See `sombrl list explorations`."""
    bonus_weight: Annotated[float, Ge(0)] = 10.0
    """λ, per decision and unit of ‖σ‖. The paper's GP experiments have 10. Where a policy learns at every decision the
    bonus is divided by its spread, and λ is in units of value; the penalty of pessimistic is not."""
    bonus_weight_units: Annotated[Literal["reward", "range"], Before("reward")] = "reward"
    """Units of λ. reward: reward per decision. range (planners): the range of the rewards seen so far, which fits tasks
    of all scales; 100 times as much while nothing was found that pays more than doing nothing. The theoretical λ is in
    reward."""
    schedule: Literal["constant", "linear", "exponential", "theoretical", "auto", "decoupled", "calibrated"] = (
        "constant"
    )
    """How λₙ changes. Not at all; on its way to bonus_weight_end; from the theorems (--theory.*); tuned from
    bonus_weight on, so that the policy's bonus matches that of its target (EMA) policy; or (decoupled, mbpo) tuned so
    for a second policy, which takes turns with one for the task alone. calibrated (--offline): the smallest λ with
    which the model's returns on held-out data err by at most λΣσ, nine times in ten; what auto means for pessimistic
    offline."""
    bonus_weight_end: Annotated[float, Ge(0)] | None = None
    """Linear, exponential: where λ ends."""
    bonus_weight_steps: Annotated[int, Ge(1)] = 10
    """Linear, exponential: λ ends after so many iterations; for algorithms that learn at every decision (mbpo, sac,
    maxinfo-sac), after so many decisions."""
    bonus: Literal["norm", "mean", "information-gain", "mean-information-gain"] = "norm"
    """‖σ‖; the mean of σ, the learned reward's included; Σ log(1 + σ²/noise²) (OPAX); or its mean (MaxInfoRL)."""
    sigma_units: Units = "normalised"
    """Units of σ in the norm: divided by the spread of the training targets, or physical."""
    imagine_by: Literal["mean", "noise", "samples"] = "mean"
    """How imagined states move for greedy, optimistic and unsupervised: by the mean; by the mean plus the model's noise
    (as the paper defines its objective); or by samples of the posterior, as pets always does. Planners need particles
    for the last two, so they cost as much as pets."""
    beta: Annotated[float, Ge(0)] = 2.0
    """hucrl: the planner chooses the most favourable dynamics within ± this many standard deviations."""
    theory: TheoryConfig = dataclasses.field(default_factory=TheoryConfig)

    def refuse_combinations(self) -> None:
        """The schedules need an end, or have none; two of them have more to ask."""
        moving = self.schedule in ("linear", "exponential")
        if moving and self.bonus_weight_end is None:
            raise SombrlError(f"--schedule {self.schedule} needs --bonus-weight-end.")
        if not moving and self.bonus_weight_end is not None:
            raise SombrlError(
                f"--bonus-weight-end does nothing with --schedule {self.schedule}: use linear or exponential, or add "
                "--bonus-weight-end None."
            )
        if self.schedule == "exponential" and not (self.bonus_weight > 0 and (self.bonus_weight_end or 0.0) > 0):
            raise SombrlError("--schedule exponential never gets to or from 0: give positive weights, or use linear.")
        if self.schedule == "theoretical" and (self.bonus != "norm" or self.sigma_units != "normalised"):
            raise SombrlError(
                "--schedule theoretical is about ‖σ‖ in normalised units: use --bonus norm --sigma-units normalised."
            )

    @property
    def relative(self) -> bool:
        """Whether λ is a share of the range of the rewards; the theorems and held-out data have it in reward."""
        return self.bonus_weight_units == "range" and self.schedule not in ("theoretical", "calibrated")

    @property
    def tuned(self) -> bool:
        """Whether λ is learned beside the policy."""
        return self.schedule in ("auto", "decoupled") and self.explore != "pessimistic"

    @property
    def calibrated(self) -> bool:
        """Whether held-out data say what λ is."""
        pays = self.explore in ("optimistic", "pessimistic")
        return pays and (self.schedule == "calibrated" or (self.schedule == "auto" and not self.tuned))

    def build(self, setting: Setting, state_dim: int) -> Exploration:
        """The strategy, for a setting and a number of coordinates (the theoretical λ depends on both)."""
        bonuses: dict[str, AbstractBonus] = {
            "norm": EpistemicNorm(self.sigma_units),
            "mean": EpistemicMean(),
            "information-gain": InformationGain(),
            "mean-information-gain": MeanInformationGain(),
        }
        bonus = bonuses[self.bonus]
        if self.explore in NONEPISODIC_NAMES and setting.resets:
            plain = NONEPISODIC_NAMES[self.explore]
            raise SombrlError(
                f"{self.explore} is {plain} on a trajectory that is never reset: add --setting non-episodic, or use "
                f"--explore {plain}."
            )
        match NONEPISODIC_NAMES.get(self.explore, self.explore):
            case "optimistic":
                strategy = optimistic(self._weight(setting, state_dim), bonus)
                return self._moved(dataclasses.replace(strategy, relative=self.relative, calibrated=self.calibrated))
            case "pessimistic":
                strategy = pessimistic(self._weight(setting, state_dim), bonus)
                return self._moved(dataclasses.replace(strategy, relative=self.relative, calibrated=self.calibrated))
            case "unsupervised":
                return self._moved(unsupervised(bonus))
            case "hucrl":
                return hucrl(self.beta)
            case "pets":
                return pets()
            case "thompson":
                return thompson()
            case _:
                return self._moved(greedy())

    def _moved(self, strategy: Exploration) -> Exploration:
        """A strategy of the mean, with imagined states that move as `imagine_by` says."""
        moves: dict[str, AbstractPropagation] = {"mean": Mean(), "noise": NoisyMean(), "samples": Resampled()}
        return dataclasses.replace(strategy, propagation=moves[self.imagine_by])

    def _weight(self, setting: Setting, state_dim: int) -> AbstractWeight:
        """λₙ."""
        match self.schedule:
            case "linear":
                return Linear(self.bonus_weight, self.bonus_weight_end or 0.0, self.bonus_weight_steps)
            case "exponential":
                return Exponential(self.bonus_weight, self.bonus_weight_end or 0.0, self.bonus_weight_steps)
            case "theoretical":
                return theoretical(setting, self.theory, state_dim)
            case _:
                return Constant(self.bonus_weight)
