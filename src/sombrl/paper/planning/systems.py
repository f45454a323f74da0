"""Models with as many coordinates as one likes: chains of masses (linear) and of pendulums (nonlinear).

They stand for a learned model, so they have an epistemic std too, and nothing is learned. A chain of n links has 2n
coordinates, positions first; a motor drives every link, or the first link alone.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from sombrl.dynamics.base import AbstractVectorDynamics
from sombrl.exploration.base import Exploration, ImaginedMDP
from sombrl.records import AbstractTask, Prediction, SombrlError

SIGMA = 0.1
"""s, the scale of σ: H-UCRL moves a coordinate by up to β s = 0.2 a decision, and SOMBRL is paid λ s = 1 for one."""


class Chain(AbstractVectorDynamics):
    """The links of a chain, one beside the other."""

    start: eqx.AbstractVar[Float[Array, " state"]]
    sigma: eqx.AbstractVar[Float[Array, ""]]  # s
    motors: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def task(self) -> "ChainTask":
        """What is to be done with it."""

    @property
    def state_dim(self) -> int:
        """Positions and velocities."""
        return self.start.shape[0]


class ChainTask(AbstractTask):
    """Never ends."""

    def terminated(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Bool[Array, ""]:
        """No."""
        return jnp.zeros((), bool)


# Linear

STIFFNESS, FRICTION, STEP = 1.0, 0.1, 0.2  # 1/s², 1/s, s
ACTION_COST = 0.1
SLOPE = 0.3
"""How much more or less certain the model is under full force. Small, so that the objective of SOMBRL is concave: the
Hessian of λ‖σ‖ is at most λ DᵀD/‖σ‖ = 2 λ (SLOPE s)²/‖σ‖ for each motor, which must not exceed 2 ACTION_COST. With
λ = 10 it is 0.18 at most for s = 0.1, and so it is for s = 0.2 where there are eight coordinates."""


class Masses(Chain):
    """Masses between springs: x' = A x + B u, and σ(x, u) = s (1 + 0.3 u) for the coordinates that a motor drives.

    Both optimistic objectives are concave: that of SOMBRL in u, that of H-UCRL in u and w = β σ(u) η, which lie in a
    convex set because σ is affine.
    """

    start: Float[Array, " state"]
    A: Float[Array, "state state"]
    B: Float[Array, "state action"]
    driven: Float[Array, "state action"]  # 1 where the motor drives the coordinate's own mass
    sigma: Float[Array, ""]
    motors: int = eqx.field(static=True)

    def __init__(self, state_dim: int, motors: int, *, seed: int, sigma: float = SIGMA):
        links = _links(state_dim, motors)
        random = np.random.default_rng(seed)
        springs = STIFFNESS * (np.eye(links, k=1) + np.eye(links, k=-1) - 2 * np.eye(links))
        force = np.eye(links, motors)
        drift = np.block([[np.zeros((links, links)), np.eye(links)], [springs, -FRICTION * np.eye(links)]])
        pushed = np.concatenate([np.zeros((links, motors)), force])
        whole = np.zeros((state_dim + motors, state_dim + motors))
        whole[:state_dim] = np.concatenate([drift, pushed], axis=1)
        with jax.enable_x64(True):  # the force is constant within a step, so this is exact
            step = np.asarray(jax.scipy.linalg.expm(jnp.asarray(whole * STEP)))
        positions = random.uniform(0.5, 1.0, links) * random.choice([-1.0, 1.0], links)
        self.start = _f32(np.concatenate([positions, np.zeros(links)]))
        self.A, self.B = _f32(step[:state_dim, :state_dim]), _f32(step[:state_dim, state_dim:])
        self.driven = _f32(np.concatenate([force, force]))
        self.sigma, self.motors = jnp.asarray(sigma, jnp.float32), motors

    @property
    def task(self) -> "KeepStill":
        """To the middle, and stay there."""
        return KeepStill()

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """A x + B u."""
        mean = self.A @ state + self.B @ action
        return _prediction(mean, self.sigma * (1.0 + SLOPE * (self.driven @ action)))


class KeepStill(ChainTask):
    """-‖x'‖² - 0.1 ‖u‖²."""

    def reward(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Float[Array, ""]:
        """Quadratic."""
        return -jnp.sum(next_state**2) - ACTION_COST * jnp.sum(action**2)


# Nonlinear

GRAVITY, TORQUE, COUPLING, DAMPING, TICK = 5.0, 6.0, 1.0, 0.1, 0.1
KNOWN = 0.2  # σ where there were data, in units of s; far away it is 1


class Pendulums(Chain):
    """Pendulums that twist their neighbours: θ'' = g sin θ + torque - friction + Σ sin(θ_j - θ), θ = 0 upright.

    They begin hanging. The model has seen the start alone: σ of a pendulum grows with its distance from there to s, as
    the posterior of a GP does.
    """

    start: Float[Array, " state"]
    sigma: Float[Array, ""]
    motors: int = eqx.field(static=True)

    def __init__(self, state_dim: int, motors: int, *, seed: int, sigma: float = SIGMA):
        links = _links(state_dim, motors)
        random = np.random.default_rng(seed)
        angles = np.pi + random.uniform(-0.5, 0.5, links)
        self.start = _f32(np.concatenate([angles, np.zeros(links)]))
        self.sigma, self.motors = jnp.asarray(sigma, jnp.float32), motors

    @property
    def task(self) -> "StandUp":
        """Upright."""
        return StandUp()

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """A step of symplectic Euler."""
        angle, speed = jnp.split(state, 2)
        torque = jnp.zeros_like(angle).at[: self.motors].set(TORQUE * action)
        twist = COUPLING * jnp.sin(angle[1:] - angle[:-1])
        zero = jnp.zeros_like(angle[:1])
        neighbours = jnp.concatenate([twist, zero]) - jnp.concatenate([zero, twist])
        speed = speed + TICK * (GRAVITY * jnp.sin(angle) + torque - DAMPING * speed + neighbours)
        angle = angle + TICK * speed
        away, speed_away = jnp.split(state - self.start, 2)
        near = jnp.exp(-0.5 * (away**2 + (0.5 * speed_away) ** 2))
        sigma = self.sigma * jnp.sqrt(1.0 - (1.0 - KNOWN**2) * near)
        return _prediction(jnp.concatenate([angle, speed]), jnp.concatenate([sigma, sigma]))


class StandUp(ChainTask):
    """Σ cos θ' - 0.02 ω'² - 0.02 u²."""

    def reward(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Float[Array, ""]:
        """Upright, slow and with little torque."""
        angle, speed = jnp.split(next_state, 2)
        return jnp.sum(jnp.cos(angle)) - 0.02 * jnp.sum(speed**2) - 0.02 * jnp.sum(action**2)


SYSTEMS: dict[str, type[Masses] | type[Pendulums]] = {"masses": Masses, "pendulums": Pendulums}


def imagined(chain: Chain, exploration: Exploration) -> ImaginedMDP:
    """The problem that an exploration strategy gives to a planner."""
    return exploration.imagine(
        chain,
        chain.task,
        state_dim=chain.state_dim,
        action_dim=chain.motors,
        iteration=jnp.zeros((), jnp.int32),
        discount=1.0,
        key=jax.random.key(0),
    )


def _links(state_dim: int, motors: int) -> int:
    if state_dim < 2 or state_dim % 2 or not 1 <= motors <= state_dim // 2:
        raise SombrlError(
            f"a chain has an even number of coordinates and at most a motor per link, not {state_dim} and {motors}."
        )
    return state_dim // 2


def _prediction(mean: Float[Array, " state"], sigma: Float[Array, " state"]) -> Prediction:
    return Prediction(mean, sigma, jnp.zeros_like(mean), jnp.ones_like(mean))


def _f32(values: np.ndarray) -> Float[Array, "..."]:
    return jnp.asarray(values, jnp.float32)
