"""A radio-controlled car as a single-track model: kinematic, or with Pacejka tyres blended in above a crawl.

The equations are those of Kabzan et al. (2020, arXiv 1905.05150) with the parameters of the RC cars of Rothfuss et al.
(2024). A state is (x, y, θ, vx, vy, ω) in metres, radians and seconds, velocities in the frame of the world; an action
is (steer, throttle) in [-1, 1].
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.envs.fast_trig import arctangent, cosine, sine

Integrator = Literal["rk4", "legacy"]
Scalar = float | Float[Array, ""]

INTEGRATORS = ("rk4", "legacy")
FIDELITIES = ("low", "high")
CARS = (1, 2)
DT, SUBSTEPS = 1.0 / 30.0, 3  # one control step, the action held
RELAXATION = 1.0 / 90.0  # seconds in which the kinematic car takes on its turn
GRAVITY = 9.81
TINY = 1e-6  # the published guard of both divisions
CRAWL = 1e-3  # m/s; slower, slip angles are taken as at this speed, or their derivatives overflow
# Ten times what the cars can do. Beyond, explicit steps of tyres and drag would run away to infinity.
FASTEST = (100.0, 100.0, 100.0)  # m/s, m/s, rad/s


class CarParameters(eqx.Module):
    """The parameters of a car. Tyre parameters count only where `use_blend` is 1."""

    m: Scalar  # kg
    l_f: Scalar  # m, centre of mass to the front axle
    l_r: Scalar  # m, to the rear axle
    angle_offset: Scalar  # rad, from the measured heading to where the car points
    b_f: Scalar  # Pacejka stiffness, shape and peak (in units of g), front and rear
    b_r: Scalar
    c_f: Scalar
    c_r: Scalar
    d_f: Scalar
    d_r: Scalar
    c_m_1: Scalar  # N, motor force at full throttle
    c_m_2: Scalar  # its square: N s/m, loss that grows with speed
    c_d: Scalar  # its square: N s²/m², drag
    i_com: Scalar  # kg m²
    steering_limit: Scalar  # rad at full steer
    blend_ratio_lb: Scalar  # its square: m/s from no tyres to nothing but tyres
    blend_ratio_ub: Scalar  # its square: m/s at which tyres begin to count
    use_blend: Scalar  # 1: high fidelity; 0: always kinematic


# In the order of the fields.
DEFAULTS = {
    ("low", 1): CarParameters(
        *(1.65, 0.13, 0.17, 0.0156, 2.58, 3.39, 1.2, 1.27, 0.02, 0.017),
        *(10.701814, 1.4208151, 0.41464928, 0.01, 0.3543, 0.01, 0.01, 0.0),
    ),
    ("high", 1): CarParameters(
        *(1.65, 0.13, 0.17, -0.0213, 1.8966477, 6.2884626, 1.5381637, 1.186591, 0.5968191, 0.42716035),
        *(11.102413, 1.3169205, 0.0, 0.0685434, 0.6337473, 0.06637411, 0.00554, 1.0),
    ),
    ("low", 2): CarParameters(
        *(1.65, 0.13, 0.17, 0.0, 2.58, 5.0, 1.2, 1.27, 0.02, 0.017),
        *(8.0, 1.5, 0.0, 0.01, 0.3, 0.01, 0.01, 0.0),
    ),
    ("high", 2): CarParameters(
        *(1.65, 0.13, 0.17, 0.0, 2.75, 5.0, 1.45, 1.3, 0.4, 0.3),
        *(8.2, 1.25, 0.0, 0.06, 0.6, 0.001, 0.017, 1.0),
    ),
}
"""Nominal cars; ("high", 2) is the truth of the published experiments."""

RANGES = {
    ("low", 1): (
        CarParameters(
            *(1.6, 0.11, 0.15, 0.001, 2.58, 3.39, 1.2, 1.27, 0.02, 0.017),
            *(8.0, 1.1, 0.3, 0.01, 0.2, 0.01, 0.01, 0.0),
        ),
        CarParameters(
            *(1.7, 0.15, 0.19, 0.03, 2.58, 3.39, 1.2, 1.27, 0.02, 0.017),
            *(13.0, 1.7, 0.5, 0.01, 0.5, 0.01, 0.01, 0.0),
        ),
    ),
    ("high", 1): (
        CarParameters(
            *(1.6, 0.125, 0.165, -0.025, 1.3, 4.0, 1.2, 0.9, 0.35, 0.3),
            *(10.0, 1.1, 0.0, 0.05, 0.5, 0.01, 0.0, 1.0),
        ),
        CarParameters(
            *(1.7, 0.135, 0.175, 0.025, 3.0, 10.0, 1.8, 1.5, 0.65, 0.6),
            *(12.0, 1.5, 0.0, 0.09, 0.9, 0.1, 0.2, 1.0),
        ),
    ),
    ("low", 2): (
        CarParameters(
            *(1.6, 0.11, 0.15, -0.15, 2.4, 2.0, 1.2, 1.27, 0.02, 0.017),
            *(6.0, 1.0, 0.01, 0.01, 0.15, 0.4, 0.5, 0.0),
        ),
        CarParameters(
            *(1.7, 0.15, 0.19, 0.15, 2.6, 8.0, 1.2, 1.27, 0.02, 0.017),
            *(10.0, 1.8, 0.01, 0.1, 0.4, 0.4, 0.5, 0.0),
        ),
    ),
    ("high", 2): (
        CarParameters(
            *(1.6, 0.125, 0.165, -0.15, 2.0, 3.0, 1.1, 0.4, 0.25, 0.15),
            *(6.5, 1.0, 0.0, 0.03, 0.4, 0.0001, 0.0001, 1.0),
        ),
        CarParameters(
            *(1.7, 0.135, 0.175, 0.15, 4.0, 10.0, 2.0, 2.0, 0.6, 0.45),
            *(10.0, 1.5, 0.0, 0.18, 0.75, 0.1, 0.2, 1.0),
        ),
    ),
}
"""The prior of a car's parameters: least and largest values, each parameter independent and uniform."""


def draw_parameters(fidelity: str, car: int, *, key: Key[Array, ""]) -> CarParameters:
    """One car from the ranges."""
    low, high = (jnp.array(jax.tree.leaves(side), jnp.float32) for side in RANGES[fidelity, car])
    tree = jax.tree.structure(DEFAULTS[fidelity, car])
    drawn: CarParameters = jax.tree.unflatten(tree, list(low + jr.uniform(key, low.shape, low.dtype) * (high - low)))
    return drawn


def advance(
    parameters: CarParameters,
    state: Float[Array, " 6"],
    action: Float[Array, " 2"],
    *,
    integrator: Integrator = "rk4",
    dt: float = DT,
    substeps: int = SUBSTEPS,
    tyres: bool = True,
) -> Float[Array, " 6"]:
    """The state after `dt` seconds of one action; θ in [-π, π]. What is finite stays so, derivatives too.

    `legacy` is the published integrator: the stages of Runge-Kutta, each begun where the last one ended, which is
    accurate to first order only, and positions that follow θ where velocities follow θ + `angle_offset`. Without
    `tyres` the car is always kinematic, whatever its parameters say, and quicker to compute.
    """
    parameters = jax.tree.map(lambda number: jnp.asarray(number, state.dtype), parameters)
    action = jnp.clip(action, -1.0, 1.0).astype(state.dtype)
    offset = jnp.clip(parameters.angle_offset, -jnp.pi, jnp.pi)
    course = jnp.zeros_like(state[2]) if integrator == "legacy" else offset
    h = dt / substeps
    slope = _slope(parameters, action, course, tyres)

    def substep(moving: Moving, _: None) -> tuple[Moving, None]:
        first = slope(moving)
        if integrator == "legacy":
            place = _along(moving, 0.5 * h, first)
            second = slope(place)
            place = _along(place, 0.5 * h, second)
            third = slope(place)
            fourth = slope(_along(place, h, third))
        else:
            second = slope(_along(moving, 0.5 * h, first))
            third = slope(_along(moving, 0.5 * h, second))
            fourth = slope(_along(moving, h, third))
        stages = zip(moving, first, second, third, fourth, strict=True)
        moved = tuple(m + h / 6.0 * (a + 2.0 * b + 2.0 * c + d) for m, a, b, c, d in stages)
        return (*moved[:3], *_limited(moved[3:])), None

    x, y, theta, vx, vy, omega = state
    vx, vy = _rotated(vx, vy, -(theta + offset))
    # One number per array, not vectors of six: thousands of cars at once are then a few long arrays.
    moving, _ = jax.lax.scan(substep, (x, y, theta, *_limited((vx, vy, omega))), None, length=substeps)
    x, y, theta, vx, vy, omega = moving
    theta = wrap(theta)
    return jnp.stack([x, y, theta, *_rotated(vx, vy, theta + offset), omega])


Moving = tuple[Array, ...]  # (x, y, θ, vx, vy, ω), velocities in the frame of the car


def _along(moving: Moving, seconds: float, slope: Moving) -> Moving:
    return tuple(m + seconds * s for m, s in zip(moving, slope, strict=True))


def _limited(twist: Moving) -> Moving:
    return tuple(jnp.clip(v, -limit, limit) for v, limit in zip(twist, FASTEST, strict=True))


def _rotated(x: Array, y: Array, by: Array) -> Moving:
    s, c = sine(by), cosine(by)
    return c * x - s * y, s * x + c * y


def derivative(
    parameters: CarParameters, moving: Float[Array, " 6"], action: Float[Array, " 2"], course: Scalar = 0.0
) -> Float[Array, " 6"]:
    """d/dt of (x, y, θ, vx, vy, ω), velocities in the frame of the car, which travels along θ + `course`."""
    parameters = jax.tree.map(lambda number: jnp.asarray(number, moving.dtype), parameters)
    return jnp.stack(_slope(parameters, action, jnp.asarray(course, moving.dtype), True)(tuple(moving)))


def _slope(p: CarParameters, action: Float[Array, " 2"], course: Array, tyres: bool) -> Callable[[Moving], Moving]:
    """The derivative as a function of what moves; what only the action decides is computed once."""
    steer, throttle = action[0] * p.steering_limit, action[1]
    steer_sine, steer_cosine = sine(steer), cosine(steer)
    # Rolling without slip, as published: not the textbook's slip angle, β lacks a factor l_r.
    tangent = steer_sine / steer_cosine / (p.l_f + p.l_r)
    beta_cosine = jax.lax.rsqrt(1.0 + tangent**2)
    beta_sine = tangent * beta_cosine

    def slope(moving: Moving) -> Moving:
        _, _, theta, vx, vy, omega = moving
        force = p.c_m_1 * throttle - p.c_m_2**2 * vx - p.c_d**2 * vx * jnp.abs(vx)
        side = vx * beta_sine
        turn: Moving = (
            force / p.m * beta_cosine,
            (side * p.l_r - vy) / RELAXATION,
            (side - omega) / RELAXATION,
        )
        if tyres:
            share = jnp.clip((vx - p.blend_ratio_ub**2) / (p.blend_ratio_lb**2 + TINY), 0.0, 1.0)
            share = jnp.where(p.use_blend > 0.5, share, 0.0)
            # Slipping tyres by Pacejka's magic formula, for a car that rolls forwards.
            slow = jnp.maximum(vx, CRAWL) + TINY
            slip_front = steer - arctangent((omega * p.l_f + vy) / slow)
            slip_rear = arctangent((omega * p.l_r - vy) / slow)
            front = p.d_f * GRAVITY * sine(p.c_f * arctangent(p.b_f * slip_front))
            rear = p.d_r * GRAVITY * sine(p.c_r * arctangent(p.b_r * slip_rear))
            slipping = (
                (force - front * steer_sine) / p.m + vy * omega,
                (rear + front * steer_cosine) / p.m - vx * omega,
                (front * p.l_f * steer_cosine - rear * p.l_r) / p.i_com,
            )
            turn = tuple(share * a + (1.0 - share) * b for a, b in zip(slipping, turn, strict=True))
        return (*_rotated(vx, vy, theta + course), omega, *turn)

    return slope


def encode(state: Float[Array, " 6"]) -> Float[Array, " 7"]:
    """(x, y, sin θ, cos θ, vx, vy, ω)."""
    heading = jnp.stack([sine(state[2]), cosine(state[2])])
    return jnp.concatenate([state[:2], heading, state[3:]])


def decode(encoded: Float[Array, " 7"]) -> Float[Array, " 6"]:
    """The state behind `encode`; (sin, cos) may have left the unit circle."""
    return jnp.concatenate([encoded[:2], angle(encoded[2], encoded[3])[None], encoded[4:]])


def angle(sine: Float[Array, ""], cosine: Float[Array, ""]) -> Float[Array, ""]:
    """θ in [-π, π]; 0 where both are 0, which leaves a derivative."""
    return jnp.arctan2(sine, jnp.where(sine**2 + cosine**2 > 0.0, cosine, 1.0))


def wrap(theta: Float[Array, ""]) -> Float[Array, ""]:
    """The angle in [-π, π]; one that is there already comes back bit for bit."""
    return theta - 2.0 * jnp.pi * jnp.round(theta / (2.0 * jnp.pi))
