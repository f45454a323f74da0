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

    `bonus_share` is λΣ‖σ‖ / (λΣ‖σ‖ + Σ|r|): 0 when only the task counts, 1 when only the bonus does.
    `coverage` is the share of coordinates within two predicted standard deviations (0.95 when calibrated). What the
    model knows for sure (σ = 0 and no noise) is left out of what is said about the model.
    """
    predictions = jax.vmap(dynamics.predict)(rows.obs, rows.action)
    weight = valid.astype(jnp.float32)
    count = jnp.maximum(jnp.sum(weight), 1.0)

    def mean(values: Float[Array, " time"]) -> Float[Array, ""]:
        return jnp.sum(weight * values) / count

    sigma = jax.vmap(EpistemicNorm())(predictions)
    bonus = mdp.bonus_weight * jax.vmap(mdp.bonus)(predictions)
    total_bonus, total_reward = jnp.sum(weight * bonus), jnp.sum(weight * jnp.abs(mdp.task_weight * rows.reward))
    total_bonus = jnp.abs(total_bonus)  # of a penalty too
    share = total_bonus / jnp.maximum(total_bonus + total_reward, 1e-12)

    error = (rows.next_obs - predictions.mean) / predictions.scale
    std = jnp.sqrt(predictions.epistemic_std**2 + predictions.aleatoric_std**2) / predictions.scale
    unsure = std > 0  # a remembered action, say, is known for sure and has no density
    std = jnp.where(unsure, std, 1.0)
    nll = 0.5 * (error / std) ** 2 + jnp.log(std) + 0.5 * jnp.log(2.0 * jnp.pi)

    def over_coordinates(values: Float[Array, "time state"]) -> Float[Array, " time"]:
        number = jnp.maximum(jnp.sum(unsure.astype(jnp.float32), axis=1), 1.0)
        return jnp.sum(jnp.where(unsure, values, 0.0), axis=1) / number

    within = (jnp.abs(error) <= 2.0 * std).astype(jnp.float32)
    return {
        "explore/bonus_weight": mdp.bonus_weight,
        "explore/mean_std": mean(sigma),
        "explore/uncertainty": jnp.sum(weight * sigma),
        "explore/bonus_share": share,
        "model/nll": mean(over_coordinates(nll)),
        "model/rmse": jnp.sqrt(mean(over_coordinates(error**2))),
        "model/coverage": mean(over_coordinates(within)),
    }
