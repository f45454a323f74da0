"""Gymnasium's `Pendulum-v1` in JAX, with the paper's hanging start and sparse reward."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.envs.base import AbstractWorld
from sombrl.envs.drift import Drift, drifted
from sombrl.envs.guards import check_choice, check_cost
from sombrl.envs.hinge import check_limit, hinge
from sombrl.envs.noise import Noise
from sombrl.envs.tolerance import tolerance
from sombrl.records import AbstractCost, AbstractTask

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
MAX_TORQUE, MAX_SPEED = 2.0, 8.0
DENSE_COST = 0.001  # Gymnasium's weight of u²
SPIN_SPEED = 6.0
DOWNSTREAM = ("swing-up", "keep-down", "spin")


class Pendulum(AbstractWorld):
    """State (θ, ω), θ = 0 upright; observation (cos θ, sin θ, ω); torque u = 2·action.

    - `start`: "hanging" (θ = π, ω = 0: the paper's swing-up) or "random" (Gymnasium's uniform).
    - `reward`: "dense", −(θ² + 0.1 ω² + c u²), or "sparse", upright × slow + c (idle − 1); both judge the
      state *before* the step, as Gymnasium does.
    - `action_cost`: c. Left out, it is Gymnasium's 0.001 for the dense reward and 0 for the sparse one.
    - `noise`, `noise_std`, `noise_growth`: noise on every frame (noise.py), `noise_std` rad/s on ω and 0.05 of
      that in rad on θ.
    - `speed_limit`: costs from `cost_margin` rad/s below it, 1 at it (hinge.py); None: there is no cost.
    - `drift`, `drift_from`, `drift_over`, `drift_factor`: "torque" or "mass" is multiplied by a factor from episode
      `drift_from` on, within `drift_over` episodes (drift.py).
    """

    obs_dim: ClassVar[int] = 3
    action_dim: ClassVar[int] = 1
    episode_frames: ClassVar[int] = 200

    start: str = eqx.field(static=True)
    reward: str = eqx.field(static=True)
    action_cost: float = eqx.field(static=True)
    noise: Noise
    speed_limit: float | None = eqx.field(static=True)
    cost_margin: float = eqx.field(static=True)
    drift: Drift

    def __init__(
        self,
        start: str = "hanging",
        reward: str = "dense",
        action_cost: float | int | None = None,
        noise: str = "none",
        noise_std: float | int = 0.0,
        noise_growth: float | int = 0.0,
        speed_limit: float | int | None = None,
        cost_margin: float | int = 1.0,
        drift: str = "none",
        drift_from: int = 10,
        drift_over: int = 1,
        drift_factor: float | int = 0.5,
    ):
        self.start = check_choice(start, "start", ("hanging", "random"))
        self.reward = check_choice(reward, "reward", ("dense", "sparse"))
        default = DENSE_COST if reward == "dense" else 0.0
        self.action_cost = check_cost(default if action_cost is None else action_cost)
        self.noise = Noise(noise, noise_std, noise_growth)
        self.speed_limit = check_limit(speed_limit, "speed_limit")
        self.cost_margin = check_cost(cost_margin, "cost_margin")
        self.drift = Drift(drift, drift_from, drift_over, drift_factor)

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """θ = π at rest, or θ ~ U(−π, π), ω ~ U(−1, 1)."""
        if self.start == "hanging":
            return jnp.array([jnp.pi, 0.0], jnp.float32)
        return jr.uniform(key, (2,), jnp.float32, -1.0, 1.0) * jnp.array([jnp.pi, 1.0], jnp.float32)

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " state"], Float[Array, ""], Bool[Array, ""]]:
        """One frame of 0.05 s (semi-implicit Euler); it never ends by itself."""
        theta, omega = state[0], state[1]
        torque = _torque(action)
        pushed = self.drift.applied(torque)
        acceleration = 1.5 * GRAVITY / LENGTH * jnp.sin(theta) + 3.0 / (MASS * LENGTH**2) * pushed
        next_omega = jnp.clip(omega + acceleration * DT, -MAX_SPEED, MAX_SPEED)
        next_theta = theta + next_omega * DT
        if self.noise.kind != "none":
            push = self.noise(action, 2, key=key)
            next_theta = next_theta + DT * push[0]
            next_omega = jnp.clip(next_omega + push[1], -MAX_SPEED, MAX_SPEED)
        # Wrapped, unlike Gymnasium's: in float32 an angle that keeps growing loses precision in a long run.
        next_state = jnp.stack([_wrap(next_theta), next_omega])
        return next_state, self.judge(_wrap(theta), omega, torque), jnp.zeros((), bool)

    def judge(self, theta: Float[Array, ""], omega: Float[Array, ""], torque: Float[Array, ""]) -> Float[Array, ""]:
        """The reward of one frame; θ in [−π, π]."""
        if self.reward == "dense":
            return -(theta**2 + 0.1 * omega**2 + self.action_cost * torque**2)
        upright = tolerance(jnp.cos(theta), lower=0.95, upper=1.0, margin=0.1)
        slow = tolerance(omega, lower=-0.5, upper=0.5, margin=0.5)
        idle = tolerance(torque, lower=-0.1, upper=0.1, margin=0.1)
        return upright * slow + self.action_cost * (idle - 1.0)  # H-UCRL's form: only a penalty

    def observe(self, state: Float[Array, " state"]) -> Float[Array, " obs"]:
        """(cos θ, sin θ, ω)."""
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    def without_noise(self) -> "Pendulum":
        """The same pendulum, undisturbed."""
        limit = {"speed_limit": self.speed_limit, "cost_margin": self.cost_margin}
        options: dict[str, Any] = limit | self.drift.options
        return Pendulum(self.start, self.reward, self.action_cost, **options)

    def infer(self, obs: Float[Array, " obs"]) -> Float[Array, " state"]:
        """(θ, ω)."""
        return jnp.stack([jnp.arctan2(obs[1], obs[0]), obs[2]])

    def task(self, action_repeat: int) -> AbstractTask:
        """The known reward on observations."""
        return PendulumTask(self, action_repeat)

    def in_episode(self, episode: Any) -> "Pendulum":
        """The world with the torque and the mass of an episode."""
        return drifted(self, self.drift, episode)

    def cost(self, action_repeat: int) -> AbstractCost | None:
        """Of speed, with a speed limit."""
        return None if self.speed_limit is None else PendulumSpeed(self.speed_limit, self.cost_margin)

    def downstream(self, action_repeat: int) -> dict[str, AbstractTask]:
        """Balance upright, rest hanging, or turn at 6 rad/s."""
        return {name: PendulumGoal(name, action_repeat) for name in DOWNSTREAM}

    def optimal_average(self) -> float | None:
        """Upright and idle: 0, or 1 when the reward is sparse. Not known with noise, under which it cannot rest."""
        if self.noise.kind != "none":
            return None
        return 0.0 if self.reward == "dense" else 1.0

    def draw(self, state: Float[Array, " state"], axes: Any) -> None:
        """The rod, its pivot and its bob; a faint circle shows where the bob can be."""
        theta = float(np.asarray(state)[0])
        x, y = -np.sin(theta), np.cos(theta)  # θ grows anticlockwise
        circle = np.linspace(0.0, 2.0 * np.pi, 120)
        axes.plot(np.cos(circle), np.sin(circle), color="0.9", linewidth=1, zorder=0)
        axes.plot([0.0, x], [0.0, y], color="#c44e52", linewidth=9, solid_capstyle="round")
        axes.plot([x], [y], "o", color="#8c2d31", markersize=15)
        axes.plot([0.0], [0.0], "o", color="0.2", markersize=7)
        axes.set(xlim=(-1.95, 1.95), ylim=(-1.3, 1.3), aspect="equal")
        axes.set_axis_off()


class PendulumTask(AbstractTask):
    """The pendulum's reward read off an observation, for `action_repeat` frames as if all began there."""

    world: Pendulum
    action_repeat: int = eqx.field(static=True)

    def reward(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """`action_repeat` × the frame's reward at the state before the step."""
        torque = _torque(action.astype(state.dtype))
        return self.action_repeat * self.world.judge(jnp.arctan2(state[1], state[0]), state[2], torque)

    def terminated(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Bool[Array, ""]:
        """Never."""
        return jnp.zeros((), bool)


class PendulumSpeed(AbstractCost):
    """The cost of |ω| after a decision."""

    limit: float = eqx.field(static=True)
    margin: float = eqx.field(static=True)

    def __call__(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """1 at the limit."""
        return hinge(jnp.abs(next_state[2]), self.limit, self.margin)


class PendulumGoal(AbstractTask):
    """A task for the pendulum that its world does not pay for: −(distance² + 0.001 u²) per frame.

    `swing-up` and `keep-down` measure θ² + 0.1 ω² from upright and from hanging, `spin` 0.1 (ω − 6)².
    """

    goal: str = eqx.field(static=True)
    action_repeat: int = eqx.field(static=True)

    def reward(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """`action_repeat` × the frame's reward at the state before the step."""
        if self.goal == "spin":
            distance = 0.1 * (state[2] - SPIN_SPEED) ** 2
        else:
            side = 1.0 if self.goal == "swing-up" else -1.0
            distance = jnp.arctan2(side * state[1], side * state[0]) ** 2 + 0.1 * state[2] ** 2
        return -self.action_repeat * (distance + DENSE_COST * _torque(action.astype(state.dtype)) ** 2)

    def terminated(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Bool[Array, ""]:
        """Never."""
        return jnp.zeros((), bool)


def _torque(action: Float[Array, " action"]) -> Float[Array, ""]:
    return MAX_TORQUE * jnp.clip(action[0], -1.0, 1.0)


def _wrap(theta: Float[Array, ""]) -> Float[Array, ""]:
    """The angle in [−π, π]; one that is there already comes back bit for bit."""
    return theta - 2.0 * jnp.pi * jnp.round(theta / (2.0 * jnp.pi))
