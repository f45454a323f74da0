"""The decisions of a window on the host, and their way to the device: one array per decision, so one copy."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sombrl.controllers.base import Watch
from sombrl.envs.base import AbstractEnvs
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.training.episodic import Chunk
from sombrl.training.safety import CostBook


class Columns:
    """The transitions of one iteration on the host, and the returns of the episodes that ended in it."""

    def __init__(self, seeds: int, length: int, envs: AbstractEnvs, *, learns_cost: bool = False):
        obs, next_obs = np.zeros((2, seeds, length, envs.spec.obs_dim), np.float32)
        action = np.zeros((seeds, length, envs.spec.action_dim), np.float32)
        terminated, truncated = np.zeros((2, seeds, length), bool)
        self._columns = [obs, action, np.zeros((seeds, length), np.float32), next_obs, terminated, truncated]
        if learns_cost:
            self._columns.append(np.zeros((seeds, length), np.float32))
        self._ended: list[list[float]] = [[] for _ in range(seeds)]

    def store(self, t: int, obs: np.ndarray, actions: np.ndarray, step: Any, book: CostBook | None = None) -> None:
        """Decision t of every seed."""
        values = [obs, actions, step.reward, step.obs, step.terminated, step.truncated]
        if len(self._columns) > len(values) and book is not None:
            values.append(book.costs[:, t])
        for column, value in zip(self._columns, values, strict=True):
            column[:, t] = value

    def packet(self, t: int, obs: np.ndarray, left: np.ndarray | None = None) -> np.ndarray:
        """The transition before decision t, whether there is one, and `obs`: one array, so one copy to the device.

        Before `obs`, where there is a budget, what is left of it.
        """
        last = [column[:, max(t - 1, 0)] for column in self._columns]
        before = np.full(len(obs), t > 0)
        budget = () if left is None else (left,)
        columns = [column if column.ndim == 2 else column[:, None] for column in (*last, before, *budget, obs)]
        return np.concatenate(columns, axis=1, dtype=np.float32)

    def finish(self, over: np.ndarray, returns: np.ndarray) -> None:
        """Note the returns of the seeds whose episode is over."""
        for i in np.flatnonzero(over):
            self._ended[i].append(float(returns[i]))

    def chunk(self, obs: np.ndarray) -> Chunk:
        """As the planners' loop reports it; the return of a seed is the mean of its episodes that ended, or NaN."""
        returns = np.array([np.mean(ended) if ended else np.nan for ended in self._ended])
        valid = np.ones(self._columns[2].shape, bool)
        return Chunk(Transition(*map(jnp.asarray, self._columns)), valid, returns, obs.copy())


def store(replay: Replay, packet: Float[Array, "seeds column"]) -> Replay:
    """Add the transition of a `Columns.packet` where there is one; in place when the buffers were donated."""
    obs_dim, action_dim, capacity = replay.data.obs.shape[-1], replay.data.action.shape[-1], replay.data.reward.shape[1]
    learned = [1] * (replay.data.cost is not None)
    widths = np.cumsum([obs_dim, action_dim, 1, obs_dim, 1, 1, *learned, 1])
    obs, action, reward, next_obs, terminated, truncated, *cost, valid, _ = jnp.split(packet, widths, axis=1)
    costs = [column[:, 0] for column in cost]
    rows = Transition(obs, action, reward[:, 0], next_obs, terminated[:, 0] > 0, truncated[:, 0] > 0, *costs)
    there = valid[:, 0] > 0
    slot = jnp.where(there, replay.added % capacity, capacity)  # out of range: dropped
    seeds = jnp.arange(packet.shape[0], dtype=jnp.int32)
    data = jax.tree.map(lambda buffer, row: buffer.at[seeds, slot].set(row, mode="drop"), replay.data, rows)
    return Replay(data, replay.added + there.astype(jnp.int32))


def join_seen(chosen: Sequence[tuple[Array, Watch | None]]) -> Watch | None:
    """What was foreseen at a decision, of all shards."""
    seen = [jax.tree.map(np.asarray, watch) for _, watch in chosen if watch is not None]
    return None if not seen else jax.tree.map(lambda *rows: np.concatenate(rows), *seen)
