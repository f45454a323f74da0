"""A folder that processes work on, one at a time, and what they say about it."""

import abc
import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from sombrl.records import RunFault


class Attempts:
    """A file of events, one JSON line each: when and where a process worked on a folder, and why it gave up."""

    def __init__(self, path: Path):
        self.path = path

    def events(self) -> list[dict[str, Any]]:
        """Every event so far, oldest first; a line that a kill has cut off is left out."""
        try:
            lines = self.path.read_text().split("\n")[:-1]
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # what is left of a line that was cut off
                found.append(json.loads(line))
        return found

    def note(self, event: str, **facts: Any) -> None:
        """Add an event, on disk when this returns."""
        where = {"time": time.time(), "host": socket.gethostname(), "pid": os.getpid()}
        line = json.dumps({"event": event, **where, **facts}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab+", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                whole = end == 0 or os.pread(file.fileno(), 1, end - 1) == b"\n"
                file.write((line if whole else f"\n{line}").encode())
                os.fsync(file.fileno())
        except OSError as error:
            raise RunFault(f"cannot write {self.path}: {error.strerror or error}.") from error


class AbstractWork(abc.ABC):
    """A folder that is brought to its end by one process at a time."""

    attempts: Attempts

    @property
    @abc.abstractmethod
    def finished(self) -> bool:
        """Whether nothing is left to do."""

    @property
    @abc.abstractmethod
    def in_use(self) -> bool:
        """Whether a process works on it at this moment."""

    @property
    @abc.abstractmethod
    def seconds(self) -> float:
        """How long it took, once it is finished."""
