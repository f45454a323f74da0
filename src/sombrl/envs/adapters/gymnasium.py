"""Gymnasium environments behind the loop's interface, one per seed, stepped in turn."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from sombrl.envs.adapters.factories import EnvSource, frame_limit, known_world, make_many
from sombrl.envs.adapters.spaces import check_spaces, count_actions, to_physical, to_reward, to_row
from sombrl.envs.guards import check_cost, check_count, check_seeds, refuse_cost, refuse_end
from sombrl.envs.interface import AbstractEnvs, EnvSpec, Step
from sombrl.envs.layout import one_vector
from sombrl.envs.rows import Rows
from sombrl.errors import SimulatorFault, SombrlError


class GymnasiumEnvs(AbstractEnvs):
    """One Gymnasium environment per seed, from an id, a function, or (for one seed) a ready environment.

    From the outside in: clip, rescale from [-1, 1] to the bounds, repeat (rewards summed, stopped by the end
    of the episode), subtract K‖u‖₂ of the rescaled action on every executed frame. Of discrete actions the largest is
    taken, and repeated.
    """

    def __init__(
        self,
        source: EnvSource,
        seeds: Sequence[int],
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        action_repeat: int = 1,
        action_cost: float = 0.0,
        episode_length: int | None = None,
        endless: bool = False,
        render: bool = False,
    ):
        """`episode_length` in decisions; a shorter time limit of the environment itself wins.

        `endless` makes ids without their time limit, and refuses a ready environment that has one.
        """
        self.seeds = check_seeds(seeds)
        repeat = check_count(action_repeat, "action_repeat")
        self._cost = check_cost(action_cost)
        kwargs = dict(env_kwargs or {}) | ({"max_episode_steps": -1} if endless and isinstance(source, str) else {})
        self.envs = make_many(source, len(self.seeds), kwargs, render)
        first = self.envs[0]
        name = first.spec.id if first.spec is not None else type(first.unwrapped).__name__
        self._layout, self._action_space = check_spaces(first, name)
        self._obs_space = first.observation_space
        if any(e.observation_space != self._obs_space or e.action_space != self._action_space for e in self.envs):
            raise SombrlError(f"{name}: the environments of different seeds have different spaces.")
        limits = [limit for limit in [frame_limit(first)] if limit]
        if endless and limits:
            raise SombrlError(
                f"{name} ends after {limits[0]} frames by its own time limit, and the non-episodic setting never "
                "resets: make it without one, gymnasium.make(..., max_episode_steps=-1)."
            )
        if episode_length is not None:
            limits.append(check_count(episode_length, "episode_length") * repeat)
        if not limits:
            raise SombrlError(
                f"{name} has no time limit of its own; give episode_length (--episode-length) in decisions."
            )
        self._frame_limit = min(limits)
        length = -(-self._frame_limit // repeat)  # a last decision may have fewer frames
        discrete = isinstance(self._action_space, Discrete)
        if discrete and self._cost > 0:
            raise refuse_cost(name)
        world = known_world(first)
        if endless and world is not None and world.can_end():
            raise refuse_end(name)
        optimal = None if world is None else world.optimal_average()
        optimal = None if optimal is None else repeat * optimal
        self.spec = EnvSpec(
            name,
            self._layout.length,
            count_actions(self._action_space),
            length,
            repeat,
            optimal,
            layout=None if self._layout == one_vector(self._layout.length) else self._layout,
            discrete=discrete,
        )
        self.task = None if world is None else world.task(repeat)
        self.downstream = {} if world is None else world.downstream(repeat)
        # A user's own function of observations, or that of a world of ours behind Gymnasium's interface.
        self.cost = getattr(first.unwrapped, "cost_function", None) if world is None else world.cost(repeat)
        if self.task is not None and self._cost > 0 and isinstance(self._action_space, Box):
            from sombrl.envs.action_cost import ActionCost  # loads JAX, which worker processes do without

            low, high = (tuple(map(float, b.reshape(-1))) for b in (self._action_space.low, self._action_space.high))
            self.task = ActionCost(self.task, self._cost, low, high, repeat)
        self._rows = Rows(self.spec, self.seeds)
        self._frames = np.zeros(len(self.seeds), np.int64)
        self._history: list[list[np.ndarray]] = [[] for _ in self.seeds]  # the actions of each row's episode

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Start the given episode on the given rows; where all of them are, [seeds, obs]."""
        for row, episode in self._rows.check_reset(rows, episodes):
            self._begin(row, episode)
        return self._rows.obs.copy()

    def _begin(self, row: int, episode: int) -> None:
        self._rows.begin(row, episode)
        self._frames[row], self._history[row] = 0, []
        # 31 bits: some simulators read the seed as a signed integer.
        start = int(np.random.SeedSequence([self.seeds[row], episode]).generate_state(1)[0]) >> 1
        answer = self._ask(row, "reset", functools.partial(self.envs[row].reset, seed=start))
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise SombrlError(f"{self.spec.name}: reset must return (observation, info), as Gymnasium asks.")
        self._rows.see(row, self._read(answer[0]))

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""
        actions, active = self._rows.check_step(actions, active)
        reward, cost = np.zeros(len(self.seeds), np.float64), np.full(len(self.seeds), np.nan)
        terminated, truncated = np.zeros(len(self.seeds), bool), np.zeros(len(self.seeds), bool)
        for row in np.flatnonzero(active).tolist():
            reward[row], terminated[row], truncated[row], cost[row] = self._advance(row, actions[row])
        return Step(self._rows.obs.copy(), reward, terminated, truncated, cost)

    def _advance(self, row: int, action: np.ndarray) -> tuple[float, bool, bool, float]:
        """One decision of one row, checked and counted; its cost is NaN where none is reported."""
        at = self._rows
        at.require_finite(row, action, "action")
        reward, terminated, truncated, obs, cost = self._decide(row, action)
        at.see(row, obs)
        at.require_finite(row, reward, "reward")
        at.decisions[row] += 1
        at.over[row] = terminated or truncated
        self._history[row].append(action.copy())
        return reward, terminated, truncated, cost

    def _decide(self, row: int, action: np.ndarray) -> tuple[float, bool, bool, np.ndarray, float]:
        """All frames of one decision of one seed."""
        u = to_physical(action, self._action_space)
        price = self._cost * float(np.linalg.norm(u.astype(np.float64).reshape(-1)))
        total, cost, terminated, truncated = 0.0, 0.0, False, False
        for _ in range(self.spec.action_repeat):
            answer = self._ask(row, "step", lambda: self.envs[row].step(u.copy()))
            if not (isinstance(answer, tuple) and len(answer) == 5):
                raise SombrlError(
                    f"{self.spec.name}: step must return (observation, reward, terminated, truncated, info), "
                    "as Gymnasium asks."
                )
            obs, reward, terminated, truncated, info = answer
            total += to_reward(reward, self.spec.name) - price
            cost += _reported(info)
            self._frames[row] += 1
            truncated = bool(truncated) or self._frames[row] >= self._frame_limit
            if terminated or truncated:
                break
        # A goal reached on the last frame terminates the task; it is not a time limit.
        return total, bool(terminated), bool(truncated and not terminated), self._read(obs), cost

    def _read(self, obs: Any) -> np.ndarray:
        return to_row(obs, self._obs_space, self._layout, self.spec.name)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` in [-1, 1] scaled to the bounds of the action space, in its shape; or the chosen integers."""
        return np.stack([to_physical(action, self._action_space) for action in actions])

    def get_state(self) -> dict[str, np.ndarray]:
        """The episodes and what was done in them: a simulator cannot be saved, but it can be replayed.

        MuJoCo's environments are no exception: their rewards and observations read quantities that lag a
        substep behind the state that `mj_getState` saves, so a restore from it is not exact.
        """
        lengths = np.array([len(actions) for actions in self._history], np.int64)
        history = np.zeros((len(self.seeds), int(lengths.max()), self.spec.action_dim), np.float32)
        for row, actions in enumerate(self._history):
            history[row, : len(actions)] = np.reshape(actions, (-1, self.spec.action_dim))
        return self._rows.get_state() | {"actions": history}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Replay each row's episode; refuse to go on unless it leads to the same observations, bit for bit."""
        self._rows.check_state(state, {"actions": (None, self.spec.action_dim)})
        self._rows = Rows(self.spec, self.seeds)
        self._history = [[] for _ in self.seeds]
        for row, episode in enumerate(state["episode"].tolist()):
            if episode < 0:
                continue
            self._begin(row, episode)
            for action in state["actions"][row, : int(state["decisions"][row])].astype(np.float32):
                self._advance(row, action)
        if self._rows.obs.tobytes() != state["obs"].astype(self.spec.obs_dtype).tobytes():
            raise SombrlError(
                f"{self.spec.name} did not replay to the saved observations, so this run cannot be resumed "
                "mid-episode; its randomness must come from reset(seed=...) alone, its version the same."
            )

    def render(self, row: int) -> np.ndarray:
        """The simulator's own picture."""
        self._rows.require_started(row)
        if self.envs[row].render_mode != "rgb_array":
            raise SombrlError(f'{self.spec.name} was not made with render_mode="rgb_array"; pass render=True.')
        try:
            picture = self.envs[row].render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise SombrlError(f"{self.spec.name} cannot draw ({error}); pip install 'sombrl[video]'.") from error
        return np.array(picture, np.uint8)

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _ask(self, row: int, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            text = f"{type(error).__name__}: {error}".split("\n")[0]
            raise SimulatorFault(f"{self.spec.name} ({self._rows.place(row)}): {what} failed with {text}") from error


def _reported(info: Any) -> float:
    """What a frame costs, as safety-gymnasium's wrapper has it; NaN where nothing is said."""
    try:
        return float(info["cost"])
    except (KeyError, TypeError, ValueError):
        return float("nan")
