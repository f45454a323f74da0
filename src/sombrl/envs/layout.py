"""What an observation is made of (images, vectors, discrete values), and how it lies in a flat row. Free of JAX."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

Kind = Literal["image", "vector", "discrete"]


@dataclasses.dataclass(frozen=True)
class Part:
    """An image is uint8 [height, width, channels], a vector float32 [n], a discrete value one of `size` integers."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    size: int | None = None  # of a discrete part: how many values

    @property
    def dtype(self) -> np.dtype:
        """The type of its numbers."""
        return np.dtype({"image": np.uint8, "vector": np.float32, "discrete": np.int32}[self.kind])


@dataclasses.dataclass(frozen=True)
class ObsLayout:
    """Parts in the order of their names, one after the other in a row.

    Vectors alone make a row of float32. With anything else the row is of bytes: those of the images, and those of
    the floats and the integers as they lie in memory, so that nothing is rounded and an image stays small.
    """

    parts: tuple[Part, ...]

    def __post_init__(self):
        """Sort the parts."""
        object.__setattr__(self, "parts", tuple(sorted(self.parts, key=lambda part: part.name)))

    @property
    def dtype(self) -> np.dtype:
        """The type of a row: float32 or uint8."""
        return np.dtype(np.float32 if all(part.kind == "vector" for part in self.parts) else np.uint8)

    @property
    def length(self) -> int:
        """The numbers in a row."""
        return sum(self._length(part) for part in self.parts)

    def flatten(self, obs: Mapping[str, Any]) -> np.ndarray:
        """One array per part, each [..., *shape], as rows [..., length]."""
        rows = []
        for part in self.parts:
            array = np.asarray(obs[part.name], part.dtype)
            lead = array.shape[: array.ndim - len(part.shape)]
            flat = np.ascontiguousarray(array.reshape((*lead, -1)))
            rows.append(flat.view(self.dtype))
        return np.concatenate(rows, axis=-1)

    def split(self, flat: Any) -> dict[str, Any]:
        """The inverse of `flatten`, of rows in NumPy or JAX (also inside a compiled function)."""
        parts, start = {}, 0
        for part in self.parts:
            end = start + self._length(part)
            numbers = flat[..., start:end].view(part.dtype)
            parts[part.name], start = numbers.reshape((*flat.shape[:-1], *part.shape)), end
        return parts

    def _length(self, part: Part) -> int:
        return math.prod(part.shape) * part.dtype.itemsize // self.dtype.itemsize


def one_vector(size: int) -> ObsLayout:
    """An observation that is a single vector."""
    return ObsLayout((Part("obs", (size,), "vector"),))
