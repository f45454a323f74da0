"""A simulator as a prior over functions: parameters drawn from their ranges give one function each (SimFSVGD)."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree


class AbstractSimulator(eqx.Module):
    """A family of functions from a model's inputs to its targets, in the physical units of its coordinates."""

    @abc.abstractmethod
    def draw(self, *, key: Key[Array, ""]) -> PyTree:
        """Parameters of one function."""

    @abc.abstractmethod
    def __call__(self, parameters: PyTree, inputs: Float[Array, " input"]) -> Float[Array, " target"]:
        """That function's value at one input."""

    @abc.abstractmethod
    def domain(self, *, key: Key[Array, ""]) -> Float[Array, " input"]:
        """An input at which the prior is to hold, drawn from the simulator's domain."""
