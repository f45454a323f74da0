"""The DeepMind Control Suite behind the loop's interface: `dmc:domain-task`, one simulator per seed.

`dmc-vision:domain-task` shows camera pictures of the same (`dmc_vision.py`); `dmc:` itself never draws.

Nothing here loads JAX, so that simulator processes start fast and stay small (`processes.py`).
"""

import functools
import importlib
import importlib.util
import inspect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sombrl.config.suggestions import nearest
from sombrl.envs.adapters.dmc_vision import PREFIX as VISION
from sombrl.envs.adapters.dmc_vision import Camera
from sombrl.envs.adapters.opengl import cannot_draw, require_opengl
from sombrl.envs.guards import check_cost, check_count, check_seeds
from sombrl.envs.interface import ENDLESS, AbstractEnvs, EnvSpec, Step
from sombrl.envs.rows import Rows
from sombrl.errors import SimulatorFault, SombrlError
from sombrl.optional import broken, first_line

PREFIX = "dmc:"
EPISODE_FRAMES = 1000  # of every task of the suite that has a time limit
UNBOUNDED = 1e6  # MuJoCo says 1e10 for an actuator without bounds
PICTURE = (240, 320)  # height and width


class DMCEnvs(AbstractEnvs):
    """One simulator of a task of the suite per seed.

    Observations are the entries of the suite's dictionary in its order, flattened, float32; or a picture, uint8. From
    the outside in: clip, rescale from [-1, 1] to the bounds, repeat (rewards summed, stopped by the end of the
    episode), subtract K‖u‖₂ of the rescaled action on every frame. The clock truncates; a final discount of 0
    terminates.
    """

    task = None

    def __init__(
        self,
        name: str,
        seeds: Sequence[int],
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        action_repeat: int = 1,
        action_cost: float = 0.0,
        episode_length: int | None = None,
        endless: bool = False,
        render: bool = False,
    ):
        """`name` is `dmc:domain-task` or `dmc-vision:domain-task`; `env_kwargs` go to the suite's task.

        `size`, in pixels, is for vision alone; `episode_length` is in decisions.

        Without `endless` no episode is longer than the suite's 1000 frames.
        """
        self.seeds = check_seeds(seeds)
        repeat = check_count(action_repeat, "action_repeat")
        self._cost = check_cost(action_cost)
        limit = ENDLESS if endless else EPISODE_FRAMES
        if episode_length is not None:
            limit = min(limit, check_count(episode_length, "episode_length") * repeat)
        self._frame_limit, self._render = limit, render
        kwargs = dict(env_kwargs or {})
        self._camera = None
        if name.startswith(VISION):
            self._camera = Camera(name, **{key: kwargs.pop(key) for key in ("size",) if key in kwargs})
        self.envs = [_make(name, kwargs) for _ in self.seeds]
        first = self.envs[0]
        bounds = first.action_spec()
        self._low = np.broadcast_to(np.asarray(bounds.minimum, np.float64), bounds.shape)
        self._high = np.broadcast_to(np.asarray(bounds.maximum, np.float64), bounds.shape)
        if np.any(self._high - self._low > UNBOUNDED):
            raise SombrlError(f"{name}: its actions have no bounds, and sombrl plans in [-1, 1]; choose another task.")
        layout = None if self._camera is None else self._camera.layout
        numbers = sum(int(np.prod(part.shape)) for part in first.observation_spec().values())
        obs_dim = numbers if layout is None else layout.length
        length = -(-limit // repeat)  # a last decision may have fewer frames
        self.spec = EnvSpec(name, obs_dim, int(np.prod(bounds.shape)), length, repeat, layout=layout)
        self._substeps = round(first.control_timestep() / first.physics.timestep())
        self._rows = Rows(self.spec, self.seeds)
        self._frames = np.zeros(len(self.seeds), np.int64)

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Start the given episode on the given rows; where all of them are, [seeds, obs]."""
        for row, episode in self._rows.check_reset(rows, episodes):
            self._begin(row, episode)
        return self._rows.obs.copy()

    def _begin(self, row: int, episode: int) -> None:
        env = self.envs[row]
        self._rows.begin(row, episode)
        self._frames[row] = 0
        env.task.random.seed(np.random.SeedSequence([self.seeds[row], episode]).generate_state(4))
        start = self._ask(row, "reset", env.reset)
        self._rows.see(row, self._ask(row, "reset", lambda: self._look(env, lambda: start.observation)))

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""
        at = self._rows
        actions, active = at.check_step(actions, active)
        reward = np.zeros(len(self.seeds), np.float64)
        terminated, truncated = np.zeros(len(self.seeds), bool), np.zeros(len(self.seeds), bool)
        for row in np.flatnonzero(active).tolist():
            at.require_finite(row, actions[row], "action")
            decide = functools.partial(self._decide, row, self._to_physical(actions[row]))
            reward[row], terminated[row], truncated[row], obs = self._ask(row, "step", decide)
            at.see(row, obs)
            at.require_finite(row, reward[row], "reward")
        at.decisions[active] += 1
        at.over |= terminated | truncated
        return Step(at.obs.copy(), reward, terminated, truncated)

    def _decide(self, row: int, u: np.ndarray) -> tuple[float, bool, bool, np.ndarray]:
        """All frames of one decision: what the suite's own `step` does, but observing only after the last."""
        env = self.envs[row]
        task, physics = env.task, env.physics
        price = self._cost * float(np.linalg.norm(u))
        total, terminated, truncated = 0.0, False, False
        for _ in range(self.spec.action_repeat):
            task.before_step(u, physics)
            physics.step(self._substeps)
            task.after_step(physics)
            total += float(task.get_reward(physics)) - price
            discount = task.get_termination(physics)  # None while the episode goes on
            self._frames[row] += 1
            terminated = discount is not None and float(discount) == 0.0
            truncated = not terminated and (discount is not None or bool(self._frames[row] >= self._frame_limit))
            if terminated or truncated:
                break
        return total, terminated, truncated, self._look(env, lambda: task.get_observation(physics))

    def _look(self, env: Any, observe: Callable[[], Mapping[str, Any]]) -> np.ndarray:
        return _flatten(observe()) if self._camera is None else self._camera.picture(env.physics)

    def _to_physical(self, action: np.ndarray) -> np.ndarray:
        unit = 0.5 * (np.clip(action.astype(np.float64), -1, 1) + 1)
        return self._low + unit * (self._high - self._low)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` in [-1, 1] scaled to the bounds of the actuators."""
        return np.stack([self._to_physical(action) for action in actions])

    def get_state(self) -> dict[str, np.ndarray]:
        """The state of the physics with what its solver starts from, the generators, and the clocks."""
        count, size = len(self.seeds), self._state_size()
        physics, words = np.zeros((count, size), np.float64), np.zeros((count, 624), np.uint32)
        place = np.zeros((count, 3), np.float64)
        for row in np.flatnonzero(self._rows.episodes >= 0).tolist():
            env = self.envs[row]
            physics[row] = env.physics.get_state(_integration())
            _, words[row], *rest = env.task.random.get_state()
            place[row] = rest
        ours: dict[str, np.ndarray] = {
            "frames": self._frames.copy(),
            "physics": physics,
            "random_words": words,
            "random_place": place,
        }
        return {**self._rows.get_state(), **ours}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`, bit for bit.

        Each row first starts its episode again, which puts back what the task chose at the start and keeps in
        the model or in itself (targets, gains, terrain); then the physics jump to where they were.
        """
        import mujoco

        shapes = {"frames": (), "physics": (self._state_size(),), "random_words": (624,), "random_place": (3,)}
        self._rows.check_state(state, shapes)
        for row, episode in enumerate(state["episode"].tolist()):
            if episode < 0:
                continue
            self._begin(row, episode)
            env, (pos, has_gauss, gauss) = self.envs[row], state["random_place"][row].tolist()
            words = np.asarray(state["random_words"][row], np.uint32)
            env.task.random.set_state(("MT19937", words, int(pos), int(has_gauss), gauss))
            env.physics.set_state(state["physics"][row], _integration())
            # The suite leaves the physics after the first half of the next step: positions and velocities are known.
            mujoco.mj_step1(env.physics.model.ptr, env.physics.data.ptr)
        self._rows.set_state(state)
        self._frames = np.array(state["frames"], np.int64)

    def _state_size(self) -> int:
        return int(self.envs[0].physics.get_state(_integration()).size)

    def render(self, row: int) -> np.ndarray:
        """The view of the task's first camera, uint8 [240, 320, 3]."""
        self._rows.require_started(row)
        if not self._render:
            raise SombrlError(f"{self.spec.name} was made without pictures; pass render=True.")
        require_opengl(self.spec.name)
        height, width = PICTURE
        try:
            picture = self.envs[row].physics.render(height, width, camera_id=0)
        except Exception as error:  # each OpenGL library has its own kind
            raise SombrlError(
                f"{self.spec.name} cannot draw ({first_line(error)}); start with MUJOCO_GL=egl or MUJOCO_GL=osmesa, "
                "whichever this machine has."
            ) from error
        return np.array(picture, np.uint8)

    def close(self) -> None:
        """Free the simulators and their OpenGL contexts."""
        for env in self.envs:
            env.close()

    def _ask(self, row: int, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except SombrlError:
            raise
        except Exception as error:
            place = self._rows.place(row)
            raise SimulatorFault(f"{self.spec.name} ({place}): {what} failed with {first_line(error)}") from error


def check_name(name: str) -> None:
    """Refuse a name that the suite does not know, or that needs what is not installed."""
    tasks = _suite(name).ALL_TASKS
    if _split(name) not in tasks:
        prefix = VISION if name.startswith(VISION) else PREFIX
        raise nearest(name, [f"{prefix}{domain}-{task}" for domain, task in tasks], "environment")


def task_names() -> list[str]:
    """The names of all tasks, where dm_control is installed."""
    if importlib.util.find_spec("dm_control") is None:
        return []
    return [f"{PREFIX}{domain}-{task}" for domain, task in _suite(PREFIX).ALL_TASKS]


def list_tasks() -> list[tuple[str, str]]:
    """Rows for `sombrl list envs`: the patterns, and the tasks of each domain where dm_control is installed."""
    about = "DeepMind Control Suite; flattened observations, 1000 frames; the reward is learned"
    seen = "the same tasks as 64×64 pictures, for dreamer; option size=64; draws with EGL or OSMesa"
    patterns = [(f"{PREFIX}<domain>-<task>", about), (f"{VISION}<domain>-<task>", seen)]
    if importlib.util.find_spec("dm_control") is None:
        return [(pattern, f"{text}; pip install 'sombrl[dmc]'") for pattern, text in patterns]
    domains = _suite(PREFIX).TASKS_BY_DOMAIN.items()
    rows = [(f"{PREFIX}{domain}-<task>", ", ".join(tasks)) for domain, tasks in domains if domain != "lqr"]
    return [*patterns, *rows]


def _make(name: str, kwargs: dict[str, Any]) -> Any:
    """One environment of the suite, without a clock of its own."""
    check_name(name)
    suite, (domain, task) = _suite(name), _split(name)
    options = set(inspect.signature(suite._DOMAINS[domain].SUITE[task]).parameters)
    options -= {"time_limit", "random", "environment_kwargs"}  # episode_length, seeds and action_repeat say these
    unknown = [key for key in kwargs if key not in options]
    if unknown:
        options |= {"size"} if name.startswith(VISION) else set()
        known = f"it has {', '.join(sorted(options))}" if options else "it has none"
        raise SombrlError(f"{name} has no option {unknown[0]!r}; {known}.")
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.ERROR)  # MuJoCo warns about the suite's XML
    try:
        return suite.load(domain, task, task_kwargs={**kwargs, "time_limit": float("inf"), "random": 0})
    except Exception as error:
        raise SombrlError(f"{name} could not be made: {first_line(error)}") from error
    finally:
        log.setLevel(level)


def _split(name: str) -> tuple[str, str]:
    domain, _, task = name.removeprefix(VISION).removeprefix(PREFIX).partition("-")
    return domain, task


def _suite(name: str) -> Any:
    """`dm_control.suite`, or the sentence that says how to get it."""
    if importlib.util.find_spec("dm_control") is None:
        raise SombrlError(f"\"{name}\" needs dm_control, which is not installed; pip install 'sombrl[dmc]'.")
    given = os.environ.get("MUJOCO_GL")  # by the user
    if name.startswith(VISION):
        require_opengl(name)
    else:
        _choose_opengl()
    try:
        return importlib.import_module("dm_control.suite")
    except Exception as error:  # a MUJOCO_GL that this machine cannot do, or a mujoco of another version
        if name.startswith(VISION):
            raise cannot_draw(name, first_line(error)) from error
        if given:
            raise SombrlError(
                f'"{name}": dm_control cannot be imported with MUJOCO_GL={given} '
                f"({first_line(error)}): start without MUJOCO_GL."
            ) from error
        raise broken("dm_control", error) from error


def _choose_opengl() -> None:
    """Without a screen or a choice of the user: EGL where it works, else no pictures; dm_control would try a window."""
    if os.environ.get("MUJOCO_GL") or "DISPLAY" in os.environ:
        return
    for backend in ("egl", "disable"):
        os.environ["MUJOCO_GL"] = backend
        try:
            importlib.import_module("dm_control._render")
            return
        except Exception:
            del os.environ["MUJOCO_GL"]


def _integration() -> int:
    """Everything that a step depends on: with `qacc_warmstart`, which the solver starts from."""
    import mujoco

    return int(mujoco.mjtState.mjSTATE_INTEGRATION)


def _flatten(obs: Mapping[str, Any]) -> np.ndarray:
    with np.errstate(over="ignore"):  # an infinity is reported as one, with its place
        return np.concatenate([np.ravel(part) for part in obs.values()]).astype(np.float32)
