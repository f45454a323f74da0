"""The Python API, with the verbs people know: learn, predict, evaluate, save, load."""

from sombrl.agent.agent import Agent, PredictState
from sombrl.agent.make import GPICEM, MBPO, SAC, Dreamer, MaxInfoSAC, load, make

__all__ = ["GPICEM", "MBPO", "SAC", "Agent", "Dreamer", "MaxInfoSAC", "PredictState", "load", "make"]
