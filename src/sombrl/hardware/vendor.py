"""A vendor's driver as a backend: motion capture and radio as the published car has them, behind documented methods.

A driver is any object with the methods of `VendorDriver`; a few lines of Python around a C++ binding will do. Then

def car(**options) -> CarBackend:
    return VendorBackend(MyDriver(port=8, mocap_id=1034), VendorConfig(**options))

in `my_car.py` is `sombrl hardware run CAMPAIGN --backend my_car:car --reset manual`.
"""

import dataclasses
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.backend import (
    PERIOD,
    AbstractClock,
    Ack,
    CarBackend,
    Health,
    Observation,
    RealClock,
    ResetMode,
    check_mode,
    is_at_start,
    wrap,
)


class VendorDriver(Protocol):
    """What a driver must do. It must not pace the loop: no method waits for the next period."""

    def start(self) -> None:
        """Connect to motion capture and radio."""

    def stop(self) -> None:
        """Disconnect; the car stands still from then on."""

    def control_mode(self) -> None:
        """Take commands from `set_command` instead of the gamepad."""

    def set_command(self, command: np.ndarray) -> bool:
        """Transmit (steer, throttle) until the next call; False if the link was not in time."""

    def get_state(self) -> np.ndarray:
        """(x, y, θ, vx, vy, ω) of the newest frame, in the frame of motion capture."""

    def get_mocap_logs(self) -> Mapping[str, int]:
        """Counters: last, total, recorded, requested, skipped and invalid frames."""


METHODS = [name for name in vars(VendorDriver) if not name.startswith("_")]


@dataclasses.dataclass(frozen=True)
class VendorConfig:
    """How the driver's world relates to the task's."""

    goal: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The goal pose in the converted frame: it becomes the origin."""
    latency: float = 0.01
    """Seconds from a frame of motion capture until `get_state` has it."""
    warm_up: float = 3.0
    """Seconds that motion capture and radio get after `connect`."""
    late_limit: float = PERIOD
    """Commands later than this after their stamp are not transmitted."""
    reset_within: float = 0.15
    """Metres, and twice as many radians, round the start within which the car counts as put back."""
    reset_rest: float = 1.0
    """Seconds that it must stand there before the episode starts: the operator's hands must be gone."""
    reset_patience: float = 600.0
    """Seconds that the operator has."""


def from_mocap(state: np.ndarray, goal: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Pose and twist of the task from (x, y, θ, vx, vy, ω) of motion capture: axes swapped, half a turn, goal at 0."""
    x, y, theta, vx, vy, omega = (float(value) for value in state)
    pose = np.array([y - goal[0], x - goal[1], wrap(theta + np.pi - goal[2])])
    return pose, np.array([vy, vx, omega])


class VendorBackend(CarBackend):
    """The adapter."""

    def __init__(self, driver: Any, config: VendorConfig | None = None, clock: AbstractClock | None = None):
        """`driver` has the methods of `VendorDriver`."""
        missing = [name for name in METHODS if not callable(getattr(driver, name, None))]
        if missing:
            raise SombrlError(f"the driver {type(driver).__name__} has no {missing[0]}: see VendorDriver.")
        self.driver, self.config = driver, VendorConfig() if config is None else config
        self.clock = RealClock() if clock is None else clock
        self._lock = threading.Lock()
        self._last = Observation(-np.inf, np.zeros(3), np.zeros(3), -1, False)
        self._invalid = 0
        self._commands = self._refused = 0

    def connect(self) -> None:
        """Start the driver, take over from the gamepad, and wait for motion capture and radio to settle."""
        try:
            self.driver.start()
            self.driver.control_mode()
            self.stop()
        except Exception as error:
            raise RunFault(f"the car's driver did not start: {type(error).__name__}: {error}.") from error
        self.clock.sleep_until(self.clock.now() + self.config.warm_up)

    def close(self) -> None:
        """Neutral, then disconnect."""
        self.stop()
        with suppress(Exception):
            self.driver.stop()

    def reset(self, mode: ResetMode, *, episode: int = 0) -> Observation:
        """Wait until the car stands at the start: carried there ("manual"), or driven there before ("auto")."""
        check_mode(mode, "of a vendor's driver", ("manual", "auto"))
        config, clock = self.config, self.clock
        deadline = clock.now() + config.reset_patience
        since = None
        while clock.now() < deadline:
            self.stop()
            observation = self.observe()
            if not (observation.valid and self._at_start(observation)):
                since = None
            elif since is None:
                since = clock.now()
            elif clock.now() - since >= config.reset_rest:
                return observation
            clock.sleep_until(clock.now() + 0.05)
        raise RunFault(f"the car was not put back to the start within {config.reset_patience:.0f} s.")

    def _at_start(self, observation: Observation) -> bool:
        within, at_rest = self.config.reset_within, float(np.linalg.norm(observation.twist)) < 0.1
        return at_rest and is_at_start(observation, away=within, turned=2 * within, speed=0.1)

    def observe(self) -> Observation:
        """The newest frame; invalid if there was none, motion capture says so, or the driver failed."""
        now = self.clock.now()
        try:
            logs: Mapping[str, int] = self.driver.get_mocap_logs()
            state = np.asarray(self.driver.get_state(), float)
            frame, invalid = int(logs["last"]), int(logs["invalid"])
        except Exception:  # for any reason there is no frame; the supervisor stops the car
            return self._last.as_invalid()
        worse, self._invalid = invalid > self._invalid, max(invalid, self._invalid)
        if worse or state.shape != (6,) or not np.isfinite(state).all():
            return self._last.as_invalid()
        if frame != self._last.frame_id:
            pose, twist = from_mocap(state, self.config.goal)
            self._last = Observation(now - self.config.latency, pose, twist, frame, True)
        return self._last

    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Transmit it, unless it is too late."""
        late_by = self.clock.now() - stamp
        with self._lock:
            self._commands += 1
            accepted = late_by <= self.config.late_limit
            if accepted:
                try:
                    accepted = bool(self.driver.set_command(np.array([steer, throttle])))
                except Exception:
                    accepted = False
            self._refused += not accepted
        return Ack(accepted, late_by)

    def health(self) -> Health:
        """The counters of motion capture, and ours. How often the car stopped by itself only the car knows."""
        logs: Mapping[str, Any] = {}
        with suppress(Exception):
            logs = self.driver.get_mocap_logs()
        names = {name: f"{name}_frames" for name in ("total", "recorded", "requested", "skipped", "invalid")}
        counts = {field: int(logs.get(name, 0)) for name, field in (names | {"last": "last_frame"}).items()}
        return Health(**counts, commands=self._commands, refused_commands=self._refused)

    def stop(self) -> None:
        """Neutral."""
        with self._lock, suppress(Exception):
            self.driver.set_command(np.zeros(2))
