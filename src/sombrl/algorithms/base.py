"""What an algorithm is: a frozen config, and a function that builds the parts from it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from sombrl.controllers.base import AbstractController
from sombrl.dynamics.base import AbstractLearner
from sombrl.envs.base import AbstractEnvs
from sombrl.exploration.base import Exploration
from sombrl.settings import Setting


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the loop runs."""

    learner: AbstractLearner
    exploration: Exploration
    controller: AbstractController
    capacity: int  # rows of replay per seed
    online: bool = False  # learns at every decision (online.py) instead of between episodes (loop.py)


Build = Callable[[Any, AbstractEnvs, Setting], Parts]
"""config × environment × setting → parts; `envs.task` is None when the environment's reward is not known."""


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """A name on the command line."""

    name: str
    config: type
    build: Build | None
    summary: str
    agent: Callable[[], type] | None = None
    """The class of its agents, where it has no parts for the common loops to run; imported when first asked for."""
