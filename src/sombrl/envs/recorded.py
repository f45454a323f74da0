"""Recorded actions, in an environment's own units, as sombrl has them."""

import numpy as np

from sombrl.envs.interface import AbstractEnvs
from sombrl.errors import SombrlError

BEYOND = 1e-4  # of half the range: so far outside its bounds an action may lie, by rounding


def unit_actions(action: np.ndarray, envs: AbstractEnvs, what: str) -> np.ndarray:
    """Actions, [rows, action], rescaled from the environment's bounds to [-1, 1]; `what` holds them, in a sentence."""
    size = envs.spec.action_dim
    sides = envs.physical(np.stack([-np.ones(size, np.float32), np.ones(size, np.float32)]))
    low, high = sides.reshape(2, -1).astype(np.float64)
    unit = 2.0 * (action.astype(np.float64) - low) / (high - low) - 1.0
    if not np.all(np.abs(unit) <= 1.0 + BEYOND):
        raise SombrlError(f"{what} has actions beyond the bounds of {envs.spec.name}: give data of that environment.")
    return np.asarray(np.clip(unit, -1.0, 1.0), np.float32)
