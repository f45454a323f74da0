"""Dreamer's heads on a latent state: reward and value, whether the episode continues, and the action to take.

All are written for one vector of features. Networks compute in the type of their parameters; what they put out, and
everything after it, is float32.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from sombrl.dreamer import two_hot
from sombrl.dreamer.blocks import MLP, Linear
from sombrl.dreamer.returns import DISCOUNT

POLICY_SCALE = 0.01  # of the output layer at first: near-uniform, or near mean 0 and std 0.8927
LEAST_STD, MOST_STD = 0.1, 1.0


class TwoHotHead(eqx.Module):
    """A number as a distribution over bins (two_hot.py). With `scale` 0 it starts at exactly 0 everywhere."""

    body: MLP
    output: Linear

    def __init__(self, inputs: int, units: int, layers: int, scale: float = 0.0, *, key: Key[Array, ""]):
        body_key, output_key = jr.split(key)
        self.body = MLP(inputs, units, layers, key=body_key)
        self.output = Linear(units, len(two_hot.BINS), scale=scale, key=output_key)

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, "255"]:
        """The logits."""
        return self.output(self.body(features)).astype(jnp.float32)

    def mean(self, features: Float[Array, " features"]) -> Float[Array, ""]:
        """The predicted number."""
        return two_hot.mean(self(features))

    def loss(self, features: Float[Array, " features"], target: Float[Array, ""]) -> Float[Array, ""]:
        """The cross-entropy to `target`."""
        return two_hot.loss(self(features), target)


class ContinueHead(eqx.Module):
    """The probability that the episode continues, times the discount: returns need no other discount."""

    body: MLP
    output: Linear
    discount: float = eqx.field(static=True)

    def __init__(self, inputs: int, units: int, layers: int = 1, discount: float = DISCOUNT, *, key: Key[Array, ""]):
        body_key, output_key = jr.split(key)
        self.body = MLP(inputs, units, layers, key=body_key)
        self.output = Linear(units, 1, key=output_key)
        self.discount = discount

    def __call__(self, features: Float[Array, " features"]) -> Float[Array, ""]:
        """The logit."""
        return self.output(self.body(features))[0].astype(jnp.float32)

    def mean(self, features: Float[Array, " features"]) -> Float[Array, ""]:
        """The probability."""
        return jax.nn.sigmoid(self(features))

    def loss(self, features: Float[Array, " features"], terminal: Bool[Array, ""]) -> Float[Array, ""]:
        """The cross-entropy to (1 - terminal) γ. Where nothing ends it cannot fall below 0.0204."""
        logit, label = self(features), jnp.where(terminal, 0.0, self.discount)
        return label * jax.nn.softplus(-logit) + (1.0 - label) * jax.nn.softplus(logit)


class Normal(eqx.Module):
    """Independent Gaussians, one for each coordinate of an action."""

    mean: Float[Array, " action"]
    std: Float[Array, " action"]

    def sample(self, *, key: Key[Array, ""]) -> Float[Array, " action"]:
        """Neither squashed nor clipped, so that its density is the Gaussian's. No gradient flows through it."""
        noise = jr.normal(key, self.mean.shape, jnp.float32)
        return jax.lax.stop_gradient(self.mean + self.std * noise)

    def mode(self) -> Float[Array, " action"]:
        """The mean."""
        return self.mean

    def log_prob(self, action: Float[Array, " action"]) -> Float[Array, ""]:
        """log π(a), summed over coordinates."""
        away = (action - self.mean) / self.std
        return jnp.sum(-0.5 * away**2 - jnp.log(self.std) - 0.5 * math.log(2.0 * math.pi))

    def entropy(self) -> Float[Array, ""]:
        """In nats, summed over coordinates."""
        return jnp.sum(jnp.log(self.std) + 0.5 * math.log(2.0 * math.pi * math.e))


class OneHot(eqx.Module):
    """One of several actions, as a one-hot vector."""

    log_probs: Float[Array, " action"]

    def sample(self, *, key: Key[Array, ""]) -> Float[Array, " action"]:
        """A one-hot vector. No gradient flows through it."""
        return self._one_hot(jr.categorical(key, self.log_probs))

    def mode(self) -> Float[Array, " action"]:
        """The likeliest."""
        return self._one_hot(jnp.argmax(self.log_probs))

    def log_prob(self, action: Float[Array, " action"]) -> Float[Array, ""]:
        """log π(a)."""
        return jnp.sum(action * self.log_probs)

    def entropy(self) -> Float[Array, ""]:
        """In nats."""
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs)

    def _one_hot(self, index: Array) -> Float[Array, " action"]:
        return jax.nn.one_hot(index, self.log_probs.shape[0], dtype=jnp.float32)


class AbstractPolicy(eqx.Module):
    """A distribution over actions at one latent state.

    For several of these values at one state, call the policy once and use the distribution.
    """

    @abc.abstractmethod
    def __call__(self, features: Float[Array, " features"]) -> Normal | OneHot:
        """The distribution."""

    def sample(self, features: Float[Array, " features"], *, key: Key[Array, ""]) -> Float[Array, " action"]:
        """A random action."""
        return self(features).sample(key=key)

    def mode(self, features: Float[Array, " features"]) -> Float[Array, " action"]:
        """The likeliest action."""
        return self(features).mode()

    def log_prob(self, features: Float[Array, " features"], action: Float[Array, " action"]) -> Float[Array, ""]:
        """log π(a)."""
        return self(features).log_prob(action)

    def entropy(self, features: Float[Array, " features"]) -> Float[Array, ""]:
        """In nats."""
        return self(features).entropy()


class NormalPolicy(AbstractPolicy):
    """Continuous actions: means in (-1, 1), standard deviations in (0.1, 1), 0.8927 at first."""

    body: MLP
    mean_output: Linear
    std_output: Linear

    def __init__(self, inputs: int, action_dim: int, units: int, layers: int = 3, *, key: Key[Array, ""]):
        body_key, mean_key, std_key = jr.split(key, 3)
        self.body = MLP(inputs, units, layers, key=body_key)
        self.mean_output = Linear(units, action_dim, scale=POLICY_SCALE, key=mean_key)
        self.std_output = Linear(units, action_dim, scale=POLICY_SCALE, key=std_key)

    def __call__(self, features: Float[Array, " features"]) -> Normal:
        """Normal(tanh m, 0.9 sigmoid(s + 2) + 0.1)."""
        hidden = self.body(features)
        mean, std = self.mean_output(hidden).astype(jnp.float32), self.std_output(hidden).astype(jnp.float32)
        return Normal(jnp.tanh(mean), (MOST_STD - LEAST_STD) * jax.nn.sigmoid(std + 2.0) + LEAST_STD)


class OneHotPolicy(AbstractPolicy):
    """Discrete actions. A share `unimix` of the probability is spread evenly, so that none ever has probability 0."""

    body: MLP
    output: Linear
    unimix: float = eqx.field(static=True)

    def __init__(
        self, inputs: int, actions: int, units: int, layers: int = 3, unimix: float = 0.01, *, key: Key[Array, ""]
    ):
        body_key, output_key = jr.split(key)
        self.body = MLP(inputs, units, layers, key=body_key)
        self.output = Linear(units, actions, scale=POLICY_SCALE, key=output_key)
        self.unimix = unimix

    def __call__(self, features: Float[Array, " features"]) -> OneHot:
        """(1 - unimix) softmax + unimix uniform."""
        logits = self.output(self.body(features)).astype(jnp.float32)
        if not self.unimix:
            return OneHot(jax.nn.log_softmax(logits))
        return OneHot(jnp.log((1.0 - self.unimix) * jax.nn.softmax(logits) + self.unimix / logits.shape[0]))
