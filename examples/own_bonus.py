"""A bonus of your own, a weight for it, and the loop without an agent around it.

Exploration = how imagined states move × what uncertainty is worth × how much that counts. Here: by the mean, as in
SOMBRL; ignorance of the car's position alone; and a weight that fades with the root of the iteration.

    python examples/own_bonus.py [--quick]
"""

import argparse

import equinox as eqx
import jax.numpy as jnp

import sombrl
from sombrl.controllers import ICEM, ICEMConfig
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.envs.registry import make_envs
from sombrl.exploration import AbstractBonus, AbstractWeight, Exploration, Mean
from sombrl.settings import FiniteHorizon


class IgnoranceOf(AbstractBonus):
    """σ of one coordinate, in normalised units: what is not named is not worth a look."""

    coordinate: int = eqx.field(static=True)

    def __call__(self, prediction):
        """The bonus at one state and action."""
        return prediction.epistemic_std[self.coordinate] / prediction.scale[self.coordinate]


class InverseRoot(AbstractWeight):
    """λₙ = start/√(n + 1)."""

    start: float

    def __call__(self, iteration, dynamics):
        """λₙ; an array, so that it changes without compiling again."""
        return self.start / jnp.sqrt(iteration.astype(jnp.float32) + 1.0)


def main() -> None:
    """Run Algorithm 1 on sparse MountainCar and print a line per iteration."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    quick = parser.parse_args().quick

    seeds = [0, 1]
    envs = make_envs("mountain-car", seeds, action_repeat=5, episode_length=8 if quick else 40)
    gp = GPConfig(capacity=512, rank=16, fit_steps=5, fit_points=32) if quick else GPConfig(capacity=512, rank=64)
    icem = ICEMConfig(num_samples=20, num_elites=4, iterations=2, horizon=5) if quick else ICEMConfig(horizon=30)

    reports = sombrl.run(
        envs,
        GPLearner(envs.spec.obs_dim, envs.spec.action_dim, learn_task=False, config=gp),  # the reward is known
        Exploration(propagation=Mean(), bonus=IgnoranceOf(coordinate=0), bonus_weight=InverseRoot(10.0)),
        ICEM(icem),
        FiniteHorizon(envs.spec.episode_length),
        seeds=seeds,
        num_iterations=3 if quick else 8,
        capacity=gp.capacity,
    )
    for report in reports:  # the loop yields: log, save or stop here as you like
        returns = "  ".join(f"{value:8.1f}" for value in report.chunk.returns)
        weight, sigma = report.metrics["explore/bonus_weight"][0], report.metrics["explore/mean_std"].mean()
        print(f"iteration {report.iteration}: returns {returns}   λ {weight:.1f}   mean ‖σ‖ {sigma:.2f}")


if __name__ == "__main__":
    main()
