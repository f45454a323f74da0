"""What the control loop drives: the interface of a car, and its clock. Free of JAX.

World frame of the task: metres, radians and seconds, the goal at (0, 0, 0), velocities in the frame of the world. A
command is (steer, throttle) in the units of the hardware, [-1, 1]; the supervisor has scaled the throttle already.
"""

import abc
import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterator
from typing import Literal

import numpy as np

from sombrl.errors import SombrlError

ResetMode = Literal["teleport", "manual", "auto"]
"""How the car gets to the start: put there by a simulator, carried by a person, or driven there by a policy."""

PERIOD = 1.0 / 30.0
"""Seconds between two commands."""
START = (1.42, -1.04, np.pi)
"""Where an episode starts: x, y, θ."""
PRIORITY = 10
"""Of real-time scheduling, where the system allows it: above everything that is not a driver."""


class AbstractClock(abc.ABC):
    """Seconds from some beginning."""

    real: bool
    """Whether it moves by itself."""

    @abc.abstractmethod
    def now(self) -> float:
        """The time."""

    @abc.abstractmethod
    def sleep_until(self, moment: float) -> None:
        """Return at `moment`, or at once if it is over."""


class RealClock(AbstractClock):
    """The machine's monotonic clock, the same for all its processes."""

    real = True

    def now(self) -> float:
        """Seconds since the machine was started."""
        return time.monotonic()

    def sleep_until(self, moment: float) -> None:
        """Sleep; tens of microseconds too long on an idle machine, milliseconds on a busy one."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)


class SimulatedClock(AbstractClock):
    """Time that only sleeping moves, at no cost. The same calls then give the same numbers, bit for bit."""

    real = False

    def __init__(self) -> None:
        self._time = 0.0

    def now(self) -> float:
        """The latest moment slept to."""
        return self._time

    def sleep_until(self, moment: float) -> None:
        """Set the time."""
        self._time = max(self._time, moment)

    def restart(self) -> None:
        """Begin at 0 again: an episode's numbers must not depend on how many there were before."""
        self._time = 0.0


@contextlib.contextmanager
def real_time_priority(clock: AbstractClock) -> Iterator[str]:
    """Let this thread run as soon as it wakes up: yields "fifo" where the system allows that, else "normal".

    Needs Linux and root, CAP_SYS_NICE or an rtprio limit. On two cores with three busy processes it is the difference
    between ticks that are late by 10 ms and by 0.1 ms.
    """
    before = None
    if clock.real and hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError):
            policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
            before = policy, parameters
    try:
        yield "normal" if before is None else "fifo"
    finally:
        if before is not None:
            os.sched_setscheduler(0, *before)


@dataclasses.dataclass(frozen=True)
class Observation:
    """One frame of motion capture. An invalid one repeats the pose of the last valid one."""

    stamp: float  # when the car was there, by the backend's clock
    pose: np.ndarray  # x, y, θ in (-π, π]
    twist: np.ndarray  # vx, vy, ω
    frame_id: int  # grows with every new frame
    valid: bool

    def as_invalid(self) -> "Observation":
        """The same frame, seen again where a new one should have been."""
        return dataclasses.replace(self, valid=False)


@dataclasses.dataclass(frozen=True)
class Ack:
    """What became of a command."""

    accepted: bool  # False: it came too late and was not sent to the car
    late_by: float  # seconds after its stamp


@dataclasses.dataclass
class Health:
    """Counters since `connect`, those of motion capture first."""

    last_frame: int = 0
    total_frames: int = 0
    recorded_frames: int = 0
    requested_frames: int = 0
    skipped_frames: int = 0
    invalid_frames: int = 0
    commands: int = 0
    refused_commands: int = 0
    watchdog_stops: int = 0  # how often the car stopped because no command came


class CarBackend(abc.ABC):
    """A car, real or not. Nothing but `connect` and `reset` may block for longer than a fraction of a period.

    Two rules for the car itself, in any language. **It stops by itself**: when no command has
    reached it for about 100 ms the throttle is zero, also when this process is dead. And `command` and `stop` may be
    called from a second thread, the supervisor's watchdog.
    """

    clock: AbstractClock

    @abc.abstractmethod
    def connect(self) -> None:
        """Get ready for everything below."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop the car and disconnect; also called when `connect` has failed."""

    @abc.abstractmethod
    def reset(self, mode: ResetMode, *, episode: int = 0) -> Observation:
        """Get the car to the start and say where it is. A simulator takes its randomness from `episode`."""

    @abc.abstractmethod
    def observe(self) -> Observation:
        """The newest frame."""

    @abc.abstractmethod
    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Send a command that was due at `stamp`; the car keeps it until the next one."""

    @abc.abstractmethod
    def health(self) -> Health:
        """The counters."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Zero throttle, wheels straight, at once. Never raises."""


def check_mode(mode: str, name: str, possible: tuple[str, ...]) -> None:
    """Refuse a way to reset that a backend does not have."""
    if mode not in possible:
        raise SombrlError(f"the backend {name} cannot reset by {mode}: use --reset {' or '.join(possible)}.")


def is_at_start(seen: Observation, away: float, turned: float, speed: float) -> bool:
    """Whether a frame is within so many metres and radians of the start, and slower than `speed` in m/s."""
    near = math.hypot(seen.pose[0] - START[0], seen.pose[1] - START[1]) < away
    ahead = abs(wrap(float(seen.pose[2]) - START[2])) < turned
    return near and ahead and math.hypot(seen.twist[0], seen.twist[1]) < speed


def wrap(angle: float) -> float:
    """The angle in (-π, π]."""
    wrapped = (angle + np.pi) % (2.0 * np.pi) - np.pi
    return float(np.pi if wrapped == -np.pi else wrapped)
