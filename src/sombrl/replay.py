"""One ring buffer of transitions with fixed capacity: shapes never change, so nothing recompiles as data grow."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, Key

from sombrl.records import Transition


class Replay(eqx.Module):
    """The transitions of one seed, oldest overwritten first. The buffers of several have a leading seed axis."""

    data: Transition  # every leaf [capacity, ...]
    added: Int[Array, "*seeds"]  # how many were ever added

    @staticmethod
    def empty(capacity: int, obs_dim: int, action_dim: int, *, cost: bool = False) -> "Replay":
        """A buffer of `capacity` rows, all masked; with a column for a cost that is to be learned."""
        obs = jnp.zeros((capacity, obs_dim), jnp.float32)
        no = jnp.zeros(capacity, bool)
        data = Transition(
            obs=obs,
            action=jnp.zeros((capacity, action_dim), jnp.float32),
            reward=jnp.zeros(capacity, jnp.float32),
            next_obs=obs,
            terminated=no,
            truncated=no,
            cost=jnp.zeros(capacity, jnp.float32) if cost else None,
        )
        return Replay(data, jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        """The number of rows."""
        return self.data.reward.shape[0]

    @property
    def at_least(self) -> int:
        """A lower bound on `count` that is known when a program is compiled."""
        return 0

    @property
    def count(self) -> Int[Array, ""]:
        """How many rows hold data."""
        return jnp.minimum(self.added, self.capacity)

    @property
    def last(self) -> Transition:
        """The latest transition; meaningless while the buffer is empty."""
        latest: Transition = jax.tree.map(lambda leaf: leaf[(self.added - 1) % self.capacity], self.data)
        return latest

    @property
    def mask(self) -> Bool[Array, " capacity"]:
        """Which rows hold data."""
        return jnp.arange(self.capacity, dtype=jnp.int32) < self.count

    @property
    def starts(self) -> Bool[Array, " capacity"]:
        """Which rows an episode begins with, or the data: their state is not where the row before led to."""
        moved = jnp.any(self.data.obs != jnp.roll(self.data.next_obs, 1, axis=0), axis=1)
        return moved.at[0].set(True) & self.mask

    def grown(self, capacity: int) -> "Replay":
        """The same in a larger buffer, of one seed or several. It must not have overwritten anything yet."""
        axis = self.data.reward.ndim - 1

        def pad(leaf: Array) -> Array:
            return jnp.pad(leaf, [(0, capacity - leaf.shape[axis] if i == axis else 0) for i in range(leaf.ndim)])

        return Replay(jax.tree.map(pad, self.data), self.added)

    def add(self, rows: Transition, valid: Bool[Array, " time"]) -> "Replay":
        """Append the valid rows, in order. If there are more of them than capacity, the last ones stay."""
        rank = jnp.cumsum(valid, dtype=jnp.int32) - 1  # 0, 1, 2, … over the valid rows
        total = jnp.sum(valid, dtype=jnp.int32)
        keep = valid & (rank >= total - self.capacity)
        slot = jnp.where(keep, (self.added + rank) % self.capacity, self.capacity)  # out of range: dropped
        data = jax.tree.map(lambda buffer, row: buffer.at[slot].set(row, mode="drop"), self.data, rows)
        return Replay(data, self.added + total)

    def sample(self, number: int, *, key: Key[Array, ""]) -> Transition:
        """`number` rows drawn uniformly with replacement; meaningless while the buffer is empty."""
        rows = jr.randint(key, (number,), 0, jnp.maximum(self.count, 1))
        drawn: Transition = jax.tree.map(lambda leaf: leaf[rows], self.data)
        return drawn
