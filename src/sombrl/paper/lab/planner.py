"""Dynamic programming on tables: exact plans and exact values in the three settings.

P[x, u, x'] are transition probabilities, `rewards[x, u, i]` one or several rewards (r and ‖σ‖, say) that are valued
together. A policy is a table of probabilities [stages, x, u]: one stage if it is stationary, T if it counts time.
Infinite horizons use Howard's policy iteration, which ends after finitely many exact linear solves.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

MAX_IMPROVEMENTS = 100
"""Rounds of policy iteration; a handful is the rule."""
MARGIN = 1e-10
"""How much better an action must be to replace another: rounding must not make the iteration cycle."""

Transition = Float[Array, "states actions states"]
Reward = Float[Array, "states actions"]
Rewards = Float[Array, "states actions kinds"]
Policy = Float[Array, "stages states actions"]


def plan_finite_horizon(transition: Transition, reward: Reward, horizon: int) -> Policy:
    """argmax of E Σ_{t<T} r, by backward induction: one table per step."""

    def earlier(value: Array, _: None) -> tuple[Array, Array]:
        action_value = reward + transition @ value
        return jnp.max(action_value, axis=1), jnp.argmax(action_value, axis=1)

    start = jnp.zeros(transition.shape[0], reward.dtype)
    _, actions = jax.lax.scan(earlier, start, None, horizon, reverse=True)
    return jax.nn.one_hot(actions, reward.shape[1], dtype=reward.dtype)


def plan_discounted(transition: Transition, reward: Reward, discount: float) -> Policy:
    """argmax of E Σ γᵗ r, the same stationary policy for every start."""

    def action_values(policy: Policy) -> Array:
        value = value_discounted(transition, reward[:, :, None], policy, discount)[:, 0]
        return reward + discount * (transition @ value)

    return _improve(action_values, jnp.argmax(reward, axis=1), reward)


def plan_average(transition: Transition, reward: Reward) -> Policy:
    """argmax of the average reward. Every policy must forget where it started; Gaussian noise sees to that."""

    def action_values(policy: Policy) -> Array:
        _, bias = value_average(transition, reward[:, :, None], policy)
        return reward + transition @ bias[:, 0]

    return _improve(action_values, jnp.argmax(reward, axis=1), reward)


def value_finite_horizon(
    transition: Transition, rewards: Rewards, policy: Policy, horizon: int
) -> Float[Array, "states kinds"]:
    """E Σ_{t<T} r from every state; a stationary policy is used at every step."""
    stages = jnp.broadcast_to(policy, (horizon, *policy.shape[1:]))

    def earlier(value: Array, probabilities: Array) -> tuple[Array, None]:
        chain, reward = closed_loop(transition, rewards, probabilities)
        return reward + chain @ value, None

    value, _ = jax.lax.scan(
        earlier, jnp.zeros((rewards.shape[0], rewards.shape[2]), rewards.dtype), stages, reverse=True
    )
    return value


def value_discounted(
    transition: Transition, rewards: Rewards, policy: Policy, discount: float
) -> Float[Array, "states kinds"]:
    """E Σ γᵗ r from every state: (I - γP)⁻¹ r."""
    chain, reward = closed_loop(transition, rewards, policy[0])
    value: Array = jnp.linalg.solve(jnp.eye(chain.shape[0], dtype=chain.dtype) - discount * chain, reward)
    return value


def value_average(
    transition: Transition, rewards: Rewards, policy: Policy
) -> tuple[Float[Array, " kinds"], Float[Array, "states kinds"]]:
    """J_avg and the bias B(π, x), which is 0 at the first state: B + J_avg = r + PB."""
    chain, reward = closed_loop(transition, rewards, policy[0])
    # The unknown B(first state) = 0 leaves its column to the unknown J_avg.
    matrix = (jnp.eye(chain.shape[0], dtype=chain.dtype) - chain).at[:, 0].set(1.0)
    solution = jnp.linalg.solve(matrix, reward)
    return solution[0], solution.at[0].set(0.0)


def closed_loop(
    transition: Transition, rewards: Rewards, probabilities: Float[Array, "states actions"]
) -> tuple[Float[Array, "states states"], Float[Array, "states kinds"]]:
    """The Markov chain and the rewards under one stage of a policy."""
    chain = jnp.einsum("xu,xuy->xy", probabilities, transition)
    return chain, jnp.einsum("xu,xuk->xk", probabilities, rewards)


def _improve(
    action_values: Callable[[Policy], Float[Array, "states actions"]],
    first: Int[Array, " states"],
    reward: Reward,
) -> Policy:
    """Howard's policy iteration."""
    states = jnp.arange(reward.shape[0])

    def table(actions: Array) -> Array:
        return jax.nn.one_hot(actions, reward.shape[1], dtype=reward.dtype)[None]

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, changed, rounds = carry
        return changed & (rounds < MAX_IMPROVEMENTS)

    def improve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        actions, _, rounds = carry
        values = action_values(table(actions))
        margin = MARGIN * (1.0 + jnp.max(jnp.abs(values)))
        better = jnp.max(values, axis=1) > values[states, actions] + margin
        return jnp.where(better, jnp.argmax(values, axis=1), actions), jnp.any(better), rounds + 1

    actions, _, _ = jax.lax.while_loop(unfinished, improve, (first, jnp.asarray(True), jnp.asarray(0)))
    return table(actions)
