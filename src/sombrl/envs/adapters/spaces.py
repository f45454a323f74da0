"""The Gymnasium spaces that sombrl supports, and the conversion of actions and observations."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from sombrl.envs.layout import ObsLayout, Part
from sombrl.errors import SombrlError

ActionSpace = Box | Discrete


def check_spaces(env: gymnasium.Env, name: str) -> tuple[ObsLayout, ActionSpace]:
    """The layout of an observation and the space of actions; other spaces are refused."""
    return _layout(env.observation_space, name), _action_space(env.action_space, name)


def _layout(space: gymnasium.Space[Any], name: str) -> ObsLayout:
    if isinstance(space, Tuple):
        raise SombrlError(
            f"{name}: the observation space is Tuple; make it a Dict, or wrap it in "
            "gymnasium.wrappers.FlattenObservation."
        )
    if not isinstance(space, Dict):
        is_image = isinstance(space, Box) and space.dtype == np.uint8
        return ObsLayout((_part(space, "image" if is_image else "obs", f"{name}: the observation space"),))
    if not space.spaces:
        raise SombrlError(f"{name}: the observation space is Dict, which is empty; give at least one entry.")
    return ObsLayout(tuple(_part(one, key, f"{name}: the observation {key!r}") for key, one in space.spaces.items()))


def _part(space: gymnasium.Space[Any], key: str, what: str) -> Part:
    kind = _describe(space)
    if isinstance(space, Discrete):
        return Part(key, (), "discrete", int(space.n), int(space.start))
    if not isinstance(space, Box):
        raise SombrlError(f"{what} is {kind}; sombrl needs a Box of numbers, a Discrete, or a flat Dict of those.")
    shape, count = tuple(space.shape), int(np.prod(space.shape))
    if count == 0:
        raise SombrlError(f"{what} is {kind}, which is empty; give at least one number.")
    if space.dtype == np.uint8:
        image = _image_shape(shape, f"{what} is {kind}")
        return Part(key, image, "image", given=None if shape == image else shape)
    if len(shape) == 3:
        raise SombrlError(f"{what} is {kind}, which looks like images; give those as uint8 from 0 to 255.")
    return Part(key, (count,), "vector", given=None if shape == (count,) else shape)


def _image_shape(shape: tuple[int, ...], what: str) -> tuple[int, int, int]:
    """Height, width and channels; a plain picture is grey."""
    if len(shape) == 2:
        return (*shape, 1)
    if len(shape) != 3:
        raise SombrlError(f"{what}; sombrl reads images as [height, width, channels], and numbers as floats.")
    if shape[0] <= 4 < shape[2]:
        raise SombrlError(
            f"{what}, channels first; sombrl reads images as [height, width, channels], so move the axis with "
            "gymnasium.wrappers.TransformObservation."
        )
    return shape


def _action_space(space: gymnasium.Space[Any], name: str) -> ActionSpace:
    kind = _describe(space)
    if isinstance(space, Discrete):
        return space
    if isinstance(space, MultiDiscrete | MultiBinary):
        raise SombrlError(
            f"{name}: the action space is {kind}; sombrl needs a Box or a Discrete: number the combinations."
        )
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise SombrlError(f"{name}: the action space is {kind}; sombrl needs a Box of floats, or a Discrete.")
    if int(np.prod(space.shape)) == 0:
        raise SombrlError(f"{name}: the action space is {kind}, which is empty; give at least one number.")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SombrlError(
            f"{name}: the action space is {kind} with infinite bounds; wrap it in "
            "gymnasium.wrappers.RescaleAction or declare finite ones."
        )
    return space


def _describe(space: gymnasium.Space[Any]) -> str:
    """The space in a few words: printing one can take pages."""
    if isinstance(space, Box):
        return f"Box{tuple(space.shape)} of {space.dtype}"
    return str(space) if isinstance(space, Discrete) else type(space).__name__


def count_actions(space: ActionSpace) -> int:
    """The numbers in an action."""
    return int(space.n) if isinstance(space, Discrete) else int(np.prod(space.shape))


def to_physical(action: np.ndarray, space: ActionSpace) -> np.ndarray | np.int64:
    """An action in [-1, 1] (clipped) in the units and shape of the box; for a discrete space, the integer."""
    if isinstance(space, Discrete):
        return np.int64(space.start + np.argmax(action))
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    unit = 0.5 * (np.clip(action.astype(np.float64), -1, 1) + 1).reshape(space.shape)
    # Clipped again because the cast to float32 may round just past a bound.
    return np.clip((low + unit * (high - low)).astype(space.dtype), space.low, space.high)


def to_row(obs: Any, space: gymnasium.Space[Any], layout: ObsLayout, name: str) -> np.ndarray:
    """An observation as a fresh flat row: simulators hand out buffers that they overwrite later."""
    if not isinstance(space, Dict):
        return layout.flatten({part.name: _read(obs, space, part, name) for part in layout.parts})
    missing = [part.name for part in layout.parts if not isinstance(obs, dict) or part.name not in obs]
    if missing:
        raise SombrlError(f"{name} returned an observation without {missing[0]!r}, but its space says Dict.")
    return layout.flatten({part.name: _read(obs[part.name], space[part.name], part, name) for part in layout.parts})


def _read(value: Any, space: gymnasium.Space[Any], part: Part, name: str) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # an infinity is reported as one, with its place
            array = np.asarray(value, np.float32 if part.kind == "vector" else None)
            if array.dtype.kind not in "fiub":
                raise TypeError
    except (TypeError, ValueError):
        said = "Discrete" if part.kind == "discrete" else "Box"
        raise SombrlError(
            f"{name} returned an observation of type {type(value).__name__}, but its space says {said}."
        ) from None
    if part.kind == "discrete":
        return _read_discrete(array, space, name)
    if array.size != int(np.prod(part.shape)):
        raise SombrlError(f"{name} returned an observation of shape {array.shape}, but its space says {space.shape}.")
    if part.kind == "image" and array.dtype != np.uint8:
        raise SombrlError(f"{name} returned an image of {array.dtype}, but its space says uint8.")
    return array.reshape(part.shape)


def _read_discrete(array: np.ndarray, space: Any, name: str) -> np.ndarray:
    whole = array.size == 1 and array.dtype.kind in "iu"
    index = int(array.reshape(-1)[0]) - int(space.start) if whole else -1
    if not 0 <= index < space.n:
        raise SombrlError(f"{name} returned the observation {array}, but its space says {space}.")
    return np.asarray(index, np.int32)


def to_reward(reward: object, name: str) -> float:
    """A reward as a plain float."""
    try:
        array = np.asarray(reward, np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if reward is None or array.size != 1:  # NumPy reads None as NaN
        raise SombrlError(f"{name} returned the reward {reward!r}; step must return a single number.")
    return float(array.reshape(-1)[0])
