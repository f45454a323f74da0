"""Back to the start, by a policy that can park: the start pose is its goal, in a frame that is moved there."""

from collections.abc import Callable

import numpy as np

from sombrl.hardware.backend import START, Observation, wrap
from sombrl.hardware.control_loop import Policy

MOST = 0.6  # of steering and throttle, on the way home
STEPS = 200  # it has so many actions


def drive_home(policy: Policy, start: tuple[float, float, float] = START) -> Policy:
    """The policy, seeing the start pose where it was taught to park."""
    s, c = np.sin(start[2]), np.cos(start[2])
    turn = np.array([[c, s], [-s, c]])  # by -θ of the start

    def act(obs: np.ndarray) -> np.ndarray:
        seen = obs.copy()
        seen[:2] = turn @ (obs[:2] - np.array(start[:2]))
        seen[2:4] = obs[2] * c - obs[3] * s, obs[3] * c + obs[2] * s  # sin and cos of θ - θ of the start
        seen[4:6] = turn @ obs[4:6]
        return np.clip(policy(seen), -MOST, MOST)

    return act


def is_home(away: float = 0.2, turned: float = 0.4, start: tuple[float, float, float] = START) -> Callable:
    """Whether a frame is within so many metres and radians of the start, and hardly moving."""

    def home(frame: Observation) -> bool:
        near = np.hypot(frame.pose[0] - start[0], frame.pose[1] - start[1]) < away
        return bool(near and abs(wrap(float(frame.pose[2]) - start[2])) < turned and np.hypot(*frame.twist[:2]) < 0.3)

    return home
