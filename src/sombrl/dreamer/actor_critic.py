"""Dreamer's actor-critic: a policy and a value learned from imagined trajectories, the bonus in their rewards.

Everything is written for one imagined trajectory: states 0 … H, of which state 0 is a real one, and decisions 0 … H-1.
The policy learns by REINFORCE, so no gradient flows through imagination, and the world model learns nothing here. Only
`replay_value_loss`, on recorded states, sends the value's gradient into the representation.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key, UInt

from sombrl.dreamer import two_hot
from sombrl.dreamer.disagreement import LatentEnsemble, SigmaName
from sombrl.dreamer.heads import AbstractPolicy, ContinueHead, TwoHotHead
from sombrl.dreamer.returns import DISCOUNT, imagination_weights, lambda_returns, replay_returns, with_bonus
from sombrl.dreamer.rssm import RSSM, Latent

RETURN_LAMBDA = 0.95
ENTROPY_SCALE = 3e-4
SLOW_VALUE_SCALE = 1.0


class Imagined(eqx.Module):
    """A trajectory of the policy in the model. Nothing in it carries a gradient."""

    features: Float[Array, "states features"]
    actions: Float[Array, "decisions action"]
    rewards: Float[Array, " states"]  # predicted, without the bonus
    continues: Float[Array, " states"]  # predicted, the discount inside
    sigma: Float[Array, " decisions"]  # zeros without an ensemble


def imagine(
    rssm: RSSM,
    reward: TwoHotHead,
    cont: ContinueHead,
    policy: AbstractPolicy,
    ensemble: LatentEnsemble | None,
    start: Latent,
    horizon: int,
    how: SigmaName,
    *,
    key: Key[Array, ""],
) -> Imagined:
    """`horizon` decisions of the policy from one state on."""

    def decide(latent: Latent, numbers: UInt[Array, " _"]) -> tuple[Latent, tuple[Array, Array]]:
        action_key, step_key = jr.split(jr.wrap_key_data(numbers))
        action = policy.sample(latent.features, key=action_key)
        return rssm.imagine(latent, action, key=step_key), (latent.features, action)

    # As plain numbers, because JAX's check for reused keys takes those of a vmapped scan for used ones.
    last, (features, actions) = jax.lax.scan(decide, start, jr.key_data(jr.split(key, horizon)))
    features = jnp.concatenate([features, last.features[None]])
    sigma = jnp.zeros(horizon, jnp.float32)
    if ensemble is not None:
        sigma = jax.vmap(lambda x, a: ensemble.sigma(x, a, how))(features[:-1], actions)
    imagined = Imagined(features, actions, jax.vmap(reward.mean)(features), jax.vmap(cont.mean)(features), sigma)
    return jax.lax.stop_gradient(imagined)


class Judged(eqx.Module):
    """The critic's values and returns of an imagined trajectory."""

    logits: Float[Array, "decisions bins"]  # of the value at the states that are left; they carry its gradient
    values: Float[Array, " decisions"]
    returns: Float[Array, " decisions"]


def judge(
    imagined: Imagined, value: TwoHotHead, bonus_weight: Float[Array, ""], task_weight: Float[Array, ""]
) -> Judged:
    """λ-returns of task_weight · r + λ σ, bootstrapped by the value."""
    logits = jax.vmap(value)(imagined.features)
    values = jax.lax.stop_gradient(jax.vmap(two_hot.mean)(logits))
    rewards = with_bonus(task_weight * imagined.rewards, imagined.sigma, bonus_weight)
    returns = lambda_returns(rewards, imagined.continues, values, RETURN_LAMBDA)
    return Judged(logits[:-1], values[:-1], returns)


def policy_loss(
    policy: AbstractPolicy, imagined: Imagined, judged: Judged, scale: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """-w [log π(a|s) (R - v)/scale + η entropy], its mean over the decisions; and the mean entropy."""
    weights = imagination_weights(imagined.continues)
    advantage = jax.lax.stop_gradient((judged.returns - judged.values) / scale)
    chosen = jax.vmap(policy)(imagined.features[:-1])
    log_probs = jax.vmap(lambda dist, action: dist.log_prob(action))(chosen, imagined.actions)
    entropy = jax.vmap(lambda dist: dist.entropy())(chosen)
    return -jnp.mean(weights * (log_probs * advantage + ENTROPY_SCALE * entropy)), jnp.mean(entropy)


def value_loss(judged: Judged, slow: TwoHotHead, imagined: Imagined) -> Float[Array, ""]:
    """w [CE(v, R) + CE(v, the EMA copy's mean)], its mean over the decisions."""
    weights = imagination_weights(imagined.continues)
    slow_means = jax.vmap(slow.mean)(imagined.features[:-1])
    losses = jax.vmap(_value_losses)(judged.logits, judged.returns, slow_means)
    return jnp.mean(weights * losses)


def replay_value_loss(
    value: TwoHotHead,
    slow: TwoHotHead,
    features: Float[Array, "time features"],
    rewards: Float[Array, " time"],
    terminal: Bool[Array, " time"],
    last: Bool[Array, " time"],
    bootstrap: Float[Array, " time"],
) -> Float[Array, ""]:
    """The same on a recorded sequence, whose states are bootstrapped by the returns imagined from them.

    `rewards` have the bonus in them already. The gradient goes into `features`.
    """
    returns = replay_returns(rewards, terminal, last, bootstrap, DISCOUNT, RETURN_LAMBDA)
    logits = jax.vmap(value)(features[:-1])
    slow_means = jax.vmap(slow.mean)(jax.lax.stop_gradient(features[:-1]))
    losses = jax.vmap(_value_losses)(logits, returns, slow_means)
    return jnp.mean(jnp.where(last[:-1], 0.0, losses))


def _value_losses(
    logits: Float[Array, " bins"], target: Float[Array, ""], slow_mean: Float[Array, ""]
) -> Float[Array, ""]:
    target, slow_mean = jax.lax.stop_gradient((target, slow_mean))
    return two_hot.loss(logits, target) + SLOW_VALUE_SCALE * two_hot.loss(logits, slow_mean)
