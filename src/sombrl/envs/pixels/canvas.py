"""Shapes on a square picture, smooth at their edges, so that one that moves by less than a pixel looks different."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Place = Float[Array, ""] | float


class Canvas:
    """The centres of the pixels in the unit square: x grows to the right, y upwards."""

    def __init__(self, size: int):
        centres = (np.arange(size, dtype=np.float32) + 0.5) / size
        self.size = size
        self.x, self.y = np.broadcast_to(centres, (size, size)), np.broadcast_to(centres[::-1, None], (size, size))

    def disc(self, x: Place, y: Place, radius: float) -> Float[Array, "size size"]:
        """How much of every pixel a disc covers, about."""
        return self._inside(radius - jnp.hypot(self.x - x, self.y - y))

    def rod(self, start: tuple[float, float], x: Place, y: Place, radius: float) -> Float[Array, "size size"]:
        """A line from `start` to (x, y), with round ends, twice `radius` wide."""
        dx, dy = x - start[0], y - start[1]
        along = ((self.x - start[0]) * dx + (self.y - start[1]) * dy) / jnp.maximum(dx**2 + dy**2, 1e-6)
        part = jnp.clip(along, 0.0, 1.0)
        return self._inside(radius - jnp.hypot(self.x - start[0] - part * dx, self.y - start[1] - part * dy))

    def below(self, height: Float[Array, "size size"]) -> Float[Array, "size size"]:
        """What lies under a curve, which has a height for every column."""
        return self._inside(height - self.y)

    def box(self, left: float, right: float, bottom: float, top: float) -> np.ndarray:
        """A rectangle."""
        inside = (self.x > left) & (self.x < right) & (self.y > bottom) & (self.y < top)
        return inside.astype(np.float32)

    def _inside(self, depth: Float[Array, "size size"]) -> Float[Array, "size size"]:
        return jnp.clip(0.5 + depth * self.size, 0.0, 1.0)
