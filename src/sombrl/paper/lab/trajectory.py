"""Acting in the true system and remembering what was seen."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.paper.lab.planner import Policy
from sombrl.paper.lab.systems import GridWorld


class Observations(NamedTuple):
    """A rollout: which inputs z were met, what g* + w was read there, and which of the rows count."""

    places: Int[Array, " time"]
    targets: Float[Array, "time state"]
    mask: Bool[Array, " time"]


def step(
    world: GridWorld,
    residual: Float[Array, "inputs state"],
    probabilities: Float[Array, "states actions"],
    state: Int[Array, ""],
    *,
    key: Key[Array, ""],
) -> tuple[Int[Array, ""], Int[Array, ""], Float[Array, " state"]]:
    """One decision: the next state, the input z met, and the target y - a x = g*(z) + w read there."""
    act_key, noise_key, snap_key = jr.split(key, 3)
    action = jr.categorical(act_key, jnp.log(probabilities[state])).astype(jnp.int32)
    place = state * world.grid.num_actions + action
    target = residual[place] + world.noise.sample((world.grid.state_dim,), key=noise_key)
    return world.grid.snap(world.known[place] + target, key=snap_key), place, target


def rollout(
    world: GridWorld,
    residual: Float[Array, "inputs state"],
    policy: Policy,
    state: Int[Array, ""],
    length: Int[Array, ""],
    longest: int,
    *,
    key: Key[Array, ""],
) -> tuple[Int[Array, ""], Observations]:
    """`length` decisions from `state` (at most `longest`), and the state after them."""

    def advance(state: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        time, key = inputs
        stage = jnp.minimum(time, policy.shape[0] - 1)
        following, place, target = step(world, residual, policy[stage], state, key=key)
        counts = time < length
        return jnp.where(counts, following, state), (place, target, counts)

    times = jnp.arange(longest, dtype=jnp.int32)
    state, seen = jax.lax.scan(advance, state, (times, jr.split(key, longest)))
    return state, Observations(*seen)
