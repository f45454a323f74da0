"""Planners and policy optimisers: what chooses actions for an imagined MDP."""

from sombrl.controllers.base import AbstractController
from sombrl.controllers.icem import ICEM, PRESETS, ICEMConfig, ICEMState, cem
from sombrl.controllers.mppi import MPPI, MPPIConfig, MPPIState
from sombrl.controllers.noise import coloured_noise

__all__ = [
    "ICEM",
    "MPPI",
    "PRESETS",
    "AbstractController",
    "ICEMConfig",
    "ICEMState",
    "MPPIConfig",
    "MPPIState",
    "cem",
    "coloured_noise",
]
