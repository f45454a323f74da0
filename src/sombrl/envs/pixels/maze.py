"""Rooms from above: a point walks between walls, perhaps to a key first and through the door that it opens."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.envs.pixels.canvas import Canvas
from sombrl.envs.pixels.scene import GOAL, GROUND, MARK, AbstractScene

SPEED = 0.5  # cells in a decision, in each direction: less than one, so that no wall is jumped over
REACH, KEY_REACH = 1.0, 0.75  # cells from the goal, and from the key
SPREAD = 0.25  # of the start

CORRIDOR = (
    ".......G",
    "........",
    "..######",
    "........",
    "........",
    "######..",
    "........",
    "S.......",
)
KEY_DOOR = (
    "K..#...G",
    "...#....",
    "...#....",
    "##.#.###",
    "...#....",
    "...D....",
    "...#....",
    "S..#....",
)
"""A square of cells: # wall, S start, G goal, K key, D the door."""


class MazeScene(AbstractScene):
    """State (x, y, key): cells from the left and from below, and 1 with the key in hand. The two actions are steps."""

    action_dim: ClassVar[int] = 2
    frames: ClassVar[int] = 1
    decisions: ClassVar[int] = 100

    rows: tuple[str, ...] = eqx.field(static=True)

    def reset(self, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """Around the start."""
        spread = jr.uniform(key, (2,), jnp.float32, -SPREAD, SPREAD)
        return jnp.concatenate([jnp.asarray(self.place("S"), jnp.float32) + spread, jnp.zeros(1, jnp.float32)])

    def step(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """A step to the side, then one up or down; what a wall is in the way of is left out."""
        del key
        move = SPEED * jnp.clip(action, -1.0, 1.0)
        x, y, held = state[0], state[1], state[2]
        aside = x + move[0]
        x = jnp.where(self._free(aside, y, held), aside, x)
        ahead = y + move[1]
        y = jnp.where(self._free(x, ahead, held), ahead, y)
        if "K" in "".join(self.rows):
            held = jnp.where(self._near("K", x, y, KEY_REACH), 1.0, held)
        return jnp.stack([x, y, held])

    def at_goal(self, state: Float[Array, " state"]) -> Bool[Array, ""]:
        """Within a cell of it."""
        return self._near("G", state[0], state[1], REACH)

    def moving(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """The point."""
        cells = len(self.rows)
        return canvas.disc(state[0] / cells, state[1] / cells, 0.55 / cells)

    def standing(self, state: Float[Array, " state"], canvas: Canvas) -> Float[Array, "size size"]:
        """Walls and the goal; the key and the door until the key is taken."""
        at = (canvas.x * len(self.rows)).astype(int), (canvas.y * len(self.rows)).astype(int)
        fixed = np.maximum(GROUND * self._cells("#")[at], GOAL * self._cells("G")[at])
        shut = MARK * np.maximum(self._cells("K")[at], self._cells("D")[at])
        return jnp.maximum(jnp.asarray(fixed, jnp.float32), jnp.where(state[2] > 0.0, 0.0, shut.astype(np.float32)))

    def place(self, what: str) -> tuple[float, float]:
        """The centre of a cell."""
        x, y = np.argwhere(self._cells(what))[0]
        return float(x) + 0.5, float(y) + 0.5

    def _cells(self, what: str) -> np.ndarray:
        """[x, y]: whether a cell is this."""
        return np.array([[cell == what for cell in row] for row in self.rows[::-1]]).T

    def _near(self, what: str, x: Float[Array, ""], y: Float[Array, ""], reach: float) -> Bool[Array, ""]:
        at_x, at_y = self.place(what)
        return jnp.hypot(x - at_x, y - at_y) <= reach

    def _free(self, x: Float[Array, ""], y: Float[Array, ""], held: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether the point can be there."""
        cells = len(self.rows)
        inside = (x >= 0.0) & (x < cells) & (y >= 0.0) & (y < cells)
        at = jnp.clip(jnp.floor(x), 0, cells - 1).astype(int), jnp.clip(jnp.floor(y), 0, cells - 1).astype(int)
        shut = jnp.asarray(self._cells("D"))[at] & (held <= 0.0)
        return inside & ~jnp.asarray(self._cells("#"))[at] & ~shut
