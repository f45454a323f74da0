"""The learned model as environments, so that `play` rolls out any policy in it: J and Σ‖σ‖ before the first real step.

The mean of the posterior moves the state; the task that is planned for, known or learned, pays and ends.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sombrl.envs.base import AbstractEnvs, EnvSpec, Step
from sombrl.errors import SombrlError
from sombrl.training.play import play

if TYPE_CHECKING:
    from sombrl.training.base import Policy

Starts = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Where episodes begin: `AbstractEnvs.reset_rows` of the real environments, or states that are known."""


@dataclasses.dataclass(frozen=True)
class Moved:
    """One imagined decision of every row."""

    obs: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    sigma: np.ndarray
    """‖σ‖ where the decision was taken, normalised units."""


Move = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Moved]
"""Observations, actions, and for every row the numbers of its episode and of the decision in it."""


class ImaginedEnvs(AbstractEnvs):
    """A row per seed, each in the model of that seed."""

    def __init__(self, spec: EnvSpec, seeds: Sequence[int], starts: Starts, move: Move):
        self.spec, self.seeds, self.task = spec, list(seeds), None
        self._starts, self._move = starts, move
        self._obs = np.zeros((len(self.seeds), spec.obs_dim), np.float32)
        self._episodes, self._decisions = np.zeros((2, len(self.seeds)), np.int32)
        self.sigma = np.zeros(len(self.seeds))
        """‖σ‖ of the last decision; 0 on rows that took none."""

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Begin where the real episode of that number begins."""
        self._obs = np.where(rows[:, None], self._starts(rows, episodes), self._obs)
        self._episodes = np.where(rows, episodes, self._episodes).astype(np.int32)
        self._decisions = np.where(rows, 0, self._decisions).astype(np.int32)
        return self._obs.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """The model's next state."""
        actions = np.asarray(actions, np.float32)
        if not self.spec.discrete:
            actions = np.clip(actions, -1.0, 1.0)
        moved = self._move(self._obs, actions, self._episodes, self._decisions)
        self._obs = np.where(active[:, None], moved.obs, self._obs)
        self._decisions = self._decisions + active.astype(np.int32)
        self.sigma = np.where(active, moved.sigma, 0.0)
        terminated = active & moved.ended
        truncated = active & ~terminated & (self._decisions >= self.spec.episode_length)
        reward = np.where(active, moved.reward, 0.0).astype(np.float64)
        return Step(self._obs.copy(), reward, terminated, truncated)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """As the model takes them."""
        return actions

    def get_state(self) -> dict[str, np.ndarray]:
        """Where every row is."""
        return {"obs": self._obs, "episodes": self._episodes, "decisions": self._decisions}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from there."""
        self._obs, self._episodes, self._decisions = state["obs"], state["episodes"], state["decisions"]

    def render(self, row: int) -> np.ndarray:
        """Refused: a model has no picture."""
        raise SombrlError("a learned model has no picture to draw: film the environment itself (sombrl eval --video).")


def foretell(
    policy: "Policy", envs: ImaginedEnvs, *, first_episode: int, episodes: int, discount: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """J and Σ‖σ‖ of whole episodes in the model, [episodes, seeds] each: Σ γᵗ rₜ and Σ γᵗ ‖σₜ‖."""
    sigmas: list[np.ndarray] = []
    values, sums = [], []

    def note(_: AbstractEnvs, t: int) -> None:
        sigmas.append(envs.sigma)

    for played in play(policy, envs, first_episode=first_episode, episodes=episodes, on_step=note):
        weights = discount ** np.arange(played.rewards.shape[1])
        values.append(policy.returns(played.rewards * weights))
        sums.append(weights[: len(sigmas)] @ np.stack(sigmas))
        sigmas.clear()
    return np.stack(values), np.stack(sums)
