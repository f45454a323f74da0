"""A run on disk: train, resume, and never lose more than the iteration in progress."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from sombrl.agent.agent import Agent
from sombrl.agent.make import load_with
from sombrl.algorithms.check import advice
from sombrl.config.run import RunConfig
from sombrl.envs.trust import NO_WORD, Word, again
from sombrl.errors import RunFault, SombrlError
from sombrl.runs.signals import Signals
from sombrl.runs.signals import terminate_as_interrupt as terminate_as_interrupt
from sombrl.runs.sinks import Sink, open_sinks, require_wandb, tell
from sombrl.runs.video import can_write, film_rate, write_video
from sombrl.storage import checkpoint
from sombrl.storage.run_folder import RunFolder
from sombrl.training import bounds
from sombrl.training.base import Report
from sombrl.training.lockstep import Lockstep
from sombrl.training.progress import Progress
from sombrl.training.report import reward_warning, summary

Hook = Callable[[Agent, Any], None]
"""Called with the agent and its report after every iteration."""


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
    agent = Agent(algorithm, config, run_config)  # before the folder: bad settings leave nothing behind
    until = agent.planned_iterations  # refuses --decisions where there are episodes
    agent.prepare()
    opening = agent.trainer.opening()
    for line in advice(algorithm, agent.envs.spec):
        print(f"sombrl: {line}", file=sys.stderr)
    check_every(checkpoint_every)
    folder = RunFolder.create(out, agent.to_json(), command or sys.argv)
    for line in opening:
        print(line)
    run_training([Run(agent, folder, False, hook, films=films)], until, checkpoint_every, tensorboard, wandb)
    return agent


def resume(
    path: Path,
    *,
    episodes: int | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = True,
    wandb: bool = False,
    films: bool = True,
    word: Word = NO_WORD,
) -> Agent:
    """Continue a run exactly where its last checkpoint is, up to its own number of episodes or a new one."""
    if wandb:
        require_wandb()
    check_every(checkpoint_every)
    folder = RunFolder.open(path)
    with folder.lock():  # before anything is read: another process may still be writing
        # Killed before its first checkpoint, the run starts over, which is where it was.
        agent = load_with(word, path, fresh=not checkpoint.available(folder.checkpoints))
        for note in agent.notes:
            print(note, file=sys.stderr)
        until = last_iteration(agent, path, agent.iteration, episodes)
        if episodes is None:
            refuse_enough(agent, folder)
        agent.prepare()
        run_training([Run(agent, folder, True, films=films)], until, checkpoint_every, tensorboard, wandb, locked=True)
        return agent


def last_iteration(agent: Agent, path: Path, done: int, episodes: int | None) -> int:
    """The last iteration of a run that goes on after `done`, up to its own length or a number of episodes."""
    by_decisions = agent.trainer.counts == "decisions"
    if episodes is not None and by_decisions:
        raise SombrlError(
            f"{agent.algorithm} counts decisions, and its buffer has room for those it was started with: leave out "
            "--episodes, or train anew with more --decisions."
        )
    until = agent.planned_iterations if episodes is None else episodes
    if episodes is not None and episodes < done:
        raise SombrlError(f"{path} already has {done} episodes: --episodes cannot be {episodes}.")
    if until <= done:
        if by_decisions:
            raise SombrlError(f"{path} is complete ({done * agent.window} decisions): nothing is left to do.")
        raise SombrlError(f"{path} is complete ({done} episodes): give more with --episodes to go on.")
    return until


def refuse_enough(agent: Agent, folder: RunFolder) -> None:
    """Refuse to go on with a run that has ended because its bounds had met."""
    last = [row.get(bounds.GAP) for row in folder.rows() if row.get("iteration") == agent.iteration - 1]
    if bounds.enough(agent.run_config, last):
        raise SombrlError(
            f"{folder.path} is complete: after {agent.iteration} episodes its bounds were within --stop-when-gap "
            f"{agent.run_config.stop_when_gap:g}; give more with --episodes to go on."
        )


@dataclasses.dataclass
class Run:
    """An agent, the folder it is saved in, and what is called after every iteration."""

    agent: Agent
    folder: RunFolder
    resumed: bool
    hook: Hook = lambda agent, report: None
    films: bool = True
    """Whether to write films with checkpoints, where the agent has any."""
    saved: int | None = None
    """The iteration of the newest checkpoint."""
    recorded: int | None = None
    """The iteration up to which there are metrics."""
    pending: Report | None = None
    """The report whose metrics are still to be written."""
    warned: bool = False
    """Whether it was said that critics cannot learn from these rewards."""

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write the metrics of an iteration, or fail to, once."""
        self.pending = None
        self.folder.append(rows)
        self.recorded = self.agent.iteration

    def save(self) -> None:
        """Write a checkpoint."""
        self.agent.save_checkpoint(self.folder)
        self.saved = self.agent.iteration

    def finish(self) -> None:
        """Write what a stop has left unwritten; a checkpoint never without its metrics."""
        if self.pending is not None:
            self.append(self.agent.rows(self.pending))
        if self.saved != self.agent.iteration == self.recorded and self.agent.iteration > 0:
            self.save()


STOPS = (KeyboardInterrupt, RunFault, SombrlError, jax.errors.JaxRuntimeError)
"""What ends a run early with everything up to its last iteration saved."""


def run_training(
    runs: Sequence[Run],
    until: int,
    checkpoint_every: int | None,
    tensorboard: bool,
    wandb: bool = False,
    *,
    locked: bool = False,
) -> None:
    """Train up to iteration `until`; several agents in lockstep. `locked`: the caller holds the locks.

    Saved every `checkpoint_every` iterations, or as often as the algorithm has it. Metrics first, then the checkpoint:
    on resume the metrics are cut back to the checkpoint, never short of it. A signal stops training where it can go on
    exactly, a second one at once (signals.py).
    """
    trainers = Lockstep([run.agent.trainer for run in runs])
    every = trainers.trainers[0].checkpoint_every if checkpoint_every is None else checkpoint_every
    check_every(every)
    agents = [run.agent for run in runs]
    label = agents[0].label if len(runs) == 1 else f"{agents[0].label} and {len(runs) - 1} beside it"
    with contextlib.ExitStack() as stack:
        for run in [] if locked else runs:
            stack.enter_context(run.folder.lock())
        signals = stack.enter_context(Signals(trainers.exact_rewind))
        sinks = [stack.enter_context(_open_sinks(run, tensorboard, wandb)) for run in runs]
        why: str | None = None
        for run in runs:
            if run.agent.trainer.origin is not None and run.saved is None:
                run.save()  # with the data in it: from now on they are not needed to go on
        try:
            with Progress(until, label, sum(len(agent.seeds) for agent in agents)) as shown:

                def on_decision(t: int, length: int) -> None:
                    shown.decision(t, length)
                    signals.decision(t, length)

                while agents[0].iteration < until:
                    reports = trainers.iterate(on_decision)
                    for run, report in zip(runs, reports, strict=True):
                        run.pending = report
                    why = bounds.why_stop(agents[0].run_config, reports[0])
                    due = agents[0].iteration % every == 0 or agents[0].iteration == until or why is not None
                    for run, report, own in zip(runs, reports, sinks, strict=True):
                        _record(run, report, own, signals, due=due)
                    shown.iteration(summary(reports))
                    signals.report()
                    if why is not None:
                        break
            if why is not None:
                print(why)
        except STOPS as stop:
            signals.mute()
            if isinstance(stop, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(stop):
                raise
            trainers.rewind()
            for run in runs:
                run.finish()
            raise _explained(stop, runs, until) from (None if isinstance(stop, KeyboardInterrupt) else stop)


def _explained(stop: BaseException, runs: Sequence[Run], until: int) -> BaseException:
    """What ended a run, with what is saved of it and how to go on."""
    if isinstance(stop, SombrlError) and runs[0].agent.iteration == 0:
        return stop
    where = f"{runs[0].saved or 0} of {until} iterations are saved"
    if runs[0].saved != until:
        env = again(runs[0].agent.run_config.env)
        where += f"; continue with: sombrl resume {' '.join(str(run.folder.path) for run in runs)}{env}"
    if isinstance(stop, RunFault | SombrlError):
        kind = RunFault if isinstance(stop, RunFault) else SombrlError
        return kind(f"{str(stop).rstrip('.')}; {where}")
    if isinstance(stop, KeyboardInterrupt):
        return Interrupted(where)
    return RunFault(
        f"the device is out of memory: use fewer --seeds, or a smaller --capacity (replay is kept there); {where}"
    )


def check_every(checkpoint_every: int | None) -> None:
    """Refuse checkpoints more often than every iteration."""
    if checkpoint_every is not None and checkpoint_every < 1:
        raise SombrlError(f"--checkpoint-every must be at least 1, not {checkpoint_every}.")


def _record(run: Run, report: Report, sinks: Sequence[Sink], signals: Signals, *, due: bool) -> None:
    """Record one iteration: metrics, an evaluation and a checkpoint where they are due."""
    agent, new = run.agent, run.agent.rows(report)
    if not run.warned and (warning := reward_warning(report, agent.envs.spec)):
        print(f"sombrl: {warning}", file=sys.stderr)
        run.warned = True
    try:
        if _evaluation_due(agent):
            new = [row | found for row, found in zip(new, _evaluated(agent), strict=True)]
    finally:  # stopped at once, an evaluation costs its own number alone
        with signals.held():
            run.append(new)
            if due:
                run.save()
    if due and run.films:
        _film(run)
    for sink in sinks:
        sink.write(new)
    tell(sinks)
    run.hook(agent, report)


def _evaluated(agent: Agent) -> list[dict[str, float]]:
    """Per seed, what an evaluation earns; where it is asked for, beside what the model expects of the same episodes."""
    episodes = agent.run_config.eval_episodes
    returns = agent.evaluate(episodes).mean(axis=0)
    found = {"eval/ep_rew_mean": returns}
    if agent.run_config.record_bounds and agent.trainer.counts == "decisions":
        value, uncertainty = (column.mean(axis=0) for column in agent.trainer.foretell(None, episodes))
        found |= {bounds.RETURN: value, bounds.UNCERTAINTY: uncertainty, bounds.REALISED: returns}
    return [{name: float(values[i]) for name, values in found.items()} for i in range(len(agent.seeds))]


def _evaluation_due(agent: Agent) -> bool:
    """Whether the last iteration has crossed a multiple of `eval_every` decisions."""
    every = agent.run_config.eval_every
    return every > 0 and agent.iteration * agent.window % every < agent.window


def _film(run: Run) -> None:
    """What there is to see goes into the run's folder, from where `sombrl report` shows it."""
    films = run.agent.trainer.films()
    if not films or not can_write(".gif"):
        return
    for name, frames in films.items():
        path = run.folder.path / "videos" / f"{run.agent.iteration:08d}-{name}.gif"
        if not path.exists():  # a resumed run passes here again
            write_video(path, frames, fps=film_rate(run.agent.envs.spec.action_repeat))


@contextlib.contextmanager
def _open_sinks(run: Run, tensorboard: bool, wandb: bool) -> Iterator[list[Sink]]:
    """Where metrics go beside the run's folder, from the iteration on at which the agent is."""
    run.saved = run.agent.iteration if run.resumed else None
    run.recorded = run.agent.iteration
    run.folder.truncate(run.agent.iteration)
    with open_sinks(
        run.folder, run.agent.seeds, run.agent.to_json(), resumed=run.resumed, tensorboard=tensorboard, wandb=wandb
    ) as sinks:
        yield sinks


class Interrupted(Exception):
    """Stopped from outside; everything up to the last finished iteration is saved."""
