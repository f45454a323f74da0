"""interventions.jsonl: what happened to the car, a line of strict JSON per event, never rewritten."""

import datetime
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import RunFault, SombrlError


class EventLog:
    """Every intervention, a line of JSON each, with the system when `add` returns: a killed process loses none."""

    def __init__(self, path: Path | None = None):
        """Without a path the rows are kept in memory alone."""
        self.rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        try:
            if path is not None and path.exists():
                whole = path.read_bytes().rfind(b"\n") + 1
                os.truncate(path, whole)  # half a line, of a full disk, would swallow our first one
            self._file = None if path is None else open(path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise RunFault(f"cannot write {path}: {error.strerror}.") from error

    def add(self, event: str, **details: Any) -> None:
        """One row, stamped with the time of day."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        row = {"time": now, "event": event, **{name: _plain(value) for name, value in details.items()}}
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
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The rows of a file; a half-written last line is left out."""
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise SombrlError(f"a line of {path} is no JSON: delete it.") from None


def _plain(value: Any) -> Any:
    """As strict JSON has it: what is not finite becomes a word, because the log must show it."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in np.asarray(value).tolist()]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    return value
