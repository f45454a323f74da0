"""A recorded episode as a backend: what was seen comes back, at the times it was seen; commands move nothing.

With the policy that was recorded, the loop must send the recorded actions again: its clock, its encoder and its action
stack are then what they were.
"""

from pathlib import Path

import numpy as np

from sombrl.errors import SombrlError
from sombrl.hardware.backend import Ack, CarBackend, Health, Observation, ResetMode
from sombrl.hardware.clocks import AbstractClock, RealClock, SimulatedClock
from sombrl.hardware.episode import Episode


class ReplayBackend(CarBackend):
    """Open loop. `sent` has every command, for comparison with the log."""

    def __init__(self, log: str | Path | Episode, clock: str = "real"):
        if clock not in ("real", "simulated"):
            raise SombrlError(f"clock of a replay must be real or simulated, not {clock!r}.")
        self.clock: AbstractClock = RealClock() if clock == "real" else SimulatedClock()
        self.log = log if isinstance(log, Episode) else Episode.load(Path(log))
        if not self.log.length:
            raise SombrlError("an episode without a single action cannot be replayed.")
        self._period = float(self.log.meta["period"])
        self._began: float | None = None
        self._health = Health()
        self.sent: list[tuple[float, float]] = []

    def connect(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def reset(self, mode: ResetMode, *, episode: int = 0) -> Observation:
        """Back to the beginning of the log, however asked."""
        if isinstance(self.clock, SimulatedClock):
            self.clock.restart()
        self._began, self.sent = None, []
        return self._frame(0, self.clock.now(), early=True)

    def observe(self) -> Observation:
        """The frame that was seen in this period. The first look comes a period before the first tick."""
        now = self.clock.now()
        self._health.requested_frames += 1
        if self._began is None:
            self._began = now + self._period
            return self._frame(0, now, early=True)
        elapsed = now - self._began
        due = self.log.slot * self._period
        k = int(np.searchsorted(due, elapsed + 0.5 * self._period)) - 1
        if k < 0:
            return self._frame(0, now, early=True)
        frame = self._frame(k, self._began + float(self.log.stamp[k]))
        over = elapsed > due[-1] + 0.5 * self._period
        if over or not self.log.seen[k]:
            self._health.invalid_frames += 1
            return frame.as_invalid()
        self._health.recorded_frames += 1
        return frame

    def _frame(self, k: int, stamp: float, early: bool = False) -> Observation:
        self._health.last_frame = int(self.log.frame_id[k]) - early
        self._health.total_frames = max(self._health.total_frames, k + 1)
        return Observation(stamp, self.log.pose[k], self.log.twist[k], self._health.last_frame, True)

    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Remember it."""
        self.sent.append((steer, throttle))
        self._health.commands += 1
        return Ack(True, self.clock.now() - stamp)

    def health(self) -> Health:
        """The counters."""
        return self._health

    def stop(self) -> None:
        """There is nothing to stop."""
