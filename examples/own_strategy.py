"""A strategy that is not in the table, and the loop without an agent around it.

Exploration = how imagined states move × what uncertainty is worth × how much that counts. Here: sampled futures as
in PETS, the bonus of SOMBRL, and a weight that fades to zero.

    python examples/own_strategy.py [--quick]
"""

import argparse

import sombrl
from sombrl.controllers import ICEM, ICEMConfig
from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.envs.registry import make_envs
from sombrl.exploration import EpistemicNorm, Exploration, Linear, Resampled
from sombrl.settings import FiniteHorizon


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
        Exploration(propagation=Resampled(), bonus=EpistemicNorm(), bonus_weight=Linear(10.0, 0.0, 6)),
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
