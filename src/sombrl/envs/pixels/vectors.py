"""Worlds with vectors, drawn: their physics are those of the worlds without `pixel:`, their rewards are not."""

from typing import ClassVar, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.envs import mountain_car, wall
from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.pendulum import Pendulum
from sombrl.envs.pixels.canvas import Canvas
from sombrl.envs.pixels.scene import GOAL, GROUND, AbstractScene
from sombrl.envs.wall import Wall

Number = TypeVar("Number", float, Float[Array, ""])
UPRIGHT, SLOW = 0.95, 1.0  # cos θ, and rad/s


class MountainCarScene(AbstractScene):
    """The car from the side; state (x, v)."""

    action_dim: ClassVar[int] = 1
    frames: ClassVar[int] = 2
    decisions: ClassVar[int] = 100

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """As the car's."""
        return MountainCar().reset(key=key)

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """As the car's."""
        return MountainCar().step(state, action, key=key)[0]

    def at_goal(self, state: Float[Array, " state"]) -> Bool[Array, ""]:
        """On the hill, and not rolling back."""
        return mountain_car.at_goal(state)

    def moving(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """The car, on the slope."""
        return canvas.disc(_across(state[0]), _hill(state[0]) + 0.06, 0.075)

    def standing(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """The hill, and a flag at the goal."""
        hill = GROUND * canvas.below(_hill(jnp.asarray(2.0 * canvas.x - 1.3)))
        left = _across(mountain_car.GOAL_POSITION)
        return jnp.maximum(hill, GOAL * canvas.box(left, left + 0.07, 0.72, 1.0))


def _across(position: Number) -> Number:
    return (position + 1.3) / 2.0


def _hill(position: Float[Array, "*pixels"]) -> Float[Array, "*pixels"]:
    """How high the ground is drawn; the slope is the physics' own."""
    return 0.46 + 0.34 * jnp.sin(3.0 * position)


class PendulumScene(AbstractScene):
    """The pendulum from the side, hanging at first; state (θ, ω)."""

    action_dim: ClassVar[int] = 1
    frames: ClassVar[int] = 1
    decisions: ClassVar[int] = 200

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """Hanging."""
        return Pendulum().reset(key=key)

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """As the pendulum's."""
        return Pendulum().step(state, action, key=key)[0]

    def at_goal(self, state: Float[Array, " state"]) -> Bool[Array, ""]:
        """Upright and slow."""
        return (jnp.cos(state[0]) >= UPRIGHT) & (jnp.abs(state[1]) <= SLOW)

    def moving(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """The rod, with a bob."""
        x, y = 0.5 - 0.36 * jnp.sin(state[0]), 0.5 + 0.36 * jnp.cos(state[0])  # θ grows anticlockwise
        return jnp.maximum(canvas.rod((0.5, 0.5), x, y, 0.04), canvas.disc(x, y, 0.09))

    def standing(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """The pivot, and a mark where the bob is to be."""
        pivot = GROUND * canvas.box(0.45, 0.55, 0.45, 0.55)
        return jnp.asarray(np.maximum(pivot, GOAL * canvas.box(0.42, 0.58, 0.84, 0.92)))


class WallScene(AbstractScene):
    """The point mass behind a wall, from above; state (x, y, vx, vy)."""

    action_dim: ClassVar[int] = 2
    frames: ClassVar[int] = 1
    decisions: ClassVar[int] = 100

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """As the mass's."""
        return Wall().reset(key=key)

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """As the mass's."""
        return Wall().step(state, action, key=key)[0]

    def at_goal(self, state: Float[Array, " state"]) -> Bool[Array, ""]:
        """Where `wall` pays."""
        return wall.at_goal(state)

    def moving(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """The mass."""
        return canvas.disc(_inside(state[0]), _inside(state[1]), 0.06)

    def standing(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """The wall and the goal."""
        ridge = GROUND * canvas.box(_inside(-wall.WIDTH), _inside(wall.WIDTH), 0.0, _inside(wall.WALL_Y))
        x, y = wall.GOAL
        return jnp.maximum(ridge, GOAL * canvas.disc(_inside(x), _inside(y), wall.RADIUS / 4.4))


def _inside(place: Number) -> Number:
    return (place + 2.2) / 4.4
