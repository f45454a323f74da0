"""MuJoCo Playground's DeepMind Control Suite as worlds in JAX: `playground:CartpoleSwingup`, simulated by MJX."""

import atexit
import contextlib
import functools
import importlib.util
import logging
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from sombrl.config.suggestions import nearest
from sombrl.envs.adapters.opengl import cannot_draw, choose_for_mujoco
from sombrl.envs.base import AbstractWorld
from sombrl.envs.guards import check_cost
from sombrl.errors import SombrlError
from sombrl.optional import first_line, require

PREFIX = "playground:"
OPTIONS = ("ctrl_dt", "sim_dt")  # of a task's configuration; the rest is the clock's, the camera's, or another engine's
TASKS = (
    *("AcrobotSwingup", "AcrobotSwingupSparse", "BallInCup", "CartpoleBalance", "CartpoleBalanceSparse"),
    *("CartpoleSwingup", "CartpoleSwingupSparse", "CheetahRun", "FingerSpin", "FingerTurnEasy", "FingerTurnHard"),
    *("FishSwim", "HopperHop", "HopperStand", "HumanoidStand", "HumanoidWalk", "HumanoidRun", "PendulumSwingup"),
    *("PointMass", "ReacherEasy", "ReacherHard", "SwimmerSwimmer6", "WalkerRun", "WalkerStand", "WalkerWalk"),
)
"""Of Playground 0.2. They are listed without importing it, which takes seconds."""

PICTURE = (320, 480)  # height and width
MISSING = "{} needs MuJoCo Playground, which is not installed; pip install 'sombrl[playground]'."


class PlaygroundWorld(AbstractWorld):
    """A task of the suite. Its state is the simulator's own, a pytree of arrays.

    The reward depends on what no observation shows (contacts, the action itself), so it is learned. No task ends.
    """

    episode_frames: ClassVar[int] = 1000

    name: str = eqx.field(static=True)
    options: tuple[tuple[str, float], ...] = eqx.field(static=True)

    def __init__(self, name: str, **options: Any):
        check_task(name)
        unknown = [key for key in options if key not in OPTIONS]
        if unknown:
            raise SombrlError(f"{name} has no option {unknown[0]!r}; it has {' and '.join(OPTIONS)}, in seconds.")
        self.name = name
        self.options = tuple(sorted((key, check_cost(value, key)) for key, value in options.items()))
        if 0.0 in dict(self.options).values() or self._env.n_substeps < 1:
            raise SombrlError(
                f"{name}: sim_dt, a step of the physics, must be positive, and ctrl_dt, a frame, no less."
            )

    @property
    def _env(self) -> Any:
        return _load(self.name, self.options)

    @property
    def obs_dim(self) -> int:  # type: ignore[override]  # a class variable in the contract; here it depends
        """The suite's."""
        return _obs_dim(self.name, self.options)

    @property
    def action_dim(self) -> int:  # type: ignore[override]  # a class variable in the contract; here it depends
        """The number of actuators."""
        return int(self._env.action_size)

    def reset(self, *, key: Key[Array, ""]) -> PyTree:
        """The suite's start, with a key of its own kind."""
        with _their_rules():
            return self._env.reset(jr.key_data(key))

    def step(
        self, state: PyTree, action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, ""], Bool[Array, ""]]:
        """One frame, the suite's control step. What it calls done is a simulation that broke: its numbers say so."""
        with _their_rules():
            # The suite writes into these dictionaries.
            state = state.replace(metrics=dict(state.metrics), info=dict(state.info))
            moved = self._env.step(state, jnp.clip(action, -1.0, 1.0))
            return moved, jnp.asarray(moved.reward, jnp.float32), jnp.zeros((), bool)

    def observe(self, state: PyTree) -> Float[Array, " obs"]:
        """The suite's observation."""
        return jnp.asarray(state.obs, jnp.float32)

    def task(self, action_repeat: int) -> None:
        """Not known: the reward is not a function of observations."""

    def draw(self, state: PyTree, axes: Any) -> None:
        """The view of the task's first camera."""
        axes.imshow(_picture(self, state), aspect="auto", interpolation="nearest")
        axes.set_axis_off()


def task_names() -> list[str]:
    """The names of all tasks, where Playground is installed."""
    if importlib.util.find_spec("mujoco_playground") is None:
        return []
    return [f"{PREFIX}{task}" for task in TASKS]


def check_task(name: str) -> None:
    """Refuse a name that the suite does not know, or that needs what is not installed."""
    if name.removeprefix(PREFIX) not in _suite(name).ALL_ENVS:
        raise nearest(name, task_names(), "environment")


def list_tasks() -> list[tuple[str, str]]:
    """A row for `sombrl list envs`."""
    about = "MuJoCo Playground's DeepMind Control Suite, simulated by MJX in JAX; the reward is learned"
    if importlib.util.find_spec("mujoco_playground") is None:
        return [(f"{PREFIX}<Task>", f"{about}; pip install 'sombrl[playground]'")]
    return [(f"{PREFIX}<Task>", f"{about}; options {', '.join(OPTIONS)}; tasks {', '.join(TASKS)}")]


@functools.cache
def _suite(name: str) -> Any:
    """Playground's module of the suite, or the sentence that says how to get it."""
    missing = MISSING.format(f'"{name}"')
    choose_for_mujoco()
    with _quietly():
        return require("mujoco_playground", "playground", missing).dm_control_suite


@functools.lru_cache(maxsize=32)
def _load(name: str, options: tuple[tuple[str, float], ...]) -> Any:
    """The task on MJX's own implementation in JAX; Warp's, which the package prefers, is made for GPUs."""
    import mujoco

    suite = _suite(name)
    if not hasattr(mujoco.MjSpec, "find_body"):  # Playground compares versions as text, and takes 3.17 for an old one
        mujoco.MjSpec.find_body = mujoco.MjSpec.body
    try:
        with _quietly(), _their_rules():
            env = suite.load(name.removeprefix(PREFIX), config_overrides={"impl": "jax", **dict(options)})
    except Exception as error:
        raise SombrlError(f"{name} could not be made: {first_line(error)}") from error
    bounds = np.asarray(env.mj_model.actuator_ctrlrange)
    if not np.array_equal(bounds, np.tile([-1.0, 1.0], (len(bounds), 1))):
        raise SombrlError(f"{name}: its actuators are not driven from -1 to 1, and sombrl does not rescale them.")
    return env


@functools.lru_cache(maxsize=32)
def _obs_dim(name: str, options: tuple[tuple[str, float], ...]) -> int:
    """The length of an observation, for which a reset has to be traced."""
    with _their_rules():
        return int(_load(name, options).observation_size)


@contextlib.contextmanager
def _their_rules() -> Iterator[None]:
    """JAX as Playground is written for: types and ranks promote, whatever the caller's flags."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings and remarks of Playground and what it imports."""
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


@functools.lru_cache(maxsize=1)
def _renderer(world: PlaygroundWorld) -> Any:
    import mujoco

    try:
        renderer = mujoco.Renderer(world._env.mj_model, *PICTURE)
    except Exception as error:  # each OpenGL library has its own kind
        raise cannot_draw(world.name, first_line(error)) from error
    atexit.register(_renderer.cache_clear)  # before OpenGL itself ends, which is complained about otherwise
    return renderer


def _picture(world: PlaygroundWorld, state: PyTree) -> np.ndarray:
    """uint8 [height, width, 3]."""
    import mujoco

    renderer, model = _renderer(world), world._env.mj_model
    data = mujoco.MjData(model)
    data.qpos, data.qvel = np.asarray(state.data.qpos), np.asarray(state.data.qvel)
    data.mocap_pos, data.mocap_quat = np.asarray(state.data.mocap_pos), np.asarray(state.data.mocap_quat)
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, camera=0 if model.ncam else -1)
    return np.array(renderer.render(), np.uint8)
