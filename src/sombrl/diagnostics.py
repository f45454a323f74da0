"""What the model said about the transitions it then met: the numbers that tell whether optimism is working."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from sombrl.dynamics.base import AbstractDynamics
from sombrl.exploration.base import ImaginedMDP
from sombrl.exploration.bonus import EpistemicNorm
from sombrl.records import Transition


def diagnose(
    dynamics: AbstractDynamics, mdp: ImaginedMDP, rows: Transition, valid: Bool[Array, " time"]
) -> dict[str, Float[Array, ""]]:
    """Metrics of one chunk under the posterior that was planned with, before it sees that chunk.

    `bonus_share` is λΣ‖σ‖ / (λΣ‖σ‖ + Σ|r|): 0 when only the task counts, 1 when only curiosity does.
    `coverage` is the share of coordinates within two predicted standard deviations (0.95 when calibrated).
    """
    predictions = jax.vmap(dynamics.predict)(rows.obs, rows.action)
    weight = valid.astype(jnp.float32)
    count = jnp.maximum(jnp.sum(weight), 1.0)

    def mean(values: Float[Array, " time"]) -> Float[Array, ""]:
        return jnp.sum(weight * values) / count

    sigma = jax.vmap(EpistemicNorm())(predictions)
    bonus = mdp.bonus_weight * jax.vmap(mdp.bonus)(predictions)
    total_bonus, total_reward = jnp.sum(weight * bonus), jnp.sum(weight * jnp.abs(mdp.task_weight * rows.reward))
    share = total_bonus / jnp.maximum(total_bonus + total_reward, 1e-12)

    error = (rows.next_obs - predictions.mean) / predictions.scale
    std = jnp.sqrt(predictions.epistemic_std**2 + predictions.aleatoric_std**2) / predictions.scale
    nll = 0.5 * (error / std) ** 2 + jnp.log(std) + 0.5 * jnp.log(2.0 * jnp.pi)
    return {
        "explore/bonus_weight": mdp.bonus_weight,
        "explore/mean_std": mean(sigma),
        "explore/uncertainty": jnp.sum(weight * sigma),
        "explore/bonus_share": share,
        "model/nll": mean(jnp.mean(nll, axis=1)),
        "model/rmse": jnp.sqrt(mean(jnp.mean(error**2, axis=1))),
        "model/coverage": mean(jnp.mean((jnp.abs(error) <= 2.0 * std).astype(jnp.float32), axis=1)),
    }
