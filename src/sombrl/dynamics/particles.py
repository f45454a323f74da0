"""A Bayesian neural network as a few particles: networks with their mean, their disagreement, and one learned noise.

Unlike an ensemble's members, these particles are meant to be draws of a posterior, whose prior may be a simulator
(fsvgd.py, svgd.py). They see inputs and targets through fixed statistics, so that the unit of σ never changes.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.dynamics.base import AbstractDrawable, AbstractResampled, AbstractVectorDynamics
from sombrl.dynamics.coordinates import AbstractCoordinates
from sombrl.numerics import safe_sqrt
from sombrl.records import Prediction

ActivationName = Literal["leaky-relu", "silu", "tanh"]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "leaky-relu": lambda x: jnp.maximum(x, 0.01 * x),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}

NOISE_FLOOR = 1e-4  # of the learned noise, normalised: its likelihood stays finite where the data have none
TRUNCATED_STD = 0.87962566  # of a standard normal cut off at ±2


class Statistics(eqx.Module):
    """The units of inputs and targets: fixed for the whole run, or for the duration of a fit."""

    x_mean: Float[Array, " input"]
    x_std: Float[Array, " input"]
    y_mean: Float[Array, " target"]
    y_std: Float[Array, " target"]

    @staticmethod
    def identity(inputs: int, targets: int) -> "Statistics":
        """Physical units."""
        zeros, ones = jnp.zeros(inputs + targets, jnp.float32), jnp.ones(inputs + targets, jnp.float32)
        return Statistics(zeros[:inputs], ones[:inputs], zeros[inputs:], ones[inputs:])

    def inputs(self, x: Float[Array, " input"]) -> Float[Array, " input"]:
        """Normalised inputs."""
        return (x - self.x_mean) / self.x_std

    def targets(self, y: Float[Array, " target"]) -> Float[Array, " target"]:
        """Normalised targets."""
        return (y - self.y_mean) / self.y_std

    def physical(self, y: Float[Array, " target"]) -> Float[Array, " target"]:
        """Targets in their own units again."""
        return self.y_mean + self.y_std * y


class Network(eqx.Module):
    """An MLP with a linear output, initialised as in the authors' SimFSVGD.

    Hidden layers: He-uniform weights, biases uniform in ±1/√inputs. Output: LeCun-normal weights, biases 0.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    activation: ActivationName = eqx.field(static=True)

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, activation: ActivationName, *, key: Key[Array, ""]
    ):
        hidden_key, output_key = jr.split(key)
        shapes = list(itertools.pairwise([inputs, *hidden]))
        # One draw for all layers: each would take a tenth of a second to compile.
        sizes = [size for rows, columns in shapes for size in (rows * columns, columns)]
        numbers = jr.uniform(hidden_key, (sum(sizes),), jnp.float32, -1.0, 1.0)
        pieces = jnp.split(numbers, list(itertools.accumulate(sizes))[:-1]) if sizes else []
        width = hidden[-1] if hidden else inputs
        last = jr.truncated_normal(output_key, -2.0, 2.0, (width, outputs), jnp.float32)
        self.weights = (
            *(math.sqrt(6.0 / rows) * pieces[2 * i].reshape(rows, columns) for i, (rows, columns) in enumerate(shapes)),
            last / (TRUNCATED_STD * math.sqrt(width)),
        )
        self.biases = (
            *(pieces[2 * i + 1] / math.sqrt(rows) for i, (rows, _) in enumerate(shapes)),
            jnp.zeros(outputs, jnp.float32),
        )
        self.activation = activation

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, " target"]:
        """The network's value; everything normalised."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = ACTIVATIONS[self.activation](x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


class Particles(eqx.Module):
    """The networks, the noise they share, and the units both are in."""

    networks: Network  # every leaf [particles, ...]
    raw_noise: Float[Array, " target"]
    statistics: Statistics

    @property
    def number(self) -> int:
        """How many particles."""
        return self.networks.biases[-1].shape[0]

    @property
    def noise_std(self) -> Float[Array, " target"]:
        """Per output, normalised."""
        return noise_std(self.raw_noise)

    def __call__(self, x: Float[Array, " input"]) -> Float[Array, "particles target"]:
        """Every particle's value at one physical input; the values are normalised."""
        x = self.statistics.inputs(x)
        values: Array = jax.vmap(lambda network: network(x))(self.networks)
        return values

    def log_density(self, x: Float[Array, " input"], y: Float[Array, " target"]) -> Float[Array, ""]:
        """log of the equal mixture of the particles' Gaussians, physical units, summed over outputs."""
        std = self.noise_std
        z = (self.statistics.targets(y)[None, :] - self(x)) / std[None, :]
        each = -0.5 * jnp.sum(z**2, axis=1) - jnp.sum(jnp.log(std * self.statistics.y_std))
        constant = 0.5 * math.log(2.0 * math.pi) * y.shape[0] + math.log(self.number)
        return jax.scipy.special.logsumexp(each) - constant


def noise_std(raw: Float[Array, " target"]) -> Float[Array, " target"]:
    """softplus(raw), and never 0."""
    return jax.nn.softplus(raw) + NOISE_FLOOR


def raw_noise(std: Float[Array, " target"]) -> Float[Array, " target"]:
    """The inverse of `noise_std`."""
    above = jnp.maximum(std - NOISE_FLOOR, NOISE_FLOOR)
    return above + jnp.log(-jnp.expm1(-above))


def predict(
    particles: Particles,
    coordinates: AbstractCoordinates,
    obs: Float[Array, " obs"],
    action: Float[Array, " action"],
) -> Prediction:
    """μₙ, and as σₙ the population std over particles. Differentiable in both arguments."""
    statistics = particles.statistics
    values = particles(coordinates.inputs(obs, action))
    disagreement = safe_sqrt(jnp.var(values, axis=0))
    scale = coordinates.spread(obs, statistics.y_std)
    return Prediction(
        mean=coordinates.next_obs(obs, action, statistics.physical(jnp.mean(values, axis=0))),
        epistemic_std=coordinates.spread(obs, disagreement * statistics.y_std),
        aleatoric_std=coordinates.spread(obs, particles.noise_std * statistics.y_std),
        scale=jnp.where(scale > 0, scale, 1.0),  # where σ is always 0 any unit will do
    )


def noisy(
    particles: Particles,
    coordinates: AbstractCoordinates,
    obs: Float[Array, " obs"],
    action: Float[Array, " action"],
    value: Float[Array, " target"],
    *,
    key: Key[Array, ""],
) -> Float[Array, " obs"]:
    """The next observation of a normalised target, with noise on the target.

    Not on the observation: so the invariants of the coordinates hold (sin² + cos² = 1, remembered actions).
    """
    value = value + particles.noise_std * jr.normal(key, value.shape, value.dtype)
    return coordinates.next_obs(obs, action, particles.statistics.physical(value))


class ParticleDynamics(AbstractVectorDynamics, AbstractDrawable, AbstractResampled):
    """The mean over particles, and their disagreement."""

    posterior: Particles
    coordinates: AbstractCoordinates

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """μₙ and σₙ at one (state, action)."""
        return predict(self.posterior, self.coordinates, state, action)

    def transition(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """The mean, with noise on the target."""
        value = jnp.mean(self.posterior(self.coordinates.inputs(state, action)), axis=0)
        return noisy(self.posterior, self.coordinates, state, action, value, key=key)

    def resample(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """A random particle's prediction plus noise: what SimFSVGD itself imagines with."""
        particle_key, noise_key = jr.split(key)
        chosen = jr.randint(particle_key, (), 0, self.posterior.number)
        # The values are gathered, not the weights: those would be copied for every state.
        value = self.posterior(self.coordinates.inputs(state, action))[chosen]
        return noisy(self.posterior, self.coordinates, state, action, value, key=noise_key)

    def draw(self, *, key: Key[Array, ""]) -> "DrawnParticle":
        """One particle, drawn once."""
        chosen = jr.randint(key, (), 0, self.posterior.number)
        networks = jax.tree.map(lambda leaf: leaf[chosen][None], self.posterior.networks)
        posterior = Particles(networks, self.posterior.raw_noise, self.posterior.statistics)
        return DrawnParticle(posterior, self.coordinates)

    def particles(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"]
    ) -> tuple[Float[Array, "particles target"], Float[Array, " target"]]:
        """Every particle's target and the noise std, physical units: the mixture that is the predictive density."""
        statistics = self.posterior.statistics
        values = self.posterior(self.coordinates.inputs(obs, action))
        return jax.vmap(statistics.physical)(values), self.posterior.noise_std * statistics.y_std


class DrawnParticle(AbstractVectorDynamics):
    """One particle, with no epistemic uncertainty."""

    posterior: Particles  # of one
    coordinates: AbstractCoordinates

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """The particle's value, with σ = 0."""
        return predict(self.posterior, self.coordinates, state, action)

    def transition(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """The particle's value, with noise on the target."""
        value = self.posterior(self.coordinates.inputs(state, action))[0]
        return noisy(self.posterior, self.coordinates, state, action, value, key=key)
