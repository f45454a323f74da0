"""Does σ know where the model errs? Rank correlations on episodes that nothing was learned from.

The episodes are those of an evaluation, acted in as in training. At every decision σ is compared with two errors of one
step: that of the ensemble's mean prediction of its target, and that of the observation which the world model expects,
decoded. 1 is a perfect order, 0 none.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from sombrl.dreamer.dreamer import Dreamer, Networks
from sombrl.dreamer.policy import LatentPolicy, RecurrentState
from sombrl.dreamer.rssm import Latent
from sombrl.envs.base import AbstractEnvs
from sombrl.records import Transition
from sombrl.training.base import EVALUATION_EPISODES, Policy
from sombrl.training.play import play

LATENT, DECODED, SIGMA = "eval/sigma_rank_latent", "eval/sigma_rank_decoded", "eval/mean_std"


class Watched(Policy):
    """A policy whose states, actions and observations are kept."""

    mode = "explore"

    def __init__(self, policy: LatentPolicy):
        self._policy = policy
        self.steps: list[tuple[Latent, np.ndarray, np.ndarray]] = []

    def begin(self, copies: int = 1, *, stream: int | None = None) -> RecurrentState:
        """Nothing kept yet."""
        self.steps = []
        return self._policy.begin(copies, stream=stream)

    def act(self, memory: RecurrentState, obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, RecurrentState]:
        """As the policy does."""
        action, after = self._policy.act(memory, obs, first)
        self.steps.append((after.latent, after.action, obs))
        return action, after

    def assess(self, rows: Transition, valid: np.ndarray) -> dict[str, np.ndarray]:
        """As the policy does."""
        return self._policy.assess(rows, valid)

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """As the policy does."""
        return self._policy.returns(rewards)


def calibration(
    dreamer: Dreamer, networks: Networks, policy: LatentPolicy, envs: AbstractEnvs, episodes: int
) -> dict[str, Float[np.ndarray, "once seeds"]]:
    """Spearman's ρ of σ with both errors over all decisions of the episodes, and the mean σ, [1, seeds]."""
    watched, measure = Watched(policy), jax.jit(lambda *given: errors(dreamer, *given))
    seeds = len(envs.seeds)
    found: list[list[np.ndarray]] = [[] for _ in range(seeds)]
    for played in play(watched, envs, first_episode=EVALUATION_EPISODES, episodes=episodes):
        steps = len(watched.steps)
        latent, action, obs = _padded(watched.steps, played.valid.shape[1])
        parts = envs.spec.obs_layout.split(obs)
        for seed in range(seeds):
            own = jax.tree.map(lambda leaf: leaf[seed], networks)  # noqa: B023
            values = measure(own, *jax.tree.map(lambda leaf: leaf[:, seed], (latent, action, parts)))  # noqa: B023
            there = played.valid[seed, 1:steps]  # both the decision and what it led to
            found[seed].append(np.stack(jax.device_get(values), axis=1)[: steps - 1][there])
    pooled = [np.concatenate(values) for values in found]
    return {
        LATENT: np.array([[spearman(values[:, 0], values[:, 1]) for values in pooled]]),
        DECODED: np.array([[spearman(values[:, 0], values[:, 2]) for values in pooled]]),
        SIGMA: np.array([[values[:, 0].mean() for values in pooled]]),
    }


def errors(
    dreamer: Dreamer,
    networks: Networks,
    latent: Latent,
    action: Float[Array, "time action"],
    obs: dict[str, Shaped[Array, "time ..."]],
) -> tuple[Float[Array, " decisions"], Float[Array, " decisions"], Float[Array, " decisions"]]:
    """σ of every decision but the last, the norm of the ensemble's error, and the loss of the expected observation."""
    explore, ensemble = dreamer.config.explore, networks.ensemble
    assert ensemble is not None
    tokens = jax.vmap(networks.encoder)(obs)
    targets = dreamer.targets(latent, tokens)

    def one(t: Array) -> tuple[Array, Array, Array]:
        now = jax.tree.map(lambda leaf: leaf[t], latent)
        mean = jnp.mean(ensemble.predict(now.features, action[t]), axis=0)
        missed = jnp.sqrt(jnp.sum((mean - targets[t + 1]) ** 2))
        deter = networks.rssm.core(now, action[t])
        likeliest = jax.nn.one_hot(jnp.argmax(networks.rssm.prior(deter), axis=-1), dreamer.size.classes)
        expected = networks.decoder(Latent(deter, likeliest.astype(deter.dtype)))
        seen = {name: part[t + 1] for name, part in obs.items()}
        unexpected = sum(networks.decoder.losses(expected, seen).values(), jnp.zeros((), jnp.float32))
        return ensemble.sigma(now.features, action[t], explore.sigma), missed, unexpected

    found: tuple[Array, Array, Array] = jax.vmap(one)(jnp.arange(action.shape[0] - 1, dtype=jnp.int32))
    return found


def spearman(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """The correlation of the ranks, ties at their mean rank; NaN where one side is constant."""
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / spread) if spread > 0 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse])


def _padded(steps: list[tuple[Latent, np.ndarray, np.ndarray]], length: int) -> Any:
    """Steps as arrays [time, rows, ...], as long as an episode may be, so that one program reads them all."""
    stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *steps)
    return jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], length - len(leaf), axis=0)]), stacked)
