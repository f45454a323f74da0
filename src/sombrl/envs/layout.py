"""The parts of an observation (images, vectors, discrete values) and their layout in a flat row. Free of JAX."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sombrl.errors import SombrlError

Kind = Literal["image", "vector", "discrete"]


@dataclasses.dataclass(frozen=True)
class Part:
    """An image is uint8 [height, width, channels], a vector float32 [n], a discrete value one of `size` integers."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    size: int | None = None  # of a discrete part: how many values
    start: int = 0  # of a discrete part: what the environment calls the first of them
    given: tuple[int, ...] | None = None  # the shape in which the environment gives it, where that is another

    @property
    def dtype(self) -> np.dtype:
        """The type of its numbers."""
        return np.dtype({"image": np.uint8, "vector": np.float32, "discrete": np.int32}[self.kind])

    @property
    def words(self) -> str:
        """What an environment gives, in words."""
        if self.kind == "discrete":
            return f"one of the integers {self.start} to {self.start + (self.size or 1) - 1}"
        if self.kind == "image":
            return f"an image of uint8, shape {self.given or self.shape}"
        count = self.shape[0]
        return f"{count} number{'s' * (count != 1)}" + ("" if self.given is None else f", shape {self.given}")

    def read(self, value: Any, what: str) -> np.ndarray:
        """What an environment gives, one or a batch in any shape, with the numbers that training has."""
        try:
            with np.errstate(over="ignore"):  # an infinity is reported below
                array = np.asarray(value, np.float32 if self.kind == "vector" else None)
        except (TypeError, ValueError):
            raise SombrlError(f"{what} is {self.words}, not a {type(value).__name__}.") from None
        if self.kind == "vector":
            wrong = ~np.isfinite(array)
        elif array.dtype.kind not in "iu" or (self.kind == "image" and array.dtype != np.uint8):
            raise SombrlError(f"{what} is {self.words}, not of {array.dtype}.")
        elif self.kind == "image":
            return array
        else:
            array = np.asarray(array.astype(np.int64) - self.start)
            wrong = (array < 0) | (array >= (self.size or 1))
        if wrong.any():
            raise SombrlError(f"{what} is {self.words}, not {array[wrong][0] + self.start}.")
        return np.asarray(array, self.dtype)

    def counted(self, values: np.ndarray) -> np.ndarray:
        """Discrete values as the environment counts them; anything else as it is."""
        return values + values.dtype.type(self.start) if self.start else values

    def leads(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The axes that `shape` may have before those of one observation: none, or one, of a batch; likeliest first."""
        own, count = self.shape if self.given is None else self.given, math.prod(self.shape)
        batch = shape != () and (shape[1:] == own or (len(shape) > 1 and math.prod(shape[1:]) == count))
        found = [()] * (shape == own) + [shape[:1]] * batch + [()] * (math.prod(shape) == count)
        return list(dict.fromkeys(found))


@dataclasses.dataclass(frozen=True)
class ObsLayout:
    """Parts in the order of their names, one after the other in a row.

    Vectors alone make a row of float32. With anything else the row is of bytes: those of the images, and those of
    the floats and the integers as they lie in memory, so that nothing is rounded and an image stays small.
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
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

    def rows(self, observation: Any) -> tuple[np.ndarray, bool]:
        """What an environment gives as rows [batch, length], and whether it was a single observation.

        One or a batch: a dict of the parts, the only part by itself, or rows as they are.
        """
        if not isinstance(observation, Mapping):
            if len(self.parts) > 1:
                return self._as_rows(observation)
            observation = {self.parts[0].name: observation}
        read, leads = {}, []
        for part in self.parts:
            if part.name not in observation:
                raise SombrlError(f"{self._words}: {part.name!r} is missing.")
            what = "an observation" if len(self.parts) == 1 else f"the observation {part.name!r}"
            read[part.name] = part.read(observation[part.name], what)
            leads.append(part.leads(read[part.name].shape))
            if not leads[-1]:
                shape = read[part.name].shape
                raise SombrlError(f"{what} is {part.words}, or a batch of such, not an array of shape {shape}.")
        common = [lead for lead in leads[0] if all(lead in others for others in leads)]
        if not common:
            shapes = ", ".join(f"{name!r} {array.shape}" for name, array in read.items())
            raise SombrlError(f"{self._words}, all of them one or all batches of the same size, not {shapes}.")
        obs = {part.name: read[part.name].reshape((*common[0], *part.shape)) for part in self.parts}
        return self.flatten(obs).reshape(-1, self.length), common[0] == ()

    def _as_rows(self, observation: Any) -> tuple[np.ndarray, bool]:
        array = np.asarray(observation)
        kinds = "fiub" if self.dtype == np.float32 else "u"
        if array.ndim not in (1, 2) or array.shape[-1] != self.length or array.dtype.kind not in kinds:
            raise SombrlError(f"{self._words}, not an array of {array.dtype} {array.shape}.")
        return array.astype(self.dtype).reshape(-1, self.length), array.ndim == 1

    @property
    def _words(self) -> str:
        return "an observation is a dict of " + " and ".join(f"{part.name!r} ({part.words})" for part in self.parts)

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
