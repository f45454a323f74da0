"""A run on disk: train, resume, and never lose more than the iteration in progress."""

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sombrl import checkpoint
from sombrl.agent import Agent, load
from sombrl.config import RunConfig
from sombrl.loop import Report
from sombrl.progress import Progress
from sombrl.records import RunFault, SombrlError
from sombrl.runs import RunFolder
from sombrl.sinks import TensorBoardSink

Hook = Callable[[Agent, Report], None]


def train(
    algorithm: str,
    config: Any,
    run_config: RunConfig,
    out: Path,
    *,
    command: list[str] | None = None,
    checkpoint_every: int = 1,
    tensorboard: bool = True,
    hook: Hook = lambda agent, report: None,
) -> Agent:
    """Start a run in the new folder `out` and see it through."""
    agent = Agent(algorithm, config, run_config)  # before the folder: bad settings leave nothing behind
    folder = RunFolder.create(out, agent.to_json(), command or sys.argv)
    return drive(agent, folder, run_config.episodes, checkpoint_every, tensorboard, hook, resumed=False)


def resume(path: Path, *, episodes: int | None = None, checkpoint_every: int = 1, tensorboard: bool = True) -> Agent:
    """Continue a run exactly where its last checkpoint is, up to its own number of episodes or a new one."""
    folder = RunFolder.open(path)
    # Killed before its first checkpoint: the run starts over, which is where it was.
    agent = load(path, fresh=not checkpoint.available(folder.checkpoints))
    for note in agent.notes:
        print(note, file=sys.stderr)
    until = agent.run_config.episodes if episodes is None else episodes
    if episodes is not None and episodes < agent.iteration:
        raise SombrlError(f"{path} already has {agent.iteration} episodes: --episodes cannot be {episodes}.")
    if until <= agent.iteration:
        raise SombrlError(f"{path} is complete ({agent.iteration} episodes): give more with --episodes to go on.")
    return drive(agent, folder, until, checkpoint_every, tensorboard, lambda agent, report: None, resumed=True)


def drive(
    agent: Agent,
    folder: RunFolder,
    until: int,
    checkpoint_every: int,
    tensorboard: bool,
    hook: Hook,
    resumed: bool,
) -> Agent:
    """Metrics first, then the checkpoint: on resume the metrics are cut back to the checkpoint, never short of it."""
    if checkpoint_every < 1:
        raise SombrlError(f"--checkpoint-every must be at least 1, not {checkpoint_every}.")
    saved = agent.iteration if resumed else None
    with folder.lock(), terminate_as_interrupt():
        folder.truncate(agent.iteration)
        frames = max((row["env_frames"] for row in folder.rows()), default=0)
        sink = TensorBoardSink(folder.tensorboard, agent.seeds, frames if resumed else None) if tensorboard else None
        for note in sink.notes if sink else ():
            print(note, file=sys.stderr)
        try:
            with Progress(until, agent.label, len(agent.seeds)) as shown:
                for report in agent.iterations(until, on_decision=shown.decision):
                    rows = agent.rows(report)
                    folder.append(rows)
                    if agent.iteration % checkpoint_every == 0 or agent.iteration == until:
                        agent.save_checkpoint(folder)
                        saved = agent.iteration
                    if sink:
                        sink.write(rows)
                    hook(agent, report)
                    shown.iteration(agent.summary(report))
        except (KeyboardInterrupt, RunFault) as stop:
            if saved != agent.iteration and agent.iteration > 0:
                agent.save_checkpoint(folder)
            where = f"{agent.iteration} of {until} episodes are saved; continue with: sombrl resume {folder.path}"
            if isinstance(stop, RunFault):
                raise RunFault(f"{str(stop).rstrip('.')}; {where}") from stop
            raise Interrupted(where) from None
        finally:
            if sink:
                sink.close()
    return agent


class Interrupted(Exception):
    """Stopped from outside; everything up to the last finished iteration is saved."""


class terminate_as_interrupt:
    """SIGTERM (a scheduler's preemption) ends a run as Ctrl-C does."""

    def __enter__(self):
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._old = signal.signal(signal.SIGTERM, _raise_interrupt)

    def __exit__(self, *exc: object) -> None:
        if self._main:
            signal.signal(signal.SIGTERM, self._old)


def _raise_interrupt(signum: int, frame: Any) -> None:
    raise KeyboardInterrupt
