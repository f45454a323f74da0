"""A model of your own: Bayesian regression on random waves, in closed form, and planned with like any other.

A model is two classes. The dynamics is a fitted posterior that predicts a mean and an honest epistemic standard
deviation; the learner turns the replay into one. Here a hundred cosines of random frequency stand for a smooth kernel
(Rahimi and Recht, 2007).

    python examples/own_model.py [--quick]
"""

import argparse
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import sombrl
from sombrl.controllers import ICEM, ICEMConfig
from sombrl.dynamics.base import AbstractDrawable, AbstractLearner, AbstractVectorDynamics
from sombrl.envs.registry import make_envs
from sombrl.exploration import optimistic
from sombrl.exploration.weight import Constant
from sombrl.records import Prediction
from sombrl.settings import FiniteHorizon


class WaveDynamics(AbstractVectorDynamics, AbstractDrawable):
    """x' = x + scale · Wᵀφ(x, u), with a Gaussian posterior over W."""

    frequencies: jax.Array  # [waves, state + action]
    phases: jax.Array  # [waves]
    weights: jax.Array  # [waves, state]
    factor: jax.Array  # [waves, waves]; FFᵀ is the posterior covariance of each column of W
    scale: jax.Array  # [state]; the spread of x' - x in the data
    noise: float = eqx.field(static=True)  # in units of scale

    def features(self, state, action):
        """φ: all waves at one point, scaled so that the prior std of the function is 1."""
        waves = self.frequencies @ jnp.concatenate([state, action]) + self.phases
        return math.sqrt(2 / waves.shape[0]) * jnp.cos(waves)

    def predict(self, state, action):
        """Mean and standard deviations at one state and action, in the units of the observation."""
        features = self.features(state, action)
        return Prediction(
            mean=state + self.scale * (features @ self.weights),
            epistemic_std=self.scale * jnp.sqrt(jnp.sum((features @ self.factor) ** 2)),
            aleatoric_std=self.scale * self.noise,
            scale=self.scale,
        )

    def draw(self, *, key):
        """One function from the posterior, certain of itself: all that `thompson` needs."""
        weights = self.weights + self.factor @ jr.normal(key, self.weights.shape, jnp.float32)
        return eqx.tree_at(lambda d: (d.weights, d.factor), self, (weights, jnp.zeros_like(self.factor)))


class WaveLearner(AbstractLearner):
    """The state of this learner is the dynamics itself: there is nothing else to remember."""

    double_precision: ClassVar[bool] = False
    state_dim: int
    action_dim: int
    waves: int = 100
    frequency: float = 1.0  # the std of the frequencies: an inverse lengthscale
    noise: float = 0.05

    def init(self, *, key):
        """The prior: W ~ N(0, I)."""
        frequency_key, phase_key = jr.split(key)
        size = (self.waves, self.state_dim + self.action_dim)
        return WaveDynamics(
            frequencies=self.frequency * jr.normal(frequency_key, size, jnp.float32),
            phases=jr.uniform(phase_key, (self.waves,), jnp.float32, 0.0, 2 * math.pi),
            weights=jnp.zeros((self.waves, self.state_dim), jnp.float32),
            factor=jnp.eye(self.waves, dtype=jnp.float32),
            scale=jnp.ones(self.state_dim, jnp.float32),
            noise=self.noise,
        )

    def fit(self, state, replay, *, key):
        """Condition on all rows; the mask says which there are, and at first it says none."""
        mask, data = replay.mask.astype(jnp.float32)[:, None], replay.data
        change = mask * (data.next_obs - data.obs)
        spread = jnp.sqrt(jnp.sum(change**2, axis=0) / jnp.maximum(jnp.sum(mask), 1.0))
        scale = jnp.where(spread > 1e-6, spread, 1.0)
        features = mask * jax.vmap(state.features)(data.obs, data.action)
        # (I + ΦᵀΦ/s²)⁻¹ by its eigenvectors: a Cholesky factor in float32 fails on rows that repeat.
        values, vectors = jnp.linalg.eigh(features.T @ features)
        shrunk = vectors / jnp.sqrt(1 + jnp.maximum(values, 0.0) / self.noise**2)
        weights = shrunk @ (shrunk.T @ (features.T @ (change / scale[None, :]))) / self.noise**2
        fitted = WaveDynamics(state.frequencies, state.phases, weights, shrunk, scale, self.noise)
        return fitted, {"model/largest_weight": jnp.max(jnp.abs(weights))}  # scalars for metrics.jsonl

    def dynamics(self, state):
        """The posterior to plan with."""
        return state

    def task(self, state):
        """None: reward and termination are the environment's. An `AbstractTask` here would be a learned one."""
        return None


def main() -> None:
    """Swing a pendulum up, and say how well the model foresaw what it met."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="seconds instead of a minute")
    quick = parser.parse_args().quick

    envs = make_envs("pendulum", seeds=[0], action_repeat=2, episode_length=10 if quick else 100)
    icem = ICEMConfig(num_samples=20, num_elites=4, iterations=2, horizon=5) if quick else ICEMConfig()
    reports = sombrl.run(
        envs,
        WaveLearner(envs.spec.obs_dim, envs.spec.action_dim),
        optimistic(Constant(1.0)),
        ICEM(icem),
        FiniteHorizon(envs.spec.episode_length),
        seeds=[0],
        num_iterations=2 if quick else 10,
        capacity=1000,
    )
    for report in reports:
        rmse, coverage = (float(report.metrics[f"model/{name}"][0]) for name in ("rmse", "coverage"))
        returned = f"episode {report.iteration}: return {report.chunk.returns[0]:8.1f}"
        print(f"{returned}   rmse {rmse:.3f}   inside 95 % {coverage:.2f}")


if __name__ == "__main__":
    main()
