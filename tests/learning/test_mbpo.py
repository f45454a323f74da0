"""Optimism finds the goal of MountainCar, which random actions do not: a quarter of an hour, `make test-slow`."""

import numpy as np
import pytest

from sombrl.agent.make import make

pytestmark = pytest.mark.slow


def test_mountain_car_is_solved():
    """results/mbpo-state has five seeds, and 0 for all of greedy's and PETS's."""
    agent = make("mbpo", "MountainCarContinuous-v0", explore="optimistic", decisions=15_000)
    found = []

    def solved(agent, report):
        found.append(float(np.median(agent.evaluate(3)[:, 0])) if report.iteration % 4 == 3 else -np.inf)
        return max(found) < 90  # False stops

    agent.learn(15_000, callback=solved)
    assert max(found) >= 90, found
