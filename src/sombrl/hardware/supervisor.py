"""Between the policy and the car: whatever the policy asks for, the car gets an allowed command or stops.

The rules are checked anew at every tick and know nothing of learning. The first that applies decides:

- **operator**: a stop was asked for. Ends the episode.
- **geofence**: the newest frame is outside the field. Ends the episode.
- **observation-lost**, **action-fault**: no good frame, or no usable command, for `fault_limit`. Ends the episode.
- **non-finite-action**: neutral.
- **stale-observation**: no good frame for `stale_after`: neutral.
- **speed-cap**: no throttle in the direction of motion.
- **late-command**: the backend refused it: neutral.
- **stale-command**: the loop has not sent anything for `stale_after`: neutral, by a thread of its own.

A frame is good if it is marked valid, finite, new, turns no faster than a car, and is where the last one and its
velocity say. Neutral is (0, 0).
"""

import dataclasses
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Interval

from sombrl.config.check import Configuration
from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.backend import CarBackend, Observation
from sombrl.hardware.episode import REASONS
from sombrl.hardware.files import AbstractLog, EventLog

NEUTRAL = np.zeros(2)


@dataclasses.dataclass(frozen=True)
class SupervisorConfig(Configuration, prefix="supervisor"):
    """What the car may do."""

    field_x: tuple[float, float] = (-1.4, 2.8)
    """The field, in metres from the goal."""
    field_y: tuple[float, float] = (-2.6, 1.5)
    """The same across."""
    speed_cap: Annotated[float, Gt(0)] = 4.0
    """m/s beyond which the car may only roll or brake (flat out, the simulated one would reach 5.2)."""
    throttle_scale: Annotated[float, Interval(gt=0, le=1)] = 0.4
    """The hardware's throttle for a policy's 1."""
    stale_after: Annotated[float, Gt(0)] = 0.1
    """Seconds without a good frame, or without a command, after which the throttle is zero."""
    fault_limit: Annotated[float, Gt(0)] = 1.0
    """Seconds of the same after which the episode ends."""
    most_jump: Annotated[float, Gt(0)] = 0.5
    """Metres that a frame may be from where the last one and its velocity say; a wrong marker is further away."""
    most_yaw_rate: Annotated[float, Gt(0)] = 15.0
    """rad/s; more is a heading that wrapped inside the velocity filter."""

    def refuse_combinations(self) -> None:
        """A field has a width."""
        for name in ("field_x", "field_y"):
            low, high = getattr(self, name)
            if not low < high:
                raise SombrlError(f"{self.flag(name)} must be two rising numbers, not {low} {high}.")

    def inside(self, observation: Observation) -> bool:
        """Whether the car is in the field."""
        (left, right), (low, high) = self.field_x, self.field_y
        return bool(left <= observation.pose[0] <= right and low <= observation.pose[1] <= high)


@dataclasses.dataclass(frozen=True)
class Sent:
    """What became of a proposed action."""

    action: np.ndarray  # before the throttle was scaled
    reason: str  # of REASONS
    certain: bool  # whether the car has it, in time


class Supervisor:
    """Alone calls `command` of the backend while an episode runs.

    `begin`, then `look` and `act` once per tick each, then `end`. Between episodes `park` keeps the car still.
    """

    def __init__(
        self,
        backend: CarBackend,
        config: SupervisorConfig | None = None,
        log: AbstractLog | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
    ):
        self.backend, self.config = backend, SupervisorConfig() if config is None else config
        self.log: AbstractLog = EventLog() if log is None else log
        self._stop_requested = stop_requested
        self._lock = threading.RLock()
        self._armed = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.known: Observation | None = None  # the newest good frame
        self.good = False  # whether this tick has one
        self._latest = "none"
        self._since = 0.0  # when what is wrong with the actions began
        self._episode, self._tick, self._began, self._sent_at = 0, 0, 0.0, 0.0
        self._stale_command = False
        self.interventions = 0

    def begin(self, episode: int, known: Observation, start: float) -> None:
        """Watch an episode whose first tick is due at `start`."""
        with self._lock:
            self.known, self.good, self._latest = known, True, "none"
            self._episode, self._tick, self._began = episode, 0, start
            self._sent_at, self._stale_command, self.interventions = start, False, 0
            self._armed.set()
        if self._thread is None and self.backend.clock.real:
            self._thread = threading.Thread(target=self._watch, name="stale-command watchdog", daemon=True)
            self._thread.start()

    def look(self, observation: Observation) -> str | None:
        """Take a frame; a reason if the episode must end here, and then the car has been stopped already."""
        config, now = self.config, self.backend.clock.now()
        assert self.known is not None, "begin first"
        self.good = self._is_good(observation, self.known)
        if self.good:
            self.known = observation
        if self._stop_requested():
            return self._abort("operator")
        if self.good and not config.inside(observation):
            return self._abort("geofence", x=observation.pose[0], y=observation.pose[1])
        if now - self.known.stamp > config.fault_limit:
            return self._abort("observation-lost", age=now - self.known.stamp)
        if self._latest in ("non-finite-action", "late-command") and now - self._since > config.fault_limit:
            return self._abort("action-fault", fault=self._latest)
        return None

    def act(self, proposed: np.ndarray, stamp: float) -> Sent:
        """Send what is allowed of the action that was due at `stamp`."""
        action, reason = self._allowed(np.asarray(proposed, float))
        with self._lock:
            stale = self._stale_command
            ack = self.backend.command(float(action[0]), float(action[1]) * self.config.throttle_scale, stamp)
            if not ack.accepted:
                self.backend.stop()
                action, reason = NEUTRAL, "late-command"
            elif stale:
                reason = "stale-command"
            self._sent_at, self._stale_command = self.backend.clock.now(), False
        self._note(reason, proposed, action, late_by=ack.late_by)
        self._tick += 1
        return Sent(action, reason, ack.accepted and not stale)

    def end(self) -> None:
        """The episode is over: stop the car, and watch no longer."""
        with self._lock:
            self._armed.clear()
            self.backend.stop()

    def park(self) -> None:
        """Keep the car where it is, for one more watchdog's time."""
        self.backend.stop()

    def close(self) -> None:
        """Stop for good."""
        self._armed.clear()
        self._closed.set()
        self.backend.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # ------------------------------------------------------------------------------------------------ inside

    def _is_good(self, observation: Observation, last: Observation) -> bool:
        passed = observation.stamp - last.stamp
        if not observation.valid or observation.frame_id == last.frame_id or passed <= 0:
            return False
        if not (np.isfinite(observation.pose).all() and np.isfinite(observation.twist).all()):
            return False
        if abs(observation.twist[2]) > self.config.most_yaw_rate:
            return False
        expected = last.pose[:2] + passed * last.twist[:2]
        return math.dist(observation.pose[:2], expected) <= self.config.most_jump

    def _allowed(self, proposed: np.ndarray) -> tuple[np.ndarray, str]:
        """The action, and why it is not the proposed one."""
        config, known = self.config, self.known
        assert known is not None
        if proposed.shape != (2,) or not np.isfinite(proposed).all():
            return NEUTRAL, "non-finite-action"
        if self.backend.clock.now() - known.stamp > config.stale_after:
            return NEUTRAL, "stale-observation"
        action = np.clip(proposed, -1.0, 1.0)
        reason = "none" if self.good else "invalid-frame"
        if not np.array_equal(action, proposed):
            reason = "out-of-bounds"
        vx, vy, theta = known.twist[0], known.twist[1], known.pose[2]
        forward = vx * math.cos(theta) + vy * math.sin(theta)
        if math.hypot(vx, vy) > config.speed_cap and action[1] * forward > 0:
            return np.array([action[0], 0.0]), "speed-cap"
        return action, reason

    def _note(self, reason: str, proposed: np.ndarray, action: np.ndarray, **details: float) -> None:
        """Log a reason when it begins; the array of the episode has it for every tick."""
        assert reason in REASONS
        if reason != "none":
            self.interventions += 1
        if reason == self._latest:
            return
        now = self.backend.clock.now()
        if self._latest != "none":
            self._add("recovered", reason=self._latest, lasted=now - self._since)
        self._latest, self._since = reason, now
        if reason != "none":
            self._add("intervention", reason=reason, proposed=proposed, sent=action, **details)

    def _abort(self, reason: str, **details: Any) -> str:
        self.end()
        self.interventions += 1
        self._add("abort", reason=reason, **details)
        return reason

    def _add(self, event: str, **details: Any) -> None:
        stamp = self.backend.clock.now() - self._began
        self.log.add(event, episode=self._episode, tick=self._tick, stamp=round(stamp, 6), **details)

    def _watch(self) -> None:
        """In a thread of its own: a loop that hangs sends nothing."""
        limit, clock = self.config.stale_after, self.backend.clock
        while not self._closed.wait(limit / 4):
            if not self._armed.is_set():
                continue
            with self._lock:
                age = clock.now() - self._sent_at
                if age <= limit or not self._armed.is_set():
                    continue
                with suppress(Exception):  # a backend that breaks its word is asked again
                    self.backend.stop()
                new, self._stale_command = not self._stale_command, True
            if new:
                self.interventions += 1
                with suppress(RunFault):  # a full disk must not end the watching
                    self._add("intervention", reason="stale-command", age=age, sent=NEUTRAL)
