"""What a run begins with instead of nothing: recorded transitions, of a file or of another run."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sombrl.controllers.base import AbstractController
from sombrl.envs.recorded import unit_actions
from sombrl.errors import SombrlError
from sombrl.records import Transition
from sombrl.replay import Replay
from sombrl.storage.datasets import Rows, Wanted, read_dataset
from sombrl.training.compiled import LoopState

if TYPE_CHECKING:
    from sombrl.training.parts import PartsTrainer


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where the first transitions of a run came from; with the run's settings, so that it can be said later."""

    path: str
    sha256: str
    """Of the transitions, as they were taken."""
    rows: tuple[int, ...]
    """How many, per seed."""
    held_out: int = 0
    """The last of them, which nothing is learned from."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**dataclasses.asdict(self), "rows": list(self.rows)}

    @staticmethod
    def from_json(data: Any) -> "Origin":
        """The inverse; what a stranger has changed raises ValueError or KeyError."""
        rows, held_out = data["rows"], data["held_out"]
        numbers = [*rows, held_out]
        if not rows or not all(type(number) is int and number >= 0 for number in numbers) or held_out > min(rows):
            raise ValueError("transitions that cannot be")
        return Origin(str(data["path"]), str(data["sha256"]), tuple(rows), held_out)


def rows_of_file(path: str, trainer: "PartsTrainer", most: int) -> Rows:
    """The transitions in a file or a Minari dataset as the trainer would have stored them."""
    spec = trainer.envs.spec
    if spec.discrete:
        raise SombrlError(f"the actions of {spec.name} are choices, and data are read for continuous ones alone.")
    found = read_dataset(Path(path), Wanted(spec.name, spec.obs_dim, spec.action_dim, most))
    with np.errstate(over="ignore"):  # an infinity is refused below
        obs, next_obs, reward = (column.astype(np.float32) for column in (found.obs, found.next_obs, found.reward))
    if not all(np.isfinite(column).all() for column in (obs, next_obs, reward)):
        raise SombrlError(f"{path} has numbers too large for a float of 32 bits: leave such rows out.")
    action = unit_actions(found.action, trainer.envs, path)
    return Rows(obs, action, reward, next_obs, found.terminated, found.truncated)


def rows_of_run(source: "PartsTrainer") -> list[Rows]:
    """What the replay of every seed of a trainer holds, oldest first; the rows that it held out last."""
    found, held_out = [], source.origin.held_out if source.origin else 0
    data: Transition = jax.tree.map(np.asarray, source.state.replay.data)
    capacity = data.reward.shape[1]
    for row, added in enumerate(source.state.replay.added.tolist()):
        count = min(added, capacity)
        oldest_first = (added - count + np.arange(count)) % capacity
        order = np.concatenate([oldest_first, count + np.arange(held_out)])
        found.append(Rows(*(leaf[row][order] for leaf in _columns(data))))
    return found


def concatenated(parts: Sequence[Rows]) -> Rows:
    """One after the other."""
    return Rows(*(np.concatenate(columns) for columns in zip(*(part.columns for part in parts), strict=True)))


def hold_out(rows: Rows, share: float) -> tuple[Rows, int]:
    """The rows with a share of the episodes at the end, evenly chosen, and how many rows these are.

    Of a single episode it is the last decisions.
    """
    stops = np.flatnonzero(rows.ends) + 1
    chosen = np.zeros(rows.number, bool)
    if share > 0 and len(stops) > 1:
        held = min(len(stops) - 1, max(1, round(share * len(stops))))
        for i in ((np.arange(held) + 0.5) * len(stops) / held).astype(int):
            chosen[(stops[i - 1] if i else 0) : stops[i]] = True
    elif share > 0:
        chosen[rows.number - round(share * rows.number) :] = True
    order = np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])
    return rows.at(order), int(chosen.sum())


def replay_with(rows: Sequence[Rows], capacity: int, learned_from: Sequence[int]) -> Replay:
    """A buffer per seed that begins with these rows, of which the first `learned_from` count as added."""

    def buffers(columns: Sequence[np.ndarray]) -> Any:
        return jnp.stack([np.pad(one, [(0, capacity - len(one))] + [(0, 0)] * (one.ndim - 1)) for one in columns])

    data = Transition(*(buffers(columns) for columns in zip(*(one.columns for one in rows), strict=True)))
    return Replay(data, jnp.asarray(learned_from, jnp.int32))


def digest(rows: Sequence[Rows]) -> str:
    """The SHA-256 of transitions."""
    found = hashlib.sha256()
    for one in rows:
        for column in one.columns:
            found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()


def require_same_world(ours: "PartsTrainer", theirs: "PartsTrainer", path: str) -> None:
    """Refuse the data of a run on another environment; of an object nothing but its sizes is known."""
    mine, its = ours.envs.spec, theirs.envs.spec
    if (mine.obs_dim, mine.action_dim, mine.action_repeat) != (its.obs_dim, its.action_dim, its.action_repeat):
        raise SombrlError(
            f"{path} has {its.obs_dim} numbers in an observation, {its.action_dim} in an action and decisions of "
            f"{its.action_repeat} frames, and {mine.name} {mine.obs_dim}, {mine.action_dim} and {mine.action_repeat}: "
            "give data of that environment."
        )
    if ours.maker.is_object or theirs.maker.is_object:
        return
    for name in ("env", "env_kwargs", "action_cost"):
        wanted, given = getattr(ours.run, name), getattr(theirs.run, name)
        if name == "env_kwargs":
            wanted, given = sorted(wanted), sorted(given)
        if wanted != given:
            shown = " ".join(given) if name == "env_kwargs" else given
            raise SombrlError(f"{path} was trained with --{name.replace('_', '-')} {shown or 'none'}: give the same.")


def _columns(rows: Transition) -> tuple[Any, ...]:
    return rows.obs, rows.action, rows.reward, rows.next_obs, rows.terminated, rows.truncated


def take_over(controller: AbstractController, ours: LoopState, theirs: LoopState, seeds: int, path: str) -> Any:
    """What the first `seeds` of another run have learned, learner and controller; the strategy's own begins anew."""
    with jax.enable_x64(True):  # float64 leaves stay so
        learned = jax.tree.map(lambda leaf: leaf[:seeds], (theirs.learner, theirs.controller))
    fresh = ours.learner, ours.controller
    ours_shape, theirs_shape = (_shapes(one) for one in (fresh, learned))
    if ours_shape != theirs_shape:
        raise SombrlError(
            f"what {path} has learned does not fit the settings of this run: give those of its config.json, the widths "
            "of networks above all."
        )
    return learned[0], controller.take_over(learned[1], fresh[1])


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(where): leaf.shape for where, leaf in leaves}
