"""Prior knowledge of the RC car: coordinates for a learned model, and a simulator as its prior.

Both are for decisions of one frame, and for the observations of rc_car.py: seven numbers of state, then the past
actions, oldest first. Which of them drives the car is learned from data; in the simulator it is the oldest.
"""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.dynamics.coordinates import AbstractCoordinates
from sombrl.dynamics.sim_prior import AbstractSimulator
from sombrl.envs.guards import check_choice
from sombrl.envs.rc_car import OBSERVATION_NOISE
from sombrl.envs.rc_car_dynamics import (
    CARS,
    FIDELITIES,
    INTEGRATORS,
    CarParameters,
    Integrator,
    advance,
    angle,
    decode,
    draw_parameters,
    encode,
)
from sombrl.numerics import safe_sqrt
from sombrl.records import SombrlError

BOXES = {
    "wide": (4.0, 4.0, math.pi, 6.0, 6.0, 8.0),  # where the published prior holds
    "driven": (2.0, 2.0, math.pi, 2.0, 2.0, 3.0),  # where a car mostly is
}
"""Half widths of boxes of (x, y, θ, vx, vy, ω), m, rad, s."""
LIKELIHOOD_STD = tuple(20.0 * std for std in OBSERVATION_NOISE)
"""From which the published model learns its noise, of (x, y, θ, vx, vy, ω): `per_target` gives one per target."""
GAP_STD = {"low": (0.008, 0.008, 0.01, 0.08, 0.08, 0.5), "high": (0.008, 0.008, 0.009, 0.05, 0.05, 0.2)}
"""How far a simulator may be from the car in one frame, as published, by fidelity; per (x, y, θ, vx, vy, ω)."""
INPUT_STD = (3.0, 3.0, 1.0, 1.0, 4.0, 4.0, 5.0)
"""Published scale of the encoded state as an input; that of an action is 1."""


class AbstractCarFrame(AbstractCoordinates):
    """Coordinates of the car; past actions are only shifted, never learned."""

    past: eqx.AbstractVar[int]  # how many actions an observation remembers

    @abc.abstractmethod
    def place(self, inputs: Float[Array, " input"]) -> tuple[Float[Array, " obs"], Float[Array, " action"]]:
        """An observation and an action with these `inputs`."""

    @abc.abstractmethod
    def per_target(self, six: tuple[float, ...]) -> Float[Array, " target"]:
        """Numbers that belong to (x, y, θ, vx, vy, ω), one for each target."""

    @abc.abstractmethod
    def input_scale(self) -> Float[Array, " input"]:
        """By which inputs are divided (their mean is taken as 0)."""


class CarWorldFrame(AbstractCarFrame):
    """Everything is seen; targets are the change of (x, y, sin θ, cos θ, vx, vy, ω), as published.

    `renormalise` puts (sin θ, cos θ) of the next observation back on the unit circle, which the published model leaves.
    """

    past: int = eqx.field(static=True, default=3)
    renormalise: bool = eqx.field(static=True, default=True)

    @property
    def input_dim(self) -> int:
        """State, past actions, action."""
        return 9 + 2 * self.past

    @property
    def target_dim(self) -> int:
        """The encoded state."""
        return 7

    def inputs(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, " input"]:
        """Side by side."""
        return jnp.concatenate([obs, action])

    def targets(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], next_obs: Float[Array, " obs"]
    ) -> Float[Array, " target"]:
        """The change of the state."""
        return next_obs[:7] - obs[:7]

    def next_obs(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], target: Float[Array, " target"]
    ) -> Float[Array, " obs"]:
        """The state and its change; the oldest action goes, the newest comes."""
        state = obs[:7] + target
        if self.renormalise:
            state = state.at[2:4].set(_heading(state))
        return jnp.concatenate([state, _shift(obs, action)])

    def spread(self, obs: Float[Array, " obs"], std: Float[Array, " target"]) -> Float[Array, " obs"]:
        """As predicted; of the heading only what lies along the unit circle, if it is put back there."""
        if self.renormalise:
            s, c = _heading(obs)
            along = safe_sqrt((c * std[2]) ** 2 + (s * std[3]) ** 2)
            std = std.at[2:4].set(along * jnp.abs(jnp.stack([c, s])))
        return jnp.concatenate([std, jnp.zeros_like(obs[7:])])

    def place(self, inputs: Float[Array, " input"]) -> tuple[Float[Array, " obs"], Float[Array, " action"]]:
        """Split the inputs: nothing was changed."""
        return inputs[:-2], inputs[-2:]

    def per_target(self, six: tuple[float, ...]) -> Float[Array, " target"]:
        """The number of the heading is used for its sine and its cosine."""
        return jnp.array((*six[:3], *six[2:]), jnp.float32)

    def input_scale(self) -> Float[Array, " input"]:
        """The published one."""
        return jnp.array(INPUT_STD + (1.0,) * (2 + 2 * self.past), jnp.float32)


class CarBodyFrame(AbstractCarFrame):
    """The same wherever the car stands: seen are its own velocities and the actions, not its pose.

    Targets are the changes of (x, y, θ, vx, vy, ω), vectors in the frame of the car before the step.
    """

    past: int = eqx.field(static=True, default=3)

    @property
    def input_dim(self) -> int:
        """Velocities, past actions, action."""
        return 5 + 2 * self.past

    @property
    def target_dim(self) -> int:
        """Pose and velocities."""
        return 6

    def inputs(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, " input"]:
        """(vx, vy) along and across the car, ω, all actions."""
        return jnp.concatenate([_to_body(obs[4:6], _heading(obs)), obs[6:], action])

    def targets(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], next_obs: Float[Array, " obs"]
    ) -> Float[Array, " target"]:
        """The changes, seen from the car."""
        heading = _heading(obs)
        cosine, sine = _to_body(jnp.stack([next_obs[3], next_obs[2]]), heading)
        moved = _to_body(next_obs[:2] - obs[:2], heading)
        gained = _to_body(next_obs[4:6] - obs[4:6], heading)
        return jnp.concatenate([moved, angle(sine, cosine)[None], gained, next_obs[6:7] - obs[6:7]])

    def next_obs(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], target: Float[Array, " target"]
    ) -> Float[Array, " obs"]:
        """The state and its change; the oldest action goes, the newest comes."""
        heading = _heading(obs)
        cosine, sine = _to_world(jnp.stack([jnp.cos(target[2]), jnp.sin(target[2])]), heading)
        place = obs[:2] + _to_world(target[:2], heading)
        velocity = obs[4:6] + _to_world(target[3:5], heading)
        turned = jnp.stack([sine, cosine])
        return jnp.concatenate([place, turned, velocity, obs[6:7] + target[5:], _shift(obs, action)])

    def spread(self, obs: Float[Array, " obs"], std: Float[Array, " target"]) -> Float[Array, " obs"]:
        """Turned into the frame of the world; correlations between the coordinates are ignored."""
        s, c = heading = _heading(obs)
        turned = std[2] * jnp.abs(jnp.stack([c, s]))
        place, velocity = _turn_std(std[:2], heading), _turn_std(std[3:5], heading)
        return jnp.concatenate([place, turned, velocity, std[5:], jnp.zeros_like(obs[7:])])

    def place(self, inputs: Float[Array, " input"]) -> tuple[Float[Array, " obs"], Float[Array, " action"]]:
        """At the origin, facing along x."""
        pose = jnp.array([0.0, 0.0, 0.0, 1.0], inputs.dtype)
        return jnp.concatenate([pose, inputs[:-2]]), inputs[-2:]

    def per_target(self, six: tuple[float, ...]) -> Float[Array, " target"]:
        """As they are."""
        return jnp.array(six, jnp.float32)

    def input_scale(self) -> Float[Array, " input"]:
        """The published one, of what is seen."""
        return jnp.array(INPUT_STD[4:] + (1.0,) * (2 + 2 * self.past), jnp.float32)


class CarSimulator(AbstractSimulator):
    """Cars drawn from the ranges of `fidelity` and `car`, as functions in `coordinates`.

    - `integrator`: "rk4" or "legacy" (rc_car_dynamics.py).
    - `delay`: which action drives the car, in frames; None is the oldest that an observation remembers.
    - `box`: the domain, "wide" or "driven".
    """

    fidelity: str = eqx.field(static=True)
    car: int = eqx.field(static=True)
    integrator: Integrator = eqx.field(static=True)
    delay: int = eqx.field(static=True)
    box: str = eqx.field(static=True)
    coordinates: AbstractCarFrame

    def __init__(
        self,
        fidelity: str = "low",
        car: int = 2,
        integrator: str = "rk4",
        coordinates: AbstractCarFrame | None = None,
        delay: int | None = None,
        box: str = "wide",
    ):
        self.fidelity = check_choice(fidelity, "fidelity", FIDELITIES)
        if isinstance(car, bool) or car not in CARS:
            raise SombrlError(f"car must be 1 or 2, not {car!r}.")
        self.car = car
        self.integrator = check_choice(integrator, "integrator", INTEGRATORS)  # type: ignore[assignment]
        self.coordinates = CarWorldFrame() if coordinates is None else coordinates
        past = self.coordinates.past
        self.delay = past if delay is None else delay
        if not 0 <= self.delay <= past:
            raise SombrlError(f"delay must lie between 0 and {past}, the past actions of the model, not {delay!r}.")
        self.box = check_choice(box, "box", tuple(BOXES))

    def draw(self, *, key: Key[Array, ""]) -> CarParameters:
        """One car."""
        return draw_parameters(self.fidelity, self.car, key=key)

    def __call__(self, parameters: CarParameters, inputs: Float[Array, " input"]) -> Float[Array, " target"]:
        """Where that car goes in one frame."""
        obs, action = self.coordinates.place(inputs)
        applied = jnp.concatenate([obs[7:], action]).reshape(-1, 2)[-1 - self.delay]
        tyres = self.fidelity == "high"
        moved = encode(advance(parameters, decode(obs[:7]), applied, integrator=self.integrator, tyres=tyres))
        return self.coordinates.targets(obs, action, jnp.concatenate([moved, obs[7:]]))

    def domain(self, *, key: Key[Array, ""]) -> Float[Array, " input"]:
        """A uniform state of the box and uniform actions, as inputs."""
        half = jnp.array(BOXES[self.box] + (1.0,) * (2 + 2 * self.coordinates.past), jnp.float32)
        drawn = half * jr.uniform(key, half.shape, half.dtype, -1.0, 1.0)
        obs = jnp.concatenate([encode(drawn[:6]), drawn[6:-2]])
        return self.coordinates.inputs(obs, drawn[-2:])


def _heading(obs: Float[Array, " obs"]) -> Float[Array, " 2"]:
    """(sin θ, cos θ) on the unit circle; θ = 0 where both are 0."""
    sine = obs[2]
    cosine = jnp.where(sine**2 + obs[3] ** 2 > 0.0, obs[3], 1.0)
    return jnp.stack([sine, cosine]) / jnp.sqrt(sine**2 + cosine**2)


def _to_body(vector: Float[Array, " 2"], heading: Float[Array, " 2"]) -> Float[Array, " 2"]:
    s, c = heading
    return jnp.stack([c * vector[0] + s * vector[1], c * vector[1] - s * vector[0]])


def _to_world(vector: Float[Array, " 2"], heading: Float[Array, " 2"]) -> Float[Array, " 2"]:
    s, c = heading
    return jnp.stack([c * vector[0] - s * vector[1], s * vector[0] + c * vector[1]])


def _turn_std(std: Float[Array, " 2"], heading: Float[Array, " 2"]) -> Float[Array, " 2"]:
    s, c = heading
    return safe_sqrt((jnp.stack([c, s]) * std[0]) ** 2 + (jnp.stack([s, c]) * std[1]) ** 2)


def _shift(obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, " stack"]:
    return jnp.concatenate([obs[7:], action])[2:]
