"""What the critics learn from: imagined transitions, and the order in which they alternate with real ones."""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.controllers.sac_config import SACConfig
from sombrl.controllers.sac_losses import sample_actions
from sombrl.exploration.base import ImaginedMDP
from sombrl.networks.mlp import MLP
from sombrl.records import State, Transition

Role = Literal["batch", "imagine", "rollout", "shuffle", "next_action", "action", "target_action"]
"""The uses of random numbers. Each has a key of its own, so that a change in one does not shift another."""


def role_key(key: Key[Array, ""], role: Role) -> Key[Array, ""]:
    """The key of one role. Derived where it is used: a loop must not be handed a key to use it up."""
    return jr.fold_in(key, get_args(Role).index(role))


class Steps(eqx.Module):
    """The critic steps of a block in their order."""

    rows: Transition  # [steps, batch, ...]
    tau: Float[Array, " steps"]  # how far the target critics move after each
    due: Bool[Array, " steps"] | None  # which are done; None for all


def imagine(config: SACConfig, actor: MLP, mdp: ImaginedMDP, real: Transition, key: Key[Array, ""]) -> Transition:
    """As many imagined transitions as there are real ones, which have the task's weight in their reward already."""
    total = real.reward.shape[0]
    if config.imagined == "branched":
        return _branched(config, actor, mdp, real.obs[: -(-total // config.rollout_length)], total, key)
    next_obs = _propagate(mdp, real.obs, real.action, role_key(key, "imagine"))
    imagined: Transition = eqx.tree_at(lambda rows: rows.next_obs, real, next_obs)
    return imagined


def _branched(
    config: SACConfig, actor: MLP, mdp: ImaginedMDP, start: Float[Array, "start obs"], total: int, key: Key[Array, ""]
) -> Transition:
    """Rollouts of the policy from stored states (Janner et al. 2019), shuffled so that a batch holds all depths."""

    def forward(obs: Array, forward_key: Key[Array, ""]) -> tuple[Array, Transition]:
        noise_key, step_key = jr.split(forward_key)
        action, _ = sample_actions(actor, obs, jr.normal(noise_key, (obs.shape[0], mdp.action_dim), obs.dtype))
        next_obs = _propagate(mdp, obs, action, step_key)
        reward = mdp.task_weight * jax.vmap(mdp.task.reward)(obs, action, next_obs)
        ended = jax.vmap(mdp.task.terminated)(obs, action, next_obs)
        rows = Transition(obs, action, reward, next_obs, ended, jnp.zeros_like(ended))
        return jnp.where(ended[:, None], start, next_obs), rows  # what has ended restarts: no row is wasted

    _, rows = jax.lax.scan(forward, start, jr.split(role_key(key, "rollout"), config.rollout_length))
    order = jr.permutation(role_key(key, "shuffle"), config.rollout_length * start.shape[0])[:total]
    shuffled: Transition = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[order], rows)
    return shuffled


def _propagate(
    mdp: ImaginedMDP, obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"], key: Key[Array, ""]
) -> Float[Array, "batch obs"]:
    def step(obs: Array, action: Array, key: Key[Array, ""]) -> State:
        return mdp.propagation(mdp.dynamics, obs, action, key=key)

    next_obs: Array = jax.vmap(step)(obs, action, jr.split(key, obs.shape[0]))
    return next_obs


def batches_of(config: SACConfig, size: int) -> int:
    """How many batches the critic steps of `size` updates see (`schedule`)."""
    if config.imagined == "none":
        return size
    if config.mix == "concatenated" or size % config.real_every != 0:
        return 2 * size
    return size + size // config.real_every


def schedule(
    config: SACConfig, updates: Int[Array, ""], real: Transition, imagined: Transition | None, size: int
) -> Steps:
    """The critic steps of `size` updates, `updates` having been done; `imagined` None is model-free."""

    def batches(rows: Transition) -> Transition:
        batched: Transition = jax.tree.map(lambda leaf: leaf.reshape(size, config.batch_size, *leaf.shape[1:]), rows)
        return batched

    real = batches(real)
    tau = jnp.full(size, config.tau, jnp.float32)
    if imagined is None:
        return Steps(real, tau, None)
    imagined = batches(imagined)
    if config.mix == "concatenated":
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), real, imagined)
        return Steps(both, tau, None)

    # A step on real data comes before the imagined one of the same update and moves no target. Where blocks and
    # periods do not match, which are due is known only at run time: then every update gets one, and most are skipped.
    aligned = size % config.real_every == 0
    order = []
    for i in range(size):
        if not aligned or (i + 1) % config.real_every == 0:
            order.append(i)
        order.append(size + i)
    steps = jnp.asarray(order, jnp.int32)
    rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b])[steps], real, imagined)
    tau = jnp.where(steps < size, 0.0, config.tau).astype(jnp.float32)
    due = None if aligned else (steps >= size) | ((updates + steps + 1) % config.real_every == 0)
    return Steps(rows, tau, due)
