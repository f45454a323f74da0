"""A user's environment, as small as they come, with a switch for every way to be wrong."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class Tiny(gymnasium.Env):
    """Adds (clipped) actions up; noise from np_random; ends beyond `goal`. Observation [2, 2], float64."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, goal=1e9, fault=None, noise=0.1, obs_space=None, action_space=None, render_mode=None):
        self.observation_space = obs_space or Box(-np.inf, np.inf, (2, 2), np.float64)
        self.action_space = action_space or Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 4.0], np.float32))
        self.goal, self.fault, self.noise, self.render_mode = goal, fault, noise, render_mode
        self.taken: list[np.ndarray] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        rng = np.random.default_rng() if self.fault == "unseeded" else self.np_random
        self.state, self.steps = rng.normal(size=(2, 2)), 0
        return (self.state, {}) if self.fault != "old reset" else self.state

    def step(self, action):
        self.taken.append(action)
        self.steps += 1
        rng = np.random.default_rng() if self.fault == "random steps" else self.np_random
        self.state = self.state + action + self.noise * rng.normal(size=(2, 2))
        obs = self.state
        reward = float(action.sum())
        if self.steps == 3:
            if self.fault == "nan observation":
                obs = np.array([[0.0, np.nan], [0.0, 0.0]])
            if self.fault == "inf reward":
                reward = np.inf
            if self.fault == "no reward":
                reward = None
            if self.fault == "raises":
                raise ValueError("the arm\nfell off")
            if self.fault == "wrong shape":
                obs = np.zeros(3)
        terminated = bool(self.state[0, 0] > self.goal)
        if self.fault == "int flag":
            terminated = int(terminated)
        if self.fault == "old step":
            return obs, reward, terminated, {}
        return obs, reward, terminated, False, {}

    def render(self):
        return np.zeros((4, 6, 3), np.uint8)


class Gallery(gymnasium.Env):
    """A random walk seen in three ways at once: a picture, a vector, and which third of the line it is in.

    Actions 5, 6, 7 add -1, 0, 1. The picture is uint8 [2, 3, 3], a count of bytes that is not a multiple of four.
    """

    observation_space = Dict(
        walk=Box(-np.inf, np.inf, (2,), np.float64), place=Discrete(3, start=-1), frame=Box(0, 255, (2, 3, 3), np.uint8)
    )
    action_space = Discrete(3, start=5)

    def __init__(self, fault=None):
        self.fault, self.taken = fault, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=2)
        return self.see(), {}

    def step(self, action):
        self.taken.append(action)
        self.state = self.state + (int(action) - 6) + 0.1 * self.np_random.normal(size=2)
        obs = self.see()
        if self.fault == "nan":
            obs["walk"] = np.array([0.0, np.nan])
        if self.fault == "float image":
            obs["frame"] = obs["frame"] / 255
        if self.fault == "no place":
            del obs["place"]
        if self.fault == "off the line":
            obs["place"] = 2
        return obs, float(self.state[0]), False, False, {}

    def see(self):
        frame = (np.arange(18) * (1 + np.abs(self.state[0]))).astype(np.uint8).reshape(2, 3, 3)
        return {"frame": frame, "walk": self.state, "place": np.int64(np.clip(np.rint(self.state[0]), -1, 1))}


if "sombrl-tests/Tiny-v0" not in gymnasium.registry:
    gymnasium.register("sombrl-tests/Tiny-v0", Tiny, max_episode_steps=7)
    gymnasium.register("sombrl-tests/Endless-v0", Tiny)
    gymnasium.register("sombrl-tests/Broken-v0", "no_such_package:Env", max_episode_steps=5)
