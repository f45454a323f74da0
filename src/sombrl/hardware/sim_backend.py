"""The high-fidelity car as a backend: it drives on between calls, by the clock, as a real one does.

Where the car is at time t is a function of the commands that had reached it by then, so it is integrated when somebody
looks, up to exactly that moment. A thread that steps it in the background would compete with the control loop for the
interpreter and blur the timing that is to be tested. In real time the loop's lateness is in the data, as on the car.
"""

import dataclasses
import math
import threading
from collections import deque
from typing import Literal

import numpy as np

from sombrl.errors import SombrlError
from sombrl.hardware.backend import PERIOD, START, Ack, CarBackend, Health, Observation, ResetMode, check_mode, wrap
from sombrl.hardware.car import CAR_2, Moving, advance
from sombrl.hardware.clocks import AbstractClock, RealClock, SimulatedClock

START_POSITION, START_HEADING = 0.1, 0.1 * math.pi  # half widths of the uniform distributions round the start pose
START_TWIST = (0.005, 0.005, 0.02)  # standard deviations
NOISE = 0.1 * np.exp([-4.5, -4.5, -4.0, -2.5, -2.5, -1.0])
"""Standard deviations of a measured (x, y, θ, vx, vy, ω)."""


@dataclasses.dataclass(frozen=True)
class SimConfig:
    """The simulated car, its radio and its motion capture."""

    clock: Literal["real", "simulated"] = "real"
    """The machine's clock, or one that only the control loop moves: then an episode takes no time and is repeatable."""
    seed: int = 0
    """Of the noise and the starts; every episode has its own."""
    delay: float = 3.0 * PERIOD
    """Seconds from `command` until the car obeys."""
    noise: float = 1.0
    """A factor on the published noise of an observation."""
    start_spread: float = 1.0
    """A factor on the published scatter of the start."""
    full_throttle: float = 0.4
    """The command that is throttle 1 of the model: the supervisor's throttle scale of the published car."""
    watchdog: float = 0.1
    """The car stops by itself when no command has reached it for so many seconds."""
    late_limit: float = PERIOD
    """Commands that arrive later after their stamp than this are refused."""
    mocap_rate: float = 120.0
    """Frames per second of motion capture, where velocity_window is not 0."""
    velocity_window: int = 0
    """Velocities are differences over so many frames, of noisy poses; 0: a fresh frame for every look, and velocities
    measured with noise of their own, as published."""
    frame_loss: float = 0.0
    """The share of looks at which the frame is lost."""

    def __post_init__(self):
        """Refuse impossible numbers."""
        for name in ("delay", "noise", "start_spread", "velocity_window", "frame_loss"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise SombrlError(f"{name} of the simulated car must be 0 or more, not {getattr(self, name)}.")
        for name in ("full_throttle", "watchdog", "late_limit", "mocap_rate"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise SombrlError(f"{name} of the simulated car must be positive, not {getattr(self, name)}.")
        if self.clock not in ("real", "simulated"):
            raise SombrlError(f"clock of the simulated car must be real or simulated, not {self.clock!r}.")


class SimBackend(CarBackend):
    """`SimBackend(SimConfig(...))`; tests also have `blackout`, `truth` and `throttle`."""

    def __init__(self, config: SimConfig | None = None):
        self.config = SimConfig() if config is None else config
        self.clock: AbstractClock = SimulatedClock() if self.config.clock == "simulated" else RealClock()
        self._lock = threading.RLock()
        self._health = Health()
        self._rng = np.random.default_rng(self.config.seed)
        self._blackouts: list[tuple[float, float]] = []
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
        """Integrate up to now and look; during a blackout the last frame again, as invalid."""
        with self._lock:
            now = self.clock.now()
            self._health.requested_frames += 1
            lost = self.config.frame_loss > 0 and self._rng.random() < self.config.frame_loss
            if lost or any(start <= now - self._began < end for start, end in self._blackouts):
                self._advance(now)
                self._health.invalid_frames += 1
                return self._last.as_invalid()
            return self._frame()

    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Into the radio's pipe, unless it is too late."""
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
        """A neutral command; what is in the pipe still reaches the car before it."""
        with self._lock:
            self._send(self.clock.now(), 0.0, 0.0)

    # ------------------------------------------------------------------------------------------ for tests

    def blackout(self, start: float, end: float) -> None:
        """Lose all frames between two times after the next or last reset."""
        self._blackouts.append((start, end))

    def truth(self) -> Moving:
        """Where the car really is now; velocities in its own frame, θ not wrapped."""
        with self._lock:
            self._advance(self.clock.now())
            return self._moving

    def throttle(self) -> float:
        """What drives the car now, in hardware units."""
        with self._lock:
            self._advance(self.clock.now())
            return self._action[1]

    # ------------------------------------------------------------------------------------------------ inside

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
        self._poses: deque[np.ndarray] = deque(maxlen=int(self.config.velocity_window) + 1)
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
