"""The batches of a particle model: rows of data, and measurement points at which functions are compared.

Measurement points come from all over the domain, from near the data, and from where a policy might act. From a wide
domain alone, most would be inputs that never occur.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from sombrl.dynamics.coordinates import AbstractCoordinates
from sombrl.dynamics.particles import Statistics
from sombrl.dynamics.sim_prior import AbstractSimulator, draw_domain
from sombrl.dynamics.svgd import Batch
from sombrl.replay import Replay

BOX_WIDTH = 3.0  # standard deviations to either side, where no simulator says what the domain is


class Rows(eqx.Module):
    """The replay as a regression, physical units. Every `period`-th row is held out."""

    obs: Float[Array, "capacity obs"]
    action: Float[Array, "capacity action"]
    inputs: Float[Array, "capacity input"]
    targets: Float[Array, "capacity target"]
    count: Int[Array, ""]  # rows that hold data
    period: int | None = eqx.field(static=True)  # None: nothing is held out

    @staticmethod
    def of(replay: Replay, coordinates: AbstractCoordinates, period: int | None) -> "Rows":
        """A replay in these coordinates."""
        data = replay.data
        inputs = jax.vmap(coordinates.inputs)(data.obs, data.action)
        targets = jax.vmap(coordinates.targets)(data.obs, data.action, data.next_obs)
        return Rows(data.obs, data.action, inputs, targets, replay.count, period)

    @property
    def training(self) -> Int[Array, ""]:
        """How many rows may be trained on."""
        return self.count if self.period is None else self.count - self.count // self.period

    def pick(self, uniform: Float[Array, " batch"]) -> Int[Array, " batch"]:
        """Indices of training rows, with replacement, from numbers in [0, 1); row 0 while there are none."""
        last = jnp.maximum(self.training - 1, 0)
        rank = jnp.minimum((uniform * self.training.astype(jnp.float32)).astype(jnp.int32), last)
        return rank if self.period is None else rank + rank // (self.period - 1)  # over every held-out row

    @property
    def held_out(self) -> Int[Array, " held"]:
        """Indices of all held-out rows, with data or not."""
        if self.period is None:
            return jnp.zeros(0, jnp.int32)
        return jnp.arange(self.period - 1, self.inputs.shape[0], self.period, dtype=jnp.int32)


class Sampler(eqx.Module):
    """Batches: rows, and three kinds of measurement points in fixed numbers.

    While there are no data, the domain stands in for them. Few random draws, each for several purposes: every one of
    them takes a tenth of a second to compile.
    """

    coordinates: AbstractCoordinates
    simulator: AbstractSimulator | None  # whose domain it is
    statistics: Statistics
    batch_size: int = eqx.field(static=True)
    neighbours: int = eqx.field(static=True)  # inputs of data, displaced
    visited: int = eqx.field(static=True)  # visited observations with actions uniform in [-1, 1]
    elsewhere: int = eqx.field(static=True)  # inputs of the domain
    width: float = eqx.field(static=True)  # of the displacement, normalised

    def domain(self, number: int, *, key: Key[Array, ""]) -> Float[Array, "points input"]:
        """From the simulator's domain; without one, from a box around the data."""
        if self.simulator is not None:
            return draw_domain(self.simulator, number, key=key)
        mean, std = self.statistics.x_mean, self.statistics.x_std
        unit = jr.uniform(key, (number, mean.shape[0]), mean.dtype, -BOX_WIDTH, BOX_WIDTH)
        return mean[None, :] + std[None, :] * unit

    def __call__(self, rows: Rows, *, key: Key[Array, ""]) -> Batch:
        """One batch; its points are neighbours of data, then visited ones, then others."""
        uniform_key, offset_key, domain_key = jr.split(key, 3)
        action_dim, near = rows.action.shape[1], self.neighbours + self.visited
        known = self.batch_size + near
        uniform = jr.uniform(uniform_key, (known + self.visited * action_dim,), jnp.float32)
        picked = rows.pick(uniform[:known])
        batch, neighbours, visited = jnp.split(picked, [self.batch_size, self.batch_size + self.neighbours])

        pieces = [rows.inputs[batch]]
        if self.neighbours:
            offset = self.width * jr.normal(offset_key, (self.neighbours, rows.inputs.shape[1]), jnp.float32)
            pieces.append(rows.inputs[neighbours] + self.statistics.x_std[None, :] * offset)
        if self.visited:
            action = 2.0 * uniform[known:].reshape(self.visited, action_dim) - 1.0
            pieces.append(jax.vmap(self.coordinates.inputs)(rows.obs[visited], action))
        domain = self.domain(known + self.elsewhere, key=domain_key)
        inputs = jnp.where(rows.training > 0, jnp.concatenate(pieces), domain[:known])
        points = jnp.concatenate([inputs[self.batch_size :], domain[known:]])
        targets = jax.vmap(self.statistics.targets)(rows.targets[batch])
        return Batch(inputs[: self.batch_size], targets, points, rows.training.astype(jnp.float32))
