"""Metrics for other viewers. metrics.jsonl is the source of truth: a sink may fail, the run may not."""

import abc
import contextlib
import json
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sombrl.records import SombrlError
from sombrl.storage.files import write_whole
from sombrl.storage.run_folder import RunFolder


class Sink(abc.ABC):
    """Somewhere that rows go as well. At its first fault it goes off, with a note, whatever the fault is."""

    name: str

    def __init__(self) -> None:
        self.notes: list[str] = []
        """Sentences for the user."""
        self._on = True

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add the scalars of metric rows (each with `seed` and `env_frames`)."""
        self._try(lambda: self._write(rows))

    def close(self) -> None:
        """Write what is left."""
        self._try(self._close)
        self._on = False

    def _try(self, action: Callable[[], None]) -> None:
        if not self._on:
            return
        try:
            action()
        except Exception as error:  # a viewer's package may raise anything; Ctrl-C is not an Exception
            self._off(str(getattr(error, "strerror", None) or error or type(error).__name__).split("\n")[0])

    def _off(self, reason: str) -> None:
        self.notes.append(f"{self.name} is off: {reason}")
        self._on = False

    @abc.abstractmethod
    def _write(self, rows: Sequence[dict[str, Any]]) -> None: ...

    @abc.abstractmethod
    def _close(self) -> None: ...


class TensorBoardSink(Sink):
    """TensorBoard events, a folder `seed_<k>` per seed.

    Scalars are the keys of a row with a "/" in them ("rollout/ep_rew_mean"), at step `env_frames`.
    `resume_at` is the `env_frames` of the checkpoint resumed from: TensorBoard hides what lies beyond it.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, seeds: Sequence[int], resume_at: int | None = None):
        super().__init__()
        self._writers: dict[int, Any] = {}
        try:
            # The synchronous writer under SummaryWriter, which hands events to a thread through a queue of
            # ten: on a full disk that thread dies and the run never ends.
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto import event_pb2, summary_pb2
        except Exception:  # missing, or broken by another package's protobuf
            self._off("install it with pip install 'sombrl[tb]'")
            return
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary

        def start() -> None:
            for seed in seeds:
                here = Path(folder) / f"seed_{seed}"
                here.mkdir(parents=True, exist_ok=True)
                # Names have a resolution of a second: the count keeps a quick resume from overwriting.
                suffix = f".{len(list(here.iterdir())):04d}"
                self._writers[int(seed)] = EventsWriter(str(here / "events"), suffix)
                if resume_at is not None:
                    again = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                    self._add(seed, step=int(resume_at) + 1, session_log=again)

        self._try(start)

    def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        for seed, step, scalars in _scalars(rows):
            values = [self._summary.Value(tag=name, simple_value=number) for name, number in scalars.items()]
            if seed in self._writers:
                self._add(seed, step=step, summary=self._summary(value=values))
        for writer in self._writers.values():
            writer.flush()

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _add(self, seed: int, **fields: Any) -> None:
        self._writers[seed].write_event(self._event(wall_time=time.time(), **fields))


class WandbSink(Sink):
    """Weights & Biases: a run per seed, in a group named after the run's folder, at step `env_frames`.

    Offline unless WANDB_MODE says otherwise: the files are in the folder `wandb` of the run, and `wandb sync` uploads
    them. The runs' ids are kept in `wandb.json`, so that a resumed run goes on in the same ones. `rows` are those of
    before: W&B loses what it has not written yet when a process is killed, so it gets again what it lacks. Offline it
    cannot know, and the newest files hold everything.
    """

    name = "W&B"

    def __init__(self, folder: Path, seeds: Sequence[int], config: dict[str, Any], rows: Sequence[dict[str, Any]] = ()):
        super().__init__()
        self._runs: dict[int, Any] = {}

        def start() -> None:
            wandb = require_wandb()
            ids = _wandb_ids(Path(folder) / "wandb.json", seeds)
            for seed in seeds:
                self._runs[int(seed)] = wandb.init(
                    project=os.environ.get("WANDB_PROJECT", "sombrl"),
                    group=Path(folder).resolve().name,
                    name=f"{Path(folder).resolve().name} seed {seed}",
                    id=ids[str(seed)],
                    resume="allow",
                    mode=os.environ.get("WANDB_MODE", "offline"),
                    dir=str(folder),
                    config=config | {"seed": int(seed)},
                    reinit="create_new",  # the runs of several seeds are open together
                    settings=wandb.Settings(silent=True, console="off"),
                )
            self._write(rows)

        self._try(start)

    def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        for seed, step, scalars in _scalars(rows):
            if seed in self._runs and step >= self._runs[seed].step:  # it takes no step back
                self._runs[seed].log(scalars, step=step, commit=True)  # or it would wait for the next step

    def _close(self) -> None:
        for run in self._runs.values():
            run.finish()


@contextlib.contextmanager
def open_sinks(
    folder: RunFolder, seeds: Sequence[int], config: dict[str, Any], *, resumed: bool, tensorboard: bool, wandb: bool
) -> Iterator[list[Sink]]:
    """The sinks that were asked for; those of a resumed run go on after the metrics that are there."""
    sinks: list[Sink] = []
    if tensorboard:
        frames = max((row["env_frames"] for row in folder.rows()), default=0)
        sinks.append(TensorBoardSink(folder.tensorboard, seeds, frames if resumed else None))
    if wandb:
        sinks.append(WandbSink(folder.path, seeds, config, folder.rows()))
    tell(sinks)
    try:
        yield sinks
    finally:
        for sink in sinks:
            sink.close()
        tell(sinks)


def tell(sinks: Sequence[Sink]) -> None:
    """Print what sinks have to say, once."""
    for sink in sinks:
        while sink.notes:
            print(sink.notes.pop(0), file=sys.stderr)


def require_wandb() -> Any:
    """The package, or the sentence that says how to get it."""
    try:
        import wandb

        wandb.init  # noqa: B018  (a folder called wandb, which W&B itself leaves behind, can be imported too)
    except (ImportError, AttributeError):
        raise SombrlError("--wandb needs the package wandb: pip install 'sombrl[wandb]', or leave it out.") from None
    return wandb


def _wandb_ids(path: Path, seeds: Sequence[int]) -> dict[str, str]:
    """The ids of this run's W&B runs, by seed; drawn the first time."""
    if not path.exists():
        write_whole(path, json.dumps({str(seed): secrets.token_hex(4) for seed in seeds}))
    ids: dict[str, str] = json.loads(path.read_text())
    return ids


def _scalars(rows: Sequence[dict[str, Any]]) -> list[tuple[int, int, dict[str, float]]]:
    """Seed, step and numbers of every row that has them."""
    found = []
    for row in rows:
        numbers = {
            name: number for name, value in row.items() if "/" in name and (number := _number(value)) is not None
        }
        if numbers and "seed" in row and "env_frames" in row:
            found.append((int(row["seed"]), int(row["env_frames"]), numbers))
    return found


def _number(value: Any) -> float | None:
    """A float, or None for what is not a scalar. Infinity and NaN are None in metrics.jsonl, so here as well."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
