"""The file of a sweep: algorithms, environments, seeds, values and grids of fields; and the cells that it stands for.

algorithm = "gp-icem"                  # or several
env = ["pendulum", "mountain-car"]
explore = ["optimistic", "greedy"]
seeds = 5                              # of a cell, trained together in one program

[set]                                  # any field, by its name on the command line of `sombrl train`
episodes = 20

[grid]                                 # every combination is a cell
bonus_weight = [1, 10]
"""

import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sombrl.agent.agent import Agent
from sombrl.algorithms import ALGORITHMS
from sombrl.algorithms.settings import configured, find_field, flatten, text_of
from sombrl.config.fields import Field
from sombrl.config.json import from_json, to_json
from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.exploration.strategies import OF_STRATEGIES
from sombrl.records import SombrlError
from sombrl.runs.cell import NAME, Evaluation, TrainCell
from sombrl.storage.results import METRICS

AXES = ("env", "explore", "seed", "seeds", "preset")
"""Fields that most sweeps name: they may stand at the top of the file, one value or a list."""
KEYS = ("name", "algorithm", *AXES, "set", "grid", "metrics", "evaluation", "checkpoint_every", "search", "objective")
Value = tuple[str, Field, Any]
"""What a field was called, the field, and its value."""
UNNAMED = ("env", "explore", "seed", "seeds")
"""Fields that a method is not named after: the CSV has columns for them."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """A sweep as it was asked for; `cells` is what it stands for."""

    name: str
    algorithms: tuple[str, ...]
    grid: dict[str, list[Any]]
    """Values by the name of the field; a field that is set has one."""
    metrics: tuple[str, ...] | None = None
    """Of metrics.jsonl, which must have them; None: the usual ones, where there is a number."""
    evaluation: Evaluation | None = None
    checkpoint_every: int = 1
    search: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields that `sombrl tune` searches over."""
    objective: str = "rollout/ep_rew_mean"
    """What `sombrl tune` makes large: a metric of metrics.jsonl."""
    shown: tuple[str, ...] = ()
    """The fields of the grid that cells are named after, in order."""

    def cells(self) -> list[TrainCell]:
        """Every combination, with all values checked; refuses a cell that is there twice."""
        found: list[TrainCell] = []
        for algorithm in self.algorithms:
            axes = [
                [(name, concerned[algorithm], concerned[algorithm].read(value)) for value in values]
                for name, values in self.grid.items()
                if algorithm in (concerned := find_field(name, self.algorithms))
            ]
            found += [self.cell(algorithm, values) for values in self._combinations(algorithm, axes)]
        _refuse_twice(found)
        return found

    def _combinations(self, algorithm: str, axes: Sequence[Sequence[Value]]) -> Iterator[tuple[Value, ...]]:
        """Every combination; a field of the grid that the strategy does not look at makes no more cells of it."""
        reduced: set[tuple[Value, ...]] = set()
        for values in itertools.product(*axes):
            chosen = {field.name: value for _, field, value in values}
            explore = chosen.get("explore", ALGORITHMS[algorithm].config().explore.explore)
            idle = {name for name, strategies in OF_STRATEGIES.items() if explore not in strategies} & set(self.shown)
            kept = tuple(one for one in values if one[0] not in idle)
            if kept == values:
                yield values
            elif kept not in reduced:
                reduced.add(kept)
                yield kept

    def cell(self, algorithm: str, values: Iterable[Value]) -> TrainCell:
        """One combination."""
        run, config = configured(algorithm, {field: value for _, field, value in values})
        named = [(field.name, text_of(value)) for name, field, value in values if name in self.shown]
        explore = config.explore.explore
        ending = "".join(f"-{name}={text}" for name, text in named if name not in ("env", "explore"))
        method = "".join(f" {name}={text}" for name, text in named if name not in UNNAMED)
        return TrainCell(
            name="/".join(map(_slug, (run.env, algorithm, explore + ending))),
            method=f"{algorithm}/{explore}{method}",
            env=run.env,
            run=run,
            config=config,
            algorithm=algorithm,
            metrics=self.metrics or (),
            extra=None if self.metrics else usual_metrics,
            evaluation=self.evaluation,
            checkpoint_every=self.checkpoint_every,
        )


def read_spec(path: Path, overrides: Sequence[str] = ()) -> Spec:
    """The sweep in a TOML file, with `field=value,value` of the command line in place of what the file has."""
    return spec_of(path, read_table(path), overrides)


def read_table(path: Path) -> dict[str, Any]:
    """What a TOML file has."""
    if path.exists() and not path.is_file():  # a pipe without a writer would block forever
        raise SombrlError(f"{path} is not a file: a sweep is a TOML file.")
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SombrlError(f"{path} is not TOML: {str(error).rstrip('.')}.") from None
    except UnicodeDecodeError:
        raise SombrlError(f"{path} is not a text file: a sweep is a TOML file.") from None
    except OSError as error:
        raise SombrlError(f"cannot read the sweep {path}: {error.strerror or error}.") from None


def spec_of(path: Path, table: dict[str, Any], overrides: Sequence[str] = ()) -> Spec:
    """The sweep that the file at `path` has."""
    for key in table:
        if key not in KEYS:
            raise nearest(key, KEYS, f"key of {path.name}", see="docs/sweeps.md")
    for key in ("set", "grid", "search", "evaluation"):
        if not isinstance(table.get(key, {}), dict):
            raise SombrlError(f"{key} must be a table of {path}: write [{key}] and its fields below it.")
    algorithms = table.get("algorithm", [])
    grid = {name: table[name] if isinstance(table[name], list) else [table[name]] for name in AXES if name in table}
    shown = [name for name in grid if isinstance(table[name], list)]
    grid |= {name: [value] for name, value in flatten(table.get("set", {}))}
    for name, values in flatten(table.get("grid", {})):
        if not isinstance(values, list):
            raise SombrlError(f"[grid] {name} must be a list of values: put a single one under [set].")
        grid[name] = values
        shown.append(name)
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SombrlError(f"an override is field=value or field=value,value, not {text!r}.")
        given = [part.strip() for part in value.split(",") if part.strip()]
        if name == "algorithm":
            algorithms = given
            continue
        grid[name] = given
        shown = [one for one in shown if one != name] + [name] * (len(given) > 1)
    return Spec(
        name=_text(table, "name", path.stem),
        algorithms=_algorithms(algorithms),
        grid=_checked(grid),
        metrics=_metrics(table.get("metrics")),
        evaluation=_evaluation(table.get("evaluation")),
        checkpoint_every=_count(table, "checkpoint_every"),
        search=dict(flatten(table.get("search", {}))),
        objective=_text(table, "objective", Spec.objective),
        shown=tuple(dict.fromkeys(shown)),
    )


def usual_metrics(logged: dict[str, Any]) -> dict[str, float]:
    """The metrics of `sombrl export`, where a row has a number."""
    return {name: logged[name] for name in METRICS if logged.get(name) is not None}


def rehearse(cells: Sequence[TrainCell]) -> None:
    """Make an agent of every algorithm on every environment: what cannot work is refused before anything starts."""
    first: dict[tuple[str, str, tuple[str, ...]], TrainCell] = {}
    for cell in cells:
        first.setdefault((cell.algorithm, cell.run.env, cell.run.env_kwargs), cell)
    for cell in first.values():
        run = dataclasses.replace(cell.run, seeds=1, env_workers=0)
        Agent(cell.algorithm, cell.config, run).planned_iterations  # noqa: B018  (refuses a wrong kind of length)


def cell_to_json(cell: TrainCell) -> dict[str, Any]:
    """A cell of a sweep as plain data."""
    return {"name": cell.name, "checkpoint_every": cell.checkpoint_every, **cell.settings()}


def cell_from_json(data: dict[str, Any]) -> TrainCell:
    """The inverse of `cell_to_json`."""
    config = ALGORITHMS[data["algorithm"]].config
    return TrainCell(
        name=data["name"],
        method=data["method"],
        env=data["env"],
        run=from_json(RunConfig, data["run"]),
        config=from_json(config, data["config"]),
        algorithm=data["algorithm"],
        metrics=tuple(data["metrics"]),
        extra=usual_metrics if data["extra"] else None,
        evaluation=None if data["evaluation"] is None else from_json(Evaluation, data["evaluation"]),
        checkpoint_every=data["checkpoint_every"],
    )


def _refuse_twice(cells: list[TrainCell]) -> None:
    """No two cells train the same seed of the same thing, and none shares a folder with another."""
    seeds: dict[str, tuple[str, set[int]]] = {}
    names: set[str] = set()
    for cell in cells:
        plain = dataclasses.replace(cell.run, seed=0, seeds=1)
        key = json.dumps([cell.algorithm, to_json(plain), to_json(cell.config)], sort_keys=True)
        other, taken = seeds.setdefault(key, (cell.name, set()))
        if twice := taken & set(cell.run.seed_list):
            what = f"the cell {cell.name} is" if other == cell.name else f"the cells {other} and {cell.name} are"
            raise SombrlError(f"{what} in the sweep twice (seed {min(twice)}): leave one of the values out.")
        taken |= set(cell.run.seed_list)
        if cell.name in names:
            raise SombrlError(f"two cells would share the folder {cell.name}: their values are too alike to name.")
        if not NAME.fullmatch(cell.name):
            raise SombrlError(f"{cell.name!r} cannot be a folder: choose other values.")
        names.add(cell.name)


def _checked(grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
    for name, values in grid.items():
        if not values:
            raise SombrlError(f"{name} has no values, so the sweep has no cells: give at least one.")
    return grid


def _algorithms(given: Any) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names:
        raise SombrlError(f"a sweep needs an algorithm, one of {', '.join(ALGORITHMS)} or a list of them.")
    for name in names:
        if name not in ALGORITHMS:
            raise nearest(str(name), ALGORITHMS, "algorithm")
    if len(set(names)) < len(names):
        raise SombrlError(f"the algorithms {', '.join(names)} have one twice: leave it out.")
    return tuple(names)


def _metrics(given: Any) -> tuple[str, ...] | None:
    if given is not None and not (isinstance(given, list) and given and all(isinstance(name, str) for name in given)):
        raise SombrlError(f"metrics must be a list of names such as rollout/ep_rew_mean, not {given!r}.")
    return None if given is None else tuple(given)


def _evaluation(given: dict[str, Any] | None) -> Evaluation | None:
    if given is None:
        return None
    if "episodes" not in given:
        raise SombrlError("[evaluation] needs the number of episodes: write episodes = 5.")
    return from_json(Evaluation, given)


def _text(table: dict[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise SombrlError(f"{key} must be a text, not {value!r}.")
    return value


def _count(table: dict[str, Any], key: str) -> int:
    value = table.get(key, 1)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SombrlError(f"{key} must be a whole number of at least 1, not {value!r}.")
    return value


def _slug(text: str) -> str:
    """A part of a cell's name, which is a folder."""
    return re.sub(r"[^a-z0-9.=-]", "-", text.lower()).lstrip(".=-")
