"""The settings of the paper as plain data, read by the loop only."""

import dataclasses
import math

from sombrl.records import SombrlError
from sombrl.theory.bonus_weight import discounted_horizon
from sombrl.theory.update_rule import ONE_BIT


@dataclasses.dataclass(frozen=True)
class FiniteHorizon:
    """Episodes of `horizon` decisions from fresh starts; the model is updated after each of them."""

    horizon: int
    resets: bool = dataclasses.field(default=True, init=False)
    discount: float = dataclasses.field(default=1.0, init=False)
    information_limit: float = dataclasses.field(default=math.inf, init=False)  # where a chunk ends early
    minimum: int = dataclasses.field(default=1, init=False)  # decisions before it may

    def __post_init__(self):
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


@dataclasses.dataclass(frozen=True)
class Discounted:
    """Discounted returns from fresh starts, in episodes that grow: T(n) = ⌈-ln n / ln γ⌉, so that γ^T(n) = 1/n."""

    discount: float
    longest: int  # the environment's own limit
    floor: int = 10  # of the first episodes: T(1) = 0 would teach nothing
    growing: bool = True  # False: every episode has `longest` decisions
    resets: bool = dataclasses.field(default=True, init=False)
    information_limit: float = dataclasses.field(default=math.inf, init=False)  # where a chunk ends early
    minimum: int = dataclasses.field(default=1, init=False)  # decisions before it may

    def __post_init__(self):
        """γ must make the series converge."""
        if not 0 < self.discount < 1:
            raise SombrlError(f"--discount must lie strictly between 0 and 1, not {self.discount}.")
        if self.floor < 1 or self.longest < 1:
            raise SombrlError("an episode has at least 1 decision: raise the floor or the episode length.")

    def chunk_length(self, iteration: int) -> int:
        """T(n), n counted from 1, within [floor, longest]."""
        if not self.growing:
            return self.longest
        return min(self.longest, discounted_horizon(iteration + 1, self.discount, self.floor))


@dataclasses.dataclass(frozen=True)
class NonEpisodic:
    """One trajectory that is never reset; with hucrl, pets or greedy it is NeoRL, NePETS or NeMean.

    The model is updated every `update_every` decisions (the published code), or by the paper's rule: once what the
    frozen model would have learned on the way, Σ_t Σ_j ln(1 + σ_j²(z_t)/noise²), exceeds ln 2, but not before `minimum`
    decisions nor after `update_every`. Every seed counts for itself; one that has its bit waits for the others.
    """

    update_every: int = 10
    one_bit: bool = False
    minimum: int = 1  # the Lyapunov constant's (theory.lyapunov_minimum)
    resets: bool = dataclasses.field(default=False, init=False)
    discount: float = dataclasses.field(default=1.0, init=False)

    def __post_init__(self):
        """At least one decision between updates."""
        if self.update_every < 1:
            raise SombrlError(f"--update-every must be at least 1 decision, not {self.update_every}.")
        if self.minimum < 1:
            raise SombrlError(f"the minimum between updates must be at least 1 decision, not {self.minimum}.")

    @property
    def longest(self) -> int:
        """No chunk has more decisions than this."""
        return self.update_every

    @property
    def information_limit(self) -> float:
        """Nats of twice the information gain at which a chunk ends early."""
        return ONE_BIT if self.one_bit else math.inf

    def chunk_length(self, iteration: int) -> int:
        """Decisions until the next update, at most."""
        return self.update_every


Setting = FiniteHorizon | Discounted | NonEpisodic
