"""The interface of environments: one per seed, stepped together. Free of JAX, for simulator processes."""

import abc
import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sombrl.envs.layout import ObsLayout, one_vector

if TYPE_CHECKING:
    from sombrl.records import AbstractCost, AbstractTask

ENDLESS = 1_000_000_000
"""The episode length, in decisions, of an environment without a time limit."""


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """An environment as the agent sees it: actions in [-1, 1], one decision = `action_repeat` frames.

    With `discrete` an action is any vector of `action_dim` numbers, and the index of the largest is executed.
    """

    name: str
    obs_dim: int
    action_dim: int
    episode_length: int  # decisions
    action_repeat: int
    optimal_average: float | None = None  # the best average reward of a decision, where it is known
    layout: ObsLayout | None = None  # the parts of an observation; None: one vector
    discrete: bool = False

    @property
    def obs_layout(self) -> ObsLayout:
        """The parts of an observation, also of a single vector."""
        return one_vector(self.obs_dim) if self.layout is None else self.layout

    @property
    def obs_dtype(self) -> np.dtype:
        """float32, or uint8 for the bytes of an observation with images."""
        return self.obs_layout.dtype


@dataclasses.dataclass(frozen=True)
class Step:
    """The result of one decision, a row per seed. Inactive rows repeat their last observation."""

    obs: np.ndarray  # [seeds, obs] float32, or uint8 (`EnvSpec.obs_dtype`)
    reward: np.ndarray  # [seeds] float64, summed over the repeated frames
    terminated: np.ndarray  # [seeds] bool
    truncated: np.ndarray  # [seeds] bool
    cost: np.ndarray | None = None  # [seeds] float64, as the simulator reports it; NaN where it does not


class AbstractEnvs(abc.ABC):
    """One environment per seed. Host simulators, pure-JAX worlds and hardware all look like this to the loop.

    Each row has its own episode number and its own clock. Randomness is a function of (seed, episode) alone, so
    a seed's trajectory does not depend on which others run beside it or on when they are reset, and a resumed
    run has the same initial states.
    """

    spec: EnvSpec
    seeds: list[int]
    task: "AbstractTask | None"  # the known reward and termination, or None: then they are learned
    downstream: "Mapping[str, AbstractTask]" = types.MappingProxyType({})
    """Other tasks one may plan for in the same dynamics, by name."""
    cost: "AbstractCost | None" = None
    """What is to be avoided beside the reward, where it is known as a function of observations."""

    def reset(self, episode: int) -> np.ndarray:
        """Start episode number `episode` on every seed; the observations, [seeds, obs]."""
        return self.reset_rows(np.ones(len(self.seeds), bool), np.full(len(self.seeds), episode))

    @abc.abstractmethod
    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Start episode number `episodes[i]` on every row i with `rows[i]`; the others stay where they are.

        Returns the observations of all rows, [seeds, obs].
        """

    @abc.abstractmethod
    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] (or the index of the largest, of discrete ones) on the rows that are active."""

    def begin_step(self, actions: np.ndarray, active: np.ndarray) -> Callable[[], Step]:
        """Begin a step; the call returned finishes it. By default all work is done in that call."""
        return lambda: self.step(actions, active)

    @abc.abstractmethod
    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` in [-1, 1], [batch, action], in the environment's own units and shape, [batch, ...].

        Discrete ones become integers.
        """

    @abc.abstractmethod
    def get_state(self) -> dict[str, np.ndarray]:
        """Plain arrays from which `set_state` continues exactly here; the first axis of each is the seed."""

    @abc.abstractmethod
    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`."""

    @abc.abstractmethod
    def render(self, row: int) -> np.ndarray:
        """A picture of one row, uint8 [height, width, 3]."""

    def close(self) -> None:  # noqa: B027
        """Free the resources of the simulators."""
