"""Gymnasium's `MountainCarContinuous-v0` in JAX: an underpowered car, and nothing but cost until the goal."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.envs.base import AbstractWorld
from sombrl.envs.drift import Drift, drifted
from sombrl.envs.guards import check_cost
from sombrl.envs.hinge import hinge
from sombrl.envs.noise import Noise
from sombrl.records import AbstractCost, AbstractTask, SombrlError

POWER, GRAVITY = 0.0015, 0.0025
MIN_POSITION, MAX_POSITION, MAX_SPEED = -1.2, 0.6, 0.07
GOAL_POSITION, GOAL_VELOCITY, GOAL_REWARD = 0.45, 0.0, 100.0
LEFT_POSITION = -1.1
NOISE_UNITS = (0.01, 0.001)  # of x and v
DOWNSTREAM = ("goal-right", "goal-left")


class MountainCar(AbstractWorld):
    """State and observation (x, v); the action is the force.

    - `action_cost`: c in 100·[goal] − c u², the goal being x' ≥ 0.45 and v' ≥ 0.
    - `terminates`: False, the paper's variant: the car may stay and earns 100 on every frame there, episodes
      of 200 frames. True, Gymnasium's: the goal ends the episode, at most 999 frames.
    - `noise`, `noise_std`, `noise_growth`: noise on every frame (noise.py), `noise_std` in units of 0.01 for x and
      0.001 for v.
    - `cliff`: where the ground ends on the left; costs from `cost_margin` to the right of it, 1 at it (hinge.py). None:
      there is no cost.
    - `drift`, `drift_from`, `drift_over`, `drift_factor`: "torque" or "mass" is multiplied by a factor from episode
      `drift_from` on, within `drift_over` episodes (drift.py).
    """

    obs_dim: ClassVar[int] = 2
    action_dim: ClassVar[int] = 1

    action_cost: float = eqx.field(static=True)
    terminates: bool = eqx.field(static=True)
    noise: Noise
    cliff: float | None = eqx.field(static=True)
    cost_margin: float = eqx.field(static=True)
    drift: Drift

    def __init__(
        self,
        action_cost: float | int = 0.1,
        terminates: bool = False,
        noise: str = "none",
        noise_std: float | int = 0.0,
        noise_growth: float | int = 0.0,
        cliff: float | int | None = None,
        cost_margin: float | int = 0.1,
        drift: str = "none",
        drift_from: int = 10,
        drift_over: int = 1,
        drift_factor: float | int = 0.5,
    ):
        self.action_cost = check_cost(action_cost)
        self.noise = Noise(noise, noise_std, noise_growth)
        if cliff is not None and not (isinstance(cliff, float | int) and MIN_POSITION <= cliff <= -0.6):
            raise SombrlError(f"cliff must lie between {MIN_POSITION} and -0.6, where the car starts, not {cliff!r}.")
        self.cliff = None if cliff is None else float(cliff)
        self.cost_margin = check_cost(cost_margin, "cost_margin")
        self.drift = Drift(drift, drift_from, drift_over, drift_factor)
        if not isinstance(terminates, bool):
            raise SombrlError(f"terminates must be True or False, not {terminates!r}.")
        self.terminates = terminates

    @property
    def episode_frames(self) -> int:  # type: ignore[override]  # a class variable in the contract; here it depends
        """200 frames, or Gymnasium's 999 for its terminating variant."""
        return 999 if self.terminates else 200

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """x ~ U(−0.6, −0.4), at rest."""
        position = jr.uniform(key, (), jnp.float32, -0.6, -0.4)
        return jnp.stack([position, jnp.zeros((), jnp.float32)])

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " state"], Float[Array, ""], Bool[Array, ""]]:
        """One frame; the left wall stops the car, the right one only holds it (there it can rest)."""
        force = _force(action)
        velocity = state[1] + POWER * self.drift.applied(force) - GRAVITY * jnp.cos(3.0 * state[0])
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = state[0] + velocity
        if self.noise.kind != "none":
            push = self.noise(action, 2, key=key)
            position = position + NOISE_UNITS[0] * push[0]
            velocity = jnp.clip(velocity + NOISE_UNITS[1] * push[1], -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(position, MIN_POSITION, MAX_POSITION)
        velocity = jnp.where((position <= MIN_POSITION) & (velocity < 0.0), 0.0, velocity)
        next_state = jnp.stack([position, velocity])
        goal = at_goal(next_state)
        reward = jnp.where(goal, GOAL_REWARD, 0.0).astype(state.dtype) - self.action_cost * force**2
        return next_state, reward, goal & self.terminates

    def observe(self, state: Float[Array, " state"]) -> Float[Array, " obs"]:
        """(x, v)."""
        return state

    def can_end(self) -> bool:
        """At the goal, if it terminates."""
        return self.terminates

    def without_noise(self) -> "MountainCar":
        """The same car, undisturbed."""
        options: dict[str, Any] = {"cliff": self.cliff, "cost_margin": self.cost_margin} | self.drift.options
        return MountainCar(self.action_cost, self.terminates, **options)

    def infer(self, obs: Float[Array, " obs"]) -> Float[Array, " state"]:
        """The observation is the state."""
        return obs

    def task(self, action_repeat: int) -> AbstractTask:
        """The known reward and termination on observations."""
        return MountainCarTask(self, action_repeat)

    def in_episode(self, episode: Any) -> "MountainCar":
        """The world with the torque and the mass of an episode."""
        return drifted(self, self.drift, episode)

    def cost(self, action_repeat: int) -> AbstractCost | None:
        """Of the cliff, if there is one."""
        return None if self.cliff is None else MountainCarCliff(self.cliff, self.cost_margin)

    def downstream(self, action_repeat: int) -> dict[str, AbstractTask]:
        """Be on the right hill, or on the left one."""
        return {name: MountainCarGoal(name, action_repeat) for name in DOWNSTREAM}

    def optimal_average(self) -> float | None:
        """100: beyond x = π/6 gravity itself presses the car to the right wall. Not known with noise or an end."""
        return None if self.terminates or self.noise.kind != "none" else GOAL_REWARD

    def draw(self, state: Float[Array, " state"], axes: Any) -> None:
        """The hill, the goal's flag, and the car along the slope."""
        position = float(np.asarray(state)[0])
        xs = np.linspace(MIN_POSITION, MAX_POSITION, 200)
        axes.fill_between(xs, -0.1, _height(xs), color="#dfe5d8", linewidth=0)
        axes.plot(xs, _height(xs), color="#5b7045", linewidth=2)
        foot = _height(GOAL_POSITION)
        axes.plot([GOAL_POSITION, GOAL_POSITION], [foot, foot + 0.22], color="0.25", linewidth=2)
        flag = np.array([GOAL_POSITION, foot]) + np.array([[0.0, 0.22], [0.11, 0.18], [0.0, 0.14]])
        axes.fill(flag[:, 0], flag[:, 1], color="#dd8452")
        slope = np.arctan(1.35 * np.cos(3.0 * position))  # the derivative of the height
        turn = np.array([[np.cos(slope), np.sin(slope)], [-np.sin(slope), np.cos(slope)]])
        place = np.array([position, _height(position)])
        body = np.array([[-0.08, 0.035], [0.08, 0.035], [0.055, 0.1], [-0.055, 0.1]]) @ turn + place
        wheels = np.array([[-0.045, 0.028], [0.045, 0.028]]) @ turn + place
        axes.fill(body[:, 0], body[:, 1], color="#4c72b0", zorder=3)
        axes.plot(wheels[:, 0], wheels[:, 1], "o", color="0.2", markersize=7, zorder=4)
        axes.set(xlim=(MIN_POSITION, MAX_POSITION), ylim=(-0.02, 1.28), aspect="equal")
        axes.set_axis_off()


class MountainCarTask(AbstractTask):
    """The car's reward and termination from the next observation, for decisions of `action_repeat` frames."""

    world: MountainCar
    action_repeat: int = eqx.field(static=True)

    def reward(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """`action_repeat` × the frame's reward; a goal that ends the episode is paid once."""
        paid = 1 if self.world.terminates else self.action_repeat
        prize = jnp.where(at_goal(next_state), paid * GOAL_REWARD, 0.0).astype(next_state.dtype)
        force = _force(action.astype(next_state.dtype))
        return prize - self.action_repeat * self.world.action_cost * force**2

    def terminated(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Bool[Array, ""]:
        """At the goal, if the world terminates."""
        return at_goal(next_state) & self.world.terminates


class MountainCarCliff(AbstractCost):
    """The cost of where a decision leads."""

    cliff: float = eqx.field(static=True)
    margin: float = eqx.field(static=True)

    def __call__(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """1 at the cliff."""
        return hinge(-next_state[0], -self.cliff, self.margin)


class MountainCarGoal(AbstractTask):
    """A task for the car that its world need not pay for: 1 on every frame at x ≥ 0.45, or at x ≤ -1.1."""

    goal: str = eqx.field(static=True)
    action_repeat: int = eqx.field(static=True)

    def reward(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """`action_repeat` × whether the next state is there."""
        there = next_state[0] >= GOAL_POSITION if self.goal == "goal-right" else next_state[0] <= LEFT_POSITION
        return self.action_repeat * there.astype(next_state.dtype)

    def terminated(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Bool[Array, ""]:
        """Never."""
        return jnp.zeros((), bool)


def at_goal(state: Float[Array, " state"]) -> Bool[Array, ""]:
    """x ≥ 0.45 and v ≥ 0."""
    return (state[0] >= GOAL_POSITION) & (state[1] >= GOAL_VELOCITY)


def _force(action: Float[Array, " action"]) -> Float[Array, ""]:
    return jnp.clip(action[0], -1.0, 1.0)


def _height(position: Any) -> Any:
    """The height of the hill at a position, or at many."""
    return 0.45 * np.sin(3.0 * position) + 0.55
