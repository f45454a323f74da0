"""What the control loop drives: a car, wherever it is. Free of JAX.

World frame of the task: metres, radians and seconds, the goal at (0, 0, 0), velocities in the frame of the world. A
command is (steer, throttle) in the units of the hardware, [-1, 1]; the supervisor has scaled the throttle already.
"""

import abc
import dataclasses
from typing import Literal

import numpy as np

from sombrl.errors import SombrlError
from sombrl.hardware.clocks import AbstractClock

ResetMode = Literal["teleport", "manual", "auto"]
"""Put there by a simulator; carried there by a person; driven there before, by a policy."""

PERIOD = 1.0 / 30.0
"""Seconds between two commands."""
START = (1.42, -1.04, np.pi)
"""Where an episode starts: x, y, θ."""


@dataclasses.dataclass(frozen=True)
class Observation:
    """One frame of motion capture. An invalid one repeats the pose of the last that was valid."""

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

    def to_json(self) -> dict[str, int]:
        """The counters by name."""
        return dataclasses.asdict(self)


class CarBackend(abc.ABC):
    """A car, real or not. Nothing may block for longer than a fraction of a period, but `connect` and `reset`.

    Two rules for the car itself, whatever the driver is written in. **It stops by itself**: when no command has
    reached it for about 100 ms the throttle is zero, also when this process is dead. And `command` and `stop` may be
    called from a second thread, the supervisor's watchdog.
    """

    clock: AbstractClock

    @abc.abstractmethod
    def connect(self) -> None:
        """Be ready for everything below."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop the car and let go of it; also when `connect` has failed."""

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
        """Zero throttle, wheels straight, at once and whatever was sent before. Never raises."""


def check_mode(mode: str, name: str, possible: tuple[str, ...]) -> None:
    """Refuse a way to reset that a backend has not."""
    if mode not in possible:
        raise SombrlError(f"the backend {name} cannot reset by {mode}: use --reset {' or '.join(possible)}.")


def wrap(angle: float) -> float:
    """The angle in (-π, π]."""
    wrapped = (angle + np.pi) % (2.0 * np.pi) - np.pi
    return float(np.pi if wrapped == -np.pi else wrapped)
