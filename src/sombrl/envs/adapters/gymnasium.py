"""Gymnasium environments behind the loop's interface, one per seed, stepped in turn."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from sombrl.envs.action_cost import ActionCost
from sombrl.envs.adapters.boxes import check_spaces, to_physical, to_reward, to_vector
from sombrl.envs.adapters.making import EnvSource, frame_limit, known_world, make_many
from sombrl.envs.base import AbstractEnvs, EnvSpec, Step
from sombrl.envs.guards import (
    check_cost,
    check_count,
    check_episode,
    check_seeds,
    check_step_inputs,
    refuse_end,
    require_finite,
)
from sombrl.records import RunFault, SombrlError


class GymnasiumEnvs(AbstractEnvs):
    """One Gymnasium environment per seed, from an id, a function, or (for one seed) a ready environment.

    From the outside in: clip, rescale from [-1, 1] to the bounds, repeat (rewards summed, stopped by the end
    of the episode), subtract K‖u‖₂ of the rescaled action on every executed frame.
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
        self._obs_box, self._action_box = check_spaces(first, name)
        if any(e.observation_space != self._obs_box or e.action_space != self._action_box for e in self.envs):
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
            raise SombrlError(f"{name} has no time limit of its own; give episode_length (in decisions).")
        self._frame_limit = min(limits)
        length = -(-self._frame_limit // repeat)  # a last decision may have fewer frames
        obs_dim, action_dim = int(np.prod(self._obs_box.shape)), int(np.prod(self._action_box.shape))
        world = known_world(first)
        if endless and world is not None and world.can_end():
            raise refuse_end(name)
        optimal = None if world is None else world.optimal_average()
        optimal = None if optimal is None else repeat * optimal
        self.spec = EnvSpec(name, obs_dim, action_dim, length, repeat, optimal)
        self.task = None if world is None else world.task(repeat)
        self.downstream = {} if world is None else world.downstream(repeat)
        if self.task is not None and self._cost > 0:
            low, high = (tuple(map(float, b.reshape(-1))) for b in (self._action_box.low, self._action_box.high))
            self.task = ActionCost(self.task, self._cost, low, high, repeat)
        self._begin(-1)

    def _begin(self, episode: int) -> None:
        count = len(self.seeds)
        self._episode = episode
        self._obs = np.zeros((count, self.spec.obs_dim), np.float32)
        self._frames = np.zeros(count, np.int64)
        self._decisions = np.zeros(count, np.int64)
        self._over = np.zeros(count, bool)
        self._history: list[tuple[np.ndarray, np.ndarray]] = []

    def reset(self, episode: int) -> np.ndarray:
        """Start episode number `episode` on every seed; the observations, [seeds, obs]."""
        self._begin(check_episode(episode))
        for row, (env, seed) in enumerate(zip(self.envs, self.seeds, strict=True)):
            # 31 bits: some simulators read the seed as a signed integer.
            start = int(np.random.SeedSequence([seed, episode]).generate_state(1)[0]) >> 1
            answer = self._ask(row, "reset", functools.partial(env.reset, seed=start))
            if not (isinstance(answer, tuple) and len(answer) == 2):
                raise SombrlError(f"{self.spec.name}: reset must return (observation, info), as Gymnasium asks.")
            self._obs[row] = to_vector(answer[0], self._obs_box, self.spec.name)
            self._require_finite(row, self._obs[row], "observation")
        return self._obs.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""
        self._require_reset()
        actions, active = check_step_inputs(self.spec, self.seeds, self._over, actions, active)
        reward = np.zeros(len(self.seeds), np.float64)
        terminated, truncated = np.zeros(len(self.seeds), bool), np.zeros(len(self.seeds), bool)
        for row in np.flatnonzero(active).tolist():
            self._require_finite(row, actions[row], "action")
            reward[row], terminated[row], truncated[row] = self._decide(row, actions[row])
            self._require_finite(row, self._obs[row], "observation")
            self._require_finite(row, reward[row], "reward")
        self._decisions[active] += 1
        self._over |= terminated | truncated
        self._history.append((actions, active.copy()))
        return Step(self._obs.copy(), reward, terminated, truncated)

    def _decide(self, row: int, action: np.ndarray) -> tuple[float, bool, bool]:
        """All frames of one decision of one seed."""
        u = to_physical(action, self._action_box)
        price = self._cost * float(np.linalg.norm(u.astype(np.float64).reshape(-1)))
        total, terminated, truncated = 0.0, False, False
        for _ in range(self.spec.action_repeat):
            answer = self._ask(row, "step", lambda: self.envs[row].step(u.copy()))
            if not (isinstance(answer, tuple) and len(answer) == 5):
                raise SombrlError(
                    f"{self.spec.name}: step must return (observation, reward, terminated, truncated, info), "
                    "as Gymnasium asks."
                )
            obs, reward, terminated, truncated, _ = answer
            total += to_reward(reward, self.spec.name) - price
            self._frames[row] += 1
            truncated = bool(truncated) or self._frames[row] >= self._frame_limit
            if terminated or truncated:
                break
        self._obs[row] = to_vector(obs, self._obs_box, self.spec.name)
        # Apart: a goal reached on the last frame is an end of the task, not of the clock.
        return total, bool(terminated), bool(truncated and not terminated)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` in [-1, 1] scaled to the bounds of the action space, in its shape."""
        return np.stack([to_physical(action, self._action_box) for action in actions])

    def get_state(self) -> dict[str, np.ndarray]:
        """The episode and what was done in it: a simulator cannot be saved, but it can be replayed."""
        count = len(self.seeds)
        actions = [a for a, _ in self._history]
        active = [a for _, a in self._history]
        return {
            "episode": np.array(self._episode),
            "actions": np.array(actions, np.float32).reshape(-1, count, self.spec.action_dim),
            "active": np.array(active, bool).reshape(-1, count),
            "obs": self._obs.copy(),
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Replay the episode; refuse to go on unless it leads to the same observations, bit for bit."""
        try:
            episode, actions = int(state["episode"]), state["actions"]
            active, obs = state["active"], state["obs"]
        except KeyError as missing:
            raise SombrlError(f"This is not a saved state of {self.spec.name}: it has no {missing}.") from None
        fits = actions.shape[1:] == (len(self.seeds), self.spec.action_dim) and obs.shape == self._obs.shape
        if not fits or active.shape != actions.shape[:2]:
            raise SombrlError(
                f"The saved state does not fit {self.spec.name} with {len(self.seeds)} seeds; resume with "
                "the environment and seeds it was saved with."
            )
        if episode < 0:
            return self._begin(-1)
        self.reset(episode)
        for row_actions, row_active in zip(actions, active, strict=True):
            self.step(row_actions, row_active)
        if self._obs.tobytes() != obs.astype(np.float32).tobytes():
            raise SombrlError(
                f"{self.spec.name} did not replay to the saved observations, so this run cannot be resumed "
                "mid-episode; its randomness must come from reset(seed=...) alone, its version the same."
            )

    def render(self, row: int) -> np.ndarray:
        """The simulator's own picture."""
        self._require_reset()
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
            place = f"seed {self.seeds[row]}, episode {self._episode}, step {self._decisions[row]}"
            text = f"{type(error).__name__}: {error}".split("\n")[0]
            raise RunFault(f"{self.spec.name} ({place}): {what} failed with {text}") from error

    def _require_reset(self) -> None:
        if self._episode < 0:
            raise SombrlError(f"{self.spec.name} has not been started; call reset first.")

    def _require_finite(self, row: int, values: object, what: str) -> None:
        place = {"seed": self.seeds[row], "episode": self._episode, "step": int(self._decisions[row])}
        require_finite(values, what, env=self.spec.name, **place)
