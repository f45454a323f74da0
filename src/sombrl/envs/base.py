"""The interface of a world in pure JAX."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key, PyTree, UInt

from sombrl.envs.interface import ENDLESS, AbstractEnvs, EnvSpec, Step
from sombrl.envs.layout import ObsLayout
from sombrl.records import AbstractCost, AbstractTask, SombrlError

__all__ = ["ENDLESS", "AbstractEnvs", "AbstractWorld", "EnvSpec", "Step"]


class AbstractWorld(eqx.Module):
    """A world in pure JAX, written for one frame of one environment."""

    obs_dim: eqx.AbstractClassVar[int]
    action_dim: eqx.AbstractClassVar[int]
    episode_frames: eqx.AbstractClassVar[int]  # the default length of an episode

    @property
    def layout(self) -> ObsLayout | None:
        """The parts of an observation, where it is not one vector: then `observe` gives a row of bytes."""
        return None

    @abc.abstractmethod
    def reset(self, *, key: Key[Array, ""]) -> PyTree:
        """A start state."""

    @abc.abstractmethod
    def step(
        self, state: PyTree, action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, ""], Bool[Array, ""]]:
        """One frame under an action in [-1, 1]: the next state, the reward, and whether the task ended."""

    @abc.abstractmethod
    def observe(self, state: PyTree) -> Float[Array, " obs"] | UInt[Array, " obs"]:
        """The observation of a state."""

    @abc.abstractmethod
    def task(self, action_repeat: int) -> AbstractTask | None:
        """The known task on observations, for decisions of `action_repeat` frames. None: it is learned."""

    @abc.abstractmethod
    def draw(self, state: PyTree, axes: Any) -> None:
        """Draw the state on matplotlib axes."""

    def draw_trail(self, states: Sequence[PyTree], axes: Any) -> None:
        """Add the states of an episode so far to the drawing. By default it adds nothing."""

    def cost(self, action_repeat: int) -> AbstractCost | None:
        """The known cost on observations, judged by where a decision leads; None where nothing is to be avoided."""
        return None

    def in_episode(self, episode: UInt[Array, ""] | Float[Array, ""]) -> "AbstractWorld":
        """The world as it is in an episode: itself, unless it drifts."""
        return self

    def downstream(self, action_repeat: int) -> dict[str, AbstractTask]:
        """Other tasks in the same dynamics, by name. By default there are none."""
        return {}

    def optimal_average(self) -> float | None:
        """The best average reward per frame of any policy, if it is known: the reference of regret."""
        return None

    def can_end(self) -> bool:
        """Whether a step can terminate; such a world cannot run without resets."""
        return False

    def without_noise(self) -> "AbstractWorld":
        """The same world with its noise off: itself, if it has none."""
        return self

    def infer(self, obs: Float[Array, " obs"]) -> PyTree:
        """The state behind an observation, for planning on the true system."""
        raise SombrlError(
            f"{type(self).__name__} has no `infer` (observation → state): planning on the true system is not possible."
        )
