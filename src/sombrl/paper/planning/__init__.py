"""One plan at a time: systems of any dimension, and the best plan for an optimistic objective."""

from sombrl.paper.planning.optimum import Optimum, ascend, linear_bound
from sombrl.paper.planning.systems import SIGMA, SYSTEMS, Chain, ChainTask, Masses, Pendulums, imagined

__all__ = [
    "SIGMA",
    "SYSTEMS",
    "Chain",
    "ChainTask",
    "Masses",
    "Optimum",
    "Pendulums",
    "ascend",
    "imagined",
    "linear_bound",
]
