"""What worked: the best real episodes, as plans from wherever one is."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sombrl.replay import Replay

NUMBER = 4
"""Episodes that are kept."""


class BestEpisodes(eqx.Module):
    """The episodes of the highest returns so far, without the bonus."""

    obs: Float[Array, "number time obs"]
    actions: Float[Array, "number time action"]
    used: Bool[Array, "number time"]

    @staticmethod
    def none(longest: int, obs_dim: int, action_dim: int) -> "BestEpisodes":
        """Before any data, for episodes of at most `longest` decisions."""
        return BestEpisodes(
            jnp.zeros((NUMBER, longest, obs_dim), jnp.float32),
            jnp.zeros((NUMBER, longest, action_dim), jnp.float32),
            jnp.zeros((NUMBER, longest), bool),
        )

    def found_in(self, replay: Replay) -> "BestEpisodes":
        """Those of a replay."""
        data, mask, first = replay.data, replay.mask, replay.starts
        rows = jnp.arange(replay.capacity, dtype=jnp.int32)
        episode = jnp.cumsum(first.astype(jnp.int32)) - 1
        returns = jax.ops.segment_sum(jnp.where(mask, data.reward, 0.0), episode, num_segments=replay.capacity)
        lengths = jax.ops.segment_sum(mask.astype(jnp.int32), episode, num_segments=replay.capacity)
        starts = jax.ops.segment_min(jnp.where(first, rows, replay.capacity), episode, num_segments=replay.capacity)
        _, best = jax.lax.top_k(jnp.where(lengths > 0, returns, -jnp.inf), NUMBER)
        time = jnp.arange(self.used.shape[1], dtype=jnp.int32)
        at = jnp.clip(starts[best][:, None] + time[None, :], 0, replay.capacity - 1)
        return dataclasses.replace(
            self, obs=data.obs[at], actions=data.action[at], used=time[None, :] < lengths[best][:, None]
        )

    def plans(
        self, state: Float[Array, " obs"], scale: Float[Array, " obs"], horizon: int
    ) -> Float[Array, "number horizon action"]:
        """What was done in each of them from the visited state that is nearest; nothing after its end."""
        distance = jnp.sum(((self.obs - state[None, None, :]) / scale[None, None, :]) ** 2, axis=-1)
        nearest = jnp.argmin(jnp.where(self.used, distance, jnp.inf), axis=1)
        time = nearest[:, None] + jnp.arange(horizon)[None, :]
        inside = time < self.used.shape[1]
        time = jnp.minimum(time, self.used.shape[1] - 1)
        episode = jnp.arange(NUMBER)[:, None]
        done = self.actions[episode, time]
        return jnp.where((inside & self.used[episode, time])[:, :, None], done, 0.0)
