"""Imagined rollouts and their returns: the only scan over time."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.exploration.base import ImaginedMDP
from sombrl.records import State


class AbstractPlanValue(eqx.Module):
    """What it is worth to be where a plan ends, and plans to begin a search with."""

    @abc.abstractmethod
    def __call__(self, state: State, horizon: int) -> Float[Array, ""]:
        """V(x) at the end of a plan of `horizon` decisions."""

    def begin_episode(self) -> "AbstractPlanValue":
        """The same value at the first decision of an episode; by default it does not depend on time."""
        return self

    def after_decision(self) -> "AbstractPlanValue":
        """The same value one decision later."""
        return self

    @abc.abstractmethod
    def propose(self, mdp: ImaginedMDP, state: State, horizon: int) -> Float[Array, "plans horizon plan"]:
        """Plans from a state."""


def imagined_return(
    mdp: ImaginedMDP,
    state: State,
    actions: Float[Array, "horizon plan"],
    *,
    value: AbstractPlanValue | None = None,
    key: Key[Array, ""],
) -> Float[Array, ""]:
    """Σ_t (Π discounts) · reward along one imagined trajectory, and the value of where it ends.

    The reward is 0 once the task has ended.
    """

    def step(carry: tuple[State, Array, Array], inputs: tuple[Array, Array]) -> tuple[Any, None]:
        state, alive, total = carry
        action, time = inputs
        state, reward, discount = mdp.step(state, action, key=jr.fold_in(key, time))
        # Not alive * reward alone: predictions after the end may be NaN, and 0 · NaN is NaN.
        earned = jnp.where(alive > 0, alive * reward, jnp.zeros_like(reward))
        return (state, alive * discount, total + earned), None

    # Times, not split keys: vmap transposes an array of keys, which `jax_debug_key_reuse` takes for reuse.
    times = jnp.arange(actions.shape[0], dtype=jnp.int32)
    start = (state, jnp.ones((), actions.dtype), jnp.zeros((), actions.dtype))
    (state, alive, total), _ = jax.lax.scan(step, start, (actions, times))
    if value is not None:
        total = total + jnp.where(alive > 0, alive * value(state, actions.shape[0]), jnp.zeros_like(total))
    return total


def score_candidates(
    mdp: ImaginedMDP,
    state: State,
    candidates: Float[Array, "batch horizon plan"],
    *,
    particles: int,
    value: AbstractPlanValue | None = None,
    key: Key[Array, ""],
) -> Float[Array, " batch"]:
    """The return of each candidate, averaged over particles.

    Every candidate uses the same random numbers, so differences between scores are differences between
    candidates. A deterministic MDP needs one particle only. A return that is not finite scores -inf: otherwise
    a diverging model could win with +inf.
    """
    keys = jr.split(key, particles if mdp.stochastic else 1)

    def score(actions: Array) -> Array:
        return jnp.mean(jax.vmap(lambda k: imagined_return(mdp, state, actions, value=value, key=k))(keys))

    scores = jax.vmap(score)(candidates)
    return jnp.where(jnp.isfinite(scores), scores, -jnp.inf)


def better_start(
    mdp: ImaginedMDP,
    state: State,
    plan: Float[Array, "horizon plan"],
    value: AbstractPlanValue,
    *,
    particles: int,
    key: Key[Array, ""],
) -> tuple[Float[Array, "horizon plan"], Float[Array, ""]]:
    """The plan of the last decision or one that the value proposes, whichever is best, and its score."""
    plans = jnp.concatenate([plan[None], value.propose(mdp, state, plan.shape[0])])
    scores = score_candidates(mdp, state, plans, particles=particles, value=value, key=key)
    best = jnp.argmax(scores)
    return plans[best], scores[best]
