"""A function of the observation as a policy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sombrl.errors import SombrlError
from sombrl.records import Transition
from sombrl.training.base import Policy

Function = Callable[[np.ndarray], Any]
"""One observation → one action in [-1, 1]."""


class FunctionPolicy(Policy):
    """Calls the function for every row."""

    mode = "task"

    def __init__(self, function: Function, action_dim: int):
        self._function, self._action_dim = function, action_dim

    def begin(self, copies: int = 1, *, stream: int | None = None) -> None:
        """It remembers nothing."""

    def act(self, memory: None, obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, None]:
        """The function's actions."""
        actions = [np.asarray(self._function(row.copy()), np.float32) for row in obs]
        for action in actions:
            if action.size != self._action_dim or not np.isfinite(action).all():
                raise SombrlError(
                    f"a policy must give {self._action_dim} finite number{'s' * (self._action_dim > 1)} in [-1, 1] for "
                    f"an observation, not {action.tolist()}."
                )
        return np.stack([action.reshape(self._action_dim) for action in actions]), None

    def assess(self, rows: Transition, valid: np.ndarray) -> dict[str, np.ndarray]:
        """Refused: a function has no model."""
        raise SombrlError("a function has no model to judge transitions by: ask the trained policy.")

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """Summed as a planner's are."""
        return np.asarray(rewards.sum(axis=1))
