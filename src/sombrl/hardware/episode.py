"""One episode on the car: every tick as it was, and the transitions that may be learned from."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

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
        """T."""
        return len(self.action)

    @property
    def end(self) -> str:
        """Why it ended: "completed", or the supervisor's reason for an abort."""
        return self.meta.get("end", "completed")

    @property
    def total_reward(self) -> float:
        """The return."""
        return float(np.sum(self.reward))

    @property
    def next_obs(self) -> np.ndarray:
        """[T, obs]."""
        return self.obs[1:]

    def timing(self) -> dict[str, float]:
        """Milliseconds: how late ticks began, how uneven commands were, how long the work took; and overruns."""
        sent = self.slot[:-1] * self.meta.get("period", 0.0) + self.woke[:-1] + self.work
        uneven = np.abs(np.diff(sent) - np.diff(self.slot[:-1]) * self.meta.get("period", 0.0))
        rows: dict[str, float] = {}
        for name, values in (("late", self.woke), ("jitter", uneven), ("work", self.work)):
            values = values if len(values) else np.zeros(1)
            rows |= {
                f"{name}_p50_ms": 1e3 * float(np.percentile(values, 50)),
                f"{name}_p99_ms": 1e3 * float(np.percentile(values, 99)),
                f"{name}_max_ms": 1e3 * float(np.max(values)),
            }
        return rows | {"overruns": int(np.sum(np.diff(self.slot) > 1))}

    def save(self, path: Path) -> None:
        """One npz file, complete or not there."""
        arrays = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "meta"}
        write_arrays(path, arrays, {**self.meta, "kind": "episode"})

    @staticmethod
    def load(path: Path) -> "Episode":
        """An episode as it was saved."""
        arrays, meta = read_arrays(path)
        names = {field.name for field in dataclasses.fields(Episode)} - {"meta"}
        if meta.get("kind") != "episode" or set(arrays) != names:
            raise Damaged(path, "it is no episode")
        return Episode(**arrays, meta=meta)
