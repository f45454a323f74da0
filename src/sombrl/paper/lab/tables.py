"""The true system and the learner's belief as tables over the grid."""

from typing import NamedTuple

from jaxtyping import Array, Float

from sombrl.paper.lab.gp import GridPosterior
from sombrl.paper.lab.systems import System, World
from sombrl.theory import beta


class Truth(NamedTuple):
    """The tables of the true system."""

    residual: Float[Array, "inputs state"]
    reward: Float[Array, "states actions"]
    transition: Float[Array, "states actions states"]


def truth(world: World, system: System) -> Truth:
    """The true system on the grid."""
    residual = system.residual(world)
    return Truth(residual, system.reward(world.grid), world.transition(residual))


def confidence(world: World, now: GridPosterior) -> Float[Array, ""]:
    """βₙ(δ) for the data seen so far."""
    return beta(
        now.information_gain,
        norm_bound=world.norm_bound,
        noise_std=world.noise.size,
        delta=world.delta,
        state_dim=world.grid.state_dim,
        model_noise_std=world.noise.size,
    )


def bonus(world: World, now: GridPosterior) -> Float[Array, "states actions"]:
    """‖σₙ‖ as a reward table."""
    return (world.grid.state_dim**0.5 * now.std).reshape(world.grid.num_states, world.grid.num_actions)
