"""λ of a lower bound, from data that nothing was learned from.

The paper's bound is J(π) ≥ Jₙ(π) - λₙΣₙ(π). Of a held-out piece of an episode all three are known without the
environment: what it earned, what the model expects of the same actions, and Σσ on the way that the model imagines. λ is
the smallest one with which the returns differ by at most λΣσ on nine pieces of ten.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sombrl.dynamics.base import AbstractDynamics
from sombrl.exploration.base import AbstractBonus
from sombrl.exploration.bonus import Penalty
from sombrl.records import AbstractTask
from sombrl.replay import Replay

Carry = tuple[Array, Array, Array, Array]
PIECES = 256
"""How many pieces are looked at, evenly from the held-out rows."""
DECISIONS = 20
"""Of a piece, or fewer where its episode ends."""
COVERAGE = 0.9
"""The share of the pieces for which the bound is to hold."""


def calibrated_weight(
    dynamics: AbstractDynamics, task: AbstractTask, bonus: AbstractBonus, replay: Replay
) -> Float[Array, ""]:
    """The smallest λ of the rows that are in the buffer but do not count as added; infinite where σ is 0 and wrong."""
    between = jnp.arange(PIECES, dtype=jnp.int32) * (replay.capacity - 1 - replay.count)
    held = replay.count + between // (PIECES - 1)
    gaps, sigmas = jax.vmap(lambda start: piece(dynamics, task, bonus, replay, start))(held)
    ratios = jnp.where(gaps <= 0, 0.0, gaps / jnp.maximum(sigmas, 0.0))
    ratios = jnp.where(jnp.isnan(ratios), jnp.inf, ratios)  # what is not finite loses
    return jnp.sort(ratios)[math.ceil(COVERAGE * PIECES) - 1]


def piece(
    dynamics: AbstractDynamics, task: AbstractTask, bonus: AbstractBonus, replay: Replay, start: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """|realised - imagined return| and Σσ of the decisions from row `start` on, until their episode ends."""
    data, last = replay.data, replay.capacity - 1
    sigma_of = bonus.bonus if isinstance(bonus, Penalty) else bonus

    def step(carry: Carry, offset: Array) -> tuple[Carry, None]:
        state, going, gap, total = carry
        row = jnp.minimum(start + offset, last)
        going = going & (start + offset <= last)
        action = data.action[row]
        prediction = dynamics.predict(state, action)
        reward = task.reward(state, action, prediction.mean)
        gap = gap + jnp.where(going, data.reward[row] - reward, 0.0)
        total = total + jnp.where(going, sigma_of(prediction), 0.0)
        following = jnp.all(data.next_obs[row] == data.obs[jnp.minimum(row + 1, last)])
        going = going & following & ~data.terminated[row] & ~data.truncated[row]
        return (prediction.mean, going, gap, total), None

    zero = jnp.zeros((), jnp.float32)
    carry = (data.obs[start], jnp.ones((), bool), zero, zero)
    (_, _, gap, total), _ = jax.lax.scan(step, carry, jnp.arange(DECISIONS, dtype=jnp.int32))
    return jnp.abs(gap), total
