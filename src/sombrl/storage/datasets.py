"""Recorded transitions in files that anyone may have written: an .npz, or the HDF5 of a Minari dataset.

Nothing in a file is executed, no link in it is followed, and every size is compared before memory is taken: with the
other columns, with what the environment has, and with the room that there is.
"""

import contextlib
import dataclasses
import math
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import SombrlError
from sombrl.optional import first_line, require
from sombrl.storage.arrays import HEADERS
from sombrl.storage.files import refuse_links

COLUMNS = ("obs", "action", "reward", "next_obs", "terminated")
"""What an .npz must have; `truncated` is false where it is missing."""
MINARI = Path("data/main_data.hdf5")
NAMED = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)*-v\d+", re.IGNORECASE)
"""How Minari calls its datasets."""
PIECE = 2**26
"""Bytes of a piece that HDF5 reads at once; sombrl and Minari write far smaller ones."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The sizes that an environment has, and how many rows there is room for."""

    env: str
    obs_dim: int
    action_dim: int
    most: int


@dataclasses.dataclass(frozen=True)
class Rows:
    """Transitions on the host, one after the other, [rows, ...]: the columns of a `Transition`."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def number(self) -> int:
        """How many."""
        return len(self.reward)

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """One after the other, as they stand above."""
        return self.obs, self.action, self.reward, self.next_obs, self.terminated, self.truncated

    def at(self, order: np.ndarray) -> "Rows":
        """Some of them, in that order."""
        return Rows(*(column[order] for column in self.columns))

    @property
    def ends(self) -> np.ndarray:
        """After which rows another episode begins, by its end or because the next row is elsewhere."""
        ends: np.ndarray = self.terminated | self.truncated
        ends[:-1] |= (self.next_obs[:-1] != self.obs[1:]).any(axis=1)
        ends[-1:] = True
        return ends


def place_of(name: str) -> Path:
    """The file or folder that a name stands for, there or not: a path, or a dataset in Minari's own folder."""
    path = Path(name).expanduser()
    if not path.exists() and NAMED.fullmatch(name):
        root = Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")
        path = root / name if (root / name).exists() else path
    return path.resolve()


def read_dataset(path: Path, wanted: Wanted) -> Rows:
    """The transitions in a file or a Minari folder, actions in the environment's own units.

    Refused unless every number is finite and every size is right.
    """
    if path.is_dir():
        found = _minari(path, wanted)
    elif path.is_file():
        found = _npz(path, wanted)
    else:
        what = f"{path} is not a file" if path.exists() else f"there are no data at {path}"
        raise SombrlError(f"{what}: give a run's folder, a Minari dataset or an .npz file.")
    for field in dataclasses.fields(found):
        wrong = ~np.isfinite(getattr(found, field.name))
        if wrong.any():
            row = int(np.argwhere(wrong)[0][0])
            raise SombrlError(
                f"{path} has a {field.name} that is not a finite number (row {row}): leave such rows out."
            )
    return found


def _columns(path: Path, wanted: Wanted, shapes: dict[str, Sequence[int]]) -> None:
    """Refuse columns of other sizes, by their shapes alone."""
    rows = {name: shape[0] if shape else 0 for name, shape in shapes.items()}
    if len(set(rows.values())) > 1:
        sizes = ", ".join(f"{number} of {name}" for name, number in rows.items())
        raise SombrlError(f"the columns of {path} are not equally long ({sizes}): a row of each makes a transition.")
    if rows["reward"] == 0:
        raise SombrlError(f"{path} has no transitions: give data with some.")
    widths = {"obs": wanted.obs_dim, "action": wanted.action_dim, "next_obs": wanted.obs_dim}
    for name, shape in shapes.items():
        has, needs = math.prod(shape[1:]), widths.get(name, 1)
        if has != needs:
            raise SombrlError(
                f"{path} has {has} numbers per {name}, and {wanted.env} has {needs}: give data of that environment."
            )
    if rows["reward"] > wanted.most:
        raise SombrlError(
            f"{path} has {rows['reward']} transitions, more than the {wanted.most} there is room for: raise --capacity "
            "(--gp.capacity), or give fewer."
        )


def _npz(path: Path, wanted: Wanted) -> Rows:
    with _reading(path), open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        for name in COLUMNS:
            if name not in names:
                raise SombrlError(
                    f"{path} has no {name}: transitions need {', '.join(COLUMNS)}, and may have truncated."
                )
        there = [name for name in (*COLUMNS, "truncated") if name in names]
        _columns(path, wanted, {name: _shape(path, archive, name) for name in there})
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in there}
    return _dataset(found)


def _shape(path: Path, archive: zipfile.ZipFile, name: str) -> Sequence[int]:
    """The shape of a column, from its header, a few bytes."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(member)](member)
        begins = member.tell()
    _require_numbers(path, name, dtype)
    if info.file_size - begins != math.prod(shape) * dtype.itemsize:
        raise SombrlError(f"{path} is damaged, {name} has another size than its header says: write it again.")
    return list(shape)


def _minari(path: Path, wanted: Wanted) -> Rows:
    """Episodes as Minari lays them out: groups episode_0, episode_1, … with an observation more than actions."""
    refuse_links(path, [MINARI.parts[0], str(MINARI)])
    if not (path / MINARI).is_file():
        raise SombrlError(
            f"{path} is neither a run nor a Minari dataset in HDF5 (no {MINARI}): give one of these, or an .npz file."
        )
    h5py = require("h5py", "h5py", "Minari datasets need h5py: pip install 'sombrl[minari]'.")
    with _reading(path), h5py.File(path / MINARI, "r") as file:
        names = sorted((name for name in file if re.fullmatch(r"episode_\d+", name)), key=lambda name: int(name[8:]))
        episodes = [_Episode(path, h5py, _plain(path, h5py, file, name)) for name in names]
        total = sum(episode.length for episode in episodes)
        for obs, action in {episode.widths for episode in episodes} or {(wanted.obs_dim, wanted.action_dim)}:
            _columns(path, wanted, {"obs": (total, obs), "action": (total, action), "reward": (total,)})
        read = [episode.read() for episode in episodes]
    return _dataset({name: np.concatenate([one[name] for one in read]) for name in (*COLUMNS, "truncated")})


class _Episode:
    """One episode's group, of which only shapes are known before it is read."""

    def __init__(self, path: Path, h5py: Any, group: Any):
        self.columns: dict[str, Any] = {}
        for name in ("actions", "rewards", "terminations", "truncations"):
            if name not in group:
                raise SombrlError(f"{path} has no {name}: a Minari dataset has them in every episode.")
            self.columns[name] = _array(path, h5py, group, name)
        if "observations" not in group:
            raise SombrlError(f"{path} has no observations: a Minari dataset has them in every episode.")
        observed = _plain(path, h5py, group, "observations")
        inside = isinstance(observed, h5py.Group)
        parts = sorted(observed) if inside else ["observations"]
        self.observations = [_array(path, h5py, observed if inside else group, name) for name in parts]
        self.length = self.columns["rewards"].shape[0] if self.columns["rewards"].shape else 0
        if any(one.shape[:1] != (self.length,) for one in self.columns.values()):
            raise SombrlError(
                f"{path}: {group.name} does not have as many actions as rewards and ends: write it again."
            )
        if any(one.shape[:1] != (self.length + 1,) for one in self.observations):
            raise SombrlError(f"{path}: {group.name} needs one observation more than rewards: write it again.")

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers in an observation and in an action."""
        obs = sum(math.prod(one.shape[1:]) for one in self.observations)
        return obs, math.prod(self.columns["actions"].shape[1:])

    def read(self) -> dict[str, np.ndarray]:
        """The columns of its transitions."""
        obs = np.concatenate([np.asarray(one).reshape(self.length + 1, -1) for one in self.observations], axis=1)
        rest = {name: np.asarray(column) for name, column in self.columns.items()}
        return {
            "obs": obs[:-1],
            "action": rest["actions"],
            "reward": rest["rewards"],
            "next_obs": obs[1:],
            "terminated": rest["terminations"],
            "truncated": rest["truncations"],
        }


def _plain(path: Path, h5py: Any, group: Any, name: str) -> Any:
    """What lies under a name in the file itself; a link may point anywhere."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise SombrlError(f"{path}: {name} is a link, and links are not followed: put the data themselves there.")
    return group[name]


def _array(path: Path, h5py: Any, group: Any, name: str) -> Any:
    found = _plain(path, h5py, group, name)
    if not isinstance(found, h5py.Dataset) or found.is_virtual or found.external:
        raise SombrlError(f"{path}: {name} does not hold its numbers itself: write the dataset again.")
    if math.prod(found.chunks or ()) * found.dtype.itemsize > PIECE:
        raise SombrlError(f"{path}: {name} is stored in pieces too large to read: write the dataset again.")
    _require_numbers(path, name, found.dtype)
    return found


def _require_numbers(path: Path, name: str, dtype: np.dtype) -> None:
    if dtype.kind not in "fiub":
        raise SombrlError(f"{path}: {name} is of {dtype}, and transitions are plain numbers: write them as such.")


def _dataset(columns: dict[str, np.ndarray]) -> Rows:
    rows = len(columns["reward"])
    vectors = {name: columns[name].reshape(rows, -1) for name in ("obs", "action", "next_obs")}
    truncated = columns.get("truncated", np.zeros(rows, bool))
    return Rows(**vectors, reward=columns["reward"].reshape(rows), **_ends(rows, columns["terminated"], truncated))


def _ends(rows: int, terminated: np.ndarray, truncated: np.ndarray) -> dict[str, np.ndarray]:
    return {"terminated": terminated.reshape(rows) != 0, "truncated": truncated.reshape(rows) != 0}


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What the parsers of a foreign file raise, in a sentence."""
    try:
        yield
    except SombrlError:
        raise
    except PermissionError as error:
        raise SombrlError(f"cannot read {path}: {error.strerror}.") from error
    except Exception as error:  # zip, npy and HDF5 raise nearly anything when bytes are wrong
        raise SombrlError(
            f"{path} cannot be read as transitions ({first_line(error)}): give a run's folder, a Minari dataset or an "
            ".npz file."
        ) from None
