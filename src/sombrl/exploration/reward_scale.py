"""The scale of a task's rewards, for a λ that fits every task.

It is the range of the rewards seen so far. As long as nothing was found that pays more than doing nothing does, that
range does not say what there is to find, and little can be lost by looking for it: the scale is larger then.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sombrl.dynamics.base import AbstractDynamics
from sombrl.records import AbstractTask
from sombrl.replay import Replay

STARTS, DECISIONS = 16, 30
"""Doing nothing is imagined from so many starts of episodes, for so many decisions."""
FOUND = 0.2
"""Something was found when the best reward beats that of doing nothing by this share of the range."""
NEGLIGIBLE = 1e-6
"""Smaller differences of rewards are none: the foothills of a sparse reward."""
BEFORE = 100.0
"""How many times larger the scale is before."""


def reward_scale(dynamics: AbstractDynamics, task: AbstractTask, replay: Replay, action_dim: int) -> Float[Array, ""]:
    """Largest reward minus smallest, and up to `BEFORE` times that as long as nothing was found; 1 without data."""
    rewards, mask = replay.data.reward, replay.mask
    best, worst = jnp.max(jnp.where(mask, rewards, -jnp.inf)), jnp.min(jnp.where(mask, rewards, jnp.inf))
    size = best - worst
    size = jnp.where(jnp.isfinite(size) & (size > NEGLIGIBLE), size, 1.0)
    found = jnp.clip((best - _idle(dynamics, task, replay, action_dim, worst)) / size, 0.0, 1.0)
    nothing = jnp.where(jnp.isfinite(found), jnp.maximum(0.0, 1.0 - found / FOUND), 1.0)
    return size * (1.0 + (BEFORE - 1.0) * nothing)


def _idle(
    dynamics: AbstractDynamics, task: AbstractTask, replay: Replay, action_dim: int, worst: Float[Array, ""]
) -> Float[Array, ""]:
    """The mean reward of doing nothing, from where episodes start. After an end every decision earns the worst."""
    first = replay.starts
    rows = jnp.nonzero(first, size=STARTS, fill_value=0)[0]
    counted = jnp.arange(STARTS, dtype=jnp.int32) < jnp.sum(first, dtype=jnp.int32)
    action = jnp.zeros(action_dim, jnp.float32)

    def rest(start: Any) -> Array:
        def step(carry: tuple[Any, Array], _: None) -> tuple[tuple[Any, Array], Array]:
            state, over = carry
            next_state = dynamics.predict(state, action).mean
            reward = jnp.where(over, worst, task.reward(state, action, next_state))
            return (next_state, over | task.terminated(state, action, next_state)), reward

        _, rewards = jax.lax.scan(step, (start, jnp.zeros((), bool)), length=DECISIONS)
        return jnp.mean(rewards)

    return jnp.mean(jax.vmap(rest)(replay.data.obs[rows]), where=counted)
