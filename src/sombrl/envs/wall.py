"""A point mass behind a wall: the goal is near, and the way there leads around."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.envs.base import AbstractWorld
from sombrl.envs.guards import check_cost
from sombrl.records import AbstractTask

SIZE, MAX_SPEED, POWER, FRICTION = 2.0, 0.2, 0.03, 0.9
WALL_Y, HEIGHT, WIDTH, EDGE = 1.0, 0.06, 0.2, 0.1
"""The wall is a ridge along x = 0 that ends at y = 1, higher than the mass can climb."""
START, GOAL, RADIUS = (-1.0, -1.0), (1.0, -1.0), 0.4


class Wall(AbstractWorld):
    """State and observation (x, y, vx, vy) in a square of ±2; the two actions push the mass.

    The mass starts at (-1, -1). Within 0.4 of (1, -1) a frame pays 1. A wall along x = 0 pushes it back, and is open
    above y = 1 only. A frame costs `action_cost` ‖u‖².
    """

    obs_dim: ClassVar[int] = 4
    action_dim: ClassVar[int] = 2
    episode_frames: ClassVar[int] = 100

    action_cost: float = eqx.field(static=True)

    def __init__(self, action_cost: float | int = 0.01):
        self.action_cost = check_cost(action_cost)

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """Around (-1, -1), at rest."""
        place = jnp.asarray(START, jnp.float32) + jr.uniform(key, (2,), jnp.float32, -0.1, 0.1)
        return jnp.concatenate([place, jnp.zeros(2, jnp.float32)])

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " state"], Float[Array, ""], Bool[Array, ""]]:
        """One frame. The wall and the border stop the mass in the direction in which it meets them."""
        force = jnp.clip(action, -1.0, 1.0)
        push = POWER * force + _slope(state[:2])
        velocity = jnp.clip(FRICTION * state[2:] + push, -MAX_SPEED, MAX_SPEED)
        moved = state[:2] + velocity
        place = jnp.clip(moved, -SIZE, SIZE)
        velocity = jnp.where(moved == place, velocity, 0.0)
        next_state = jnp.concatenate([place, velocity])
        return next_state, _pay(next_state) - self.action_cost * jnp.sum(force**2), jnp.zeros((), bool)

    def observe(self, state: Float[Array, " state"]) -> Float[Array, " obs"]:
        """(x, y, vx, vy)."""
        return state

    def infer(self, obs: Float[Array, " obs"]) -> Float[Array, " state"]:
        """The observation is the state."""
        return obs

    def task(self, action_repeat: int) -> AbstractTask:
        """The known reward on observations."""
        return WallTask(self, action_repeat)

    def optimal_average(self) -> float | None:
        """1: at the goal nothing has to be done."""
        return 1.0

    def draw(self, state: Float[Array, " state"], axes: Any) -> None:
        """The square from above."""
        from matplotlib.patches import Circle  # matplotlib is an extra

        x, y = (float(value) for value in np.asarray(state)[:2])
        axes.add_patch(Circle(GOAL, RADIUS, color="#dd8452", alpha=0.6))
        axes.plot([0.0, 0.0], [-SIZE, WALL_Y], color="0.25", linewidth=4)
        axes.plot([x], [y], "o", color="#4c72b0", markersize=12, zorder=3)
        axes.set(xlim=(-SIZE, SIZE), ylim=(-SIZE, SIZE), aspect="equal", xticks=[], yticks=[])


class WallTask(AbstractTask):
    """The reward from the next observation, for decisions of `action_repeat` frames."""

    world: Wall
    action_repeat: int = eqx.field(static=True)

    def reward(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """`action_repeat` × the frame's reward."""
        force = jnp.clip(action, -1.0, 1.0).astype(next_state.dtype)
        return self.action_repeat * (_pay(next_state) - self.world.action_cost * jnp.sum(force**2))

    def terminated(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Bool[Array, ""]:
        """Never."""
        return jnp.zeros((), bool)


def _slope(place: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """How the wall pushes: down the slope of HEIGHT · exp(-x²/2 WIDTH²) · sigmoid((WALL_Y - y)/EDGE)."""
    x, y = place[0], place[1]
    ridge = HEIGHT * jnp.exp(-0.5 * (x / WIDTH) ** 2)
    inside = jax.nn.sigmoid((WALL_Y - y) / EDGE)
    return jnp.stack([ridge * inside * x / WIDTH**2, ridge * inside * (1.0 - inside) / EDGE])


def _pay(state: Float[Array, " state"]) -> Float[Array, ""]:
    return jnp.where(at_goal(state), 1.0, 0.0).astype(state.dtype)


def at_goal(state: Float[Array, " state"]) -> Bool[Array, ""]:
    """Within RADIUS of the goal."""
    distance = jnp.sqrt(jnp.sum((state[:2] - jnp.asarray(GOAL, state.dtype)) ** 2))
    return distance <= RADIUS
