"""`sombrl train --jobs`: the seeds of a run in several processes, watched as one run.

RUN/group.json           names the parts
RUN/parts/seeds-0-1      a part: an ordinary run of some of the seeds, with its checkpoints
RUN/metrics.jsonl        the metrics of all, as one process would have written them; so are TensorBoard and W&B
RUN/logs                 what the processes printed
"""

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from sombrl.agent.agent import Agent
from sombrl.agent.make import load
from sombrl.config.json import to_json
from sombrl.config.run import RunConfig
from sombrl.errors import RunFault, SombrlError
from sombrl.runs import train as single
from sombrl.runs.signals import terminate_as_interrupt
from sombrl.runs.sinks import Sink, open_sinks, require_wandb, tell
from sombrl.runs.train import Interrupted, check_every, last_iteration
from sombrl.storage.merged_metrics import MergedMetrics, Row, first_missing
from sombrl.storage.run_folder import RunFolder
from sombrl.sweep.driver import Drive
from sombrl.sweep.local import LocalBackend, cores_here, gpu_left_free
from sombrl.sweep.parts import Part, PartsPlace, split
from sombrl.sweep.worker import Job
from sombrl.training.progress import Progress
from sombrl.training.report import SHOWN

RETRIES = 2
"""How often a part whose process was killed goes on from its checkpoint by itself."""
DEFAULT = "SOMBRL_JOBS"
"""The environment variable with the number of processes where --jobs is left out."""


def train(
    algorithm: str,
    config: Any,
    run_config: RunConfig,
    out: Path,
    *,
    jobs: int | None = None,
    command: list[str] | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = True,
    wandb: bool = False,
    films: bool = True,
) -> None:
    """Start a run in the new folder `out` and see it through, its seeds in `jobs` processes."""
    number = processes(jobs, config, run_config)
    if number == 1:
        single.train(
            *(algorithm, config, run_config, out),
            command=command,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            wandb=wandb,
            films=films,
        )
        return
    if wandb:
        require_wandb()
    check_every(checkpoint_every)
    with gpu_left_free():  # before the folder: bad settings leave nothing behind
        agent = Agent(algorithm, config, dataclasses.replace(run_config, env_workers=0))
        until, opening = agent.planned_iterations, agent.trainer.opening()
        agent.envs.close()
    settings = agent.to_json() | {"run": to_json(run_config)}
    folder = RunFolder.create(out, settings, command or sys.argv, list(split(run_config, number)))
    for line in opening:
        print(line)
    place = PartsPlace(folder.path, until, None, checkpoint_every, films)
    with folder.lock():
        _see_through(agent, folder, place, command or sys.argv, resumed=False, tensorboard=tensorboard, wandb=wandb)


def resume(
    path: Path,
    *,
    episodes: int | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = True,
    wandb: bool = False,
    films: bool = True,
) -> None:
    """Continue a run, each of its parts from its own last checkpoint, up to its own length or so many episodes."""
    folder = RunFolder.open(path)
    if not folder.parts:
        single.resume(
            path,
            episodes=episodes,
            checkpoint_every=checkpoint_every,
            tensorboard=tensorboard,
            wandb=wandb,
            films=films,
        )
        return
    if wandb:
        require_wandb()
    check_every(checkpoint_every)
    with folder.lock():
        with gpu_left_free():
            agent = load(path, fresh=True)
            agent.envs.close()
        until = last_iteration(agent, path, folder.saved_iteration, episodes)
        place = PartsPlace(folder.path, until, episodes, checkpoint_every, films)
        command = ["sombrl", "resume", str(path)]
        _see_through(agent, folder, place, command, resumed=True, tensorboard=tensorboard, wandb=wandb)


def processes(jobs: int | None, config: Any, run_config: RunConfig) -> int:
    """In how many processes to train: as many as cores or accelerators allow, but no more than there are seeds."""
    if jobs is not None and jobs < 1:
        raise SombrlError(f"--jobs must be at least 1, not {jobs}: leave it out to use all cores.")
    if run_config.seeds == 1:
        return 1
    if getattr(config, "start_from", None) is not None:  # a part would take over the first seeds again
        if jobs is not None and jobs > 1:
            print(
                "sombrl: one process trains all seeds, because --start-from has one for each of them.", file=sys.stderr
            )
        return 1
    if jobs is None:
        jobs = _default_jobs()
    return min(jobs, run_config.seeds)


def _default_jobs() -> int:
    given = os.environ.get(DEFAULT)
    if given is not None:
        if not given.isdigit() or int(given) < 1:
            raise SombrlError(f"{DEFAULT} must be a number of processes, at least 1, not {given!r}.")
        return int(given)
    with gpu_left_free():
        return len(cores_here()) if jax.default_backend() == "cpu" else jax.local_device_count()


def _see_through(
    agent: Agent,
    folder: RunFolder,
    place: PartsPlace,
    command: Sequence[str],
    *,
    resumed: bool,
    tensorboard: bool,
    wandb: bool,
) -> None:
    """Have every part trained to its end, and show them as one run. The caller holds the folder's lock."""
    until, parts = place.until, place.folders()
    for part in parts.values():
        part.said.unlink(missing_ok=True)
    drive = Drive(LocalBackend(len(parts), shared=True), RETRIES, quiet=True)
    for name, part in parts.items():
        if not part.finished:
            drive.add(Job(place, (name,), tuple(command)))
    watch = functools.partial(Watch, folder, list(parts.values()), agent.run_config)
    settings, seen = agent.to_json(), watch()
    with (
        open_sinks(folder, agent.seeds, settings, resumed=resumed, tensorboard=tensorboard, wandb=wandb) as sinks,
        _stopped_as_one(drive, folder, until, lambda: watch().look(sinks, None)),
        terminate_as_interrupt(),
        Progress(until, agent.label, len(agent.seeds)) as shown,
    ):
        while drive.busy:
            drive.step()
            seen.look(sinks, shown)
            if drive.failed:
                name, reason = next(iter(drive.failed.items()))
                raise _fault(parts[name], reason)


@contextlib.contextmanager
def _stopped_as_one(drive: Drive, folder: RunFolder, until: int, last_look: Callable[[], None]) -> Iterator[None]:
    """What ends one process ends all, with everything saved and one sentence that says how to go on."""
    try:
        yield
    except (KeyboardInterrupt, RunFault, SombrlError) as stop:
        interrupted = isinstance(stop, KeyboardInterrupt)
        if interrupted:
            print("sombrl: stopping; every process saves what it has", file=sys.stderr, flush=True)
        drive.backend.close(drive.tasks)
        with contextlib.suppress(RunFault, SombrlError):  # the fault may have been that it cannot be written
            last_look()
        saved = folder.saved_iteration
        where = f"{saved} of {until} iterations are saved"
        if saved != until:
            where += f"; continue with: sombrl resume {folder.path}"
        if interrupted:
            raise Interrupted(where) from None
        if isinstance(stop, SombrlError) and not saved:
            raise
        kind = SombrlError if isinstance(stop, SombrlError) else RunFault
        raise kind(f"{str(stop).rstrip('.')}; {where}") from stop


class Watch:
    """The merged metrics of a run, and what else its parts bring."""

    def __init__(self, folder: RunFolder, parts: Sequence[Part], run_config: RunConfig):
        self._folder, self._parts = folder, parts
        first = first_missing(folder, run_config.seeds)
        folder.truncate(first)  # half an iteration, of a kill in the middle of writing it
        counts = [len(own.seed_list) for own in split(run_config, len(parts)).values()]
        self._merged = MergedMetrics([part.folder for part in parts], counts, first)
        self._returns: dict[int, float] = {}
        self._told: set[str] = set()

    def look(self, sinks: Sequence[Sink], shown: Progress | None) -> None:
        """Record what all parts have finished since the last look, and show it."""
        for iteration in self._merged.new():
            rows = [row for part in iteration for row in part]
            self._folder.append(rows)
            for sink in sinks:
                sink.write(rows)
            if shown is not None:
                shown.iteration(self._summary(iteration))
        tell(sinks)
        self._take_films()
        if shown is not None:
            self._tell()

    def _summary(self, parts: list[list[Row]]) -> dict[str, Any]:
        """The progress line: of all seeds; a seed whose episode goes on shows its last return."""
        rows = [row for part in parts for row in part]
        for row in rows:
            if row.get("rollout/ep_rew_mean") is not None:
                self._returns[row["seed"]] = row["rollout/ep_rew_mean"]
        found = {
            shown: [row[name] for name in names for row in rows if row.get(name) is not None]
            for shown, names in SHOWN.items()
        }
        return {
            "iteration": rows[0]["iteration"],
            "return": [self._returns.get(row["seed"], float("nan")) for row in rows],
            **{shown: values for shown, values in found.items() if values},
            "decisions_per_s": sum(part[0]["time/fps"] for part in parts),
        }

    def _take_films(self) -> None:
        """Films lie in the run's own folder, from where a report shows them."""
        videos = self._parts[0].folder.videos
        for film in videos.glob("[!.]*") if videos.is_dir() else ():
            self._folder.videos.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):
                os.replace(film, self._folder.videos / film.name)

    def _tell(self) -> None:
        """Pass on what the processes have to say; what several of them say, once."""
        for part in self._parts:
            lines = part.said.read_text().splitlines() if part.said.is_file() else []
            for line in lines:
                if line not in self._told:
                    self._told.add(line)
                    print(line, file=sys.stderr, flush=True)


def _fault(part: Part, reason: str) -> Exception:
    """Why a part was given up, as the error that its process had."""
    last = next(event for event in reversed(part.attempts.events()) if event["event"] == "broke")
    return SombrlError(reason) if last.get("refused") else RunFault(reason)
