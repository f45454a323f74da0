"""K‖u‖₂ on the physical action u, charged on every executed frame, so that moving is not free."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sombrl.records import AbstractTask, State


def norm(u: Float[Array, " action"]) -> Float[Array, ""]:
    """‖u‖₂ with gradient 0 at u = 0, where `jnp.linalg.norm` has NaN."""
    square = jnp.sum(jnp.square(u))
    return jnp.where(square > 0.0, jnp.sqrt(jnp.where(square > 0.0, square, 1.0)), 0.0)


def physical(
    action: Float[Array, " action"], low: tuple[float, ...], high: tuple[float, ...]
) -> Float[Array, " action"]:
    """The action in [-1, 1] (clipped) in the units of the bounds."""
    bottom, top = jnp.asarray(low, action.dtype), jnp.asarray(high, action.dtype)
    return bottom + 0.5 * (jnp.clip(action, -1.0, 1.0) + 1.0) * (top - bottom)


class ActionCost(AbstractTask):
    """A known task that also charges `action_repeat · cost · ‖u‖₂`, as the environment does."""

    inner: AbstractTask
    cost: float = eqx.field(static=True)
    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    action_repeat: int = eqx.field(static=True)

    def reward(self, state: State, action: Float[Array, " action"], next_state: State) -> Float[Array, ""]:
        """The inner reward less the cost of all frames of the decision."""
        reward = self.inner.reward(state, action, next_state)
        price = self.action_repeat * self.cost * norm(physical(action, self.low, self.high))
        return reward - price.astype(reward.dtype)

    def terminated(self, state: State, action: Float[Array, " action"], next_state: State) -> Bool[Array, ""]:
        """As the inner task."""
        return self.inner.terminated(state, action, next_state)
