"""Strategies that differ only in numbers, so that one program trains them in parallel."""

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, Key
from typing_extensions import override

from sombrl.dynamics.base import AbstractDynamics
from sombrl.exploration.base import AbstractPropagation, Exploration
from sombrl.exploration.bonus import NoBonus
from sombrl.exploration.propagation import Mean, Resampled
from sombrl.exploration.weight import AbstractWeight
from sombrl.records import SombrlError, State


class MeanOrResampled(AbstractPropagation):
    """`Mean` where `resampled` is 0, `Resampled` where it is 1."""

    resampled: Float[Array, ""]
    stochastic: ClassVar[bool] = True

    def __init__(self, resampled: ArrayLike):
        self.resampled = jnp.asarray(resampled, jnp.float32)

    def prepare(self, dynamics: AbstractDynamics, *, key: Key[Array, ""]) -> AbstractDynamics:
        """The checks of `Resampled`."""
        return Resampled().prepare(dynamics, key=key)

    @override
    def extra_actions(self, state_dim: int) -> int:
        return 0

    def __call__(
        self, dynamics: AbstractDynamics, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> State:
        """The mean, or a sample."""
        mean, sample = Mean()(dynamics, state, action, key=key), Resampled()(dynamics, state, action, key=key)
        return jnp.where(self.resampled > 0, sample, mean)


class Scaled(AbstractWeight):
    """`factor` λₙ: 1 leaves the strategy as it is, 0 takes its bonus away."""

    weight: AbstractWeight
    factor: Float[Array, ""]

    def __init__(self, weight: AbstractWeight, factor: ArrayLike):
        self.weight, self.factor = weight, jnp.asarray(factor, jnp.float32)

    def __call__(self, iteration: Int[Array, ""], dynamics: AbstractDynamics) -> Float[Array, ""]:
        """`factor` λₙ."""
        return self.factor * self.weight(iteration, dynamics)


def share(explorations: Sequence[Exploration]) -> list[Exploration]:
    """The same strategies in one form; refused where they differ in more than numbers."""
    if len({jax.tree.structure(one) for one in explorations}) == 1:
        return list(explorations)
    known = all(isinstance(one.propagation, Mean | Resampled) for one in explorations)
    bonuses = [one for one in explorations if not isinstance(one.bonus, NoBonus)]
    forms = {jax.tree.structure((one.bonus, one.bonus_weight)) for one in bonuses}
    if not known or len(forms) > 1 or len({one.task_weight for one in explorations}) > 1:
        raise SombrlError(
            "only greedy, pets and optimistic with one kind of bonus and λ can be trained in one program."
        )
    moving = {type(one.propagation) for one in explorations}

    def shared(one: Exploration) -> Exploration:
        propagation: AbstractPropagation = one.propagation
        if len(moving) > 1:
            propagation = MeanOrResampled(float(isinstance(propagation, Resampled)))
        if not bonuses:
            return Exploration(propagation, one.bonus, one.bonus_weight, one.task_weight)
        pays = not isinstance(one.bonus, NoBonus)
        like = one if pays else bonuses[0]
        return Exploration(propagation, like.bonus, Scaled(like.bonus_weight, float(pays)), one.task_weight)

    return [shared(one) for one in explorations]
