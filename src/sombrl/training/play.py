"""Whole episodes under a policy, on environments that no training uses."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from sombrl.envs.base import AbstractEnvs
from sombrl.records import Transition

if TYPE_CHECKING:
    from sombrl.training.base import Policy

OnStep = Callable[[AbstractEnvs, int], None]
"""Called with the environments and the number of the decision after every decision."""


@dataclasses.dataclass(frozen=True)
class Played:
    """One episode of every row, in arrays that are as long as an episode may be."""

    rewards: np.ndarray
    """[rows, time], float64; 0 after the end of an episode."""
    valid: np.ndarray
    """Which decisions there were, [rows, time]."""
    recorded: Transition | None
    """[rows, time], if it was asked for."""

    @property
    def rows(self) -> Transition:
        """The recorded transitions."""
        assert self.recorded is not None, "ask play to record"
        return self.recorded


def play(
    policy: "Policy",
    envs: AbstractEnvs,
    *,
    first_episode: int,
    episodes: int,
    record: bool = False,
    on_step: OnStep | None = None,
) -> Iterator[Played]:
    """Play the episodes with the numbers `first_episode`, `first_episode` + 1, …"""
    number, longest = len(envs.seeds), envs.spec.episode_length
    for stream in range(episodes):
        memory = policy.begin(stream=stream)
        obs = envs.reset(first_episode + stream)
        first, active = np.ones(number, bool), np.ones(number, bool)
        rewards, valid = np.zeros((number, longest)), np.zeros((number, longest), bool)
        decisions = []
        for t in range(longest):
            action, memory = policy.act(memory, obs, first)
            step = envs.step(action, active)
            rewards[:, t], valid[:, t] = np.where(active, step.reward, 0.0), active
            if record:
                decisions.append((obs, action, step.obs, step.terminated, step.truncated))
            if on_step is not None:
                on_step(envs, t)
            active = active & ~(step.terminated | step.truncated)
            obs, first = step.obs, np.zeros(number, bool)
            if not active.any():
                break
        yield Played(rewards, valid, _transitions(decisions, rewards) if record else None)


def _transitions(decisions: Sequence[tuple[np.ndarray, ...]], rewards: np.ndarray) -> Transition:
    """Decisions as columns, with zeros after the last one so that one compiled program reads every episode."""

    def column(values: Sequence[np.ndarray]) -> np.ndarray:
        there = np.stack(values, axis=1)
        missing = rewards.shape[1] - len(values)
        return np.pad(there, [(0, 0), (0, missing)] + [(0, 0)] * (there.ndim - 2))

    obs, action, next_obs, terminated, truncated = map(column, zip(*decisions, strict=True))
    return Transition(*map(jnp.asarray, (obs, action, rewards.astype(np.float32), next_obs, terminated, truncated)))
