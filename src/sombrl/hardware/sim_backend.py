"""The high-fidelity car as a backend: it drives on between calls, by the clock, as a real one does.

Where the car is at time t is a function of the commands that had reached it by then, so it is integrated when it is
looked at, up to exactly that moment. A thread that steps it in the background would compete with the control loop for
the interpreter and blur the timing that is to be tested. In real time the loop's lateness is in the data, as on a car.

The car is the single-track model of Kabzan et al. (2020, arXiv 1905.05150) with the parameters of the cars of Rothfuss
et al. (2024), as in `envs/rc_car_dynamics.py`, which tests compare it with; in plain numbers, because nothing here may
wait for a compiler, and arrays would be slower for one car.
"""

import dataclasses
import math
import threading
from collections import deque
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt

from sombrl.config.check import Configuration
from sombrl.hardware.backend import (
    PERIOD,
    START,
    AbstractClock,
    Ack,
    CarBackend,
    Health,
    Observation,
    RealClock,
    ResetMode,
    SimulatedClock,
    check_mode,
    wrap,
)

RELAXATION = 1.0 / 90.0  # seconds in which the kinematic car takes on its turn
SUBSTEP = 1.0 / 90.0  # the longest step of the integrator
GRAVITY = 9.81
TINY = 1e-6  # the published guard of both divisions

Moving = tuple[float, float, float, float, float, float]
"""x, y, θ, and in the frame of the car vx, vy, ω."""

START_POSITION, START_HEADING = 0.1, 0.1 * math.pi  # half widths of the uniform distributions round the start pose
START_TWIST = (0.005, 0.005, 0.02)  # standard deviations
NOISE = 0.1 * np.exp([-4.5, -4.5, -4.0, -2.5, -2.5, -1.0])
"""Standard deviations of a measured (x, y, θ, vx, vy, ω)."""


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


@dataclasses.dataclass(frozen=True)
class SimConfig(Configuration):
    """The simulated car, its radio and its motion capture."""

    clock: Literal["real", "simulated"] = "real"
    """The machine's clock, or one that only the control loop moves: then an episode takes no time and is repeatable."""
    seed: int = 0
    """Of the noise and the starts; every episode has its own."""
    delay: Annotated[float, Ge(0)] = 3.0 * PERIOD
    """Seconds from `command` until the car obeys."""
    noise: Annotated[float, Ge(0)] = 1.0
    """A factor on the published noise of an observation."""
    start_spread: Annotated[float, Ge(0)] = 1.0
    """A factor on the published scatter of the start."""
    full_throttle: Annotated[float, Gt(0)] = 0.4
    """The command that is throttle 1 of the model: the supervisor's throttle scale of the published car."""
    watchdog: Annotated[float, Gt(0)] = 0.1
    """The car stops by itself when no command has reached it for so many seconds."""
    late_limit: Annotated[float, Gt(0)] = PERIOD
    """Commands that arrive later after their stamp than this are refused."""
    mocap_rate: Annotated[float, Gt(0)] = 120.0
    """Frames per second of motion capture, where velocity_window is not 0."""
    velocity_window: Annotated[int, Ge(0)] = 0
    """Velocities are differences over so many frames, of noisy poses; 0: a fresh frame for every look, and velocities
    measured with noise of their own, as published."""
    frame_loss: Annotated[float, Ge(0)] = 0.0
    """The share of looks at which the frame is lost."""

    @classmethod
    def flag(cls, name: str) -> str:
        """What a field is called in refusals."""
        return f"{name} of the simulated car"


class SimBackend(CarBackend):
    """`SimBackend(SimConfig(...))`."""

    def __init__(self, config: SimConfig | None = None):
        self.config = SimConfig() if config is None else config
        self.clock: AbstractClock = SimulatedClock() if self.config.clock == "simulated" else RealClock()
        self._lock = threading.RLock()
        self._health = Health()
        self._rng = np.random.default_rng(self.config.seed)
        self._place((*START, 0.0, 0.0, 0.0))

    def connect(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Stop the car."""
        self.stop()

    def reset(self, mode: ResetMode, *, episode: int = 0) -> Observation:
        """Put the car near the start, nearly at rest; "manual" does the same at once, "auto" leaves it where it is."""
        check_mode(mode, "sim", ("teleport", "manual", "auto"))
        with self._lock:
            if mode == "auto":
                return self.observe()
            if isinstance(self.clock, SimulatedClock):
                self.clock.restart()
            self._rng = np.random.default_rng([self.config.seed, episode])
            place = START_POSITION * self._rng.uniform(-1.0, 1.0, 2)
            heading = START_HEADING * self._rng.uniform(-1.0, 1.0)
            twist = np.array(START_TWIST) * self._rng.standard_normal(3)
            scatter = self.config.start_spread * np.array([*place, heading, *twist])
            self._place(tuple((np.array([*START, 0.0, 0.0, 0.0]) + scatter).tolist()))
            return self._frame()

    def observe(self) -> Observation:
        """Integrate up to now and look; the last frame again, as invalid, where this one is lost."""
        with self._lock:
            self._health.requested_frames += 1
            if not self._frame_lost():
                return self._frame()
            self._advance(self.clock.now())
            self._health.invalid_frames += 1
            return self._last.as_invalid()

    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Send it on its way by radio, unless it is too late."""
        with self._lock:
            now = self.clock.now()
            self._health.commands += 1
            late_by = now - stamp
            if late_by > self.config.late_limit:
                self._health.refused_commands += 1
                return Ack(False, late_by)
            self._send(now, steer, throttle)
            return Ack(True, late_by)

    def health(self) -> Health:
        """The counters."""
        with self._lock:
            self._advance(self.clock.now())
            return dataclasses.replace(self._health)

    def stop(self) -> None:
        """A neutral command; those already on their way still reach the car before it."""
        with self._lock:
            self._send(self.clock.now(), 0.0, 0.0)

    # ------------------------------------------------------------------------------------------------ inside

    def _frame_lost(self) -> bool:
        return self.config.frame_loss > 0 and bool(self._rng.random() < self.config.frame_loss)

    def _place(self, state: tuple[float, ...]) -> None:
        """A car at rest in its commands, at a state whose velocities are in the frame of the world."""
        x, y, theta, vx, vy, omega = state
        s, c = math.sin(theta), math.cos(theta)
        self._moving: Moving = (x, y, theta, c * vx + s * vy, c * vy - s * vx, omega)
        self._began = self._time = self.clock.now()
        self._pipe: deque[tuple[float, float, float]] = deque()  # (when it reaches the car, steer, throttle)
        self._action = (0.0, 0.0)
        self._silent_at = math.inf  # when the watchdog of the car will fire
        self._frames = 0  # of motion capture, since the car was placed
        self._poses: deque[np.ndarray] = deque(maxlen=self.config.velocity_window + 1)
        if self.config.velocity_window:
            for _ in range(self._poses.maxlen or 0):  # it has been standing here for a while
                self._poses.append(self._measure_pose())
        self._last = Observation(self._began, *self._measure(), self._health.last_frame, True)

    def _send(self, now: float, steer: float, throttle: float) -> None:
        self._advance(now)
        self._pipe.append((now + self.config.delay, steer, throttle))

    def _advance(self, now: float) -> None:
        """Drive up to `now`: piece by piece between arrivals of commands, frames and the watchdog."""
        window = bool(self.config.velocity_window)
        while self._time < now:
            arrival = self._pipe[0][0] if self._pipe else math.inf
            frame = self._began + (self._frames + 1) / self.config.mocap_rate if window else math.inf
            until = min(now, arrival, self._silent_at, frame)
            if until > self._time:
                steer, throttle = self._action
                self._moving = advance(
                    CAR_2, self._moving, steer, throttle / self.config.full_throttle, until - self._time
                )
                self._time = until
            if until == arrival:
                _, *action = self._pipe.popleft()
                self._action, self._silent_at = (action[0], action[1]), until + self.config.watchdog
            elif until == self._silent_at:
                self._health.watchdog_stops += 1
                self._action, self._silent_at = (0.0, 0.0), math.inf
            if until == frame:
                self._frames += 1
                self._poses.append(self._measure_pose())

    def _frame(self) -> Observation:
        """The newest frame of motion capture: of this moment, or of the last tick of its own clock."""
        now = self.clock.now()
        self._advance(now)
        health = self._health
        if not self.config.velocity_window:
            health.last_frame += 1
            health.total_frames += 1
            stamp, (pose, twist) = now, self._measure()
        else:
            stamp = self._began + self._frames / self.config.mocap_rate
            new = self._frames - round((self._last.stamp - self._began) * self.config.mocap_rate)
            health.last_frame += new
            health.total_frames += new
            health.skipped_frames += max(new - 1, 0)
            pose = self._poses[-1].copy()
            twist = (pose - self._poses[0]) * self.config.mocap_rate / self.config.velocity_window
            pose[2] = wrap(pose[2])
        health.recorded_frames += 1
        self._last = Observation(stamp, pose, twist, health.last_frame, True)
        return self._last

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        """Pose and twist in the frame of the world, each with its noise."""
        x, y, theta, vx, vy, omega = self._moving
        s, c = math.sin(theta), math.cos(theta)
        seen = np.array([x, y, theta, c * vx - s * vy, s * vx + c * vy, omega])
        seen += self.config.noise * NOISE * self._rng.standard_normal(6)
        seen[2] = wrap(seen[2])
        return seen[:3], seen[3:]

    def _measure_pose(self) -> np.ndarray:
        """The pose with its noise, θ not wrapped, so that it can be differenced."""
        return np.array(self._moving[:3]) + self.config.noise * NOISE[:3] * self._rng.standard_normal(3)
