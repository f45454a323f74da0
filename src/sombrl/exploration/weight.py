"""λₙ, the weight of the bonus, as a part of its own: an array under jit, logged, and saved with the run."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int


class AbstractWeight(eqx.Module):
    """λₙ as a function of the iteration n."""

    @abc.abstractmethod
    def __call__(self, iteration: Int[Array, ""]) -> Float[Array, ""]:
        """λₙ."""


class Constant(AbstractWeight):
    """The same λ for ever (the paper's GP experiments: λ = 10)."""

    value: Float[Array, ""]

    def __init__(self, value: ArrayLike):
        self.value = jnp.asarray(value, jnp.float32)

    def __call__(self, iteration: Int[Array, ""]) -> Float[Array, ""]:
        """λ."""
        return self.value


class Linear(AbstractWeight):
    """From `start` at n = 0 to `end` at n = `steps`, then constant."""

    start: Float[Array, ""]
    end: Float[Array, ""]
    steps: Float[Array, ""]

    def __init__(self, start: ArrayLike, end: ArrayLike, steps: ArrayLike):
        self.start, self.end, self.steps = (jnp.asarray(x, jnp.float32) for x in (start, end, steps))

    def __call__(self, iteration: Int[Array, ""]) -> Float[Array, ""]:
        """λₙ on the line."""
        done = jnp.clip(iteration.astype(jnp.float32) / self.steps, 0.0, 1.0)
        return self.start + (self.end - self.start) * done
