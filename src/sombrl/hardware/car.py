"""The RC car as a single-track model in plain numbers: for a simulator that must never wait for a compiler.

The equations are those of Kabzan et al. (2020, arXiv 1905.05150) with the parameters of the cars of Rothfuss et al.
(2024), as in `envs/rc_car_dynamics.py`, which tests compare it with. One car, one step: arrays would be slower.
"""

import dataclasses
import math

RELAXATION = 1.0 / 90.0  # seconds in which the kinematic car takes on its turn
SUBSTEP = 1.0 / 90.0  # the longest step of the integrator
GRAVITY = 9.81
TINY = 1e-6  # the published guard of both divisions

Moving = tuple[float, float, float, float, float, float]
"""x, y, θ, and in the frame of the car vx, vy, ω."""


@dataclasses.dataclass(frozen=True)
class CarNumbers:
    """What tells one car from another; the defaults are car 2 in high fidelity."""

    m: float = 1.65  # kg
    l_f: float = 0.13  # m, centre of mass to the front axle
    l_r: float = 0.17  # m, to the rear axle
    b_f: float = 2.75  # Pacejka stiffness, shape and peak (in units of g), front and rear
    b_r: float = 5.0
    c_f: float = 1.45
    c_r: float = 1.3
    d_f: float = 0.4
    d_r: float = 0.3
    c_m_1: float = 8.2  # N at full throttle
    c_m_2: float = 1.25  # its square: N s/m
    i_com: float = 0.06  # kg m²
    steering_limit: float = 0.6  # rad at full steer
    blend_ratio_lb: float = 0.001  # its square: m/s from no tyres to nothing but tyres
    blend_ratio_ub: float = 0.017  # its square: m/s at which tyres begin to count


CAR_2 = CarNumbers()


def advance(car: CarNumbers, moving: Moving, steer: float, throttle: float, seconds: float) -> Moving:
    """The car after some time of one action in [-1, 1]², by the classical Runge-Kutta method; θ is not wrapped."""
    steer = min(max(steer, -1.0), 1.0) * car.steering_limit
    throttle = min(max(throttle, -1.0), 1.0)
    number = max(1, math.ceil(seconds / SUBSTEP - 1e-6))  # a period is exactly three, whatever its last bits are
    h = seconds / number
    for _ in range(number):
        first = slope(car, moving, steer, throttle)
        second = slope(car, _along(moving, 0.5 * h, first), steer, throttle)
        third = slope(car, _along(moving, 0.5 * h, second), steer, throttle)
        fourth = slope(car, _along(moving, h, third), steer, throttle)
        moving = tuple(  # type: ignore[assignment]  # six of six
            x + h / 6.0 * (a + 2.0 * (b + c) + d)
            for x, a, b, c, d in zip(moving, first, second, third, fourth, strict=True)
        )
    return moving


def slope(car: CarNumbers, moving: Moving, steer: float, throttle: float) -> Moving:
    """d/dt of the moving car; `steer` in radians."""
    _, _, theta, vx, vy, omega = moving
    s, c = math.sin(theta), math.cos(theta)
    force = car.c_m_1 * throttle - car.c_m_2**2 * vx
    share = min(max((vx - car.blend_ratio_ub**2) / (car.blend_ratio_lb**2 + TINY), 0.0), 1.0)
    turn = (0.0, 0.0, 0.0)
    if share < 1.0:  # rolling without slip
        beta = math.atan(math.tan(steer) / (car.l_f + car.l_r))
        side = vx * math.sin(beta)
        rolling = (force / car.m * math.cos(beta), (side * car.l_r - vy) / RELAXATION, (side - omega) / RELAXATION)
        turn = (rolling[0] * (1.0 - share), rolling[1] * (1.0 - share), rolling[2] * (1.0 - share))
    if share > 0.0:  # only where vx > 0: slip angles have no limit at a standstill
        front = _tyre(car.d_f, car.c_f, car.b_f, steer - math.atan2(omega * car.l_f + vy, vx + TINY))
        rear = _tyre(car.d_r, car.c_r, car.b_r, math.atan2(omega * car.l_r - vy, vx + TINY))
        across = front * math.cos(steer)
        turn = (
            turn[0] + share * ((force - front * math.sin(steer)) / car.m + vy * omega),
            turn[1] + share * ((rear + across) / car.m - vx * omega),
            turn[2] + share * (across * car.l_f - rear * car.l_r) / car.i_com,
        )
    return (vx * c - vy * s, vx * s + vy * c, omega, *turn)


def _tyre(peak: float, shape: float, stiffness: float, slip: float) -> float:
    """Pacejka's magic formula."""
    return peak * GRAVITY * math.sin(shape * math.atan(stiffness * slip))


def _along(moving: Moving, h: float, direction: Moving) -> Moving:
    return tuple(x + h * d for x, d in zip(moving, direction, strict=True))  # type: ignore[return-value]
