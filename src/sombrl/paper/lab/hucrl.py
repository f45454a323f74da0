"""H-UCRL, and NeoRL where nothing resets: plan in the best of all plausible worlds, f̃ = μₙ + βₙσₙη with |η| <= 1.

On a grid η is one more action that the environment never sees. It takes `ETAS` values from end to end of the interval,
or of the part of it that the edge leaves, and means are rounded to one of `MEANS`: the plan is exact up to these. There
is one state dimension: with d there would be `ETAS`ᵈ such actions, which is what the paper calls intractable.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sombrl.paper.lab.gp import Evidence, GridPosterior, posterior
from sombrl.paper.lab.planner import Policy
from sombrl.paper.lab.regret import Choice, Method
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld
from sombrl.paper.lab.tables import Truth, confidence
from sombrl.records import SombrlError

ETAS = 21
MEANS = 601


class Plausible(NamedTuple):
    """Where the plausible means lead to: P(x' | mean), and which means there are at (x, u)."""

    landings: Float[Array, "means states"]
    places: Int[Array, "states actions etas"]

    @property
    def worlds(self) -> Float[Array, "states actions etas states"]:
        """P(x' | x, u, η)."""
        return self.landings[self.places]

    def best(self, value: Float[Array, " states"]) -> Float[Array, "states actions"]:
        """max over η of E V(x')."""
        return jnp.max((self.landings @ value)[self.places], axis=-1)


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
    states, actions = true.reward.shape
    worlds = plausible(world, now, reach).worlds.reshape(states, actions * ETAS, states)
    both = setting.plan(worlds, jnp.repeat(true.reward, ETAS, axis=1))
    policy: Policy = both.reshape(-1, states, actions, ETAS).sum(axis=-1)
    return policy, now, width, reach


def plausible(world: GridWorld, now: GridPosterior, reach: Float[Array, ""]) -> Plausible:
    """The worlds μₙ + reach σₙ η."""
    grid = world.grid
    if grid.state_dim != 1:
        raise SombrlError(f"H-UCRL on a grid has one state dimension, not {grid.state_dim}.")
    # Farther out than this everything lands on the edge, so nothing is lost by looking no farther.
    outside = grid.half_width + 4.0 * world.noise.size
    means = jnp.linspace(-outside, outside, MEANS, dtype=jnp.float64)
    centre = world.known + now.mean
    low, high = (jnp.clip(centre + sign * reach * now.std[:, None], -outside, outside) for sign in (-1.0, 1.0))
    candidates = jnp.linspace(low, high, ETAS, axis=-1)[:, 0]
    nearest = jnp.round((candidates + outside) / (2.0 * outside) * (MEANS - 1)).astype(jnp.int32)
    return Plausible(
        grid.landings(world.noise, means[:, None]), nearest.reshape(grid.num_states, grid.num_actions, ETAS)
    )
