"""Planners and policy optimisers: what chooses actions for an imagined MDP."""

from sombrl.controllers.base import AbstractController
from sombrl.controllers.icem import ICEM, PRESETS, ICEMConfig, ICEMState, cem
from sombrl.controllers.mppi import MPPI, MPPIConfig, MPPIState
from sombrl.controllers.noise import coloured_noise
from sombrl.controllers.sac import SAC, SACState
from sombrl.controllers.sac_config import MODEL_FREE, SACConfig

__all__ = [
    "ICEM",
    "MODEL_FREE",
    "MPPI",
    "PRESETS",
    "SAC",
    "AbstractController",
    "ICEMConfig",
    "ICEMState",
    "MPPIConfig",
    "MPPIState",
    "SACConfig",
    "SACState",
    "cem",
    "coloured_noise",
]
