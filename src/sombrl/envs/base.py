"""What the loop drives: one environment per seed, stepped together; and what a pure-JAX world must offer."""

import abc
import dataclasses
import types
from collections.abc import Mapping

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from sombrl.records import AbstractTask, SombrlError

ENDLESS = 1_000_000_000
"""The episode length, in decisions, of an environment without a time limit."""


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """An environment as the agent sees it: actions in [-1, 1], one decision = `action_repeat` frames."""

    name: str
    obs_dim: int
    action_dim: int
    episode_length: int  # decisions
    action_repeat: int
    optimal_average: float | None = None  # the best average reward of a decision, where it is known


@dataclasses.dataclass(frozen=True)
class Step:
    """What came back from one decision, a row per seed. Inactive rows repeat their last observation."""

    obs: np.ndarray  # [seeds, obs] float32
    reward: np.ndarray  # [seeds] float64, summed over the repeated frames
    terminated: np.ndarray  # [seeds] bool
    truncated: np.ndarray  # [seeds] bool


class AbstractEnvs(abc.ABC):
    """One environment per seed. Host simulators, pure-JAX worlds and hardware all look like this to the loop.

    Randomness is a function of (seed, episode) alone, so a seed's trajectory does not depend on which others
    run beside it, and a resumed run meets the same starts.
    """

    spec: EnvSpec
    task: AbstractTask | None  # the known reward and termination, or None: then they are learned
    downstream: Mapping[str, AbstractTask] = types.MappingProxyType({})
    """Other tasks one may plan for in the same dynamics, by name."""

    @abc.abstractmethod
    def reset(self, episode: int) -> np.ndarray:
        """Start episode number `episode` on every seed; the observations, [seeds, obs]."""

    @abc.abstractmethod
    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""

    @abc.abstractmethod
    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` in [-1, 1], [batch, action], in the environment's own units and shape, [batch, ...]."""

    @abc.abstractmethod
    def get_state(self) -> dict[str, np.ndarray]:
        """Plain arrays from which `set_state` continues exactly here."""

    @abc.abstractmethod
    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`."""

    @abc.abstractmethod
    def render(self, row: int) -> np.ndarray:
        """A picture of one row, uint8 [height, width, 3]."""

    def close(self) -> None:  # noqa: B027
        """Free what the simulators hold."""


class AbstractWorld(eqx.Module):
    """A world in pure JAX, written for one frame of one environment."""

    obs_dim: eqx.AbstractClassVar[int]
    action_dim: eqx.AbstractClassVar[int]
    episode_frames: eqx.AbstractClassVar[int]  # the default length of an episode

    @abc.abstractmethod
    def reset(self, *, key: Key[Array, ""]) -> PyTree:
        """A start state."""

    @abc.abstractmethod
    def step(
        self, state: PyTree, action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, ""], Bool[Array, ""]]:
        """One frame under an action in [-1, 1]: the next state, the reward, and whether the task ended."""

    @abc.abstractmethod
    def observe(self, state: PyTree) -> Float[Array, " obs"]:
        """The observation of a state."""

    @abc.abstractmethod
    def task(self, action_repeat: int) -> AbstractTask:
        """The known task on observations, for decisions of `action_repeat` frames."""

    @abc.abstractmethod
    def draw(self, state: PyTree, axes) -> None:
        """Draw the state on matplotlib axes."""

    def downstream(self, action_repeat: int) -> dict[str, AbstractTask]:
        """Other tasks in the same dynamics, by name: none unless the world has some."""
        return {}

    def optimal_average(self) -> float | None:
        """The best average reward of a frame that any policy has, if it is known: regret is measured against it."""
        return None

    def can_end(self) -> bool:
        """Whether a step can terminate: such a world cannot be run without resets."""
        return False

    def without_noise(self) -> "AbstractWorld":
        """The same world with its noise off: itself, if it has none."""
        return self

    def infer(self, obs: Float[Array, " obs"]) -> PyTree:
        """The state behind an observation, for planning on the true system."""
        raise SombrlError(f"{type(self).__name__} has no `infer` (observation → state): it cannot be planned on.")
