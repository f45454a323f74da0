"""What a policy sees of the car, and what the task pays: one owner of the action stack, oldest action first."""

import numpy as np

from sombrl.hardware.backend import Observation, wrap

STACK = 3
"""Actions on their way to the car: 100 ms at 30 Hz. What is sent at t moves the car from t + 3 on."""
ACTION_DIM, OBS_DIM = 2, 7 + 2 * STACK
BOUND, TAIL, CONTROL_COST = 0.1, 9.0, 0.005


class ActionStack:
    """The last actions that the car was sent, unscaled, oldest first, and whether each is known for certain.

    They are kept nowhere else. `obs` at time t holds a(t-3), a(t-2), a(t-1): the action of t is pushed after
    the observation of t was encoded, and before that of t + 1 is.
    """

    def __init__(self) -> None:
        self._actions = np.zeros((STACK, ACTION_DIM))
        self._certain = np.ones(STACK, bool)

    def push(self, action: np.ndarray, certain: bool = True) -> None:
        """What was sent in the newest period; uncertain where it may have reached the car late or not at all."""
        self._actions[:-1], self._actions[-1] = self._actions[1:], action
        self._certain[:-1], self._certain[-1] = self._certain[1:], certain

    @property
    def certain(self) -> bool:
        """Whether all of them are."""
        return bool(self._certain.all())

    def flat(self) -> np.ndarray:
        """a(t-3), a(t-2), a(t-1) in one vector."""
        return self._actions.reshape(-1)


def encode(observation: Observation, stack: ActionStack) -> np.ndarray:
    """(x, y, sin θ, cos θ, vx, vy, ω, a(t-3), a(t-2), a(t-1)) in float32, as the model and the policy have it."""
    x, y, theta = observation.pose
    obs = np.empty(OBS_DIM, np.float32)
    obs[:4] = x, y, np.sin(theta), np.cos(theta)
    obs[4:7] = observation.twist
    obs[7:] = stack.flat()
    return obs


def distance(pose: np.ndarray) -> float:
    """D = √(x² + y² + θ²) from the goal pose, metres and radians alike."""
    return float(np.hypot(np.hypot(pose[0], pose[1]), wrap(float(pose[2]))))


def reward(next_pose: np.ndarray, driving_action: np.ndarray, margin_factor: float) -> float:
    """1 within D <= 0.1, then 1/(1 + 9 (D - 0.1)²/margin²), minus 0.005 ‖a(t-3)‖² of the action that drove the car."""
    beyond = max(distance(next_pose) - BOUND, 0.0) / (BOUND * margin_factor)
    return 1.0 / (1.0 + TAIL * beyond**2) - CONTROL_COST * float(np.sum(driving_action**2))
