"""Worlds that show pictures, in pure JAX: `pixel:mountain-car` and others, with a reward at the goal alone.

A picture has three channels. Red is what moves, now; green is the same one decision ago, so that velocities can be
seen; blue is what stands still: ground and walls, a key and its door, and brightest of all the goal.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key, UInt

from sombrl.envs.base import AbstractWorld
from sombrl.envs.layout import ObsLayout, Part
from sombrl.envs.pixels.canvas import Canvas
from sombrl.envs.pixels.maze import CORRIDOR, KEY_DOOR, MazeScene
from sombrl.envs.pixels.scene import AbstractScene
from sombrl.envs.pixels.vectors import MountainCarScene, PendulumScene, WallScene
from sombrl.errors import SombrlError

PREFIX = "pixel:"
SCENES: dict[str, AbstractScene] = {
    "mountain-car": MountainCarScene(),
    "pendulum": PendulumScene(),
    "corridor": MazeScene(CORRIDOR),
    "key-door": MazeScene(KEY_DOOR),
    "wall": WallScene(),
}
SIZES = (32, 64)


class Seen(NamedTuple):
    """States of the scene now and one decision ago."""

    now: Float[Array, " state"]
    before: Float[Array, " state"]


class PixelWorld(AbstractWorld):
    """A scene as square pictures. A decision that leads to the goal pays 1, every other one 0; no episode ends there.

    `size`: pixels of a side, 32 or 64.
    """

    scene: AbstractScene
    size: int = eqx.field(static=True)

    def __init__(self, name: str, size: int = 32):
        if isinstance(size, bool) or size not in SIZES:
            raise SombrlError(f"size must be {' or '.join(map(str, SIZES))}, not {size!r}.")
        self.scene = SCENES[name]
        self.size = size

    @property
    def obs_dim(self) -> int:  # type: ignore[override]  # a class variable in the contract; here it depends
        """Bytes of a picture."""
        return self.layout.length

    @property
    def action_dim(self) -> int:  # type: ignore[override]
        """The scene's."""
        return self.scene.action_dim

    @property
    def episode_frames(self) -> int:  # type: ignore[override]
        """The scene's decisions: each is a frame here."""
        return self.scene.decisions

    @property
    def layout(self) -> ObsLayout:
        """One image."""
        return ObsLayout((Part("image", (self.size, self.size, 3), "image"),))

    def reset(self, *, key: Key[Array, ""]) -> Seen:
        """The scene's start, where it has always been."""
        start = self.scene.reset(key=key)
        return Seen(start, start)

    def step(
        self, state: Seen, action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[Seen, Float[Array, ""], Bool[Array, ""]]:
        """One decision: several steps of the physics under the same action."""

        def once(now: Float[Array, " state"], key: Key[Array, ""]) -> tuple[Float[Array, " state"], None]:
            return self.scene.step(now, action, key=key), None

        now, _ = jax.lax.scan(once, state.now, jr.split(key, self.scene.frames))
        return Seen(now, state.now), self.scene.at_goal(now).astype(jnp.float32), jnp.zeros((), bool)

    def observe(self, state: Seen) -> UInt[Array, " obs"]:
        """The picture as a row of bytes."""
        return jnp.reshape(self.picture(state), -1)

    def picture(self, state: Seen) -> UInt[Array, "size size 3"]:
        """Now, one decision ago, and what stands still."""
        canvas = Canvas(self.size)
        moving = [self.scene.moving(where, canvas) for where in (state.now, state.before)]
        image = jnp.stack([*moving, self.scene.standing(state.now, canvas)], axis=-1)
        return jnp.round(255.0 * image).astype(jnp.uint8)

    def task(self, action_repeat: int) -> None:
        """Not known: the reward is not written on the picture."""

    def optimal_average(self) -> float | None:
        """1: at the goal one can stay."""
        return 1.0

    def draw(self, state: Seen, axes: Any) -> None:
        """The picture, as it is seen."""
        axes.imshow(np.asarray(self.picture(state)), interpolation="nearest")
        axes.set_axis_off()
