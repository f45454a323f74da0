"""What turns the episodes so far into the next policy. A new trainer is a row of `TRAINERS`, or module:function.

A policy is a function of (episodes before it, configuration, number, seed) and of nothing else, so a training that was
killed gives the same policy when it is done again.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.algorithms import ALGORITHMS
from sombrl.config.suggestions import nearest
from sombrl.hardware.backends import imported, read_options
from sombrl.hardware.campaign import CampaignConfig
from sombrl.hardware.encoding import ACTION_DIM, OBS_DIM
from sombrl.hardware.episode import Episode
from sombrl.hardware.policy import Actor
from sombrl.records import SombrlError

Trainer = Callable[[Sequence[Episode], CampaignConfig, int, int, Path], tuple[Actor, Mapping[str, float]]]
"""(episodes before it, configuration, number, seed, a folder for what can be computed again) → (policy, metrics)."""


@dataclasses.dataclass(frozen=True)
class TrainerPart:
    """A trainer, and what refuses its options before anything is written."""

    train: Trainer
    check: Callable[[CampaignConfig], None] = lambda config: None


def train_random(
    episodes: Sequence[Episode], config: CampaignConfig, number: int, seed: int, scratch: Path
) -> tuple[Actor, dict[str, float]]:
    """A policy of random weights, learned from nothing: to try a car and its safety rules."""
    width = read_options(config.trainer_options, "--trainer-options").get("width", 16)
    rng = np.random.default_rng([seed, number])
    shapes = [(OBS_DIM, width), (width, 2 * ACTION_DIM)]
    weights = tuple((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes)
    biases = tuple(np.zeros(shape[1], np.float32) for shape in shapes)
    return Actor(weights, biases), {}


def _check_random(config: CampaignConfig) -> None:
    options = read_options(config.trainer_options, "--trainer-options")
    for name in options:
        if name != "width":
            raise nearest(name, ["width"], "option of the trainer random", see="docs/hardware.md")
    if not (isinstance(options.get("width", 1), int) and options.get("width", 1) >= 1):
        raise SombrlError(f"the width of a random policy must be at least 1, not {options['width']!r}.")


def _by_algorithm(name: str) -> TrainerPart:
    from sombrl.hardware.agent_trainer import check_agent, train_agent

    return TrainerPart(functools.partial(train_agent, name), functools.partial(check_agent, name))


TRAINERS: dict[str, TrainerPart] = {"random": TrainerPart(train_random, _check_random)}


def find_trainer(name: str) -> TrainerPart:
    """By name: one of `TRAINERS`, an algorithm, or module:function."""
    if name in TRAINERS:
        return TRAINERS[name]
    if name in ALGORITHMS:
        return _by_algorithm(name)
    return TrainerPart(imported(name, "trainer", [*TRAINERS, *ALGORITHMS]))


def strict(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics as strict JSON has them."""
    numbers = {name: float(np.asarray(value).reshape(-1)[0]) for name, value in metrics.items()}
    return {name: value if np.isfinite(value) else None for name, value in numbers.items()}
