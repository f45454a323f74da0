"""How the imagined state moves: by the mean, by fresh samples, by one drawn function, or by hallucinated controls."""

from typing import ClassVar

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Key
from typing_extensions import override

from sombrl.dynamics.base import AbstractDrawable, AbstractDynamics, AbstractResampled, AbstractVectorDynamics
from sombrl.exploration.base import AbstractPropagation
from sombrl.records import SombrlError, State


class Mean(AbstractPropagation):
    """x' = μₙ(x, u): greedy planning and SOMBRL."""

    stochastic: ClassVar[bool] = False

    @override
    def prepare(self, dynamics: AbstractDynamics, *, key: Key[Array, ""]) -> AbstractDynamics:
        return dynamics

    @override
    def extra_actions(self, state_dim: int) -> int:
        return 0

    def __call__(
        self, dynamics: AbstractDynamics, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> State:
        """The predicted mean."""
        return dynamics.predict(state, action).mean


class NoisyMean(AbstractPropagation):
    """x' = μₙ(x, u) + w with the model's aleatoric noise w: the paper's objective exactly.

    `Mean` drops w, which is what makes one particle enough; use this one when the noise is large.
    """

    stochastic: ClassVar[bool] = True

    @override
    def prepare(self, dynamics: AbstractDynamics, *, key: Key[Array, ""]) -> AbstractDynamics:
        return dynamics

    @override
    def extra_actions(self, state_dim: int) -> int:
        return 0

    def __call__(
        self, dynamics: AbstractDynamics, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> State:
        """The model's own noisy transition."""
        return dynamics.transition(state, action, key=key)


class Resampled(AbstractPropagation):
    """x' ~ the posterior predictive, with a new sample at every step and particle: PETS.

    A random member of an ensemble (TS1) plus its noise; N(μₙ, σₙ² + noise²) of a GP.
    """

    stochastic: ClassVar[bool] = True

    def prepare(self, dynamics: AbstractDynamics, *, key: Key[Array, ""]) -> AbstractDynamics:
        """The state must be a vector, so that it has coordinates to sample."""
        return _require_vector(dynamics, "PETS samples every coordinate of the next state")

    @override
    def extra_actions(self, state_dim: int) -> int:
        return 0

    def __call__(
        self, dynamics: AbstractDynamics, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> State:
        """One sample of the posterior predictive."""
        if isinstance(dynamics, AbstractResampled):
            return dynamics.resample(state, action, key=key)
        prediction = dynamics.predict(state, action)
        std = jnp.sqrt(prediction.epistemic_std**2 + prediction.aleatoric_std**2)
        return prediction.mean + std * jr.normal(key, std.shape, std.dtype)


class DrawnOnce(AbstractPropagation):
    """One function is drawn from the posterior and used for the whole episode: Thompson sampling."""

    stochastic: ClassVar[bool] = False

    def prepare(self, dynamics: AbstractDynamics, *, key: Key[Array, ""]) -> AbstractDynamics:
        """Draw the function."""
        if not isinstance(dynamics, AbstractDrawable):
            raise SombrlError(
                f"Thompson needs a model with `draw`, and {type(dynamics).__name__} has none: "
                "use --explore optimistic or greedy."
            )
        return dynamics.draw(key=key)

    @override
    def extra_actions(self, state_dim: int) -> int:
        return 0

    def __call__(
        self, dynamics: AbstractDynamics, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> State:
        """The drawn function's value."""
        return dynamics.predict(state, action).mean


class Hallucinated(AbstractPropagation):
    """x' = μₙ + β σₙ ⊙ η with η ∈ [-1, 1]ⁿ chosen by the planner beside the action: H-UCRL."""

    beta: Float[Array, ""]
    stochastic: ClassVar[bool] = False

    def __init__(self, beta: ArrayLike):
        self.beta = jnp.asarray(beta, jnp.float32)

    def prepare(self, dynamics: AbstractDynamics, *, key: Key[Array, ""]) -> AbstractDynamics:
        """The state must be a vector: it has one hallucinated control per coordinate."""
        return _require_vector(dynamics, "H-UCRL needs one hallucinated control per coordinate")

    def extra_actions(self, state_dim: int) -> int:
        """One η per coordinate of the state."""
        return state_dim

    def __call__(
        self, dynamics: AbstractDynamics, state: State, action: Float[Array, " plan"], *, key: Key[Array, ""]
    ) -> State:
        """The most favourable next state inside the confidence set, chosen by η."""
        controls, eta = action[: -state.shape[0]], action[-state.shape[0] :]
        prediction = dynamics.predict(state, controls)
        return prediction.mean + self.beta * prediction.epistemic_std * jnp.clip(eta, -1.0, 1.0)


def _require_vector(dynamics: AbstractDynamics, why: str) -> AbstractDynamics:
    if not isinstance(dynamics, AbstractVectorDynamics):
        raise SombrlError(
            f"{why}, and {type(dynamics).__name__} has a latent state: use --explore optimistic or greedy."
        )
    return dynamics
