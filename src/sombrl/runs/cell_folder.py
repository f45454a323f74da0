"""A cell on disk: its settings, what it needs to go on after a kill, and, once it is finished, its rows.

`rows.csv` is written last, aside and renamed, so a cell is finished exactly when that file is there. `attempts.jsonl`
says when, where and from which iteration on somebody worked on it, and why they gave up.
"""

import contextlib
import dataclasses
import datetime
import functools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sombrl
from sombrl.agent.agent import Agent
from sombrl.agent.make import load_with
from sombrl.envs.registry import stepped_by_jax
from sombrl.envs.trust import Word
from sombrl.records import RunFault, SombrlError
from sombrl.runs.cell import Cell, Evaluation, FunctionCell, TrainCell
from sombrl.runs.train import Run, run_training
from sombrl.runs.work import AbstractWork, Attempts
from sombrl.storage import checkpoint
from sombrl.storage.files import write_whole
from sombrl.storage.provenance import provenance
from sombrl.storage.results import Row, read_rows, rows_text
from sombrl.storage.run_folder import RunFolder


class CellFolder(AbstractWork):
    """The folder of one cell of one experiment at one scale."""

    def __init__(self, path: Path, experiment: str, cell: Cell, env_workers: int = 0):
        """`env_workers` processes step the cell's simulators, which changes no number."""
        self.path, self.experiment, self.cell, self.env_workers = path, experiment, cell, env_workers
        self.rows_path = path / "rows.csv"
        self.attempts = Attempts(path / "attempts.jsonl")

    @property
    def settings(self) -> dict[str, Any]:
        """What the rows depend on. The version stands for the source: change it when numbers change."""
        made_with = {"experiment": self.experiment, "sombrl": sombrl.__version__, **self.cell.settings()}
        settings: dict[str, Any] = json.loads(json.dumps(made_with))
        return settings

    @property
    def finished(self) -> bool:
        """Whether the rows are there."""
        return self.rows_path.is_file()

    def rows(self) -> list[Row]:
        """The rows of a finished cell."""
        return read_rows(self.rows_path)

    @property
    def seconds(self) -> float:
        """How long the finished cell took."""
        return float(self.record()["seconds"])

    def record(self) -> dict[str, Any]:
        """When, where and in how many seconds the cell was finished."""
        record: dict[str, Any] = json.loads((self.path / "finished.json").read_text())
        return record

    def check(self) -> None:
        """Refuse a folder that was made with other settings: rows of two kinds are never mixed."""
        if not self.path.exists():
            return
        made = self.path / "settings.json"
        try:
            if not made.exists():
                names = {entry.name for entry in self.path.iterdir()} - {self.attempts.path.name}
                if any(not name.startswith(".") for name in names):
                    raise SombrlError(f"{self.path} is not a cell of an experiment: choose another --runs.")
                return
            same = json.loads(made.read_text()) == self.settings
        except NotADirectoryError:
            raise SombrlError(f"{self.path} is a file: choose another --runs.") from None
        except (OSError, ValueError) as error:
            raise SombrlError(f"cannot read {made} ({error}): delete {self.path} or choose another --runs.") from None
        if not same:
            raise SombrlError(
                f"{self.path} was made with other settings or another version of sombrl: delete it or choose another "
                "--runs."
            )

    @contextlib.contextmanager
    def claimed(self) -> Iterator[bool]:
        """Be the only process on this cell; False where another one is."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFault(f"cannot create {self.path}: {error.strerror or error}.") from error
        with contextlib.ExitStack() as stack:
            # More than once, because a process that looks at a cell (`in_use`) holds it for that moment.
            for _ in range(3):
                try:
                    stack.enter_context(RunFolder(self.path).lock())
                except SombrlError:
                    time.sleep(0.05)
                    continue
                yield True
                return
            yield False

    @property
    def in_use(self) -> bool:
        """Whether a process works on this cell at this moment."""
        return RunFolder(self.path).in_use

    def adopt(self, experiments: Path) -> str | None:
        """Take the rows over from a finished cell of the same settings in another experiment; its name, or None."""
        scale = self.path.relative_to(experiments).parts[0].removeprefix(self.experiment)
        for rows_path in sorted(experiments.glob(f"*{scale}/{self.cell.name}/rows.csv")):
            try:
                made = json.loads((rows_path.parent / "settings.json").read_text())
                record = json.loads((rows_path.parent / "finished.json").read_text())
                rows = read_rows(rows_path)
            except (OSError, ValueError, SombrlError):
                continue
            theirs: str | None = made.pop("experiment", None)
            if theirs == self.experiment or made | {"experiment": self.experiment} != self.settings:
                continue
            write_whole(self.path / "settings.json", json.dumps(self.settings, indent=1))
            write_whole(self.path / "finished.json", json.dumps(record | {"taken from": theirs}, indent=1))
            own = [dataclasses.replace(row, experiment=self.experiment) for row in rows]
            write_whole(self.rows_path, rows_text(own))
            return theirs
        return None

    def complete(self, command: list[str], beside: "Sequence[CellFolder]" = ()) -> float:
        """Run the cell from where it is, with those of its group `beside` it, and write the rows of all.

        Returns the seconds that took. Hold `claimed` of all.
        """
        folders, start = [self, *beside], time.perf_counter()
        resumed = [folder._begin() for folder in folders]
        if isinstance(self.cell, TrainCell):
            _train(folders, command)
        seconds = time.perf_counter() - start
        for folder, again in zip(folders, resumed, strict=True):
            folder._finish(seconds, again, len(folders), command)
        return seconds

    def _begin(self) -> bool:
        """Say what is about to be run, and whether it was begun before."""
        self.check()
        resumed = (self.path / "settings.json").exists()
        if not resumed:
            write_whole(self.path / "settings.json", json.dumps(self.settings, indent=1))
        if isinstance(self.cell, FunctionCell):
            self.attempts.note("started")
        return resumed

    def _finish(self, seconds: float, resumed: bool, together: int, command: list[str]) -> None:
        cell, start = self.cell, time.perf_counter()
        rows = self._computed(cell) if isinstance(cell, FunctionCell) else self._rows(cell, self._run.rows())
        seconds, where = seconds + time.perf_counter() - start, provenance(command)
        record = {
            "seconds": round(seconds, 1),
            **({"cells in one program": together} if together > 1 else {}),  # the seconds are those of all of them
            "resumed": resumed,  # the seconds are then those of the last process alone
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **{name: where[name] for name in ("versions", "platform", "device", "cpus", "git")},
        }
        write_whole(self.path / "finished.json", json.dumps(record, indent=1))
        write_whole(self.rows_path, rows_text(rows))

    def _computed(self, cell: FunctionCell) -> list[Row]:
        given = {"data": cell.data} if cell.data else {}
        return [Row(experiment=self.experiment, **row) for row in cell.function(**cell.options, **given)]

    @property
    def _run(self) -> RunFolder:
        return RunFolder.open(self.path / "run")

    def _opened(self, command: list[str]) -> Run:
        """The run of a training cell, where it is."""
        cell, path = self.cell, self.path / "run"
        assert isinstance(cell, TrainCell)
        if (path / "manifest.json").is_file():
            folder = RunFolder.open(path)
            # The environment of the cell may be made; the folder may not name another.
            named = Word(named=frozenset([cell.run.env]))
            agent = load_with(named, path, fresh=not checkpoint.available(folder.checkpoints))
        else:
            workers = 0 if stepped_by_jax(cell.run.env) else self.env_workers
            agent = Agent(cell.algorithm, cell.config, dataclasses.replace(cell.run, env_workers=workers))
            folder = RunFolder.create(path, agent.to_json(), command)
        for note in agent.notes:
            print(note, file=sys.stderr)
        self.attempts.note("started", iteration=agent.iteration, planned=agent.planned_iterations)
        # First for an agent that was killed between its checkpoint and its evaluation.
        self._evaluate(cell, agent)
        return Run(agent, folder, agent.iteration > 0, functools.partial(self._evaluate, cell))

    def _evaluate(self, cell: TrainCell, agent: Agent, report: Any = None) -> None:
        """Evaluate the agent if it is time to and has not been done; every evaluation is a file of its own."""
        evaluation, out = cell.evaluation, self._evaluation_path(agent.iteration)
        if evaluation is None or out.exists() or not evaluation.due(agent.iteration, agent.planned_iterations):
            return
        returns = {name: _returns(agent, evaluation, task) for name, task in _tasks(evaluation)}
        if evaluation.uncertainty:
            returns["eval/max_uncertainty"] = agent.max_uncertainty(evaluation.episodes)
        if evaluation.calibration:
            returns |= agent.trainer.calibration(evaluation.episodes)
        write_whole(out, json.dumps({name: values.mean(axis=0).tolist() for name, values in returns.items()}))

    def _evaluation_path(self, iteration: int) -> Path:
        return self.path / "evaluations" / f"{iteration:08d}.json"

    def _rows(self, cell: TrainCell, metrics: list[dict[str, Any]]) -> list[Row]:
        rows = []
        place = {seed: i for i, seed in enumerate(cell.run.seed_list)}
        for logged in metrics:
            values = {name: logged.get(name) for name in cell.metrics} | (cell.extra(logged) if cell.extra else {})
            evaluated = self._evaluation_path(logged["iteration"] + 1)
            if evaluated.exists():
                for name, returns in json.loads(evaluated.read_text()).items():
                    values[name] = returns[place[logged["seed"]]]
            for name, value in values.items():
                if value is None:
                    raise RunFault(f"the run {self.path / 'run'} has no number for {name}.")
                where = (self.experiment, cell.method, cell.env, cell.run.setting, logged["seed"])
                rows.append(Row(*where, name, logged["env_frames"], logged["decisions"], float(value)))
        return rows


def _train(folders: Sequence[CellFolder], command: list[str]) -> None:
    """Bring the runs of a group to their end in one program; one that was killed behind the others catches up first."""
    runs = [folder._opened(command) for folder in folders]
    cell, until = folders[0].cell, runs[0].agent.planned_iterations
    assert isinstance(cell, TrainCell)
    for meeting in sorted({run.agent.iteration for run in runs} | {until}):
        behind = [run for run in runs if run.agent.iteration < meeting]
        if behind:
            run_training(behind, meeting, cell.checkpoint_every, tensorboard=False)
            for run in behind:
                run.resumed = True


def _tasks(evaluation: Evaluation) -> list[tuple[str, str | None]]:
    """The metric and the task of everything to evaluate."""
    return [(f"eval/{task}", task) for task in evaluation.tasks] or [("eval/ep_rew_mean", None)]


def _returns(agent: Agent, evaluation: Evaluation, task: str | None) -> np.ndarray:
    return agent.evaluate(evaluation.episodes, explore=evaluation.explore, task=task)
