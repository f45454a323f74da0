"""Ten networks against an exact Gaussian process: the same prior, the same eight points, one picture.

python examples/fsvgd_vs_gp.py            # half a minute
python examples/fsvgd_vs_gp.py --quick    # the same steps in seconds, too short to learn anything
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

from sombrl.dynamics.coordinates import Differences
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import ParticleLearner
from sombrl.dynamics.particles import Statistics
from sombrl.records import Transition
from sombrl.replay import Replay

LENGTHSCALE, NOISE = 0.7, 0.1
X = np.array([-2.2, -1.8, -1.5, -0.9, -0.6, 0.1, 1.2, 1.5])
Y = 0.8 * np.sin(2 * X) + NOISE * np.random.default_rng(0).normal(size=8)
NETWORKS = {"hidden": (64, 64), "activation": "tanh", "learning_rate": 3e-3, "weight_decay": 0.0, "bandwidth": None}
POSTERIOR = {"prior_lengthscale": LENGTHSCALE, "resolution": 0.1, "likelihood_exponent": 1.0, "learn_noise": False}
POSTERIOR |= {"held_out": 0.0, "neighbourhood_share": 0.0, "visited_share": 0.0}  # all points, all of the domain


def gaussian_process(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of the exact posterior."""
    near, far = (np.exp(-0.5 * ((X[:, None] - other[None]) / LENGTHSCALE) ** 2) for other in (X, grid))
    weights = np.linalg.solve(near + NOISE**2 * np.eye(8), far).T
    return weights @ Y, np.sqrt(1 - np.sum(weights * far.T, axis=1))


def main() -> None:
    """Fit, compare, draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="seconds instead of half a minute")
    parser.add_argument("--out", type=Path, default=Path("fsvgd.png"))
    args = parser.parse_args()

    config = ParticleConfig(steps=50 if args.quick else 10_000, **NETWORKS, **POSTERIOR)
    model = ParticleLearner(Differences(1, 0), config, None, Statistics.identity(1, 1), jnp.array([NOISE]))
    x, y = (jnp.asarray(column, jnp.float32)[:, None] for column in (X, Y))
    no = jnp.zeros(8, bool)
    replay = Replay.empty(8, 1, 0).add(Transition(x, x[:, :0], x[:, 0], x + y, no, no), ~no)
    state, _ = jax.jit(lambda key: model.fit(model.init(key=key), replay, key=jr.fold_in(key, 1)))(jr.key(0))

    grid = np.linspace(-3, 3, 200)
    values = np.asarray(jax.vmap(state.particles)(jnp.asarray(grid, jnp.float32)[:, None]))[:, :, 0]
    mean, std = gaussian_process(grid)
    print(
        f"mean differs by {np.abs(values.mean(1) - mean).mean():.3f}, std by {np.abs(values.std(1) - std).mean():.3f}"
    )
    axes = plt.subplots(figsize=(7, 3.2), layout="constrained")[1]
    axes.fill_between(grid, mean - 2 * std, mean + 2 * std, color="0.88", label="GP, ±2σ")
    axes.plot(grid, mean, "--", color="0.4", label="GP, mean")
    axes.plot(grid, values, color="#4c72b0", linewidth=0.7)
    axes.plot(grid, values.mean(1), color="#4c72b0", linewidth=2, label="FSVGD: mean of ten networks")
    axes.plot(X, Y, "ko", markersize=4)
    axes.legend(frameon=False, fontsize=8, ncols=3)
    axes.figure.savefig(args.out, dpi=150)


if __name__ == "__main__":
    main()
