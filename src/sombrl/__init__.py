"""sombrl: optimistic model-based reinforcement learning.

Learn a dynamics model with epistemic uncertainty σ, then plan greedily for r + λ‖σ‖ under its mean.
"""

import os

# Before JAX loads it: OpenBLAS threads spin, and on a busy machine a Cholesky then takes many times longer.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import importlib.util
from typing import TYPE_CHECKING, Any

from sombrl import compat

if TYPE_CHECKING:
    from sombrl.agent import GPICEM, MBPO, SAC, Agent, Dreamer, MaxInfoSAC, SimFSVGD, load, make
    from sombrl.algorithms.check import check_env
    from sombrl.envs.registry import make_envs
    from sombrl.records import AbstractTask, Prediction, RunFault, SombrlError, Transition
    from sombrl.settings import Discounted, FiniteHorizon, NonEpisodic, Unsupervised
    from sombrl.training.episodic import run

__version__ = "0.1.0"

compat.install()

__all__ = [
    "GPICEM",
    "MBPO",
    "SAC",
    "AbstractTask",
    "Agent",
    "Discounted",
    "Dreamer",
    "FiniteHorizon",
    "MaxInfoSAC",
    "NonEpisodic",
    "Prediction",
    "RunFault",
    "SimFSVGD",
    "SombrlError",
    "Transition",
    "Unsupervised",
    "check_env",
    "load",
    "make",
    "make_envs",
    "run",
]

_PLACES = {
    "sombrl.agent": ("GPICEM", "MBPO", "SAC", "Agent", "Dreamer", "MaxInfoSAC", "SimFSVGD", "load", "make"),
    "sombrl.algorithms.check": ("check_env",),
    "sombrl.envs.registry": ("make_envs",),
    "sombrl.records": ("AbstractTask", "Prediction", "RunFault", "SombrlError", "Transition"),
    "sombrl.settings": ("Discounted", "FiniteHorizon", "NonEpisodic", "Unsupervised"),
    "sombrl.training.episodic": ("run",),
}
"""Where each name is; imported when it is first asked for, because JAX takes seconds and many commands do without."""

if not TYPE_CHECKING:  # a type checker sees the imports above, and refuses other names

    def __getattr__(name: str) -> Any:
        for place, names in _PLACES.items():
            if name in names:
                globals()[name] = value = getattr(importlib.import_module(place), name)
                return value
        if not name.startswith("_") and importlib.util.find_spec(f"sombrl.{name}") is not None:
            return importlib.import_module(f"sombrl.{name}")
        raise AttributeError(f"module 'sombrl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
