"""The records that travel between the parts, and the vocabulary of axis names.

Everything is written for one state and one action; batching is the caller's `vmap`. The axis names used in
shapes, everywhere: `obs`, `state`, `action` (what the environment takes), `plan` (what a planner optimises: the
action plus hallucinated controls), `horizon`, `time`, `batch`, `particles`, `seeds`, `capacity`.

Actions are in [-1, 1] inside sombrl; only the environment adapters know the physical bounds.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sombrl.errors import RunFault as RunFault
from sombrl.errors import SombrlError as SombrlError

State = Any
"""What a model imagines with: a vector for GPs and ensembles, a latent for recurrent models."""


class Transition(eqx.Module):
    """One decision in the real environment, or a batch of them."""

    obs: Float[Array, "*batch obs"]
    action: Float[Array, "*batch action"]
    reward: Float[Array, "*batch"]
    next_obs: Float[Array, "*batch obs"]
    terminated: Bool[Array, "*batch"]  # the task ended: no bootstrapping
    truncated: Bool[Array, "*batch"]  # the time limit was reached: values are still bootstrapped
    cost: Float[Array, "*batch"] | None = None  # where a cost is to be learned beside the reward


class Prediction(eqx.Module):
    """The model's prediction of the next state at one (state, action). Standard deviations, never variances."""

    mean: Float[Array, " state"]  # μₙ, physical units
    epistemic_std: Float[Array, " state"]  # σₙ: shrinks with data, physical units
    aleatoric_std: Float[Array, " state"]  # noise: does not shrink, physical units
    scale: Float[Array, " state"]  # the unit of a normalised output: σₙ/scale has no dimension
    task_std: Float[Array, " task"] = eqx.field(default_factory=lambda: jnp.zeros(0, jnp.float32))
    """Epistemic std of the learned reward (and termination), normalised; empty where they are not learned."""


class AbstractTask(eqx.Module):
    """The task: reward and termination. Apart from the environment, so that unsupervised runs can replace it."""

    @abc.abstractmethod
    def reward(self, state: State, action: Float[Array, " action"], next_state: State) -> Float[Array, ""]:
        """The reward of one decision (all its repeated frames)."""

    @abc.abstractmethod
    def terminated(self, state: State, action: Float[Array, " action"], next_state: State) -> Bool[Array, ""]:
        """Whether that decision ends the task."""


VIOLATION = 1.0
"""A decision that costs at least so much is a violation."""


class AbstractCost(eqx.Module):
    """What is to be avoided, beside the reward: at least 0, and from 1 on a violation."""

    @abc.abstractmethod
    def __call__(self, state: State, action: Float[Array, " action"], next_state: State) -> Float[Array, ""]:
        """The cost of one decision."""

    def std(self, state: State, action: Float[Array, " action"]) -> Float[Array, ""]:
        """The epistemic standard deviation of a cost that was learned; 0 where the cost is known."""
        return jnp.zeros((), jnp.float32)


class TerminationCost(AbstractCost):
    """1 for a decision that ends the task, where its end is known."""

    task: AbstractTask

    def __call__(self, state: State, action: Float[Array, " action"], next_state: State) -> Float[Array, ""]:
        """1 at the end."""
        return jnp.where(self.task.terminated(state, action, next_state), VIOLATION, 0.0).astype(jnp.float32)
