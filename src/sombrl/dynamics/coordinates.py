"""The inputs and targets of a dynamics model as functions of (observation, action, next observation).

A model that works in `Differences` has no prior knowledge. Other coordinates can say which numbers of an observation
are only remembered actions, or that a car drives the same way wherever it stands, so that data need not teach it.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractCoordinates(eqx.Module):
    """Observations and actions as inputs and targets of a regression, and back. Physical units throughout."""

    @property
    @abc.abstractmethod
    def input_dim(self) -> int:
        """How many numbers the model sees."""

    @property
    @abc.abstractmethod
    def target_dim(self) -> int:
        """How many it predicts."""

    @abc.abstractmethod
    def inputs(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, " input"]:
        """What the model sees."""

    @abc.abstractmethod
    def targets(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], next_obs: Float[Array, " obs"]
    ) -> Float[Array, " target"]:
        """What the model should have predicted."""

    @abc.abstractmethod
    def next_obs(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], target: Float[Array, " target"]
    ) -> Float[Array, " obs"]:
        """The next observation of a predicted target: the inverse of `targets`."""

    @abc.abstractmethod
    def spread(self, obs: Float[Array, " obs"], std: Float[Array, " target"]) -> Float[Array, " obs"]:
        """The standard deviation of the next observation, to first order; 0 where it is known."""


class Differences(AbstractCoordinates):
    """Inputs are observation and action, targets the change of the observation."""

    obs_dim: int = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)

    @property
    def input_dim(self) -> int:
        """Observation and action."""
        return self.obs_dim + self.action_dim

    @property
    def target_dim(self) -> int:
        """The observation's change."""
        return self.obs_dim

    def inputs(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, " input"]:
        """Side by side."""
        return jnp.concatenate([obs, action])

    def targets(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], next_obs: Float[Array, " obs"]
    ) -> Float[Array, " target"]:
        """x' - x."""
        return next_obs - obs

    def next_obs(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], target: Float[Array, " target"]
    ) -> Float[Array, " obs"]:
        """x + Δ."""
        return obs + target

    def spread(self, obs: Float[Array, " obs"], std: Float[Array, " target"]) -> Float[Array, " obs"]:
        """As predicted."""
        return std
