"""Learning runs on two cores, minutes each: `make test-slow`. The claims with more seeds are under results/."""

import numpy as np
import pytest

import sombrl

pytestmark = pytest.mark.slow


def returns_of(agent, decisions):
    returns = []
    agent.learn(decisions, callback=lambda agent, report: returns.append(report.chunk.returns))
    return np.array(returns)  # [episodes, seeds]


def test_pendulum_swings_up_with_the_default_settings():
    agent = sombrl.GPICEM("Pendulum-v1", explore="optimistic", seeds=3)
    returns = returns_of(agent, 8 * 200)
    assert np.median(returns[-2:]) >= -300
    assert np.median(agent.evaluate(2)) >= -300


def test_the_car_finds_the_hill_without_ever_being_reset():
    settings = {
        "action_repeat": 5,
        "setting": "non-episodic",
        "gp": {"rank": 64, "fit_points": 128, "fit_steps": 40},
        "icem": {"horizon": 30},
        "seeds": 3,
    }
    optimistic = returns_of(sombrl.GPICEM("mountain-car", explore="optimistic", **settings), 200)
    greedy = returns_of(sombrl.GPICEM("mountain-car", explore="greedy", **settings), 200)
    assert np.median(optimistic[-5:]) > 4000  # of 5000 a chunk: it stays there
    assert np.all(greedy <= 0)
