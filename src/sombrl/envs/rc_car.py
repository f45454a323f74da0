"""Park an RC car: a half-turn and 1.8 m from the start pose to the goal pose, with three steps of delay."""

import dataclasses
import math
from collections.abc import Sequence
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
from sombrl.envs.rc_car_dynamics import (
    CARS,
    DEFAULTS,
    FIDELITIES,
    INTEGRATORS,
    CarParameters,
    Integrator,
    advance,
    angle,
    decode,
    encode,
    wrap,
)
from sombrl.envs.rc_car_picture import draw_car, draw_field, draw_path
from sombrl.envs.rc_car_picture import draw_trajectory as draw_trajectory
from sombrl.numerics import safe_sqrt
from sombrl.records import AbstractCost, AbstractTask, SombrlError

Pose = tuple[float, float, float]

START: Pose = (1.42, -1.04, math.pi)  # m, m, rad
START_POSITION, START_HEADING = 0.1, 0.1 * math.pi  # half widths of the uniform distributions round it
START_VELOCITY = (0.005, 0.005, 0.02)  # standard deviations
GOAL: Pose = (0.0, 0.0, 0.0)
FENCED = 1.6  # m: a fence encloses every start
BOUND, TAIL = 0.1, 9.0  # parked within D <= 0.1; at one margin beyond, the reward is 1/(1 + 9) = 0.1
OBSERVATION_NOISE = tuple(0.1 * math.exp(power) for power in (-4.5, -4.5, -4.0, -2.5, -2.5, -1.0))
"""Standard deviations of a measured (x, y, θ, vx, vy, ω)."""
DOWNSTREAM: dict[str, Pose] = {
    "park-backwards": (0.0, 0.0, math.pi),
    "park-sideways": (0.0, 0.0, -0.5 * math.pi),
    "turn-round": (START[0], START[1], 0.0),
}


class CarState(eqx.Module):
    """The true state of the car, the actions sent to it, and its measured state."""

    truth: Float[Array, " 6"]  # x, y, θ, vx, vy, ω
    actions: Float[Array, "past 2"]  # oldest first
    measured: Float[Array, " 6"]  # the truth and its observation noise


class RCCar(AbstractWorld):
    """Observation (x, y, sin θ, cos θ, vx, vy, ω, then the last actions, oldest first); action (steer, throttle).

    One frame is 1/30 s. What is sent now drives the car three frames later, so the pending actions are part of the
    observation. A frame pays 1 within D = √(Δx² + Δy² + Δθ²) <= 0.1 of the goal pose, less beyond, minus
    `control_cost` · ‖u‖² of the action that *drove* the car; it judges the noisy measurement after the frame.

    - `margin_factor`: 0.1 of it is the margin, the distance beyond which less than 0.1 is paid. Published: 20
      (dense) and 5 (sparse); 2 and 1 are sparser still.
    - `fidelity`, `car`: the true car, "high" (tyres) or "low" (kinematic), 2 or 1.
    - `integrator`: "rk4", or "legacy", the published one (rc_car_dynamics.py).
    - `delay`: in frames, as many as the observation has past actions.
    - `observation_noise`: a factor on the published standard deviations; True is 1 and False 0.
    - `control_cost`: as above.
    - `stack`: "legacy" shows the past actions a frame late, as the published loop does: the newest is missing.
    - `start_spread`: a factor on the published scatter of the start pose.
    - `fence`: half the side of a square fence round the goal, in m, above 1.6; costs from `cost_margin` inside it, 1 at
      it (hinge.py). None: there is no cost.
    - `drift`, `drift_from`, `drift_over`, `drift_factor`: "torque" or "mass" is multiplied by a factor from episode
      `drift_from` on, within `drift_over` episodes (drift.py).
    """

    action_dim: ClassVar[int] = 2
    episode_frames: ClassVar[int] = 100

    margin_factor: float = eqx.field(static=True)
    fidelity: str = eqx.field(static=True)
    car: int = eqx.field(static=True)
    integrator: Integrator = eqx.field(static=True)
    delay: int = eqx.field(static=True)
    observation_noise: float = eqx.field(static=True)
    control_cost: float = eqx.field(static=True)
    stack: str = eqx.field(static=True)
    start_spread: float = eqx.field(static=True)
    fence: float | None = eqx.field(static=True)
    cost_margin: float = eqx.field(static=True)
    drift: Drift

    def __init__(
        self,
        margin_factor: float | int = 20.0,
        fidelity: str = "high",
        car: int = 2,
        integrator: str = "rk4",
        delay: int = 3,
        observation_noise: float | int = 1.0,
        control_cost: float | int = 0.005,
        stack: str = "corrected",
        start_spread: float | int = 1.0,
        fence: float | int | None = None,
        cost_margin: float | int = 0.2,
        drift: str = "none",
        drift_from: int = 10,
        drift_over: int = 1,
        drift_factor: float | int = 0.5,
    ):
        self.margin_factor = check_cost(margin_factor, "margin_factor")
        if self.margin_factor == 0.0:
            raise SombrlError("margin_factor must be positive, not 0: 1 is very sparse already.")
        self.fidelity = check_choice(fidelity, "fidelity", FIDELITIES)
        if isinstance(car, bool) or car not in CARS:
            raise SombrlError(f"car must be 1 or 2, not {car!r}.")
        self.car = car
        self.integrator = check_choice(integrator, "integrator", INTEGRATORS)  # type: ignore[assignment]
        if isinstance(delay, bool) or not isinstance(delay, int | np.integer) or delay < 0:
            raise SombrlError(f"delay must be a number of whole frames ≥ 0, not {delay!r}.")
        self.delay = int(delay)
        noise = float(observation_noise) if isinstance(observation_noise, bool) else observation_noise
        self.observation_noise = check_cost(noise, "observation_noise")
        self.control_cost = check_cost(control_cost, "control_cost")
        self.stack = check_choice(stack, "stack", ("corrected", "legacy"))
        self.start_spread = check_cost(start_spread, "start_spread")
        self.fence = check_limit(fence, "fence", least=FENCED)
        self.cost_margin = check_cost(cost_margin, "cost_margin")
        self.drift = Drift(drift, drift_from, drift_over, drift_factor)

    @property
    def obs_dim(self) -> int:  # type: ignore[override]  # a class variable in the contract; here it depends
        """7 and two for every past action."""
        return 7 + 2 * self.delay

    @property
    def parameters(self) -> CarParameters:
        """Of the true car."""
        return DEFAULTS[self.fidelity, self.car]

    @property
    def _drifted(self) -> CarParameters:
        """Those of the episode at hand."""
        if self.drift.now is None:
            return self.parameters
        force, mass = self.drift.of("torque"), self.drift.of("mass")
        p = self.parameters
        return dataclasses.replace(p, c_m_1=p.c_m_1 * force, m=p.m * mass, i_com=p.i_com * mass)

    def reset(self, *, key: Key[Array, ""]) -> CarState:
        """Near the start pose, nearly at rest, with no action pending."""
        position_key, heading_key, velocity_key, noise_key = jr.split(key, 4)
        place = START_POSITION * jr.uniform(position_key, (2,), jnp.float32, -1.0, 1.0)
        heading = START_HEADING * jr.uniform(heading_key, (1,), jnp.float32, -1.0, 1.0)
        velocity = jnp.array(START_VELOCITY, jnp.float32) * jr.normal(velocity_key, (3,), jnp.float32)
        truth = jnp.array((*START, 0.0, 0.0, 0.0), jnp.float32)
        truth = truth + self.start_spread * jnp.concatenate([place, heading, velocity])
        truth = truth.at[2].set(wrap(truth[2]))
        remembered = self.delay + (self.stack == "legacy")
        return CarState(truth, jnp.zeros((remembered, 2), jnp.float32), self._measure(truth, key=noise_key))

    def step(
        self, state: CarState, action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[CarState, Float[Array, ""], Bool[Array, ""]]:
        """One frame of 1/30 s under the action of `delay` frames ago; it never ends by itself."""
        actions = jnp.concatenate([state.actions, jnp.clip(action, -1.0, 1.0)[None]])
        applied = actions[-1 - self.delay]
        truth = advance(self._drifted, state.truth, applied, integrator=self.integrator)
        moved = CarState(truth, actions[1:], self._measure(truth, key=key))
        reward = self.parked(self.observe(moved), GOAL) - self.control_cost * jnp.sum(applied**2)
        return moved, reward, jnp.zeros((), bool)

    def _measure(self, truth: Float[Array, " 6"], *, key: Key[Array, ""]) -> Float[Array, " 6"]:
        if self.observation_noise == 0.0:
            return truth
        std = self.observation_noise * jnp.array(OBSERVATION_NOISE, truth.dtype)
        return truth + std * jr.normal(key, truth.shape, truth.dtype)

    def observe(self, state: CarState) -> Float[Array, " obs"]:
        """The encoded measurement and the past actions."""
        return jnp.concatenate([encode(state.measured), state.actions[: self.delay].reshape(-1)])

    def parked(self, obs: Float[Array, " obs"], goal: Pose) -> Float[Array, ""]:
        """1 within D <= 0.1 of a goal pose, then 1/(1 + 9 (D - 0.1)²/margin²)."""
        distance = distance_to(goal, obs)
        margin = BOUND * self.margin_factor
        return 1.0 / (1.0 + TAIL * (jnp.maximum(distance - BOUND, 0.0) / margin) ** 2)

    def without_noise(self) -> "RCCar":
        """The same car, measured exactly; its starts still differ."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return RCCar(**(options | self.drift.options | {"observation_noise": 0.0}))

    def infer(self, obs: Float[Array, " obs"]) -> CarState:
        """The state that looks like this without noise."""
        if self.stack == "legacy":
            raise SombrlError('stack="legacy" hides the newest action: plan on the true car with stack="corrected".')
        truth = decode(obs[:7])
        return CarState(truth, obs[7:].reshape(self.delay, 2), truth)

    def task(self, action_repeat: int) -> AbstractTask:
        """Park at the goal pose."""
        return RCCarTask(self, GOAL, action_repeat)

    def in_episode(self, episode: Any) -> "RCCar":
        """The world with the torque and the mass of an episode."""
        return drifted(self, self.drift, episode)

    def cost(self, action_repeat: int) -> AbstractCost | None:
        """Of the fence, if there is one."""
        return None if self.fence is None else RCCarFence(self.fence, self.cost_margin)

    def downstream(self, action_repeat: int) -> dict[str, AbstractTask]:
        """Park facing the other way, park across, or turn round on the spot."""
        return {name: RCCarTask(self, goal, action_repeat) for name, goal in DOWNSTREAM.items()}

    def draw(self, state: CarState, axes: Any) -> None:
        """The field from above: the goal pose in outline, and the car with its front wheels turned."""
        pose = np.asarray(state.truth)[:3]
        steer = float(np.asarray(state.actions)[-self.delay, 0]) if self.delay else 0.0  # of what drives it next
        draw_field(axes, GOAL, poses=pose[None])
        draw_car(axes, pose, steer=steer * float(self.parameters.steering_limit))

    def draw_trail(self, states: Sequence[CarState], axes: Any) -> None:
        """The path so far."""
        draw_path(axes, np.stack([np.asarray(state.truth)[:3] for state in states]))


class RCCarTask(AbstractTask):
    """Parking at a pose, read off observations, for decisions of `action_repeat` frames.

    For one frame it is what the world pays. For more, every frame is judged by where the last one led; the actions
    that are charged are always the ones that drove the car.
    """

    world: RCCar
    goal: Pose = eqx.field(static=True)
    action_repeat: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        """Refuse a task that an observation does not determine."""
        if self.world.stack == "legacy" and self.action_repeat > 1:
            raise SombrlError('stack="legacy" hides the newest action: use action_repeat 1, or stack="corrected".')

    def reward(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """Parked after the decision, minus what it cost."""
        delay, repeat = self.world.delay, self.action_repeat
        # With the legacy stack, what drives the car now is shown only afterwards.
        shown = next_state if self.world.stack == "legacy" else state
        pending = shown[7:].reshape(delay, 2)[:repeat]
        charged = jnp.sum(pending**2)
        if repeat > delay:
            charged = charged + (repeat - delay) * jnp.sum(jnp.clip(action, -1.0, 1.0).astype(state.dtype) ** 2)
        return repeat * self.world.parked(next_state, self.goal) - self.world.control_cost * charged

    def terminated(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Bool[Array, ""]:
        """Never."""
        return jnp.zeros((), bool)


class RCCarFence(AbstractCost):
    """The cost of where a decision leads, as it is measured."""

    fence: float = eqx.field(static=True)
    margin: float = eqx.field(static=True)

    def __call__(
        self, state: Float[Array, " obs"], action: Float[Array, " action"], next_state: Float[Array, " obs"]
    ) -> Float[Array, ""]:
        """1 at the fence."""
        return hinge(jnp.max(jnp.abs(next_state[:2])), self.fence, self.margin)


def distance_to(goal: Pose, obs: Float[Array, " obs"]) -> Float[Array, ""]:
    """D = √(Δx² + Δy² + Δθ²), metres and radians alike."""
    s, c = math.sin(goal[2]), math.cos(goal[2])
    turn = angle(obs[2] * c - obs[3] * s, obs[3] * c + obs[2] * s)
    return safe_sqrt((obs[0] - goal[0]) ** 2 + (obs[1] - goal[1]) ** 2 + turn**2)
