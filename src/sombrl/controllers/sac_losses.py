"""The mathematics of soft actor-critic (Haarnoja et al. 2018) with SOMBRL's bonus: distributions, losses, averages.

λ I(x, u) is treated as the entropy term is: it enters the critic's target and the actor's objective, not the reward.
Nothing here draws random numbers or keeps state. Policies are written for one state; losses are over batches, because
twin critics and a batch are one large matrix product each.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sombrl.networks import value_bins

LOG_STD_BOUNDS = (-10.0, 2.0)
"""Of the Gaussian before the tanh, clipped hard (the authors' code)."""
LOG_WEIGHT_BOUND = math.log(1e8)
"""α and λ stay within [1e-8, 1e8]."""
STD_FLOOR = 1e-3
"""The least std that a bonus is divided by."""
COUNT_CAP = 1_000_000
"""The count of running statistics stops here, so that new batches always keep some weight."""

Actor = Callable[[Float[Array, " obs"]], Float[Array, " heads"]]
"""A network from an observation to the mean and the log-std of the policy's Gaussian, side by side."""

BonusScale = Literal["z-score", "scale", "none"]
Critics = Literal["two-min", "two-mean", "one"]
NUMBERS: dict[Critics, int] = {"two-min": 2, "two-mean": 2, "one": 1}
"""How many critics there are."""


def gaussian(actor: Actor, obs: Float[Array, " obs"]) -> tuple[Float[Array, " plan"], Float[Array, " plan"]]:
    """The mean and log-std of the Gaussian that the tanh squashes, at one state."""
    mean, log_std = jnp.split(actor(obs), 2)
    return mean, jnp.clip(log_std, *LOG_STD_BOUNDS)


def squash(
    mean: Float[Array, " plan"], log_std: Float[Array, " plan"], noise: Float[Array, " plan"]
) -> tuple[Float[Array, " plan"], Float[Array, ""]]:
    """u = tanh(μ + σ ε), and log π(u) by the change of variables; finite also where u rounds to ±1."""
    before = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    log_slope = 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))  # log(1 - tanh²)
    return jnp.tanh(before), jnp.sum(log_normal - log_slope)


def sample_actions(
    actor: Actor, obs: Float[Array, "batch obs"], noise: Float[Array, "batch plan"]
) -> tuple[Float[Array, "batch plan"], Float[Array, " batch"]]:
    """An action and its log-probability at each state, reparametrised."""
    return jax.vmap(lambda obs, noise: squash(*gaussian(actor, obs), noise))(obs, noise)


def outputs_of(
    critics: Any, obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"]
) -> Float[Array, "critics batch output"]:
    """What each critic says: a value, or the logits of its bins. Parameters are stacked, so this is one program."""
    inputs = jnp.concatenate([obs, action], axis=1)
    outputs: Array = jax.vmap(lambda critic: jax.vmap(critic)(inputs))(critics)
    return outputs


def values_of(outputs: Float[Array, "critics batch output"]) -> Float[Array, "critics batch"]:
    """The value of each critic."""
    if outputs.shape[-1] == 1:
        return outputs[..., 0]
    values: Array = jax.vmap(jax.vmap(value_bins.value))(outputs)
    return values


def twin_q(
    critics: Any, obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"]
) -> Float[Array, "critics batch"]:
    """The value of each critic at each state and action."""
    return values_of(outputs_of(critics, obs, action))


def value_of(q: Float[Array, "critics batch"], critics: Critics) -> Float[Array, " batch"]:
    """The value that all critics together stand for."""
    if critics == "two-mean":
        return jnp.mean(q, axis=0)
    # Pairwise: the gradient of jnp.min compares every q with the least one, and XLA may have recomputed q with other
    # rounding, so that none is equal and the gradient is 0/0.
    least: Array = functools.reduce(jnp.minimum, q)
    return least


class CriticRows(eqx.Module):
    """A batch as the critics see it: all that does not change while the policy stands still is computed already."""

    obs: Float[Array, "*batch obs"]
    action: Float[Array, "*batch plan"]
    reward: Float[Array, "*batch"]
    bootstrap: Float[Array, "*batch"]  # γ, and 0 where the task ended; a clock that ran out ends no task
    next_obs: Float[Array, "*batch obs"]
    next_action: Float[Array, "*batch plan"]  # u' ~ π(·|x')
    next_soft: Float[Array, "*batch"]  # λ I(x', u') - α log π(u'|x')
    weight: Float[Array, "*batch"] | None = None  # what a row counts; None: all the same


def critic_target(target_critics: Any, rows: CriticRows, critics: Critics = "two-min") -> Float[Array, " batch"]:
    """y = r + γ (min Q̄(x', u') + λ I(x', u') - α log π(u'|x')), without the bracket where the task ended."""
    q = twin_q(target_critics, rows.next_obs, rows.next_action)
    next_q = jnp.mean(q, axis=0) if critics == "two-mean" else jnp.min(q, axis=0)
    return rows.reward + rows.bootstrap * (next_q + rows.next_soft)


def critic_loss(
    critics: Any, target_critics: Any, rows: CriticRows, kind: Critics = "two-min"
) -> tuple[Float[Array, ""], Float[Array, "critics batch"]]:
    """mean w ((Q₁ - y)² + (Q₂ - y)²), or of cross-entropies where critics have bins; and Q itself."""
    target = jax.lax.stop_gradient(critic_target(target_critics, rows, kind))
    outputs = outputs_of(critics, rows.obs, rows.action)
    q = values_of(outputs)
    if outputs.shape[-1] == 1:
        errors = jnp.sum((q - target[None]) ** 2, axis=0)
    else:
        per_critic = jax.vmap(jax.vmap(value_bins.loss), in_axes=(0, None))(outputs, target)
        errors = jnp.sum(per_critic, axis=0)
    return jnp.mean(errors if rows.weight is None else rows.weight * errors), q


def actor_loss(
    value: Float[Array, " batch"],
    log_prob: Float[Array, " batch"],
    bonus: Float[Array, " batch"],
    temperature: Float[Array, ""],
) -> Float[Array, ""]:
    """-mean (Q(x, u) - α log π(u|x) + λ I(x, u)); Q is that of all critics (`value_of`), `bonus` has λ in it."""
    return -jnp.mean(value - temperature * log_prob + bonus)


def bounded_log(log_weight: Float[Array, ""]) -> Float[Array, ""]:
    """Clipped to what exp can take, with the gradient of the identity, so that it can come back."""
    clipped = jnp.clip(log_weight, -LOG_WEIGHT_BOUND, LOG_WEIGHT_BOUND)
    return log_weight + jax.lax.stop_gradient(clipped - log_weight)


def temperature_loss(
    log_temperature: Float[Array, ""], entropy: Float[Array, ""], target_entropy: float
) -> Float[Array, ""]:
    """log α (H - H_target): α falls while the policy is more random than asked for."""
    return bounded_log(log_temperature) * (entropy - target_entropy)


def bonus_weight_loss(log_factor: Float[Array, ""], gap: Float[Array, ""]) -> Float[Array, ""]:
    """log λ (I(π) - I(π̄)), up to what does not depend on the factor (the paper's "lambda opt").

    λ rises while the policy explores less than its target policy π̄ and falls while it explores more.
    """
    return bounded_log(log_factor) * gap


def polyak(slow: Any, fast: Any, tau: float | Float[Array, ""]) -> Any:
    """(1 - τ) slow + τ fast, leaf by leaf."""
    return jax.tree.map(lambda old, new: (1.0 - tau) * old + tau * new, slow, fast)


@jax.custom_vjp
def finite_gradient(action: Float[Array, "batch plan"]) -> Float[Array, "batch plan"]:
    """The action itself, but a gradient that comes back as NaN or inf becomes 0.

    ‖σ‖ has no gradient where the model is certain, and 0 · NaN would spoil λ = 0.
    """
    return action


finite_gradient.defvjp(
    lambda action: (action, None),
    lambda _, gradient: (jnp.where(jnp.isfinite(gradient), gradient, jnp.zeros_like(gradient)),),
)


class BonusStatistics(eqx.Module):
    """The running mean and standard deviation of the raw bonus."""

    mean: Float[Array, ""]
    std: Float[Array, ""]
    count: Float[Array, ""]

    @staticmethod
    def empty() -> "BonusStatistics":
        """Nothing seen: scaling changes nothing."""
        zero = jnp.zeros((), jnp.float32)
        return BonusStatistics(zero, jnp.ones((), jnp.float32), zero)

    def add(
        self, values: Float[Array, " batch"], *, floor: float = STD_FLOOR, cap: int = COUNT_CAP
    ) -> "BonusStatistics":
        """Merge a batch, by the parallel formula for moments."""
        values = jax.lax.stop_gradient(values)
        size = float(values.shape[0])
        total = self.count + size
        mean = (self.count * self.mean + jnp.sum(values)) / total
        squares = self.count * (self.std**2 + (self.mean - mean) ** 2) + jnp.sum((values - mean[None]) ** 2)
        std = jnp.maximum(jnp.sqrt(squares / total), floor)
        return BonusStatistics(mean, std, jnp.minimum(total, float(cap)))

    def scale(self, values: Float[Array, " batch"], how: BonusScale) -> Float[Array, " batch"]:
        """(I - mean)/std, I/std, or I."""
        match how:
            case "z-score":
                return (values - self.mean[None]) / self.std[None]
            case "scale":
                return values / self.std[None]
            case _:
                return values
