"""No model, for model-free algorithms: the interfaces stay the same, and nothing evaluates it."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sombrl.dynamics.base import AbstractLearner, AbstractVectorDynamics
from sombrl.records import AbstractTask, Prediction
from sombrl.replay import Replay


class NoDynamics(AbstractVectorDynamics):
    """Predicts, without uncertainty, that the state does not change."""

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """The state itself."""
        none = jnp.zeros_like(state)
        return Prediction(state, none, jnp.ones_like(state), jnp.ones_like(state))


class NoTask(AbstractTask):
    """Reward 0 everywhere: a model-free algorithm reads rewards from its transitions."""

    def reward(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Float[Array, ""]:
        """0."""
        return jnp.zeros((), state.dtype)

    def terminated(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Bool[Array, ""]:
        """Never."""
        return jnp.zeros((), bool)


class NoLearner(AbstractLearner):
    """Learns nothing."""

    double_precision: ClassVar[bool] = False
    state_dim: int = eqx.field(static=True)

    def init(self, *, key: Key[Array, ""]) -> Float[Array, ""]:
        """Nothing (a number, because a state must have a leaf)."""
        return jnp.zeros((), jnp.float32)

    def fit(
        self, state: Float[Array, ""], replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """Nothing to fit."""
        return state, {}

    def dynamics(self, state: Float[Array, ""]) -> NoDynamics:
        """No model."""
        return NoDynamics()

    def task(self, state: Float[Array, ""]) -> NoTask:
        """No task."""
        return NoTask()
