"""A world that lives on a grid, so that dynamic programming is exact and not an approximation of something else.

    y = f(x, u) + w,    x' = ρ(y)

f is what is to be learned, the learner sees y, and ρ rounds y to the grid by chance: to one of the two neighbours in
each coordinate, with probabilities that leave the mean as it is, or to the edge. Then E V(ρ(y)) = E V̂(y) where V̂
interpolates V linearly, and a V̂ in [0, M] is all that the lemmas ask of a value function: they hold for this world as
they stand, with no discretisation error, on any grid.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from sombrl.paper.lab.noise import AbstractNoise
from sombrl.records import SombrlError


@dataclass(frozen=True)
class Grid:
    """`points` per state coordinate on [-half_width, half_width], `num_actions` on [-1, 1]. Actions run fastest."""

    state_dim: int
    points: int
    num_actions: int
    half_width: float = 2.0

    def __post_init__(self) -> None:
        """At least one dimension and two points."""
        if self.state_dim < 1 or self.points < 2 or self.num_actions < 2 or not self.half_width > 0.0:
            raise SombrlError(f"{self} is not a grid: give a dimension, two points a side, two actions and a width.")

    @property
    def num_states(self) -> int:
        """points ** state_dim."""
        return int(self.points**self.state_dim)

    @property
    def num_inputs(self) -> int:
        """Pairs of a state and an action."""
        return self.num_states * self.num_actions

    @property
    def spacing(self) -> float:
        """The distance of neighbouring points."""
        return 2.0 * self.half_width / (self.points - 1)

    @property
    def axis(self) -> Float[Array, " points"]:
        """The points of one coordinate."""
        return jnp.linspace(-self.half_width, self.half_width, self.points, dtype=jnp.float64)

    @property
    def actions(self) -> Float[Array, " actions"]:
        """The actions, ascending."""
        return jnp.linspace(-1.0, 1.0, self.num_actions, dtype=jnp.float64)

    @property
    def states(self) -> Float[Array, "states state"]:
        """Every state, the last coordinate fastest."""
        axes = jnp.meshgrid(*[self.axis] * self.state_dim, indexing="ij")
        return jnp.stack([axis.reshape(-1) for axis in axes], axis=1)

    @property
    def inputs(self) -> Float[Array, "inputs input"]:
        """Every z = (x, u)."""
        states = jnp.repeat(self.states, self.num_actions, axis=0)
        return jnp.concatenate([states, jnp.tile(self.actions, self.num_states)[:, None]], axis=1)

    @property
    def middle(self) -> int:
        """The index of the state nearest to the origin, where everything starts."""
        return sum((self.points // 2) * self.points**i for i in range(self.state_dim))

    def transition(
        self, noise: AbstractNoise, means: Float[Array, "inputs state"]
    ) -> Float[Array, "states actions states"]:
        """P(ρ(f(x, u) + w) = x') for the f whose values are `means`; rows sum to one."""
        return self.landings(noise, means).reshape(self.num_states, self.num_actions, self.num_states)

    def landings(self, noise: AbstractNoise, means: Float[Array, "means state"]) -> Float[Array, "means states"]:
        """P(ρ(mean + w) = x') for any means."""
        rows: Array = jax.vmap(functools.partial(self._landing, noise))(means)
        return rows

    def _landing(self, noise: AbstractNoise, mean: Float[Array, " state"]) -> Float[Array, " states"]:
        """Where one mean lands: P(index <= j) is the average of the distribution function between j and j + 1."""

        def coordinate(centre: Array) -> Array:
            upto = jnp.diff(noise.shortfall(self.axis - centre)) / self.spacing
            ends = jnp.zeros(1, upto.dtype), jnp.ones(1, upto.dtype)
            return jnp.maximum(jnp.diff(jnp.concatenate([ends[0], upto, ends[1]])), 0.0)

        each = jax.vmap(coordinate)(mean)
        landing: Array = functools.reduce(jnp.kron, [each[j] for j in range(self.state_dim)])
        return landing

    def snap(self, y: Float[Array, " state"], *, key: Key[Array, ""]) -> Int[Array, ""]:
        """ρ(y), as the index of a state."""
        dither = jr.uniform(key, y.shape, y.dtype)
        place = jnp.floor((y + self.half_width) / self.spacing + dither)
        place = jnp.clip(place, 0.0, self.points - 1.0).astype(jnp.int32)
        return functools.reduce(lambda left, right: left * self.points + right, [place[j] for j in range(y.shape[0])])

    def spread(self, action: Float[Array, ""]) -> Float[Array, " actions"]:
        """The probabilities with which an action in [-1, 1] is rounded to its neighbours on the grid."""
        return jnp.maximum(1.0 - jnp.abs(action - self.actions) * (self.num_actions - 1) / 2.0, 0.0)
