"""The RC car as a Gymnasium environment, `sombrl/RCCar-v0`: importing this file registers it.

It is bit-identical to the world of rc_car.py: `reset(seed=s)` starts episode 0 of seed s, as
`make_envs("rc-car", [s])` does, and every `reset()` after it the next episode of that seed.
"""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box

from sombrl.envs.interface import ENDLESS
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.rc_car import GOAL, RCCar
from sombrl.envs.rc_car_dynamics import DT
from sombrl.envs.rc_car_picture import draw_car, draw_field, draw_path
from sombrl.optional import require
from sombrl.records import SombrlError

ID = "sombrl/RCCar-v0"
# Nothing reaches these: the car does at most 6.5 m/s and, by its energy, 32 rad/s; a kilometre takes it minutes.
LARGEST = (1e3, 1e3, 1.0, 1.0, 20.0, 20.0, 50.0)
ON = np.ones(1, bool)


class RCCarEnv(gymnasium.Env):
    """`options` are those of `RCCar`. Pictures show the car from above and where it has been."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": round(1.0 / DT)}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **options: Any):
        if render_mode not in (None, "rgb_array"):
            raise SombrlError(f'render_mode must be "rgb_array" or None, not {render_mode!r}.')
        self.render_mode = render_mode
        self.world = RCCar(**options)
        bound = np.array(LARGEST + (1.0,) * (2 * self.world.delay), np.float32)
        self.observation_space = Box(-bound, bound, dtype=np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self._envs: JaxEnvs | None = None
        self._episode = 0
        self._seen: list[np.ndarray] = []
        cost = self.world.cost(1)
        self._cost = None if cost is None else jax.jit(cost.__call__)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The next episode, or the first of a new seed."""
        super().reset(seed=seed)
        if self._envs is None and seed is None:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            # Seeds are 31 bits here; Gymnasium's may be longer.
            self._envs = JaxEnvs(self.world, [seed % 2**31], name=ID, episode_length=ENDLESS)
            self._episode = 0
        else:
            self._episode += 1
        obs = self._running().reset(self._episode)[0]
        self._seen = [obs]
        return obs.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One frame; the time limit is the wrapper's."""
        action = np.asarray(action, np.float32)
        before = self._seen[-1] if self._seen else None
        step = self._running().step(action[None], ON)
        obs = step.obs[0]
        self._seen.append(obs)
        info = {} if self._cost is None else {"cost": float(self._cost(before, action, obs))}
        return obs.copy(), float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), info

    def render(self) -> np.ndarray | None:
        """The car from above with its path so far, uint8 [320, 480, 3]."""
        self._running()
        if self.render_mode is None:
            return None
        missing = "Drawing needs matplotlib; pip install 'sombrl[video]'."
        FigureCanvasAgg = require("matplotlib.backends.backend_agg", "matplotlib", missing).FigureCanvasAgg
        Figure = require("matplotlib.figure", "matplotlib", missing).Figure
        figure = Figure(figsize=(4.8, 3.2), dpi=100)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        seen = np.stack(self._seen)
        poses = np.column_stack([seen[:, :2], np.arctan2(seen[:, 2], seen[:, 3])])
        steer = float(seen[-1, 7]) * float(self.world.parameters.steering_limit) if self.world.delay else 0.0
        draw_field(axes, GOAL, poses=poses)
        draw_path(axes, poses)
        draw_car(axes, poses[-1], steer=steer)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _running(self) -> JaxEnvs:
        if self._envs is None:
            raise SombrlError(f"{ID} has not been started; call reset first.")
        return self._envs


if ID not in gymnasium.registry:
    gymnasium.register(ID, f"{__name__}:RCCarEnv", max_episode_steps=RCCar.episode_frames)
