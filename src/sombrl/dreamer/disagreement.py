"""The uncertainty of a latent model: networks that predict the next latent and disagree where there are few data.

Plan2Explore's ensemble (Sekar et al., 2020) as SOMBRL uses it. It learns from the world model's states without changing
them: gradients go to the ensemble's own parameters only. `BonusWeight` is λ, which
says how much the disagreement counts.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.controllers.sac_losses import bounded_log
from sombrl.dreamer.blocks import Dense, Linear
from sombrl.networks.mlp import stacked
from sombrl.records import SombrlError

SigmaName = Literal["mean-std", "norm", "variance", "log"]
"""One number from the members' spread in every coordinate. `mean-std`: the mean std. `norm`: the L2 norm of the stds,
as the paper writes it, √coordinates times larger or more. `variance`: the mean variance (Plan2Explore). `log`: the
logarithm of the mean std (LEXA), negative where members nearly agree, so that it then pays to end early."""

TargetName = Literal["stoch", "deter", "embedding"]
"""What members predict of the next record. `stoch`: the sampled latents (LEXA, and most codes on DreamerV3). `deter`:
the recurrent state, a function of state and action without chance. `embedding`: the encoder's features (Plan2Explore).
"""

LEAST_STD = 1e-8  # inside the logarithm
BOOTSTRAP = 0x626F6F74  # keeps these draws apart from all others


class Member(eqx.Module):
    """Hidden layers of linear, norm and SiLU, then a linear one."""

    layers: tuple[Dense, ...]
    output: Linear

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, *, key: Key[Array, ""]):
        *layer_keys, output_key = jr.split(key, len(hidden) + 1)
        sizes = [inputs, *hidden]
        self.layers = tuple(Dense(*size, key=k) for size, k in zip(itertools.pairwise(sizes), layer_keys, strict=True))
        self.output = Linear(sizes[-1], outputs, key=output_key)

    def __call__(self, *x: Float[Array, " _"]) -> Float[Array, " target"]:
        """The network's value at vectors, one after the other."""
        for layer in self.layers:
            x = (layer(*x),)
        return self.output(*x)


class LatentEnsemble(eqx.Module):
    """Networks from features and action to the next latent, each initialised on its own, all on the same data."""

    members: Member  # every leaf [members, ...]

    def __init__(
        self,
        features: int,
        action_dim: int,
        target_dim: int,
        members: int = 5,
        hidden: Sequence[int] = (512, 512),
        *,
        key: Key[Array, ""],
    ):
        if members < 2:
            raise SombrlError(f"Disagreement needs at least 2 members, not {members}.")

        def make(*, key: Key[Array, ""]) -> Member:
            return Member(features + action_dim, hidden, target_dim, key=key)

        self.members = stacked(make, members, key=key)

    def predict(
        self, features: Float[Array, " features"], action: Float[Array, " action"]
    ) -> Float[Array, "members target"]:
        """Each member's prediction. Actions are clipped to ±1, as the environment and the RSSM clip them."""
        x = jax.lax.stop_gradient((features, jnp.clip(action, -1.0, 1.0).astype(features.dtype)))
        predictions: Array = jax.vmap(lambda member: member(*x))(self.members)
        return predictions.astype(jnp.float32)

    def sigma(
        self, features: Float[Array, " features"], action: Float[Array, " action"], how: SigmaName = "mean-std"
    ) -> Float[Array, ""]:
        """The disagreement at one (state, action). No gradient."""
        predictions = jax.lax.stop_gradient(self.predict(features, action))
        # Relative to the first member, so that bit-identical members have variance 0.
        variance = jnp.var(predictions - jnp.broadcast_to(predictions[0], predictions.shape), axis=0)
        match how:
            case "mean-std":
                return jnp.mean(jnp.sqrt(variance))
            case "norm":
                return jnp.sqrt(jnp.sum(variance))
            case "variance":
                return jnp.mean(variance)
            case "log":
                return jnp.log(jnp.maximum(jnp.mean(jnp.sqrt(variance)), LEAST_STD))

    def loss(
        self,
        features: Float[Array, "time features"],
        actions: Float[Array, "time action"],
        targets: Float[Array, "time target"],
        first: Bool[Array, " time"],
        shares: Float[Array, "time members"] | None = None,
    ) -> Float[Array, ""]:
        """Σₖ mean_t wₖ ‖fₖ(x_t, a_t) - z_{t+1}‖² over one sequence of records, wₖ the `shares` of record t + 1, or 1.

        A record that is `first` did not follow from the one before it: such pairs count 0. They stay in the mean's
        denominator, so that a sequence's weight in the batch is what it predicts.
        """
        predictions = jax.vmap(self.predict)(features[:-1], actions[:-1])
        targets = jax.lax.stop_gradient(targets[1:].astype(jnp.float32))
        errors = predictions - jnp.broadcast_to(targets[:, None], predictions.shape)
        if shares is None:
            missed = jnp.sum(errors**2, axis=(1, 2))
        else:
            missed = jnp.sum(shares[1:] * jnp.sum(errors**2, axis=2), axis=1)
        return jnp.mean(jnp.where(first[1:], 0.0, missed))


def bootstrap_shares(
    stream: Int[Array, ""], start: Int[Array, ""], time: int, members: int, share: float
) -> Float[Array, "time members"]:
    """How much every member learns from each record of a window that starts at `start`: 1/share or nothing.

    A record is a member's or not for good, however often it is drawn: that is what keeps members apart. Seeds have the
    same draws, each on records of its own.
    """

    def own(offset: Int[Array, ""]) -> Bool[Array, " members"]:
        return jr.bernoulli(jr.fold_in(jr.fold_in(jr.key(BOOTSTRAP), stream), start + offset), share, (members,))

    return jax.vmap(own)(jnp.arange(time, dtype=jnp.int32)).astype(jnp.float32) / share


class BonusWeight(eqx.Module):
    """λ, tuned so that the policy's bonus matches that of its target (EMA) policy. Within [1e-8, 1e8].

    Its optimiser must not clip by the parameter's size: log λ passes through 0.
    """

    log_weight: Float[Array, ""]

    def __init__(self, weight: float = 2.0):
        if not (weight > 0 and math.isfinite(weight)):  # NaN fails too
            raise SombrlError(f"A bonus weight that is tuned must start positive and finite, not at {weight}.")
        self.log_weight = jnp.asarray(math.log(weight), jnp.float32)

    @property
    def weight(self) -> Float[Array, ""]:
        """λ."""
        return jnp.exp(bounded_log(self.log_weight))

    def loss(self, gap: Float[Array, ""], alpha: float) -> Float[Array, ""]:
        """log λ · gap + α λ, whose derivative in log λ is gap + α λ (the paper's "lambda opt").

        `gap`: how much more disagreement the policy's actions have than those of its EMA policy, at the same states.
        """
        return bounded_log(self.log_weight) * jax.lax.stop_gradient(gap) + alpha * self.weight
