"""`sombrl train --jobs`: the seeds of a run in several processes, watched as one run.

RUN/group.json           names the parts
RUN/parts/seeds-0-1      a part: an ordinary run of some of the seeds, with its checkpoints
RUN/metrics.jsonl        the metrics of all, as one process would have written them; so are TensorBoard and W&B
RUN/logs                 what the processes printed
"""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sombrl.agent.agent import Agent
from sombrl.agent.make import load_with
from sombrl.algorithms.check import advice
from sombrl.config.json import to_json
from sombrl.config.run import RunConfig
from sombrl.envs.trust import NO_WORD, Word, again
from sombrl.runs import train as single
from sombrl.runs.sinks import Sink, open_sinks, require_wandb, tell
from sombrl.runs.train import check_every, last_iteration
from sombrl.storage import checkpoint
from sombrl.storage.merged_metrics import MergedMetrics, first_missing
from sombrl.storage.run_folder import RunFolder
from sombrl.sweep.local import gpu_left_free
from sombrl.sweep.parts import PartsPlace, split
from sombrl.sweep.side_by_side import processes, run_side_by_side, summary
from sombrl.training.progress import Progress


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
    number = _parts(jobs, config, run_config)
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
        until = agent.planned_iterations
        if run_config.offline is not None:
            agent.prepare()
        opening = agent.trainer.opening()
        agent.envs.close()
    settings = agent.to_json() | {"run": to_json(run_config)}
    folder = RunFolder.create(out, settings, command or sys.argv, list(split(run_config, number)))
    for line in advice(algorithm, agent.envs.spec):
        print(f"sombrl: {line}", file=sys.stderr)
    for line in opening:
        print(line)
    named = Word(named=frozenset([run_config.env]))
    place = PartsPlace(folder.path, until, None, checkpoint_every, films, named)
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
    word: Word = NO_WORD,
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
            word=word,
        )
        return
    if wandb:
        require_wandb()
    check_every(checkpoint_every)
    with folder.lock():
        with gpu_left_free():
            agent = load_with(word, path, fresh=True)
            agent.envs.close()
        for part in folder.parts:  # each goes on by its own configuration, and this one describes all of them
            if checkpoint.available(part.checkpoints):
                agent.require_saved(path, checkpoint.latest_meta(part.checkpoints), of_a_part=True)
        until = last_iteration(agent, path, folder.saved_iteration, episodes)
        place = PartsPlace(folder.path, until, episodes, checkpoint_every, films, word)
        command = ["sombrl", "resume", str(path)]
        _see_through(agent, folder, place, command, resumed=True, tensorboard=tensorboard, wandb=wandb)


def _parts(jobs: int | None, config: Any, run_config: RunConfig) -> int:
    """How many parts a run is to have."""
    number = processes(jobs, run_config.seeds)
    if number > 1 and getattr(config, "start_from", None) is not None:
        if jobs is not None:
            print("sombrl: one process trains all seeds, because --start-from has one for each.", file=sys.stderr)
        return 1  # a part would take over the first seeds again
    if number > 1 and run_config.stop_when_gap is not None:
        if jobs is not None:
            print(
                "sombrl: one process trains all seeds, because --stop-when-gap looks at all of them.", file=sys.stderr
            )
        return 1
    return number


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
    shown, env = Progress(place.until, agent.label, len(agent.seeds)), again(agent.run_config.env)

    def saved() -> str:
        done = folder.saved_iteration
        go_on = f"; continue with: sombrl resume {folder.path}{env}" if done != place.until else ""
        return f"{done} of {place.until} iterations are saved{go_on}"

    watch, settings = Watch(folder, agent.run_config), agent.to_json()
    with open_sinks(folder, agent.seeds, settings, resumed=resumed, tensorboard=tensorboard, wandb=wandb) as sinks:

        def look(going: bool) -> None:
            if going:
                watch.look(sinks, shown)
            else:  # a new one, for the stop may have come in the middle of a look
                Watch(folder, agent.run_config).look(sinks, None)

        run_side_by_side(place, command, shown, look, saved=saved)


class Watch:
    """Brings what the parts of a run write into the run's own folder."""

    def __init__(self, folder: RunFolder, run_config: RunConfig):
        self._folder = folder
        first = first_missing(folder, run_config.seeds)
        folder.truncate(first)  # half an iteration, of a kill in the middle of writing it
        counts = [own.seeds for own in split(run_config, len(folder.parts)).values()]
        self._merged = MergedMetrics(folder.parts, counts, first)

    def look(self, sinks: Sequence[Sink], shown: Progress | None) -> None:
        """Record what all parts have finished since the last look, and show it."""
        for iteration in self._merged.new():
            rows = [row for part in iteration for row in part]
            self._folder.append(rows)
            for sink in sinks:
                sink.write(rows)
            if shown is not None:
                shown.iteration(summary(iteration))
        tell(sinks)
        self._take_films()

    def _take_films(self) -> None:
        """Films lie in the run's own folder, from where a report shows them."""
        videos = self._folder.parts[0].videos
        for film in videos.glob("[!.]*") if videos.is_dir() else ():
            self._folder.videos.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):
                os.replace(film, self._folder.videos / film.name)
