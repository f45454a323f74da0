"""The exploration flags, the same for every algorithm."""

import dataclasses
import math
from typing import Annotated, Literal

import tyro

from sombrl.exploration.base import AbstractBonus, Exploration
from sombrl.exploration.bonus import EpistemicNorm, InformationGain, Units
from sombrl.exploration.strategies import STRATEGIES, greedy, hucrl, optimistic, pets, thompson, unsupervised
from sombrl.exploration.weight import Constant, Linear
from sombrl.names import nearest
from sombrl.records import SombrlError


@dataclasses.dataclass(frozen=True)
class ExploreConfig:
    """How to explore."""

    explore: Annotated[str, tyro.conf.arg(metavar="|".join(STRATEGIES))] = "optimistic"
    """The strategy; `sombrl list explorations` explains them."""
    bonus_weight: float = 10.0
    """λ of the optimistic strategy, in reward per decision per unit of ‖σ‖ (the paper's GP experiments: 10)."""
    bonus_weight_end: float | None = None
    """If given, λ moves linearly from bonus_weight to this over bonus_weight_steps iterations."""
    bonus_weight_steps: int = 10
    """Iterations of that line."""
    bonus: Literal["norm", "information-gain"] = "norm"
    """‖σ‖, or Σ log(1 + σ²/noise²) (OPAX)."""
    sigma_units: Units = "normalised"
    """Units of σ in the norm: divided by the spread of the training targets, or physical."""
    plan_noise: bool = False
    """Optimistic: add the model's noise to imagined transitions (the paper's objective to the letter; needs
    particles, so it costs as much as pets)."""
    beta: float = 2.0
    """How many standard deviations hucrl may be lucky."""

    def __post_init__(self):
        """Refuse unknown names and impossible numbers."""
        if self.explore not in STRATEGIES:
            raise nearest(self.explore, STRATEGIES, "exploration")
        for name, value in (
            ("bonus-weight", self.bonus_weight),
            ("bonus-weight-end", self.bonus_weight_end or 0.0),
            ("beta", self.beta),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise SombrlError(f"--{name} must be a finite number of at least 0, not {value}.")
        if self.bonus_weight_steps < 1:
            raise SombrlError(f"--bonus-weight-steps must be at least 1, not {self.bonus_weight_steps}.")

    def build(self) -> Exploration:
        """The strategy."""
        bonus: AbstractBonus = (
            InformationGain() if self.bonus == "information-gain" else EpistemicNorm(self.sigma_units)
        )
        match self.explore:
            case "optimistic":
                weight = (
                    Constant(self.bonus_weight)
                    if self.bonus_weight_end is None
                    else Linear(self.bonus_weight, self.bonus_weight_end, self.bonus_weight_steps)
                )
                return optimistic(weight, bonus, noisy=self.plan_noise)
            case "unsupervised":
                return unsupervised(bonus)
            case "hucrl":
                return hucrl(self.beta)
            case "pets":
                return pets()
            case "thompson":
                return thompson()
            case _:
                return greedy()
