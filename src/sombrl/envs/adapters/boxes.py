"""Which Gymnasium spaces sombrl can drive, and how actions and observations cross that border."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from sombrl.errors import SombrlError


def check_spaces(env: gymnasium.Env, name: str) -> tuple[Box, Box]:
    """The observation and action boxes, or the sentence that says what to do instead."""
    return _observation_box(env.observation_space, name), _action_box(env.action_space, name)


def _observation_box(space: gymnasium.Space, name: str) -> Box:
    kind = _describe(space)
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        raise SombrlError(f"{name}: the observation space is {kind}; wrap it in gymnasium.wrappers.FlattenObservation.")
    if not isinstance(space, Box):
        raise SombrlError(f"{name}: the observation space is {kind}; sombrl needs a Box of numbers.")
    if space.dtype == np.uint8 or len(space.shape) == 3:
        raise SombrlError(
            f"{name}: the observation space is {kind}, which looks like images; sombrl learns from state "
            "vectors, so use the environment's state observations."
        )
    if int(np.prod(space.shape)) == 0:
        raise SombrlError(f"{name}: the observation space is {kind}, which is empty; give at least one number.")
    return space


def _action_box(space: gymnasium.Space, name: str) -> Box:
    kind = _describe(space)
    if isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        raise SombrlError(f"{name}: the action space is {kind}; sombrl needs a Box, so use a continuous variant.")
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise SombrlError(f"{name}: the action space is {kind}; sombrl needs a Box of floats.")
    if int(np.prod(space.shape)) == 0:
        raise SombrlError(f"{name}: the action space is {kind}, which is empty; give at least one number.")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SombrlError(
            f"{name}: the action space is {kind} with infinite bounds; wrap it in "
            "gymnasium.wrappers.RescaleAction or declare finite ones."
        )
    return space


def _describe(space: gymnasium.Space) -> str:
    """The space in a few words: printing one can take pages."""
    if isinstance(space, Box):
        return f"Box{tuple(space.shape)} of {space.dtype}"
    return str(space) if isinstance(space, Discrete) else type(space).__name__


def to_physical(action: np.ndarray, box: Box) -> np.ndarray:
    """An action in [-1, 1] (clipped) in the units and shape of the box."""
    low, high = box.low.astype(np.float64), box.high.astype(np.float64)
    unit = 0.5 * (np.clip(action.astype(np.float64), -1, 1) + 1).reshape(box.shape)
    # Clipped again because the cast to float32 may round just past a bound.
    return np.clip((low + unit * (high - low)).astype(box.dtype), box.low, box.high)


def to_vector(obs: object, box: Box, name: str) -> np.ndarray:
    """An observation as a fresh float32 vector: simulators hand out buffers that they overwrite later."""
    try:
        with np.errstate(over="ignore"):  # an infinity is reported as one, with its place
            array = np.array(obs, np.float32)
    except (TypeError, ValueError):
        raise SombrlError(
            f"{name} returned an observation of type {type(obs).__name__}, but its space says Box."
        ) from None
    if array.size != int(np.prod(box.shape)):
        raise SombrlError(f"{name} returned an observation of shape {array.shape}, but its space says {box.shape}.")
    return array.reshape(-1)


def to_reward(reward: object, name: str) -> float:
    """A reward as a plain float."""
    try:
        array = np.asarray(reward, np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if reward is None or array.size != 1:  # NumPy reads None as NaN
        raise SombrlError(f"{name} returned the reward {reward!r}; step must return a single number.")
    return float(array.reshape(-1)[0])
