"""`sombrl tune`: a search over fields with Optuna (extra `tune`). A trial is a cell like those of a sweep.

The driver reads each trial's metrics as they come, reports them, and stops a trial that does worse than the median of
the others did at that point. The study is in FOLDER/study.db, the cells are in FOLDER/trials and FOLDER/cells: after a
stop the search goes on with the trials that were running, from their checkpoints.
"""

import collections
import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sombrl.algorithms.settings import find_field
from sombrl.config.fields import Field
from sombrl.envs.trust import NO_WORD, Word
from sombrl.optional import require
from sombrl.records import SombrlError
from sombrl.runs.cell import TrainCell
from sombrl.runs.cell_folder import CellFolder
from sombrl.runs.train import Interrupted, terminate_as_interrupt
from sombrl.storage.files import write_whole
from sombrl.storage.run_folder import RunFolder
from sombrl.sweep.driver import AbstractBackend, Drive, driving
from sombrl.sweep.places import SweepPlace
from sombrl.sweep.spec import Spec, cell_to_json
from sombrl.sweep.sweep import open_sweep, publish
from sombrl.sweep.worker import Job

LAST = 3  # reports over which the objective is averaged: one alone is noise
AT_ONCE = 4  # trials on a backend with a queue of its own, where nothing says how many
STARTUP = 5  # trials that are never stopped early: there is no median of fewer


@dataclasses.dataclass(frozen=True)
class Dimension:
    """A field and the values it may take in the search."""

    field: Field
    values: tuple[Any, ...] | None = None
    """Choices; None: a range."""
    low: Any = None
    high: Any = None
    log: bool = False

    def suggest(self, trial: Any) -> Any:
        """A value from Optuna, as the field has it."""
        name = self.field.name
        if self.values is not None:
            # By number, because Optuna knows no tuples.
            return self.values[trial.suggest_categorical(name, list(range(len(self.values))))]
        ask = trial.suggest_int if isinstance(self.low, int) else trial.suggest_float
        return ask(name, self.low, self.high, log=self.log)

    def ends(self) -> list[Any]:
        """Values that show whether all are possible."""
        return list(self.values) if self.values is not None else [self.low, self.high]


def tune(
    spec: Spec,
    folder: Path,
    backend: Callable[[], AbstractBackend],
    *,
    trials: int,
    at_once: int | None,
    retries: int,
    command: Sequence[str],
    word: Word = NO_WORD,
) -> Path:
    """Search until there are `trials` trials, write their table and return its path."""
    if trials < 1:
        raise SombrlError(f"--trials must be at least 1, not {trials}.")
    optuna = require("optuna", "optuna", "Optuna is not installed: pip install 'sombrl[tune]'.")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    make, dimensions = space(spec)
    asked = {"search": spec.search, "objective": spec.objective, "grid": spec.grid}
    place, made = open_sweep(folder, spec.name, [], backend, word, **asked)
    with driving(place, command, alone=True):
        storage = optuna.storages.RDBStorage(f"sqlite:///{folder.absolute() / 'study.db'}")
        study = optuna.create_study(
            storage=storage,
            study_name=spec.name,
            direction="maximize",
            # Another seed each time: a search that goes on must not draw its first trials again.
            sampler=optuna.samplers.TPESampler(seed=_number_of_trials(storage, spec.name)),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
            load_if_exists=True,
        )
        search = _Search(study, place, make, dimensions, spec.objective, Drive(made, retries), tuple(command))
        search.run(trials, at_once or search.drive.backend.slots or AT_ONCE)
    return _close(study, place, dimensions, command)


def space(spec: Spec) -> tuple[Callable[[dict[Field, Any], int], TrainCell], list[Dimension]]:
    """What makes the cell of a trial, and the fields searched over, all of them checked."""
    if not spec.search:
        raise SombrlError("the spec has no [search]: give fields with low and high, or with choices.")
    if len(spec.algorithms) > 1 or any(len(values) > 1 for values in spec.grid.values()):
        raise SombrlError("a search is over one algorithm and has no grid: put what varies under [search].")
    (algorithm,) = spec.algorithms
    fixed = {name: find_field(name, spec.algorithms)[algorithm] for name in spec.grid}
    values = [(name, field, field.read(spec.grid[name][0])) for name, field in fixed.items()]
    dimensions = [_dimension(name, find_field(name, (algorithm,))[algorithm], of) for name, of in spec.search.items()]
    for dimension in dimensions:
        if dimension.field in fixed.values():
            raise SombrlError(f"{dimension.field.name} is both set and searched over: leave one out.")
    shown = dataclasses.replace(spec, shown=tuple(dimension.field.name for dimension in dimensions))

    def make(chosen: dict[Field, Any], number: int) -> TrainCell:
        searched = [(field.name, field, value) for field, value in chosen.items()]
        return dataclasses.replace(shown.cell(algorithm, [*values, *searched]), name=f"trial-{number:04d}")

    return make, dimensions


def ends_of(spec: Spec) -> list[TrainCell]:
    """The cells at the ends of every range and at every choice: making them refuses what is not possible."""
    make, dimensions = space(spec)
    first = {dimension.field: dimension.ends()[0] for dimension in dimensions}
    return [make(first | {dimension.field: end}, 0) for dimension in dimensions for end in dimension.ends()]


class _Search:
    """The trials on their way."""

    def __init__(
        self,
        study: Any,
        place: SweepPlace,
        make: Callable[[dict[Field, Any], int], TrainCell],
        dimensions: list[Dimension],
        objective: str,
        drive: Drive,
        command: tuple[str, ...],
    ):
        self.study, self.place, self.make, self.dimensions = study, place, make, dimensions
        self.objective, self.drive, self.command = objective, drive, command
        self.trials: dict[Job, Any] = {}
        self.reported: dict[Job, int] = {}

    def run(self, trials: int, at_once: int) -> None:
        """Go on with the trials that were running, then ask for new ones."""
        import optuna

        running = self.study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
        try:
            with terminate_as_interrupt():
                for frozen in running:
                    self._begin(optuna.trial.Trial(self.study, frozen._trial_id), frozen.last_step)
                while self.drive.busy or len(self.study.get_trials(deepcopy=False)) < trials:
                    while len(self.trials) < at_once and len(self.study.get_trials(deepcopy=False)) < trials:
                        self._begin(self.study.ask(), None)
                    for job in self.drive.step():
                        self._end(job)
                    for job in self.drive.running:
                        self._watch(job)
        except KeyboardInterrupt:
            became = self.drive.backend.close(self.drive.tasks)
            raise Interrupted(
                f"the search is kept, as is what the running trials have saved{became}; go on with the same command: "
                f"{' '.join(self.command)}"
            ) from None
        except BaseException:
            self.drive.backend.close(self.drive.tasks)
            raise
        self.drive.backend.close([])

    def _begin(self, trial: Any, last_step: int | None) -> None:
        chosen = {dimension.field: dimension.suggest(trial) for dimension in self.dimensions}
        cell = self.make(chosen, trial.number)
        path = self.place.path / "trials" / f"{trial.number:04d}.json"
        if not path.exists():
            write_whole(path, json.dumps(cell_to_json(cell), indent=1))
        job = Job(self.place, (cell.name,), self.command)
        self.trials[job], self.reported[job] = trial, -1 if last_step is None else last_step
        self.drive.add(job)

    def _watch(self, job: Job) -> None:
        """Report what is new, and stop a trial that is not worth going on with."""
        trial = self.trials[job]
        for step, value in self._values(job).items():
            if step <= self.reported[job]:
                continue
            trial.report(value, step)
            self.reported[job] = step
            if trial.should_prune():
                self.drive.withdraw(job)
                reason = f"{self.objective} was {value:.4g} after iteration {step + 1}, below the median"
                self._folder(job).attempts.note("pruned", reason=reason)
                self.study.tell(trial, state=_state("PRUNED"))
                print(f"{job.name} stopped early: {reason}", flush=True)
                del self.trials[job]
                return

    def _end(self, job: Job) -> None:
        trial, values = self.trials.pop(job), self._values(job)
        if job.name in self.drive.failed or not values:
            self.study.tell(trial, state=_state("FAIL"))
        else:
            self.study.tell(trial, list(values.values())[-1])

    def _values(self, job: Job) -> dict[int, float]:
        """The objective after every iteration: the mean over seeds of the last few reports that have a number."""
        reports: dict[int, list[float]] = collections.defaultdict(list)
        for row in RunFolder(self._folder(job).path / "run").rows():
            value = row.get(self.objective)
            if value is not None and math.isfinite(value):
                reports[row["iteration"]].append(value)
        seeds = len(self._cell(job).run.seed_list)
        whole = {step: statistics.fmean(values) for step, values in reports.items() if len(values) == seeds}
        steps = list(whole)
        return {
            step: statistics.fmean([whole[s] for s in steps[max(0, i + 1 - LAST) : i + 1]])
            for i, step in enumerate(steps)
        }

    def _folder(self, job: Job) -> CellFolder:
        return self.place.folders()[job.name]

    def _cell(self, job: Job) -> TrainCell:
        cell = self._folder(job).cell
        assert isinstance(cell, TrainCell)
        return cell


def _dimension(name: str, field: Field, given: Any) -> Dimension:
    """A line of [search], checked against its field."""
    if not isinstance(given, dict) or (unknown := set(given) - {"low", "high", "log", "choices"}):
        what = f" (it has {min(unknown)})" if isinstance(given, dict) else ""
        raise SombrlError(f"[search] {name} takes low and high, and perhaps log = true; or choices{what}.")
    if "choices" in given:
        if set(given) != {"choices"} or not isinstance(given["choices"], list) or not given["choices"]:
            raise SombrlError(f"[search] {name}: choices must be a list of values, and nothing else.")
        return Dimension(field, tuple(field.read(value) for value in given["choices"]))
    if not field.number:
        raise SombrlError(f"[search] {name} is not a number: give choices instead of low and high.")
    if not {"low", "high"} <= set(given):
        raise SombrlError(f"[search] {name} needs both low and high.")
    low, high, log = field.read(given["low"]), field.read(given["high"]), given.get("log", False)
    if not low < high or (log is True and low <= 0) or log not in (True, False):
        raise SombrlError(f"[search] {name} needs low < high, and low > 0 where log = true.")
    return Dimension(field, None, low, high, log)


def _state(name: str) -> Any:
    import optuna

    return optuna.trial.TrialState[name]


def _number_of_trials(storage: Any, name: str) -> int:
    """How many trials a study has; 0 if it is new."""
    import optuna

    names = {study.study_name: study for study in optuna.study.get_all_study_summaries(storage)}
    return names[name].n_trials if name in names else 0


def _close(study: Any, place: SweepPlace, dimensions: list[Dimension], command: Sequence[str]) -> Path:
    """The table of the trials that came to their end, and the best of them in words."""
    done = study.get_trials(deepcopy=False, states=(_state("COMPLETE"),))
    if not done:
        raise SombrlError(f"no trial came to its end: sombrl status {place.path} has the reasons.")
    out = publish(place.path, list(place.folders().values()), list(command))
    best = study.best_trial
    words = {d.field.name: best.params[d.field.name] for d in dimensions}
    shown = ", ".join(
        f"{d.field.name} = {d.values[words[d.field.name]] if d.values is not None else words[d.field.name]}"
        for d in dimensions
    )
    pruned = len(study.get_trials(deepcopy=False, states=(_state("PRUNED"),)))
    print(f"best     trial-{best.number:04d}, {best.value:.4g}: {shown}")
    print(f"{len(done)} trials came to their end, {pruned} were stopped early")
    return out
