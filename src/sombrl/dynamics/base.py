"""The interface of a dynamics model: a mean and an epistemic standard deviation."""

import abc
from typing import Any

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.records import AbstractCost, AbstractTask, Prediction, State
from sombrl.replay import Replay


class AbstractDynamics(eqx.Module):
    """A fitted posterior over dynamics. No optimiser inside, so a planner's compiled function stays small."""

    @abc.abstractmethod
    def predict(self, state: State, action: Float[Array, " action"]) -> Prediction:
        """μₙ and σₙ at one (state, action)."""

    @abc.abstractmethod
    def transition(self, state: State, action: Float[Array, " action"], *, key: Key[Array, ""]) -> State:
        """x' = μₙ(x, u) + w, with the model's own aleatoric noise w."""

    @abc.abstractmethod
    def observe(
        self,
        belief: State,
        prev_action: Float[Array, " action"] | None,
        obs: Float[Array, " obs"],
        *,
        key: Key[Array, ""],
    ) -> State:
        """Update the belief with a new observation; belief and action are None at the start of an episode."""


class AbstractVectorDynamics(AbstractDynamics):
    """A model whose state is the observation vector, so that it can be hallucinated."""

    def transition(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """The mean plus Gaussian noise of the predicted aleatoric std."""
        prediction = self.predict(state, action)
        noise = jr.normal(key, prediction.mean.shape, prediction.mean.dtype)
        return prediction.mean + prediction.aleatoric_std * noise

    def observe(
        self,
        belief: State,
        prev_action: Float[Array, " action"] | None,
        obs: Float[Array, " obs"],
        *,
        key: Key[Array, ""],
    ) -> Float[Array, " state"]:
        """The observation is the state."""
        return obs


class AbstractDrawable(eqx.Module):
    """A posterior from which whole functions can be drawn; Thompson needs it."""

    @abc.abstractmethod
    def draw(self, *, key: Key[Array, ""]) -> AbstractDynamics:
        """One function from the posterior, itself a dynamics with zero epistemic std."""


class AbstractResampled(eqx.Module):
    """A posterior whose predictive is not a Gaussian around the mean; PETS then asks it for samples."""

    @abc.abstractmethod
    def resample(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """One sample of the posterior predictive, noise included, independent of every other call's."""


class AbstractInformed(eqx.Module):
    """A posterior that can compute the information gain of its data; the theoretical λₙ needs it."""

    @abc.abstractmethod
    def information_gain(self) -> Float[Array, " state"]:
        """½ log det(I + K/s²) of the data, per coordinate."""

    @abc.abstractmethod
    def noise_std(self) -> Float[Array, " state"]:
        """s, per coordinate, in normalised units."""


class AbstractLearner(eqx.Module):
    """The recipe that turns replay into a posterior. Its state holds hyperparameters, optimiser and normaliser."""

    double_precision: eqx.AbstractClassVar[bool]
    """Whether `init` and `fit` must be compiled and called inside `jax.enable_x64(True)`. What they hand to planners
    is float32 either way."""

    @abc.abstractmethod
    def init(self, *, key: Key[Array, ""]) -> Any:
        """The state before any data: its dynamics is the prior."""

    @abc.abstractmethod
    def fit(self, state: Any, replay: Replay, *, key: Key[Array, ""]) -> tuple[Any, dict[str, Float[Array, ""]]]:
        """Condition on everything in the replay; returns the new state and scalar metrics."""

    @property
    def renew_every(self) -> int | None:
        """How many fits lie between two calls of `renew`; None for never."""
        return None

    def renew(self, state: Any, *, key: Key[Array, ""]) -> Any:
        """Forget some of what was learned, so that learning does not get stuck. By default it does nothing."""
        return state

    @abc.abstractmethod
    def dynamics(self, state: Any) -> AbstractDynamics:
        """The posterior to plan with."""

    @abc.abstractmethod
    def task(self, state: Any) -> AbstractTask | None:
        """The learned task (reward and termination), or None when the environment's own is used."""

    def cost(self, state: Any) -> AbstractCost | None:
        """The learned cost, or None when it is known or not asked for."""
        return None
