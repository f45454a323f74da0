"""One recorded episode: every tick as it was, the transitions that may be learned from, and whether the recording is
sound. As a backend it gives back what was seen.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import SombrlError
from sombrl.hardware.backend import (
    AbstractClock,
    Ack,
    CarBackend,
    Health,
    Observation,
    RealClock,
    ResetMode,
    SimulatedClock,
)
from sombrl.hardware.encoding import ACTION_DIM, STACK, ActionStack, encode
from sombrl.hardware.files import Damaged, read_arrays, write_arrays

REASONS = (
    "none",
    "invalid-frame",
    "stale-observation",
    "non-finite-action",
    "out-of-bounds",
    "speed-cap",
    "late-command",
    "stale-command",
)
"""Why an action was not sent as proposed (or, first two, what it was based on); the array `reason` has their numbers.
An invalid frame alone changes nothing before it is stale."""

SLOW = 0.3  # m/s, below which a heading cannot be compared with a direction of motion
MOST_LAG = 10  # periods
CLEARLY = 0.7  # a lag must leave less than this share of what its neighbours leave unexplained


@dataclasses.dataclass(frozen=True)
class Episode:
    """T actions and the T + 1 observations around them. Times are seconds since the first tick was due."""

    stamp: np.ndarray  # [T+1], of the newest good frame
    pose: np.ndarray  # [T+1, 3], of the newest good frame
    twist: np.ndarray  # [T+1, 3]
    frame_id: np.ndarray  # [T+1]
    seen: np.ndarray  # [T+1], whether the tick had a good frame of its own
    obs: np.ndarray  # [T+1, obs], encoded, float32
    proposed: np.ndarray  # [T, action], by the policy
    action: np.ndarray  # [T, action], as sent, before the throttle was scaled; float32
    reason: np.ndarray  # [T], of REASONS
    reward: np.ndarray  # [T]
    valid: np.ndarray  # [T], whether (obs, action, next obs) is a transition of one period that is known for certain
    slot: np.ndarray  # [T+1], the number of the period: one is left out where a tick took too long
    woke: np.ndarray  # [T+1], how late the loop woke up
    work: np.ndarray  # [T], from waking up to the command being sent
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def length(self) -> int:
        """The number of actions, T."""
        return len(self.action)

    @property
    def end(self) -> str:
        """Why it ended: "completed", or the supervisor's reason for an abort."""
        return str(self.meta.get("end", "completed"))

    @property
    def total_reward(self) -> float:
        """The return."""
        return float(np.sum(self.reward))

    def timing(self) -> dict[str, float]:
        """Milliseconds: how late ticks began, how uneven commands were, how long the work took; and overruns."""
        period = self.meta.get("period", 0.0)
        sent = self.slot[:-1] * period + self.woke[:-1] + self.work
        uneven = np.abs(np.diff(sent) - np.diff(self.slot[:-1]) * period)
        rows: dict[str, float] = {}
        for name, values in (("late", self.woke), ("jitter", uneven), ("work", self.work)):
            values = values if len(values) else np.zeros(1)
            rows |= {f"{name}_p{p}_ms": 1e3 * float(np.percentile(values, p)) for p in (50, 99)}
            rows[f"{name}_max_ms"] = 1e3 * float(np.max(values))
        return rows | {"overruns": int(np.sum(np.diff(self.slot) > 1))}

    def save(self, path: Path) -> None:
        """One npz file, complete or not there."""
        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "meta"}
        write_arrays(path, arrays, {**self.meta, "kind": "episode"})

    @staticmethod
    def load(path: Path) -> "Episode":
        """An episode as it was saved."""
        arrays, meta = read_arrays(path, "episode")
        if set(arrays) != {field.name for field in dataclasses.fields(Episode)} - {"meta"}:
            raise Damaged(path, "it does not have the arrays of an episode")
        return Episode(**arrays, meta=meta)


class ReplayBackend(CarBackend):
    """A recorded episode as a car: what was seen comes back at the times it was seen; commands move nothing.

    With the policy that was recorded, the loop must send the recorded actions again: its clock, its encoder and its
    action stack are then what they were. `sent` has every command, for comparison with the log.
    """

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
        """Back to the beginning of the log, in every mode."""
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
        """Record it in `sent`."""
        self.sent.append((steer, throttle))
        self._health.commands += 1
        return Ack(True, self.clock.now() - stamp)

    def health(self) -> Health:
        """The counters."""
        return self._health

    def stop(self) -> None:
        """Nothing to stop."""


# ------------------------------------------------------------------------------------------- whether it is sound

Finding = tuple[str, str]
""""ok", "warning" or "error", and a sentence."""


def check_log(episode: Episode) -> list[Finding]:
    """Encoder, action stack, period, heading, delay and frames of a recording, for authors of adapters.

    A frame that is turned, an action stack in the other order or a driver with another delay all look like a car that
    is hard to learn. Here they are a sentence.
    """
    checks = (_encoder, _stack, _period, _heading, _delay, _frames)
    return [check(episode) for check in checks]


def _encoder(episode: Episode) -> Finding:
    stack = ActionStack()
    difference = 0.0
    for k in range(episode.length + 1):
        frame = Observation(0.0, episode.pose[k], episode.twist[k], 0, True)
        difference = max(difference, float(np.abs(encode(frame, stack)[:7] - episode.obs[k, :7]).max()))
    level = "ok" if difference < 1e-5 else "error"
    return level, f"encoded observations differ from their frames by at most {difference:.1e}."


def _stack(episode: Episode) -> Finding:
    shown = episode.obs[:, 7:].reshape(-1, STACK, ACTION_DIM)
    whole = np.diff(episode.slot) == 1
    shifted = np.concatenate([shown[:-1, 1:], episode.action[:, None]], axis=1)
    wrong = int(np.sum(np.any(shifted != shown[1:], axis=(1, 2)) & whole))
    if wrong:
        return "error", f"{wrong} action stacks are not the one before, moved up by the action that was sent."
    return "ok", "every action stack is the one before, oldest first, moved up by the action that was sent."


def _period(episode: Episode) -> Finding:
    """Displacement against velocity: the slope is the time between frames, without the stamps."""
    good = episode.valid
    moved = np.diff(episode.pose[:, :2], axis=0)[good]
    speed = 0.5 * (episode.twist[1:, :2] + episode.twist[:-1, :2])[good]
    if np.sum(speed**2) < 1e-2:
        return "warning", "the car hardly moved: its period cannot be measured."
    measured = float(np.sum(moved * speed) / np.sum(speed**2))
    sentence = f"positions and velocities agree on a period of {1e3 * measured:.1f} ms"
    level = "ok" if abs(measured / episode.meta["period"] - 1.0) < 0.1 else "error"
    return level, f"{sentence}; the loop's is {1e3 * episode.meta['period']:.1f} ms."


def _heading(episode: Episode) -> Finding:
    good = episode.seen & (np.hypot(episode.twist[:, 0], episode.twist[:, 1]) > SLOW)
    if good.sum() < 10:
        return "warning", "the car was hardly ever fast enough to compare its heading with its motion."
    off = np.arctan2(episode.twist[good, 1], episode.twist[good, 0]) - episode.pose[good, 2]
    off = np.abs((off + np.pi / 2) % np.pi - np.pi / 2)  # it may drive backwards
    degrees = float(np.degrees(np.median(off)))
    level = "ok" if degrees < 20 else "error"
    return level, f"heading and direction of motion are {degrees:.0f}° apart (median)."


def _delay(episode: Episode) -> Finding:
    """The lag at which the throttle explains the acceleration along the car best."""
    theta, twist = episode.pose[:, 2], episode.twist
    forward = twist[:, 0] * np.cos(theta) + twist[:, 1] * np.sin(theta)
    gained, throttle = np.diff(forward), episode.action[:, 1].astype(float)
    scores = []
    for lag in range(MOST_LAG + 1):
        good = episode.valid[lag:]
        sent, felt, before = throttle[: len(throttle) - lag][good], gained[lag:][good], forward[lag:-1][good]
        if good.sum() < 20 or np.std(sent) < 0.05:
            return "warning", "too little throttle was given to measure the delay of the car."
        design = np.stack([sent, before, np.ones_like(sent)], axis=1)
        residual = felt - design @ np.linalg.lstsq(design, felt, rcond=None)[0]
        scores.append(float(np.sum(residual**2)))
    lag = int(np.argmin(scores))
    beside = [scores[other] for other in (lag - 1, lag + 1) if 0 <= other <= MOST_LAG]
    if scores[lag] > CLEARLY * min(beside):
        return "warning", "the throttle varied too slowly to measure the delay of the car."
    level = "ok" if lag == STACK else "warning"
    return level, f"the car obeys its throttle {lag} periods after it was sent; the stack has {STACK} actions."


def _frames(episode: Episode) -> Finding:
    lost, timing = float(np.mean(~episode.seen)), episode.timing()
    level = "ok" if lost < 0.02 and timing["overruns"] == 0 else "warning"
    return level, (
        f"{100 * lost:.1f} % of the ticks had no good frame; ticks were late by {timing['late_p99_ms']:.2f} ms (p99), "
        f"overruns {timing['overruns']:.0f}."
    )
