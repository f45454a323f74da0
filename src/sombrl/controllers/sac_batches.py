"""What the critics learn from: imagined transitions, and the order in which they alternate with real ones."""

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.controllers.sac_config import SACConfig
from sombrl.controllers.sac_losses import sample_actions
from sombrl.exploration.base import ImaginedMDP
from sombrl.exploration.bonus import EpistemicMean
from sombrl.networks.normaliser import Normalised
from sombrl.networks.residual import Body
from sombrl.records import State, Transition

Role = Literal[
    "batch",
    "imagine",
    "rollout",
    "shuffle",
    "next_action",
    "action",
    "target_action",
    "imagined_action",
    "critic_expansion",
    "actor_expansion",
]
"""The uses of random numbers. Each has a key of its own, so that a change in one does not shift another: append, never
insert."""
Policy = Body | Normalised
"""An actor, and what it sees the state through."""


def role_key(key: Key[Array, ""], role: Role) -> Key[Array, ""]:
    """The key of one role. Derived where it is used: a loop must not be handed a key to use it up."""
    return jr.fold_in(key, get_args(Role).index(role))


class Steps(eqx.Module):
    """The critic steps of a block in their order."""

    rows: Transition  # [steps, batch, ...]
    weight: Float[Array, "steps batch"] | None  # what each row counts; None: all the same
    tau: Float[Array, " steps"]  # how far the target critics move after each
    due: Bool[Array, " steps"] | None  # which are done; None for all


class Imagined(eqx.Module):
    """Imagined transitions, and what they count beside real ones; None: as much."""

    rows: Transition
    weight: Float[Array, " rows"] | None


def imagine(config: SACConfig, policy: Policy, mdp: ImaginedMDP, real: Transition, key: Key[Array, ""]) -> Imagined:
    """Imagined transitions for the real ones, which have the task's weight in their reward already.

    As many, or half as many where they replace the second half of each batch.
    """
    if config.mix == "half":
        real = _batches(real, real.reward.shape[0] // config.batch_size)
        real = jax.tree.map(lambda leaf: leaf[:, real_rows(config) :].reshape(-1, *leaf.shape[2:]), real)
    total = real.reward.shape[0]
    if config.imagined == "branched" and config.rollout_stop is not None:
        start = real.obs[: -(-total // config.rollout_length)]
        most = jnp.quantile(_sigma(mdp, real.obs, real.action), config.rollout_stop)
        rows, sure = _branched(config, policy, mdp, start, total, key, most)
        assert sure is not None, "with a limit every row has an answer"
        weight = sure.astype(jnp.float32)
        if config.imagined_weight == "certainty":
            weight = weight / (1.0 + _sigma(mdp, rows.obs, rows.action))
        return Imagined(rows, weight)
    if config.imagined == "branched":
        rows, _ = _branched(config, policy, mdp, real.obs[: -(-total // config.rollout_length)], total, key)
    elif config.imagined_action == "policy":
        noise = jr.normal(role_key(key, "imagined_action"), (total, mdp.action_dim), jnp.float32)
        action, _ = sample_actions(policy, real.obs, noise)
        next_obs, reward, ended = step_all(mdp, real.obs, action, role_key(key, "imagine"))
        # The model may not know ends: what is near one that was seen is taken for one (WIMLE does so too).
        rows = Transition(real.obs, action, reward, next_obs, real.terminated | ended, real.truncated)
    else:
        next_obs = _propagate(mdp, real.obs, real.action, role_key(key, "imagine"))
        rows = eqx.tree_at(lambda rows: rows.next_obs, real, next_obs)
    if config.imagined_weight == "equal":
        return Imagined(rows, None)
    return Imagined(rows, 1.0 / (1.0 + _sigma(mdp, rows.obs, rows.action)))


def _sigma(
    mdp: ImaginedMDP, obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"]
) -> Float[Array, " batch"]:
    """The mean σ of the next state and the reward, in normalised units."""
    return jax.vmap(lambda obs, action: EpistemicMean()(mdp.dynamics.predict(obs, action)))(obs, action)


def real_rows(config: SACConfig) -> int:
    """How many rows of a batch stay real where its second half is imagined."""
    return config.batch_size - config.batch_size // 2


def _branched(
    config: SACConfig,
    policy: Policy,
    mdp: ImaginedMDP,
    start: Float[Array, "start obs"],
    total: int,
    key: Key[Array, ""],
    most: Float[Array, ""] | None = None,
) -> tuple[Transition, Bool[Array, " total"] | None]:
    """Rollouts of the policy from stored states (Janner et al. 2019), shuffled so that a batch holds all depths.

    And, with `most`, which rows the model is sure enough of: σ is at most that; a rollout ends where it is not.
    """

    def forward(obs: Array, forward_key: Key[Array, ""]) -> tuple[Array, tuple[Transition, Array | None]]:
        noise_key, step_key = jr.split(forward_key)
        action, _ = sample_actions(policy, obs, jr.normal(noise_key, (obs.shape[0], mdp.action_dim), obs.dtype))
        next_obs, reward, ended = step_all(mdp, obs, action, step_key)
        rows = Transition(obs, action, reward, next_obs, ended, jnp.zeros_like(ended))
        sure = None if most is None else _sigma(mdp, obs, action) <= most
        over = ended if sure is None else ended | ~sure
        return jnp.where(over[:, None], start, next_obs), (rows, sure)  # what is over restarts: no row is wasted

    _, steps = jax.lax.scan(forward, start, jr.split(role_key(key, "rollout"), config.rollout_length))
    order = jr.permutation(role_key(key, "shuffle"), config.rollout_length * start.shape[0])[:total]
    shuffled: tuple[Transition, Array | None] = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[order], steps
    )
    return shuffled


def _propagate(
    mdp: ImaginedMDP, obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"], key: Key[Array, ""]
) -> Float[Array, "batch obs"]:
    def step(obs: Array, action: Array, key: Key[Array, ""]) -> State:
        return mdp.propagation(mdp.dynamics, obs, action, key=key)

    next_obs: Array = jax.vmap(step)(obs, action, jr.split(key, obs.shape[0]))
    return next_obs


def step_all(
    mdp: ImaginedMDP, obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"], key: Key[Array, ""]
) -> tuple[Float[Array, "batch obs"], Float[Array, " batch"], Bool[Array, " batch"]]:
    """One imagined decision everywhere: next observations, the task's rewards without a bonus, and what has ended."""
    next_obs = _propagate(mdp, obs, action, key)
    reward = mdp.task_weight * jax.vmap(mdp.task.reward)(obs, action, next_obs)
    return next_obs, reward, jax.vmap(mdp.task.terminated)(obs, action, next_obs)


def batches_of(config: SACConfig, size: int) -> int:
    """How many batches the critic steps of `size` updates see (`schedule`)."""
    if config.imagined == "none" or config.mix == "half":
        return size
    if config.mix == "concatenated" or size % config.real_every != 0:
        return 2 * size
    return size + size // config.real_every


def schedule(
    config: SACConfig, updates: Int[Array, ""], real: Transition, imagined: Imagined | None, size: int
) -> Steps:
    """The critic steps of `size` updates, `updates` having been done; `imagined` None is model-free."""
    tau = jnp.full(size, config.tau, jnp.float32)
    if imagined is None:
        return Steps(_batches(real, size), None, tau, None)
    weight = None if imagined.weight is None else jnp.ones_like(real.reward)
    ours, theirs = _batches((real, weight), size), _batches((imagined.rows, imagined.weight), size)
    if config.mix != "separate":
        kept = real_rows(config) if config.mix == "half" else config.batch_size
        rows, weight = jax.tree.map(lambda a, b: jnp.concatenate([a[:, :kept], b], axis=1), ours, theirs)
        # All are due, but XLA is not told: it then compiles a single step by itself, as it does a loop of them. Fused
        # with what made the rows, sums would round otherwise where λ = 0 than where there is no bonus.
        due = jnp.broadcast_to(updates >= 0, (size,)) if config.mix == "half" else None
        return Steps(rows, weight, tau, due)

    # A step on real data comes before the imagined one of the same update and moves no target. Where blocks and
    # periods do not match, which are due is known only at run time: then every update gets one, and most are skipped.
    aligned = size % config.real_every == 0
    order = []
    for i in range(size):
        if not aligned or (i + 1) % config.real_every == 0:
            order.append(i)
        order.append(size + i)
    steps = jnp.asarray(order, jnp.int32)
    rows, weight = jax.tree.map(lambda a, b: jnp.concatenate([a, b])[steps], ours, theirs)
    tau = jnp.where(steps < size, 0.0, config.tau).astype(jnp.float32)
    due = None if aligned else (steps >= size) | ((updates + steps + 1) % config.real_every == 0)
    return Steps(rows, weight, tau, due)


def _batches(rows: Any, number: int) -> Any:
    """Rows one after the other, as batches."""
    return jax.tree.map(lambda leaf: leaf.reshape(number, -1, *leaf.shape[1:]), rows)
