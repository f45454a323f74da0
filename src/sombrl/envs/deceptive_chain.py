"""A cart on a track that pays a little where it starts and a lot behind a hill: a trap for those who do not explore."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.envs.base import AbstractWorld
from sombrl.envs.guards import check_cost
from sombrl.records import AbstractTask

LEFT, RIGHT, MAX_SPEED = -1.0, 6.0, 0.1
POWER, SLOPE = 0.005, 0.003  # of the motor and of the hill, per frame
HILL = (1.0, 4.0)
HOME, GOAL = 0.5, 5.0
HOME_REWARD, GOAL_REWARD = 0.1, 1.0


class DeceptiveChain(AbstractWorld):
    """State and observation (x, v) of a cart with -1 <= x <= 6; the action is the force of its motor.

    Within 0.5 of the start a frame pays 0.1, and beyond x = 5 it pays 1. Between them is a hill, and the way over it
    takes about sixty frames of full force. A frame costs `action_cost` u².
    """

    obs_dim: ClassVar[int] = 2
    action_dim: ClassVar[int] = 1
    episode_frames: ClassVar[int] = 200

    action_cost: float = eqx.field(static=True)

    def __init__(self, action_cost: float | int = 0.01):
        self.action_cost = check_cost(action_cost)

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """x ~ U(-0.1, 0.1), at rest."""
        return jnp.stack([jr.uniform(key, (), jnp.float32, -0.1, 0.1), jnp.zeros((), jnp.float32)])

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " state"], Float[Array, ""], Bool[Array, ""]]:
        """One frame. The ends of the track stop the cart."""
        force = jnp.clip(action[0], -1.0, 1.0)
        uphill = jnp.where((state[0] > HILL[0]) & (state[0] < HILL[1]), SLOPE, 0.0)
        velocity = jnp.clip(state[1] + POWER * force - uphill.astype(state.dtype), -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state[0] + velocity, LEFT, RIGHT)
        stopped = ((position <= LEFT) & (velocity < 0.0)) | ((position >= RIGHT) & (velocity > 0.0))
        next_state = jnp.stack([position, jnp.where(stopped, 0.0, velocity)])
        return next_state, _pay(next_state) - self.action_cost * force**2, jnp.zeros((), bool)

    def observe(self, state: Float[Array, " state"]) -> Float[Array, " obs"]:
        """(x, v)."""
        return state

    def infer(self, obs: Float[Array, " obs"]) -> Float[Array, " state"]:
        """The observation is the state."""
        return obs

    def task(self, action_repeat: int) -> AbstractTask:
        """The known reward on observations."""
        return DeceptiveChainTask(self, action_repeat)

    def optimal_average(self) -> float | None:
        """1: behind the hill nothing has to be done."""
        return GOAL_REWARD

    def draw(self, state: Float[Array, " state"], axes: Any) -> None:
        """The track from the side, both places that pay, and the cart."""
        position = float(np.asarray(state)[0])
        xs = np.linspace(LEFT, RIGHT, 200)
        axes.fill_between(xs, -0.3, _height(xs), color="#dfe5d8", linewidth=0)
        axes.plot(xs, _height(xs), color="#5b7045", linewidth=2)
        axes.plot([-HOME, HOME], [0.0, 0.0], color="#8c8c8c", linewidth=5)
        axes.plot([GOAL, RIGHT], [_height(RIGHT)] * 2, color="#dd8452", linewidth=5)
        axes.plot([position], [_height(position) + 0.08], "o", color="#4c72b0", markersize=12, zorder=3)
        axes.set(xlim=(LEFT, RIGHT), ylim=(-0.3, 1.6))
        axes.set_axis_off()


class DeceptiveChainTask(AbstractTask):
    """The reward from the next observation, for decisions of `action_repeat` frames."""

    world: DeceptiveChain
    action_repeat: int = eqx.field(static=True)

    def reward(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """`action_repeat` × the frame's reward."""
        force = jnp.clip(action[0], -1.0, 1.0).astype(next_state.dtype)
        return self.action_repeat * (_pay(next_state) - self.world.action_cost * force**2)

    def terminated(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Bool[Array, ""]:
        """Never."""
        return jnp.zeros((), bool)


def _pay(state: Float[Array, " state"]) -> Float[Array, ""]:
    home = jnp.where(jnp.abs(state[0]) <= HOME, HOME_REWARD, 0.0)
    return jnp.where(state[0] >= GOAL, GOAL_REWARD, home).astype(state.dtype)


def _height(position: Any) -> Any:
    return np.clip(np.asarray(position) - HILL[0], 0.0, HILL[1] - HILL[0]) / (HILL[1] - HILL[0])
