"""The Python API, with the verbs people know: learn, predict, evaluate, save, load."""

from sombrl.agent.agent import Agent, PredictState
from sombrl.agent.constructors import GPICEM, MBPO, SAC, Dreamer, MaxInfoSAC, SimFSVGD
from sombrl.agent.make import load, make

__all__ = [
    "GPICEM",
    "MBPO",
    "SAC",
    "Agent",
    "Dreamer",
    "MaxInfoSAC",
    "PredictState",
    "SimFSVGD",
    "load",
    "make",
]
