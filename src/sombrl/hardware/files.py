"""The two kinds of file of a campaign: arrays with a JSON dictionary, and a log of events. Neither can hold code."""

import abc
import datetime
import hashlib
import io
import json
import math
import os
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import RunFault, SombrlError
from sombrl.storage.files import write_whole

META = "meta.json"
FORMAT = 1


class Damaged(SombrlError):
    """A file that is there but cannot be trusted."""

    def __init__(self, path: Path, reason: str):
        super().__init__(
            f"{path} is damaged ({reason}): put it back from a copy, or delete it and all later ones to do them again."
        )


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """One npz file, complete or not there; `meta` is an entry of it."""
    try:
        text = json.dumps({"format": FORMAT, "digest": _digest(arrays), **meta}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SombrlError(f"the metadata of {path} must be strict JSON: {error}.") from error
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays, **{META: np.frombuffer(text.encode(), np.uint8)})
    write_whole(path, packed.getvalue())


def read_arrays(path: Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and metadata as they were written, or a sentence that names the file. `kind` is what the file must be."""
    try:
        # Opened here because np.load leaves its own handle open when the archive is bad.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            meta: dict[str, Any] = json.loads(arrays.pop(META).tobytes())
            found, digest = meta.get("kind"), meta.get("digest")
    except (FileNotFoundError, IsADirectoryError):
        raise SombrlError(f"there is no file {path}.") from None
    except PermissionError as error:
        raise RunFault(f"cannot read {path}: {error.strerror}.") from error
    except zipfile.BadZipFile:
        raise Damaged(path, "not a whole archive") from None
    except Exception as error:  # zip, npy and JSON parsers raise nearly anything when bytes are wrong
        raise Damaged(path, f"cannot be read, {type(error).__name__}") from None
    if digest != _digest(arrays):
        raise Damaged(path, "checksum differs")
    if found != kind:
        raise Damaged(path, f"it holds no {kind}")
    return arrays, meta


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A checksum of names, shapes, types and contents."""
    checksum = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        checksum.update(f"{name} {array.dtype.str} {arrays[name].shape};".encode())
        checksum.update(array.tobytes())
    return checksum.hexdigest()


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a small JSON file; None if the file is missing or holds something else."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


class AbstractLog(abc.ABC):
    """What a supervisor tells its events to."""

    @abc.abstractmethod
    def add(self, event: str, **details: Any) -> None:
        """One event."""


class EventLog(AbstractLog):
    """interventions.jsonl: a line of strict JSON per event, handed to the system at once: a killed process loses none.

    Unlike the metrics a line is not synced to the disk, because it is written while the car moves.
    """

    def __init__(self, path: Path | None = None):
        """Without a path the rows are kept in memory alone."""
        self.rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._file = None
        if path is None:
            return
        try:
            if path.exists():
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # half a line would swallow our first one
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise RunFault(f"cannot write {path}: {error.strerror}.") from error

    def add(self, event: str, **details: Any) -> None:
        """One row, stamped with the time of day."""
        row = {"time": timestamp(), "event": event, **{name: _strict(value) for name, value in details.items()}}
        with self._lock:
            self.rows.append(row)
            if self._file is not None:
                try:
                    self._file.write(json.dumps(row).encode() + b"\n")
                except OSError as error:
                    raise RunFault(f"cannot write {self._file.name}: {error.strerror}.") from error

    def sync(self) -> None:
        """Wait until the disk has the rows."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The rows of a file; a half-written last line is left out."""
        try:
            return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        except FileNotFoundError:
            return []
        except ValueError:
            raise SombrlError(f"a line of {path} is not JSON: delete it.") from None


def timestamp() -> str:
    """The time of day, to milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _strict(value: Any) -> Any:
    """As strict JSON has it. A number that is not finite becomes a word, because the log must show it."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_strict(item) for item in np.asarray(value).tolist()]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    return value
