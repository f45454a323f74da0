"""Dreamer learns to walk a point to a target, from numbers and from pixels: minutes, `make test-slow`."""

import functools

import gymnasium
import numpy as np
import pytest

import sombrl

pytestmark = pytest.mark.slow

LENGTH = 20


class Reach(gymnasium.Env):
    """A point anywhere on a line and a target, which is anywhere too, but in the middle of pictures; the reward is 1
    minus their distance."""

    def __init__(self, pixels: bool = False):
        self.pixels = pixels
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = (
            gymnasium.spaces.Box(0, 255, (48, 48, 1), np.uint8)
            if pixels
            else gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.point, self.target = self.np_random.uniform(-1.0, 1.0, 2)
        if self.pixels:
            self.target = 0.0
        return self._obs(), {}

    def step(self, action):
        self.point = float(np.clip(self.point + 0.3 * float(action[0]), -1.0, 1.0))
        return self._obs(), 1.0 - abs(self.point - self.target), False, False, {}

    def _obs(self):
        if not self.pixels:
            return np.array([self.point, self.target], np.float32)
        image = np.zeros((48, 48, 1), np.uint8)
        row = round(16 * (self.point + 1.0))
        image[row : row + 16, 8:40] = 255
        return image


SETTINGS = {
    "size": "tiny",
    "envs": 4,
    "batch_size": 8,
    "batch_length": 16,
    "horizon": 8,
    "ratio": 64.0,
    "learning_rate": 1e-3,
    "warmup": 100,
    "capacity": 20_000,
    "report_every": 4 * (LENGTH + 1) * 10,
    "episode_length": LENGTH,
}


def late_return(pixels: bool, decisions: int, **settings) -> float:
    """Of the training episodes of the last report."""
    agent = sombrl.make("dreamer", functools.partial(Reach, pixels), decisions=decisions, **(SETTINGS | settings))
    *_, last = agent.iterations(agent.planned_iterations)
    return float(last.returns[0])


@pytest.mark.parametrize("explore", ["greedy", "optimistic"])
def test_from_numbers(explore):
    """Random actions have about 6, keeping still 6.7, walking straight there about 18."""
    assert late_return(False, 5000, explore=explore, hidden=(32, 32), bonus_weight=0.2, schedule="constant") > 14


def test_from_pixels():
    """Keeping still has about 10, walking straight there about 19; always up or down 1."""
    assert late_return(True, 2520, explore="greedy") > 14
