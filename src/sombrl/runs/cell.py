"""What a cell of an experiment or a sweep is: a run of an algorithm, or a function that computes rows."""

import dataclasses
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sombrl.config.json import to_json
from sombrl.config.run import RunConfig

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

NAME = re.compile(r"[a-z0-9][a-z0-9.=-]*(/[a-z0-9][a-z0-9.=-]*)*")


LATER = (
    *("offline", "offline_seed", "offline_order", "held_out", "start_from"),
    *("record_bounds", "stop_when_gap", "replay_window", "safety"),
)
"""Options that are younger than the committed results: left out where they are off, so that settings stay the same."""

LATER_OF_DREAMER = (
    *("ensemble_target", "bootstrap", "ensemble_lr", "bonus_scale", "bonus_memory", "bonus_floor"),
    "imagine_last",
)
"""The same of Dreamer and its exploration, whose start_from was there before."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes planned for the task alone under the mean model, on starts never trained on."""

    episodes: int
    """Per task and seed; their mean is reported."""
    tasks: tuple[str, ...] = ()
    """Downstream tasks; none: the environment's own task."""
    uncertainty: bool = False
    """Also Σ*_N, what a planner for ‖σ‖ alone still finds."""
    every: int | None = None
    """Also after every so many iterations of training; None: only at the end."""
    explore: bool = False
    """With the actions of training."""
    calibration: bool = False
    """Also how σ ranks the errors of one step (Dreamer)."""

    def due(self, iteration: int, last: int) -> bool:
        """Whether to evaluate after so many iterations, of `last` in all."""
        return iteration == last or (self.every is not None and iteration > 0 and iteration % self.every == 0)


@dataclasses.dataclass(frozen=True)
class TrainCell:
    """One run of an algorithm, all its seeds together; a broken one goes on from its checkpoint."""

    name: str
    """Unique in the experiment, and the path of its folder."""
    method: str
    env: str
    """What the CSV says; the environment that is made is `run.env`."""
    run: RunConfig
    config: Any
    algorithm: str = "gp-icem"
    metrics: tuple[str, ...] = ("rollout/ep_rew_mean",)
    """Of metrics.jsonl, which must have them."""
    extra: Callable[[dict[str, Any]], dict[str, float]] | None = None
    """More metrics, computed from one row of metrics.jsonl."""
    evaluation: Evaluation | None = None
    checkpoint_every: int = 1
    group: str | None = None
    """Cells of one group differ in the exploration's numbers alone and are trained in one program."""

    def settings(self) -> dict[str, Any]:
        """All that decides the numbers, as JSON: rows made with other settings are other rows."""
        return {
            "kind": "train",
            "algorithm": self.algorithm,
            "method": self.method,
            "env": self.env,
            "config": _dreamer_settings(self.config) if self.algorithm == "dreamer" else _settings(self.config),
            "run": _settings(self.run),
            "metrics": list(self.metrics),
            "extra": _name(self.extra),
            "evaluation": _evaluation_settings(self.evaluation),
        }


@dataclasses.dataclass(frozen=True)
class FunctionCell:
    """Rows that a function computes in one go; a broken one starts over."""

    name: str
    function: Callable[..., list[dict[str, Any]]]
    """Returns dictionaries with the fields of `Row` but `experiment`."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The function's arguments, plain JSON."""
    data: tuple[Path, ...] = ()
    """Files of the user's; a function that has some is given them as `data`."""

    def settings(self) -> dict[str, Any]:
        """All that decides the numbers, as JSON: of files their contents, wherever they lie."""
        given = {"data": [hashlib.sha256(path.read_bytes()).hexdigest() for path in self.data]} if self.data else {}
        return {"kind": "function", "function": _name(self.function), "options": self.options} | given


Cell = TrainCell | FunctionCell


def recorded_as(name: str) -> Callable[[AnyFunction], AnyFunction]:
    """The name of a function in the settings of cells, which stays the same wherever the function moves."""

    def label(function: AnyFunction) -> AnyFunction:
        function.recorded_name = name  # type: ignore[attr-defined]
        return function

    return label


def _settings(config: Any, later: tuple[str, ...] = LATER) -> dict[str, Any]:
    off = to_json(type(config)())
    return {name: value for name, value in to_json(config).items() if name not in later or value != off[name]}


def _evaluation_settings(evaluation: Evaluation | None) -> Any:
    plain = to_json(evaluation)
    if evaluation is not None and not evaluation.calibration:
        del plain["calibration"]  # younger than the committed results
    return plain


def _dreamer_settings(config: Any) -> dict[str, Any]:
    explore = _settings(config.explore, LATER_OF_DREAMER) | {"hidden": list(config.ensemble_widths)}
    return _settings(config, LATER_OF_DREAMER) | {"explore": explore}


def _name(function: Callable[..., Any] | None) -> str | None:
    if function is None:
        return None
    return getattr(function, "recorded_name", f"{function.__module__}.{function.__qualname__}")
