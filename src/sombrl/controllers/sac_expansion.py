"""Value expansion: some steps of the policy in the model before the critics take over (Feinberg et al., 2018).

DHMBPO (Kubo et al., 2025) does so for critics and actor, with one random member per step. Here states move as the
exploration strategy says: by the mean of the members, or by samples.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.controllers.sac_batches import Policy, step_all
from sombrl.controllers.sac_losses import finite_gradient, sample_actions
from sombrl.exploration.base import ImaginedMDP

Soft = Callable[[Float[Array, "batch obs"], Float[Array, "batch plan"]], Float[Array, " batch"]]
"""λ I(x, u) over a batch."""


class Expansion(eqx.Module):
    """What is gathered in k steps from (x₀, u₀) on, and where they end.

    `gathered` = Σ_{i<k} γⁱ r̂ᵢ - Σ_{0<i≤k} γⁱ α log π(uᵢ|xᵢ), plus λ Σ γⁱ Iᵢ over i < k where the bonus is part of the
    reward, or over 0 < i ≤ k where it is treated as the entropy is. Then Q(x₀, u₀) = gathered + discount · Q(x_k, u_k).
    """

    gathered: Float[Array, " batch"]
    discount: Float[Array, " batch"]  # γᵏ, and 0 where the task ended on the way
    obs: Float[Array, "batch obs"]  # x_k
    action: Float[Array, "batch plan"]  # u_k


def expand(
    policy: Policy,
    mdp: ImaginedMDP,
    obs: Float[Array, "batch obs"],
    action: Float[Array, "batch plan"],
    *,
    steps: int,
    discount: Float[Array, ""],
    temperature: Float[Array, ""],
    bonus: Soft | None,
    bonus_is_reward: bool,
    key: Key[Array, ""],
) -> Expansion:
    """`steps` steps."""
    gathered, left = jnp.zeros_like(obs[:, 0]), jnp.ones_like(obs[:, 0])
    for step_key in jr.split(key, steps):  # not a loop of XLA's: predictions are shared between steps
        move_key, noise_key = jr.split(step_key)
        next_obs, reward, ended = step_all(mdp, obs, action, move_key)
        if bonus is not None and bonus_is_reward:
            reward = reward + bonus(finite_gradient(obs), finite_gradient(action))
        gathered = gathered + left * reward
        left = left * jnp.where(ended, jnp.zeros_like(left), discount)
        obs = next_obs
        action, log_prob = sample_actions(policy, obs, jr.normal(noise_key, action.shape, action.dtype))
        soft = -temperature * log_prob
        if bonus is not None and not bonus_is_reward:
            soft = soft + bonus(finite_gradient(obs), finite_gradient(action))
        gathered = gathered + left * soft
    return Expansion(gathered, left, obs, action)
