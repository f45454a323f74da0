"""Random smooth feedback policies: the "any π" on which the lemmas are tried."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.grid import Grid

LIPSCHITZ = 1.0
"""L_π of every random policy."""
WAVES = 3


def random_policy(grid: Grid, *, key: Key[Array, ""]) -> Float[Array, "1 states actions"]:
    """u(x) = tanh(b + Σ cᵢ sin(ωᵢᵀx + φᵢ)), rounded to the action grid by chance, with Σ|cᵢ|‖ωᵢ‖ = `LIPSCHITZ`.

    Actions rounded by the same chance keep their distance on average, so the policy is as Lipschitz as before.
    """
    offset_key, weight_key, frequency_key, phase_key = jr.split(key, 4)
    frequencies = jr.normal(frequency_key, (WAVES, grid.state_dim), jnp.float64)
    weights = jr.normal(weight_key, (WAVES,), jnp.float64)
    weights = weights * LIPSCHITZ / jnp.sum(jnp.abs(weights) * jnp.linalg.norm(frequencies, axis=1))
    phases = jr.uniform(phase_key, (WAVES,), jnp.float64, 0.0, 2.0 * jnp.pi)
    offset = jr.normal(offset_key, (), jnp.float64)

    def at(state: Array) -> Array:
        return grid.spread(jnp.tanh(offset + weights @ jnp.sin(frequencies @ state + phases)))

    table: Array = jax.vmap(at)(grid.states)
    return table[None]


def uniform_policy(grid: Grid) -> Float[Array, "1 states actions"]:
    """Every action equally likely: random exploration."""
    return jnp.full((1, grid.num_states, grid.num_actions), 1.0 / grid.num_actions, jnp.float64)
