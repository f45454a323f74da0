"""Recordings of a real RC car (Rothfuss et al., 2024): npz files, which the user has, as transitions of `rc-car`.

A file is one run of about 30 Hz: `observation` and `next_observation` with (x, y, θ, vx, vy, ω, three past actions,
oldest first) and `action`. They have five traps:

1. The car was sent half the recorded steer. What was sent is what the next observation remembers, so that is read.
2. Yaw rates are finite differences, and leap to hundreds where θ wraps: such rows are left out.
3. The car stands still at first: those rows are left out.
4. The car answers later than the three remembered actions reach back: longer memories are rebuilt from the run, across
   the rows that are left out.
5. Which car it was is not recorded: a simulator as prior has to allow for that.
"""

import dataclasses
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from sombrl.records import RunFault, SombrlError, Transition
from sombrl.replay import Replay

ARRAYS = {"observation": 12, "action": 2, "next_observation": 12}
REMEMBERED = 3  # actions in a recorded observation
STEER_SCALES = (0.5, 1.0)  # of what was sent to what was recorded
SPIKE = 15.0  # rad/s, more than the car can turn
IDLE = 30  # rows at the beginning, a second
SAME = 1e-6  # what is remembered twice may differ by so much


@dataclasses.dataclass(frozen=True)
class Recording:
    """One run: the states before and after every row, and what was sent, also before the run began."""

    name: str
    state: Float[np.ndarray, "states 6"]  # x, y, θ, vx, vy, ω; one more than rows
    sent: Float[np.ndarray, "sent 2"]  # (steer, throttle), oldest first; the last one goes with the last row

    @property
    def rows(self) -> int:
        """How many transitions were recorded."""
        return len(self.state) - 1

    def log(self, past: int = REMEMBERED, idle: int = IDLE, spike: float = SPIKE) -> "CarLog":
        """The rows that can be trusted, with a memory of `past` actions; those before the run are 0."""
        if past < 0 or idle < 0 or not spike > 0:
            raise SombrlError(
                f"past and idle must be at least 0 and spike positive, not {past}, {idle} and {spike}: leave them out "
                "for the usual numbers."
            )
        missing = max(past - (len(self.sent) - self.rows), 0)
        sent = np.concatenate([np.zeros((missing, 2)), self.sent])
        first = len(sent) - self.rows
        stack = np.stack([sent[first - past + i : len(sent) - past + i] for i in range(past + 1)], axis=1)
        turning = np.abs(self.state[:, 5])
        row = np.flatnonzero((turning[:-1] <= spike) & (turning[1:] <= spike) & (np.arange(self.rows) >= idle))
        if not len(row):
            raise SombrlError(f"no row of {self.name} is left without the first {idle} and yaw rates above {spike:g}.")
        before, after = (stack[row, piece].reshape(len(row), -1) for piece in (slice(0, past), slice(1, past + 1)))
        return CarLog(
            obs=np.concatenate([encoded(self.state[row]), before], axis=1).astype(np.float32),
            action=stack[row, past].astype(np.float32),
            next_obs=np.concatenate([encoded(self.state[row + 1]), after], axis=1).astype(np.float32),
            row=row,
        )


@dataclasses.dataclass(frozen=True)
class CarLog:
    """Transitions in the order of time, as `rc-car` observes them: seven numbers of state, then the past actions."""

    obs: Float[np.ndarray, "rows obs"]
    action: Float[np.ndarray, "rows 2"]
    next_obs: Float[np.ndarray, "rows obs"]
    row: Int[np.ndarray, " rows"]  # of the recording; two that follow each other there do so in time

    def __len__(self) -> int:
        return len(self.row)

    def take(self, which: Int[np.ndarray, " taken"]) -> "CarLog":
        """Some of the rows."""
        return CarLog(*(getattr(self, field.name)[which] for field in dataclasses.fields(self)))

    def split(self, held_out: float) -> tuple["CarLog", "CarLog"]:
        """The earlier rows, and the last share of them; rows that are neighbours in time are nearly the same."""
        cut = len(self) - math.ceil(held_out * len(self))
        return self.take(np.arange(cut)), self.take(np.arange(cut, len(self)))

    def windows(self, steps: int) -> Int[np.ndarray, "windows steps"]:
        """Indices of all stretches of `steps` rows without a gap."""
        starts = np.arange(len(self) - steps + 1)
        whole = self.row[starts + steps - 1] - self.row[starts] == steps - 1
        windows: np.ndarray = starts[whole][:, None] + np.arange(steps)
        return windows

    def transitions(self) -> Transition:
        """As records, with rewards of 0."""
        nothing = jnp.zeros(len(self), bool)
        obs, action, next_obs = (jnp.asarray(part) for part in (self.obs, self.action, self.next_obs))
        return Transition(obs, action, jnp.zeros(len(self), jnp.float32), next_obs, nothing, nothing)


def joined(logs: list[CarLog]) -> CarLog:
    """Several logs one after the other, with a gap between them."""
    pieces, offset = [], 0
    for log in logs:
        pieces.append(dataclasses.replace(log, row=log.row + offset))
        offset += int(log.row[-1]) + 2
    return CarLog(*(np.concatenate([getattr(p, f.name) for p in pieces]) for f in dataclasses.fields(CarLog)))


def encoded(state: Float[np.ndarray, "rows 6"]) -> Float[np.ndarray, "rows 7"]:
    """(x, y, sin θ, cos θ, vx, vy, ω)."""
    theta = state[:, 2:3]
    return np.concatenate([state[:, :2], np.sin(theta), np.cos(theta), state[:, 3:]], axis=1)


def replay_of(rows: Transition, capacity: int) -> Replay:
    """A buffer with these rows and room for more."""
    count, obs_dim = rows.obs.shape
    if count > capacity:
        raise SombrlError(f"{count} rows do not fit a buffer of {capacity}.")
    return Replay.empty(capacity, obs_dim, rows.action.shape[1]).add(rows, jnp.ones(count, bool))


def read_recording(path: Path) -> Recording:
    """One npz file, checked; refuses, in a sentence, what is not such a recording."""
    arrays = _arrays(Path(path))
    before, action, after = (arrays[name] for name in ARRAYS)
    if not np.array_equal(before[1:], after[:-1]):
        row = int(np.argmax(np.any(before[1:] != after[:-1], axis=1)))
        raise SombrlError(
            f"{path} is not one run: next_observation of row {row} is not observation of row {row + 1}; save every run "
            "as a file of its own, unshuffled."
        )
    sent = after[:, -2:]
    if not any(np.allclose(sent, action * [scale, 1.0], rtol=0, atol=SAME) for scale in STEER_SCALES):
        raise SombrlError(
            f"in {path} the newest action that next_observation remembers is not (steer or half of it, throttle) of "
            "action: columns 6 to 11 must be the last three actions, oldest first."
        )
    stack = before[:, 6:].reshape(-1, REMEMBERED, 2)
    if not np.allclose(stack[1:, :-1], stack[:-1, 1:], rtol=0, atol=SAME):
        raise SombrlError(f"the past actions in {path} are not oldest first: turn columns 6 to 11 round.")
    state = np.concatenate([before[:, :6], after[-1:, :6]])
    return Recording(Path(path).name, state, np.concatenate([stack[0], sent]))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    what = "a recording is an npz file with observation, action and next_observation"
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            if lacking := [name for name in ARRAYS if name not in archive.files]:
                raise SombrlError(f"{path} has no array {lacking[0]}: {what}.")
            arrays = {name: archive[name] for name in ARRAYS}
    except FileNotFoundError:
        raise SombrlError(f"there is no recording {path}: give the path of one.") from None
    except IsADirectoryError:
        raise SombrlError(f"{path} is a folder: {what}.") from None
    except PermissionError as error:
        raise RunFault(f"cannot read {path}: {error.strerror}.") from error
    except SombrlError:
        raise
    except Exception:  # zip and npy parsers raise nearly anything when bytes are wrong
        raise SombrlError(f"{path} cannot be read: {what}.") from None
    rows = len(arrays["action"]) if arrays["action"].ndim else 0
    for name, columns in ARRAYS.items():
        array = arrays[name]
        if array.shape != (rows, columns) or rows < 2:
            raise SombrlError(
                f"{name} in {path} has shape {array.shape}: it must be (rows, {columns}), with two rows or more and as "
                "many as action has."
            )
        if not np.issubdtype(array.dtype, np.floating):
            raise SombrlError(f"{name} in {path} holds {array.dtype}: it must hold floating-point numbers.")
        if not np.isfinite(array).all():
            bad = int(np.argmax(~np.isfinite(array).all(axis=1)))
            raise SombrlError(f"row {bad} of {name} in {path} is not finite: cut the recording there.")
    return {name: array.astype(np.float64) for name, array in arrays.items()}
