"""A run on disk: train, resume, and never lose more than the iteration in progress."""

import contextlib
import dataclasses
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from sombrl.agent.agent import Agent
from sombrl.agent.make import load, new_agent
from sombrl.config.run import RunConfig
from sombrl.records import RunFault, SombrlError
from sombrl.runs.signals import Signals
from sombrl.runs.sinks import Sink, TensorBoardSink, WandbSink, require_wandb
from sombrl.runs.video import can_write, film_rate, write_video
from sombrl.storage import checkpoint
from sombrl.storage.run_folder import RunFolder
from sombrl.training.episodic import Report
from sombrl.training.lockstep import iterate
from sombrl.training.progress import Progress

Hook = Callable[[Agent, Report], None]


def train(
    algorithm: str,
    config: Any,
    run_config: RunConfig,
    out: Path,
    *,
    command: list[str] | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = True,
    wandb: bool = False,
    films: bool = True,
    hook: Hook = lambda agent, report: None,
) -> Agent:
    """Start a run in the new folder `out` and see it through."""
    if wandb:
        require_wandb()
    agent = new_agent(algorithm, config, run_config)  # before the folder: bad settings leave nothing behind
    agent.planned_iterations  # noqa: B018  (refuses --decisions where there are episodes)
    agent.prepare()
    opening = agent.opening
    _check_every(checkpoint_every)
    folder = RunFolder.create(out, agent.to_json(), command or sys.argv)
    for line in opening:
        print(line)
    run = Run(agent, folder, False, hook, films=films)
    drive([run], agent.planned_iterations, checkpoint_every, tensorboard, wandb)
    return agent


def resume(
    path: Path,
    *,
    episodes: int | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = True,
    wandb: bool = False,
    films: bool = True,
) -> Agent:
    """Continue a run exactly where its last checkpoint is, up to its own number of episodes or a new one."""
    if wandb:
        require_wandb()
    _check_every(checkpoint_every)
    folder = RunFolder.open(path)
    with folder.lock():  # before anything is read: whoever holds it may still be writing
        # Killed before its first checkpoint: the run starts over, which is where it was.
        agent = load(path, fresh=not checkpoint.available(folder.checkpoints))
        for note in agent.notes:
            print(note, file=sys.stderr)
        if episodes is not None and agent.online:
            raise SombrlError(
                f"{agent.algorithm} counts decisions, and its buffer has room for those it was started with: leave out "
                "--episodes, or train anew with more --decisions."
            )
        until = agent.planned_iterations if episodes is None else episodes
        if episodes is not None and episodes < agent.iteration:
            raise SombrlError(f"{path} already has {agent.iteration} episodes: --episodes cannot be {episodes}.")
        if until <= agent.iteration:
            if agent.online:
                raise SombrlError(f"{path} is complete ({agent.trained}): nothing is left to do.")
            raise SombrlError(f"{path} is complete ({agent.iteration} episodes): give more with --episodes to go on.")
        drive([Run(agent, folder, True, films=films)], until, checkpoint_every, tensorboard, wandb, locked=True)
        return agent


@dataclasses.dataclass
class Run:
    """An agent, the folder it is saved in, and what is called after every iteration."""

    agent: Agent
    folder: RunFolder
    resumed: bool
    hook: Hook = lambda agent, report: None
    saved: int | None = None
    """The iteration of the newest checkpoint."""
    recorded: int | None = None
    """The iteration up to which there are metrics."""
    pending: Any = None
    """The report whose metrics are still to be written."""
    warned: bool = False
    """About rewards that nobody can learn from."""
    films: bool = True
    """Whether to write them with checkpoints, where the agent has any."""


def drive(
    runs: Sequence[Run],
    until: int,
    checkpoint_every: int | None,
    tensorboard: bool,
    wandb: bool = False,
    *,
    locked: bool = False,
) -> None:
    """Train up to iteration `until`; several agents side by side (together.py). `locked`: the caller holds the locks.

    Saved every `checkpoint_every` iterations, or as often as the agents have it. Metrics first, then the checkpoint: on
    resume the metrics are cut back to the checkpoint, never short of it. A signal stops it where it can go on to the
    bit, a second one at once (signals.py).
    """
    agents, sinks = [run.agent for run in runs], list[list[Sink]]()
    every = agents[0].checkpoint_every if checkpoint_every is None else checkpoint_every
    _check_every(every)
    label = agents[0].label if len(runs) == 1 else f"{agents[0].label} and {len(runs) - 1} beside it"
    with contextlib.ExitStack() as stack:
        for run in [] if locked else runs:
            stack.enter_context(run.folder.lock())
        signals = stack.enter_context(Signals(all(agent.rewinds for agent in agents)))
        for run in runs:
            run.saved = run.agent.iteration if run.resumed else None
            run.recorded = run.agent.iteration
            run.folder.truncate(run.agent.iteration)
            sinks.append(_sinks(run, tensorboard, wandb))
        try:
            with Progress(until, label, sum(len(agent.seeds) for agent in agents)) as shown:

                def on_decision(t: int, length: int) -> None:
                    shown.decision(t, length)
                    signals.decision(t, length)

                for reports in _reports(agents, until, on_decision):
                    for run, report in zip(runs, reports, strict=True):
                        run.pending = report
                    for run, report, own in zip(runs, reports, sinks, strict=True):
                        _record(run, report, own, signals, due=_due(run.agent.iteration, every, until))
                    shown.iteration(_summary(agents, reports))
                    signals.report()
        except (KeyboardInterrupt, RunFault, SombrlError, jax.errors.JaxRuntimeError) as stop:
            signals.mute()
            if isinstance(stop, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(stop):
                raise
            for run in runs:
                if run.pending is not None:  # stopped before its metrics were written
                    _append(run, run.agent.rows(run.pending))
                if run.saved != run.agent.iteration == run.recorded and run.agent.iteration > 0:
                    run.agent.save_checkpoint(run.folder)
                    run.saved = run.agent.iteration
            where = f"{runs[0].saved or 0} of {until} iterations are saved"
            if runs[0].saved != until:
                where += f"; continue with: sombrl resume {' '.join(str(run.folder.path) for run in runs)}"
            if isinstance(stop, SombrlError) and agents[0].iteration == 0:
                raise
            if isinstance(stop, RunFault | SombrlError):
                kind = RunFault if isinstance(stop, RunFault) else SombrlError
                raise kind(f"{str(stop).rstrip('.')}; {where}") from stop
            if not isinstance(stop, KeyboardInterrupt):
                raise RunFault(
                    "the device is out of memory: use fewer --seeds, or a smaller --capacity (replay is kept there); "
                    f"{where}"
                ) from stop
            raise Interrupted(where) from None
        finally:
            for own in sinks:
                for sink in own:
                    sink.close()
                _tell(own)


def _check_every(checkpoint_every: int | None) -> None:
    if checkpoint_every is not None and checkpoint_every < 1:
        raise SombrlError(f"--checkpoint-every must be at least 1, not {checkpoint_every}.")


def _reports(agents: Sequence[Agent], until: int, on_decision: Callable[[int, int], None]) -> Iterator[list[Report]]:
    if len(agents) > 1:
        yield from iterate(agents, until, on_decision)
    else:
        for report in agents[0].iterations(until, on_decision=on_decision):
            yield [report]


def _record(run: Run, report: Any, sinks: Sequence[Sink], signals: Signals, *, due: bool) -> None:
    """Write what an iteration has brought; its report is of the agent's own kind."""
    agent, rows = run.agent, run.agent.rows(report)
    if not run.warned and (warning := agent.reward_warning(report)):
        print(f"sombrl: {warning}", file=sys.stderr)
        run.warned = True
    try:
        if agent.evaluation_due():
            returns = agent.evaluate(agent.run_config.eval_episodes).mean(axis=0).tolist()
            rows = [row | {"eval/ep_rew_mean": value} for row, value in zip(rows, returns, strict=True)]
    finally:  # stopped at once, an evaluation costs its own number alone
        with signals.held():
            _append(run, rows)
            if due:
                agent.save_checkpoint(run.folder)
                run.saved = agent.iteration
    if due:
        _film(run)
    for sink in sinks:
        sink.write(rows)
    _tell(sinks)
    run.hook(agent, report)


def _append(run: Run, rows: list[dict[str, Any]]) -> None:
    """Write the metrics of an iteration, or fail to, once."""
    run.pending = None
    run.folder.append(rows)
    run.recorded = run.agent.iteration


def _film(run: Run) -> None:
    """What there is to see goes into the run's folder, from where `sombrl report` shows it."""
    films = run.agent.films() if run.films else {}
    if not films or not can_write(".gif"):
        return
    for name, frames in films.items():
        path = run.folder.path / "videos" / f"{run.agent.iteration:08d}-{name}.gif"
        if not path.exists():  # a resumed run passes here again
            write_video(path, frames, fps=film_rate(run.agent.envs.spec.action_repeat))


def _due(iteration: int, checkpoint_every: int, until: int) -> bool:
    return iteration % checkpoint_every == 0 or iteration == until


def _summary(agents: Sequence[Agent], reports: Sequence[Any]) -> dict[str, Any]:
    """The progress line: of all agents, the returns; of the first, the rest."""
    summaries = [agent.summary(report) for agent, report in zip(agents, reports, strict=True)]
    rate = sum(summary["decisions_per_s"] for summary in summaries)
    return summaries[0] | {"return": [r for s in summaries for r in s["return"]], "decisions_per_s": rate}


def _sinks(run: Run, tensorboard: bool, wandb: bool) -> list[Sink]:
    sinks: list[Sink] = []
    if tensorboard:
        frames = max((row["env_frames"] for row in run.folder.rows()), default=0)
        sinks.append(TensorBoardSink(run.folder.tensorboard, run.agent.seeds, frames if run.resumed else None))
    if wandb:
        sinks.append(WandbSink(run.folder.path, run.agent.seeds, run.agent.to_json(), run.folder.rows()))
    _tell(sinks)
    return sinks


def _tell(sinks: Sequence[Sink]) -> None:
    """Print what sinks have to say, once."""
    for sink in sinks:
        while sink.notes:
            print(sink.notes.pop(0), file=sys.stderr)


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
