"""Imagined rollouts and their returns: the only scan over time."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.controllers.base import Watch
from sombrl.controllers.limits import beyond, lexicographic
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
    return return_and_cost(mdp, state, actions, value=value, key=key)[0]


def return_and_cost(
    mdp: ImaginedMDP,
    state: State,
    actions: Float[Array, "horizon plan"],
    *,
    value: AbstractPlanValue | None = None,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""] | None]:
    """`imagined_return`, and the upper bound of what the same trajectory costs, where there is a limit to that."""
    limit = mdp.limit

    def step(carry: tuple[State, Array, Array, Array | None], inputs: tuple[Array, Array]) -> tuple[Any, None]:
        state, alive, total, cost = carry
        action, time = inputs
        next_state, reward, discount = mdp.step(state, action, key=jr.fold_in(key, time))
        # Not alive * reward alone: predictions after the end may be NaN, and 0 · NaN is NaN.
        earned = jnp.where(alive > 0, alive * reward, jnp.zeros_like(reward))
        if limit is not None and cost is not None:
            bound = limit.bound(mdp.dynamics, state, mdp.env_action(action), next_state)
            cost = cost + jnp.where(alive > 0, bound, jnp.zeros_like(bound))  # not discounted
        return (next_state, alive * discount, total + earned, cost), None

    # Times, not split keys: vmap transposes an array of keys, which `jax_debug_key_reuse` takes for reuse.
    times = jnp.arange(actions.shape[0], dtype=jnp.int32)
    zero = jnp.zeros((), actions.dtype)
    start = (state, jnp.ones((), actions.dtype), zero, None if limit is None else zero)
    (state, alive, total, cost), _ = jax.lax.scan(step, start, (actions, times))
    if value is not None:
        total = total + jnp.where(alive > 0, alive * value(state, actions.shape[0]), jnp.zeros_like(total))
    return total, cost


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
    a diverging model could win with +inf. Where there is a limit to costs, candidates beyond it lose (limits.py).
    """
    keys = jr.split(key, particles if mdp.stochastic else 1)

    def score(actions: Array) -> tuple[Array, Array | None]:
        returns, costs = jax.vmap(lambda k: return_and_cost(mdp, state, actions, value=value, key=k))(keys)
        return jnp.mean(returns), None if costs is None else jnp.mean(costs)

    scores, costs = jax.vmap(score)(candidates)
    scores = jnp.where(jnp.isfinite(scores), scores, -jnp.inf)
    return scores if mdp.limit is None or costs is None else lexicographic(scores, costs, mdp.limit.budget)


def watch(
    mdp: ImaginedMDP, state: State, plan: Float[Array, "horizon plan"], *, particles: int, key: Key[Array, ""]
) -> Watch:
    """The upper bound of what a plan costs, and whether it is beyond the budget."""
    assert mdp.limit is not None, "there is nothing to watch without a limit"
    keys = jr.split(key, particles if mdp.stochastic else 1)
    _, bounds = jax.vmap(lambda k: return_and_cost(mdp, state, plan, key=k))(keys)
    bound = jnp.mean(jnp.asarray(bounds))
    return Watch(bound, ~(bound <= mdp.limit.budget))  # NaN is beyond


def within_budget(
    mdp: ImaginedMDP,
    state: State,
    wanted: Float[Array, "horizon plan"],
    best: Float[Array, "horizon plan"],
    *,
    particles: int,
    key: Key[Array, ""],
) -> Float[Array, "horizon plan"]:
    """A mean of plans that are within the budget need not be: the best of them instead, where it is beyond."""
    if mdp.limit is None:
        return wanted
    score = score_candidates(mdp, state, wanted[None], particles=particles, key=key)[0]
    return jnp.where(beyond(score) | ~jnp.isfinite(score), best, wanted)


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
