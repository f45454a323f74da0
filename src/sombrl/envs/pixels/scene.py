"""What a world made of pixels consists of: physics, a goal, and where what is."""

import abc

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key

from sombrl.envs.pixels.canvas import Canvas

GROUND, MARK, GOAL = 0.35, 0.65, 1.0
"""How bright what stands still is: the ground and walls, a door or a key, and the goal."""


class AbstractScene(eqx.Module):
    """Physics without chance, drawn from the side or from above."""

    action_dim: eqx.AbstractClassVar[int]
    frames: eqx.AbstractClassVar[int]
    """Steps of the physics in a decision."""
    decisions: eqx.AbstractClassVar[int]
    """Of an episode."""

    @abc.abstractmethod
    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """A start state."""

    @abc.abstractmethod
    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """One step of the physics."""

    @abc.abstractmethod
    def at_goal(self, state: Float[Array, " state"]) -> Bool[Array, ""]:
        """Whether a decision that leads here pays."""

    @abc.abstractmethod
    def moving(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """What moves, in 0..1."""

    @abc.abstractmethod
    def standing(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """What stands still, in 0..1."""
