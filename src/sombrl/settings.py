"""The settings of the paper as plain data, read only by the training loops."""

import dataclasses
import math
from typing import Literal

from sombrl.records import SombrlError
from sombrl.theory.bonus_weight import discounted_horizon
from sombrl.theory.update_rule import ONE_BIT

UpdateRule = Literal["fixed", "one-bit", "uncertainty"]
LONGEST = 1000
"""Decisions between two updates where there is no cap: arrays have room for as many as the paper's whole runs have."""


@dataclasses.dataclass(frozen=True)
class FiniteHorizon:
    """Episodes of `horizon` decisions from fresh starts; the model is updated after each of them."""

    horizon: int
    resets: bool = dataclasses.field(default=True, init=False)
    discount: float = dataclasses.field(default=1.0, init=False)
    task_weight: float = dataclasses.field(default=1.0, init=False)
    rule: UpdateRule = dataclasses.field(default="fixed", init=False)

    def __post_init__(self) -> None:
        """An episode has at least one decision."""
        if self.horizon < 1:
            raise SombrlError(f"the episode length must be at least 1 decision, not {self.horizon}.")

    @property
    def longest(self) -> int:
        """No chunk has more decisions than this: arrays have that shape."""
        return self.horizon

    def chunk_length(self, iteration: int) -> int:
        """Decisions between two updates of the model."""
        return self.horizon

    def update_due(self, gathered: float, decisions: int) -> bool:
        """Whether a chunk ends early."""
        return False


@dataclasses.dataclass(frozen=True)
class Discounted:
    """Discounted returns from fresh starts, in episodes that grow: T(n) = ⌈-ln n / ln γ⌉, so that γ^T(n) = 1/n."""

    discount: float
    longest: int  # the environment's own limit
    floor: int = 10  # of the first episodes: T(1) = 0 would teach nothing
    growing: bool = True  # False: every episode has `longest` decisions
    resets: bool = dataclasses.field(default=True, init=False)
    task_weight: float = dataclasses.field(default=1.0, init=False)
    rule: UpdateRule = dataclasses.field(default="fixed", init=False)

    def __post_init__(self) -> None:
        """γ must make the series converge."""
        if not 0 < self.discount < 1:
            raise SombrlError(f"--discount must lie strictly between 0 and 1, not {self.discount}.")
        if self.floor < 1:
            raise SombrlError(f"--horizon-floor must be at least 1 decision, not {self.floor}.")
        if self.longest < 1:
            raise SombrlError(f"the episode length must be at least 1 decision, not {self.longest}.")

    def chunk_length(self, iteration: int) -> int:
        """T(n), n counted from 1, within [floor, longest]."""
        if not self.growing:
            return self.longest
        return min(self.longest, discounted_horizon(iteration + 1, self.discount, self.floor))

    def update_due(self, gathered: float, decisions: int) -> bool:
        """Whether a chunk ends early."""
        return False


@dataclasses.dataclass(frozen=True)
class NonEpisodic:
    """One trajectory that is never reset; with hucrl, pets or greedy it is NeoRL, NePETS or NeMean.

    The model is updated every `update_every` decisions (the published code), or when enough was gathered under the
    frozen model since the last update, but not before `minimum` decisions nor after `update_every`. With 0 there is
    no such cap, which the theory has not either, and nothing ends a chunk but the rule (or `LONGEST`):

    - one-bit: Σ_t Σ_j ln(1 + σ_j²(z_t)/noise²) > ln 2 (the rule of the proofs);
    - uncertainty: Σ_t ‖σ(z_t)‖ > `threshold`, the C of the main text, normalised units.

    Every seed counts for itself; one that has enough waits for the others.
    """

    update_every: int = 10
    rule: UpdateRule = "fixed"
    threshold: float = 1.0
    minimum: int = 1  # the Lyapunov constant's (theory.lyapunov_minimum)
    resets: bool = dataclasses.field(default=False, init=False)
    discount: float = dataclasses.field(default=1.0, init=False)
    task_weight: float = dataclasses.field(default=1.0, init=False)

    def __post_init__(self) -> None:
        """At least one decision between updates, and a positive C."""
        if self.update_every < 0 or (self.update_every == 0 and self.rule == "fixed"):
            raise SombrlError(
                f"--update-every must be at least 1 decision, not {self.update_every}; 0, no cap, is for --update-rule "
                "one-bit or uncertainty."
            )
        if not 1 <= self.minimum <= self.longest:
            limit = f"--update-every = {self.update_every}" if self.update_every else f"{LONGEST}"
            raise SombrlError(f"--update-minimum must lie between 1 and {limit}, not {self.minimum}.")
        if self.rule not in ("fixed", "one-bit", "uncertainty"):
            raise SombrlError(f"--update-rule must be fixed, one-bit or uncertainty, not {self.rule!r}.")
        if not (math.isfinite(self.threshold) and self.threshold > 0):
            raise SombrlError(
                f"--update-threshold, the C that the gathered uncertainty must exceed, must be positive and finite, "
                f"not {self.threshold}."
            )

    @property
    def longest(self) -> int:
        """No chunk has more decisions than this."""
        return self.update_every or LONGEST

    def chunk_length(self, iteration: int) -> int:
        """Decisions until the next update, at most."""
        return self.longest

    def update_due(self, gathered: float, decisions: int) -> bool:
        """Whether what was gathered in so many decisions is enough to end a chunk early."""
        limit = {"fixed": math.inf, "one-bit": ONE_BIT, "uncertainty": self.threshold}[self.rule]
        return gathered > limit and decisions >= self.minimum


@dataclasses.dataclass(frozen=True)
class Unsupervised:
    """Explore as in `base` but for ‖σₙ‖ alone (λ → ∞), then plan for tasks that were not known meanwhile."""

    base: FiniteHorizon | Discounted | NonEpisodic
    task_weight: float = dataclasses.field(default=0.0, init=False)

    @property
    def resets(self) -> bool:
        """Whether every iteration begins with a reset."""
        return self.base.resets

    @property
    def discount(self) -> float:
        """γ of the returns."""
        return self.base.discount

    @property
    def rule(self) -> UpdateRule:
        """When the model is updated."""
        return self.base.rule

    @property
    def longest(self) -> int:
        """No chunk has more decisions than this."""
        return self.base.longest

    def chunk_length(self, iteration: int) -> int:
        """Decisions between two updates of the model."""
        return self.base.chunk_length(iteration)

    def update_due(self, gathered: float, decisions: int) -> bool:
        """Whether a chunk ends early."""
        return self.base.update_due(gathered, decisions)


Setting = FiniteHorizon | Discounted | NonEpisodic | Unsupervised
