"""sombrl: optimistic model-based reinforcement learning.

Learn a model that knows what it does not know, then plan greedily for r + λ‖σ‖ under its mean.
"""

import os

# Before JAX loads it: OpenBLAS threads spin, and on a busy machine a Cholesky then takes many times longer.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from sombrl import compat
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
