"""An environment of your own: any Gymnasium class with Box spaces, its reward and end learned from data.

python examples/own_environment.py [--quick]
sombrl train gp-icem --env examples.own_environment:Parking-v0 --episodes 8     # the same, as a run on disk
"""

import argparse

import gymnasium
import numpy as np

import sombrl
from sombrl.envs.check import check_env


class Parking(gymnasium.Env):
    """A cart starts at x = -1. Only standing in the bay at x = 1 pays; pushing costs a little."""

    observation_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        """Somewhere near -1, at rest."""
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-1.1, -0.9), 0.0], np.float32)
        return self.state.copy(), {}

    def step(self, action):
        """A tenth of a second or so, with friction."""
        force = float(action[0])
        speed = 0.9 * self.state[1] + 0.1 * force
        self.state = np.array([np.clip(self.state[0] + 0.3 * speed, -2.0, 2.0), speed], np.float32)
        parked = abs(self.state[0] - 1.0) < 0.2
        return self.state.copy(), float(parked) - 0.1 * force**2, False, False, {}


gymnasium.register("Parking-v0", Parking, max_episode_steps=40)

QUICK = {
    "episode_length": 10,
    "gp": {"capacity": 64, "rank": 16, "fit_steps": 5, "fit_points": 32},
    "icem": {"num_samples": 20, "num_elites": 4, "iterations": 2, "horizon": 5},
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute")
    quick = parser.parse_args().quick
    for finding in check_env("Parking-v0"):
        print(f"{finding.level:<8} {finding.sentence}")
    agent = sombrl.GPICEM("Parking-v0", explore="optimistic", seed=0, **(QUICK if quick else {}))
    agent.learn(20 if quick else 400, progress=True)
    print("returns of three new episodes:", agent.evaluate(3).ravel().round(1))
