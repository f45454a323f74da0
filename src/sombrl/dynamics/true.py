"""The true system as a model: planning on it gives the reference J(π*) that regret is measured against."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from sombrl.dynamics.base import AbstractLearner, AbstractVectorDynamics
from sombrl.envs.base import AbstractWorld
from sombrl.records import AbstractTask, Prediction
from sombrl.replay import Replay

ROUNDING = 1e-6  # of float32; a noise of exactly 0 has no likelihood


class TrueDynamics(AbstractVectorDynamics):
    """x' as the world computes it, without noise and without uncertainty."""

    world: AbstractWorld  # without noise
    action_repeat: int = eqx.field(static=True)

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """The next observation."""

        def frame(inner: PyTree, _: None) -> tuple[PyTree, None]:
            return self.world.step(inner, action, key=jr.key(0))[0], None

        inner, _ = jax.lax.scan(frame, self.world.infer(state), None, length=self.action_repeat)
        rounding = jnp.full_like(state, ROUNDING)
        return Prediction(self.world.observe(inner), jnp.zeros_like(state), rounding, jnp.ones_like(state))


class TrueLearner(AbstractLearner):
    """Has nothing to learn; its state counts the fits, one before every episode, for worlds that drift."""

    double_precision: ClassVar[bool] = False
    world: AbstractWorld
    action_repeat: int = eqx.field(static=True)

    def init(self, *, key: Key[Array, ""]) -> Float[Array, ""]:
        """No fits."""
        return jnp.zeros(())

    def fit(
        self, state: Float[Array, ""], replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """Nothing to fit: another episode begins."""
        return state + 1.0, {}

    def dynamics(self, state: Float[Array, ""]) -> TrueDynamics:
        """The world as it is in the episode that the last fit was for."""
        return TrueDynamics(self.world.without_noise().in_episode(state - 1.0), self.action_repeat)

    def task(self, state: Float[Array, ""]) -> AbstractTask | None:
        """The environment's own."""
        return None
