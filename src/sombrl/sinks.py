"""Metrics for other viewers. metrics.jsonl is the source of truth: a sink may fail, the run may not."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class TensorBoardSink:
    """TensorBoard events, a folder `seed_<k>` per seed; goes off, with a note, if it cannot write.

    Scalars are the keys of a row with a "/" in them ("rollout/ep_rew_mean"), at step `env_frames`.
    `resume_at` is the `env_frames` of the checkpoint resumed from: TensorBoard hides what lies beyond it.
    """

    def __init__(self, folder: Path, seeds: Sequence[int], resume_at: int | None = None):
        self.notes: list[str] = []
        self._writers: dict[int, Any] = {}
        try:
            # The synchronous writer under SummaryWriter, which hands events to a thread through a queue of
            # ten: on a full disk that thread dies and the run waits for ever.
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto import event_pb2, summary_pb2
        except Exception:  # missing, or broken by another package's protobuf
            self.notes.append("TensorBoard is off: install it with pip install 'sombrl[tb]'")
            return
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        try:
            for seed in seeds:
                here = Path(folder) / f"seed_{seed}"
                here.mkdir(parents=True, exist_ok=True)
                # Names have a resolution of a second: the count keeps a quick resume from overwriting.
                suffix = f".{len(list(here.iterdir())):04d}"
                self._writers[int(seed)] = EventsWriter(str(here / "events"), suffix)
                if resume_at is not None:
                    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                    self._write(seed, step=int(resume_at) + 1, session_log=start)
        except OSError as error:
            self._off(error)

    def write(self, rows: Sequence[dict]) -> None:
        """Add the scalars of metric rows (each with `seed` and `env_frames`) and flush them."""
        if not self._writers:
            return
        try:
            for row in rows:
                values = [
                    self._summary.Value(tag=name, simple_value=number)
                    for name, value in row.items()
                    if "/" in name and (number := _number(value)) is not None
                ]
                if values and row.get("seed") in self._writers and "env_frames" in row:
                    self._write(row["seed"], step=int(row["env_frames"]), summary=self._summary(value=values))
            for writer in self._writers.values():
                writer.flush()
        except OSError as error:
            self._off(error)

    def close(self) -> None:
        """Flush and close the files."""
        writers, self._writers = self._writers, {}
        try:
            for writer in writers.values():
                writer.close()
        except OSError as error:
            self._off(error)

    def _write(self, seed: int, **fields: Any) -> None:
        self._writers[seed].write_event(self._event(wall_time=time.time(), **fields))

    def _off(self, error: OSError) -> None:
        self.notes.append(f"TensorBoard is off: {error.strerror or error}")
        self._writers = {}


def _number(value: Any) -> float | None:
    """A float, or None for what is no scalar. Infinity and NaN are None in metrics.jsonl, so here as well."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
