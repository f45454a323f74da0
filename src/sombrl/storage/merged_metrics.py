"""The metrics of a run whose seeds are trained by several processes: whole iterations, seed after seed."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sombrl.storage.run_folder import RunFolder

Row = dict[str, Any]


class MergedMetrics:
    """The iterations that all parts have finished, from their growing `metrics.jsonl`, each read once.

    `seeds` says how many rows an iteration has in each part.
    """

    def __init__(self, parts: Sequence[RunFolder], seeds: Sequence[int], first: int = 0):
        """Begin at iteration `first`."""
        self.next = first
        self._tails = [_Tail(part.metrics_path, count) for part, count in zip(parts, seeds, strict=True)]

    def new(self) -> Iterator[list[list[Row]]]:
        """Every iteration that is finished since the last call: the rows of each part."""
        for tail in self._tails:
            tail.read(self.next)
        while all(tail.has(self.next) for tail in self._tails):
            yield [tail.rows.pop(self.next) for tail in self._tails]
            self.next += 1


def first_missing(folder: RunFolder, seeds: int) -> int:
    """The first iteration that a folder has not the rows of all seeds of."""
    counts: dict[int, int] = {}
    for row in folder.rows():
        counts[row["iteration"]] = counts.get(row["iteration"], 0) + 1
    n = 0
    while counts.get(n, 0) >= seeds:
        n += 1
    return n


class _Tail:
    """One part's rows by iteration, as far as they were read."""

    def __init__(self, path: Path, seeds: int):
        self._path, self._seeds = path, seeds
        self._inode, self._offset = -1, 0
        self.rows: dict[int, list[Row]] = {}

    def has(self, iteration: int) -> bool:
        """Whether the iteration is there with all of its seeds."""
        return len(self.rows.get(iteration, ())) == self._seeds

    def read(self, first: int) -> None:
        """Read on, from the start where the file was cut back; rows before iteration `first` are not kept."""
        try:
            with open(self._path, "rb") as file:
                self._from(file, first)
        except FileNotFoundError:  # its process is only starting
            return

    def _from(self, file: BinaryIO, first: int) -> None:
        now = os.fstat(file.fileno())
        if now.st_ino != self._inode or now.st_size < self._offset:
            self._inode, self._offset, self.rows = now.st_ino, 0, {}
        file.seek(self._offset)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            row = json.loads(line)
            if row["iteration"] >= first:
                self.rows.setdefault(row["iteration"], []).append(row)
