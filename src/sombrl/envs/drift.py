"""Worlds that change from one episode to the next: a motor that fades or is reversed, or a mass that grows."""

import math
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from sombrl.envs.guards import check_choice, check_count
from sombrl.records import SombrlError

KINDS = ("none", "torque", "mass")


class Drift(eqx.Module):
    """`kind` is multiplied by a factor that is 1 before episode `begin` and `factor` `over` episodes later.

    It is a function of the number of the episode alone, so a resumed run drifts as one that was never interrupted.
    """

    kind: str = eqx.field(static=True)
    begin: int = eqx.field(static=True)
    over: int = eqx.field(static=True)
    factor: float = eqx.field(static=True)
    now: Float[Array, ""] | None = None  # the factor in one episode; None: 1

    def __init__(
        self,
        kind: str = "none",
        begin: int = 10,
        over: int = 1,
        factor: float | int = 0.5,
        now: Float[Array, ""] | None = None,
    ):
        self.kind = check_choice(kind, "drift", KINDS)
        if isinstance(begin, bool) or not isinstance(begin, int | np.integer) or begin < 0:
            raise SombrlError(f"drift_from must be the number of an episode, 0 or more, not {begin!r}.")
        self.begin, self.over = int(begin), check_count(over, "drift_over")
        self.factor = float(factor)
        if not math.isfinite(self.factor) or self.factor == 0.0 or (self.factor < 0.0 and kind == "mass"):
            raise SombrlError(
                f"drift_factor must be positive, or negative for a torque that is reversed, not {factor!r}."
            )
        self.now = now

    def in_episode(self, episode: ArrayLike) -> "Drift":
        """The drift with the factor of an episode."""
        if self.kind == "none":
            return self
        passed = jnp.asarray(episode, jnp.float32) - (self.begin - 1)
        share = jnp.clip(passed / self.over, 0.0, 1.0)
        return Drift(self.kind, self.begin, self.over, self.factor, 1.0 + share * (self.factor - 1.0))

    def of(self, kind: str) -> Float[Array, ""] | float:
        """What `kind` is multiplied by."""
        return 1.0 if self.now is None or self.kind != kind else self.now

    def applied(self, force: Float[Array, ""]) -> Float[Array, ""]:
        """What a motor's force comes to, where gravity moves every mass alike."""
        return force if self.now is None else force * self.of("torque") / self.of("mass")

    @property
    def options(self) -> dict[str, str | int | float]:
        """The options of a world that drifts so."""
        return {
            "drift": self.kind,
            "drift_from": self.begin,
            "drift_over": self.over,
            "drift_factor": self.factor,
        }


World = TypeVar("World", bound=eqx.Module)


def drifted(world: World, drift: Drift, episode: ArrayLike) -> World:
    """A world with that field `drift` as it is in an episode."""
    if drift.kind == "none":
        return world
    now = drift.in_episode(episode)
    there: World = eqx.tree_at(lambda w: w.drift, world, now, is_leaf=lambda node: isinstance(node, Drift))
    return there
