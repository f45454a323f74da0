"""H-UCRL, and NeoRL where nothing resets: plan in the best of all plausible worlds, f̃ = μₙ + βₙσₙη with |η| <= 1.

On a grid η is one more action that the environment never sees. It takes `ETAS` values, 0 and both ends among them, so
the plan is exact up to the spacing of η. There is one state dimension: with d there would be `ETAS`ᵈ such actions,
which is what the paper calls intractable.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.gp import Evidence, GridPosterior, posterior
from sombrl.paper.lab.planner import Policy
from sombrl.paper.lab.regret import Choice, Method
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld
from sombrl.paper.lab.tables import Truth, confidence
from sombrl.records import SombrlError

ETAS = 11


def hallucinate(
    setting: AbstractExactSetting,
    world: GridWorld,
    true: Truth,
    constant: Float[Array, ""],
    basis: Float[Array, "inputs features"],
    method: Method,
    evidence: Evidence,
    *,
    key: Key[Array, ""],
) -> Choice:
    """πₙ of the best plausible world, with `method.factor` on βₙ. No bonus, no draw."""
    now = posterior(basis, evidence)
    width = confidence(world, now)
    reach = method.factor * width
    worlds = plausible(world, now, reach)
    states, actions = true.reward.shape
    both = setting.plan(worlds.reshape(states, actions * ETAS, states), jnp.repeat(true.reward, ETAS, axis=1))
    policy: Policy = both.reshape(-1, states, actions, ETAS).sum(axis=-1)
    return policy, now, width, reach


def plausible(
    world: GridWorld, now: GridPosterior, reach: Float[Array, ""]
) -> Float[Array, "states actions etas states"]:
    """P(x' | x, u, η) under μₙ + reach σₙ η."""
    if world.grid.state_dim != 1:
        raise SombrlError(f"H-UCRL on a grid has one state dimension, not {world.grid.state_dim}.")
    etas = jnp.linspace(-1.0, 1.0, ETAS, dtype=jnp.float64)

    def under(eta: Array) -> Array:
        return world.transition(now.mean + reach * eta * now.std[:, None])

    return jnp.moveaxis(jax.lax.map(under, etas), 0, 2)
