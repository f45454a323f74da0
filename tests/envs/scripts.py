"""Scripted solutions of the worlds made of pixels: what an agent that knows them would do."""

import numpy as np

from sombrl.envs.pixels.maze import SPEED

PATHS = {  # corners on the way, in cells from the left and from below
    "corridor": [(7.0, 0.8), (7.0, 3.8), (1.0, 3.8), (1.0, 7.2), (7.5, 7.5)],
    "key-door": [(2.5, 3.5), (2.5, 4.5), (0.5, 7.5), (2.5, 4.5), (2.5, 2.5), (4.5, 2.5), (4.5, 4.5), (7.5, 7.5)],
    "wall": [(-1.0, 1.5), (0.8, 1.5), (1.0, -1.0)],
}


def scripted(name):
    """A function from the scene's state to an action; make a new one for every episode."""
    if name == "mountain-car":
        return lambda state: np.array([1.0 if state[1] >= 0.0 or state[0] > 0.45 else -1.0])
    if name == "pendulum":
        return swing_up
    rest, stride = list(PATHS[name]), 0.2 if name == "wall" else SPEED

    def walk(state):
        while len(rest) > 1 and np.hypot(*(state[:2] - rest[0])) < 0.3:
            rest.pop(0)
        velocity = state[2:4] if name == "wall" else np.zeros(2)
        return np.clip((rest[0] - state[:2]) / stride - 10.0 * velocity, -1.0, 1.0)

    return walk


def swing_up(state):
    """More energy until it suffices, then a linear controller around the top."""
    theta, omega = state
    if np.cos(theta) > 0.9 and abs(omega) < 3.0:
        return np.clip([(-15.0 * theta - 3.0 * omega) / 2.0], -1.0, 1.0)
    energy = 0.5 * omega**2 + 15.0 * (np.cos(theta) - 1.0)  # 0 where it comes to rest upright
    return np.array([np.sign(omega or 1.0) * (1.0 if energy < 0.0 else -0.3)])
