"""Gymnasium environments from an id, a factory or an instance; every failure is one sentence."""

import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from sombrl.config.suggestions import nearest
from sombrl.envs.adapters.opengl import choose_for_mujoco
from sombrl.errors import SombrlError
from sombrl.optional import first_line

if TYPE_CHECKING:
    from sombrl.envs.base import AbstractWorld

EnvSource = Any
"""An id, a function that makes a `gymnasium.Env`, or an instance; `Any`, because the rest is refused in a sentence."""

KNOWN_TASKS: dict[str, set[str]] = {"Pendulum-v1": {"g"}, "MountainCarContinuous-v0": set()}
"""The tasks whose reward we know by our own worlds, with the keyword arguments that leave it as it is."""

PLAIN_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)  # what `make` adds; none touches the reward


def make_many(source: EnvSource, count: int, kwargs: Mapping[str, Any], render: bool) -> list[gymnasium.Env]:
    """`count` environments; `source` is an id, a function that makes one, or (for a count of 1) one."""
    if render and "DISPLAY" not in os.environ:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures need no screen, and SDL warns when there is none
        choose_for_mujoco()
    if isinstance(source, str):
        check_id(source)
        return [_make_id(source, kwargs, render) for _ in range(count)]
    if isinstance(source, gymnasium.Env):
        if count > 1:
            raise SombrlError(
                f"One ready environment cannot serve {count} seeds; pass a function that makes one instead."
            )
        if kwargs:
            raise SombrlError("env_kwargs cannot change a ready environment; pass a function that makes one.")
        return [source]
    _refuse_other_kinds(source, "The environment")
    if not callable(source):
        raise SombrlError(f"An environment is a name, a gymnasium.Env or a function that makes one, not {source!r}.")
    envs = [_call_factory(source, kwargs, render) for _ in range(count)]
    if len({id(env.unwrapped) for env in envs}) < count:
        raise SombrlError("The environment function returned the same environment twice; make a new one per call.")
    return envs


def check_id(name: str, also: Callable[[], Iterable[str]] = tuple) -> None:
    """Refuse an id Gymnasium does not know; `also` makes other names worth suggesting."""
    module, _, bare = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)  # importing it registers its environments
        except Exception as error:
            raise SombrlError(
                f'"{name}" needs the module {module}, whose import failed ({first_line(error)}); install it '
                "or correct the name."
            ) from error
    if bare not in gymnasium.registry:
        raise nearest(bare, [*also(), *gymnasium.registry], "environment")


def _make_id(name: str, kwargs: Mapping[str, Any], render: bool) -> gymnasium.Env:
    mode = {"render_mode": "rgb_array"} if render else {}
    try:
        # Without the passive checker: `sombrl check-env` says the same once, not on every step.
        return gymnasium.make(name, disable_env_checker=True, **{**mode, **kwargs})
    except Exception as error:
        raise SombrlError(f"{name} could not be made: {first_line(error)}") from error


def _call_factory(factory: Callable[..., Any], kwargs: Mapping[str, Any], render: bool) -> gymnasium.Env:
    mode = {"render_mode": "rgb_array"} if render and _takes_render_mode(factory) else {}
    try:
        env = factory(**{**mode, **kwargs})
    except Exception as error:
        raise SombrlError(f"The environment function failed: {first_line(error)}") from error
    _refuse_other_kinds(env, "The environment function's result")
    if not isinstance(env, gymnasium.Env):
        raise SombrlError(f"The environment function must return a gymnasium.Env, not {type(env).__name__}.")
    return env


def _refuse_other_kinds(env: object, what: str) -> None:
    """Refuse environments of the old gym package and vector environments."""
    if any(base.__module__.split(".")[0] == "gym" for base in type(env).__mro__):
        raise SombrlError(
            f"{what} comes from the old gym package; port it to gymnasium, or wrap it with "
            "shimmy.GymV26CompatibilityV0."
        )
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise SombrlError(f"{what} is a vector environment; pass a single one, sombrl makes one per seed.")


def _takes_render_mode(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    any_keyword = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return any_keyword or "render_mode" in parameters


def frame_limit(env: gymnasium.Env) -> int | None:
    """The time limit in frames: of the spec, or of a TimeLimit wrapped round an unregistered environment."""
    if env.spec is not None and env.spec.max_episode_steps:
        return int(env.spec.max_episode_steps)
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return int(env._max_episode_steps)
        env = env.env
    return None


def known_world(env: gymnasium.Env) -> "AbstractWorld | None":
    """Our world with the same reward formula, if nothing about `env` can have changed it."""
    if env.spec is None or env.spec.id not in KNOWN_TASKS:
        return None
    name = env.spec.id
    if set(env.spec.kwargs) - KNOWN_TASKS[name] - {"render_mode"}:
        return None
    while isinstance(env, gymnasium.Wrapper):
        if not isinstance(env, PLAIN_WRAPPERS):
            return None
        env = env.env
    # Imported here, as it loads JAX, which worker processes do without.
    from sombrl.envs.mountain_car import MountainCar
    from sombrl.envs.pendulum import Pendulum

    return Pendulum(start="random") if name == "Pendulum-v1" else MountainCar(terminates=True)
