"""One plan at a time: systems of any dimension, the optimum of an optimistic objective, and what a planner needs for it."""

from sombrl.paper.planning.optimum import Optimum, ascend, linear_bound
from sombrl.paper.planning.systems import SYSTEMS, Chain, ChainTask, Masses, Pendulums, imagined

__all__ = ["SYSTEMS", "Chain", "ChainTask", "Masses", "Optimum", "Pendulums", "ascend", "imagined", "linear_bound"]
