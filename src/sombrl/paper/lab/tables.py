"""The true system and the learner's belief as tables over the grid."""

import math
from typing import NamedTuple

from jaxtyping import Array, Float

from sombrl.paper.lab.gp import GridPosterior
from sombrl.paper.lab.systems import GridWorld, System
from sombrl.theory import beta


class Truth(NamedTuple):
    """The tables of the true system."""

    residual: Float[Array, "inputs state"]
    reward: Float[Array, "states actions"]
    transition: Float[Array, "states actions states"]


def truth(world: GridWorld, system: System) -> Truth:
    """The true system on the grid."""
    residual = system.residual(world)
    return Truth(residual, system.reward(world.grid), world.transition(residual))


def confidence(world: GridWorld, now: GridPosterior) -> Float[Array, ""]:
    """βₙ(δ) for the data seen so far."""
    return beta(
        now.information_gain,
        norm_bound=world.norm_bound,
        noise_std=world.noise.size,
        delta=world.delta,
        state_dim=world.grid.state_dim,
        model_noise_std=world.noise.size,
    )


def bonus(world: GridWorld, now: GridPosterior) -> Float[Array, "states actions"]:
    """‖σₙ‖ as a reward table."""
    norm = math.sqrt(world.grid.state_dim) * now.std
    return norm.reshape(world.grid.num_states, world.grid.num_actions)
