"""The worlds made of pixels as Gymnasium environments, `sombrl/PixelCorridor-v0` and others: importing this file
registers them.

They are bit-identical to those of `make_envs`: `reset(seed=s)` starts episode 0 of seed s, as
`make_envs("pixel:corridor", [s])` does, and every `reset()` after it the next episode of that seed.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from sombrl.envs.interface import ENDLESS
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.pixels.world import PREFIX, SCENES, PixelWorld
from sombrl.records import SombrlError

IDS = {name: f"sombrl/Pixel{''.join(map(str.capitalize, name.split('-')))}-v0" for name in SCENES}
ENLARGED = 320  # pixels of a side of the films, about
ON = np.ones(1, bool)


class PixelEnv(gymnasium.Env):
    """A world by its name without `pixel:`; `options` are those of `PixelWorld`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, name: str, render_mode: str | None = None, **options: Any):
        if render_mode not in (None, "rgb_array"):
            raise SombrlError(f'render_mode must be "rgb_array" or None, not {render_mode!r}.')
        self.render_mode = render_mode
        self.world, self._name = PixelWorld(name, **options), f"{PREFIX}{name}"
        self._shape = self.world.layout.parts[0].shape
        self.observation_space = Box(0, 255, self._shape, np.uint8)
        self.action_space = Box(-1.0, 1.0, (self.world.action_dim,), np.float32)
        self._envs: JaxEnvs | None = None
        self._episode = 0
        self._seen: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The next episode, or the first of a new seed."""
        super().reset(seed=seed)
        if self._envs is None and seed is None:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            # Seeds are 31 bits here; Gymnasium's may be longer.
            self._envs = JaxEnvs(self.world, [seed % 2**31], name=self._name, episode_length=ENDLESS)
            self._episode = 0
        else:
            self._episode += 1
        self._seen = self._running().reset(self._episode)[0].reshape(self._shape)
        return self._seen.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One decision; the time limit is the wrapper's."""
        step = self._running().step(np.asarray(action, np.float32)[None], ON)
        self._seen = step.obs[0].reshape(self._shape)
        return self._seen.copy(), float(step.reward[0]), False, bool(step.truncated[0]), {}

    def render(self) -> np.ndarray | None:
        """What is seen, with larger pixels."""
        self._running()
        if self.render_mode is None or self._seen is None:
            return None
        block = np.ones((ENLARGED // self._shape[0],) * 2 + (1,), np.uint8)
        return np.kron(self._seen, block)

    def _running(self) -> JaxEnvs:
        if self._envs is None:
            raise SombrlError(f"{self._name} has not been started; call reset first.")
        return self._envs


for _name, _id in IDS.items():
    if _id not in gymnasium.registry:
        _decisions = SCENES[_name].decisions
        gymnasium.register(_id, f"{__name__}:PixelEnv", max_episode_steps=_decisions, kwargs={"name": _name})
