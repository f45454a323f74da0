"""Whole episodes in Dreamer's imagination: latents in place of observations, and its own actor.

An episode begins with a real first observation; after that the recurrent model goes on alone. J is the sum of predicted
rewards until the model expects the end, Σ that of the ensemble's disagreement, in the unit of --sigma.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from sombrl.dreamer.dreamer import Dreamer, Networks
from sombrl.dreamer.rssm import Latent
from sombrl.envs.base import AbstractEnvs
from sombrl.errors import SombrlError
from sombrl.records import Transition
from sombrl.seeds import over_seeds
from sombrl.training.base import Policy
from sombrl.training.imagined import ImaginedEnvs, Moved

STREAM = 0x626F756E  # keeps these keys apart from whatever else is derived from the same seed


class LatentActor(Policy):
    """The likeliest actions in imagined states."""

    mode = "task"

    def __init__(self, choose: Callable[[np.ndarray], np.ndarray]):
        self._choose = choose

    def begin(self, copies: int = 1, *, stream: int | None = None) -> None:
        """The latent remembers."""

    def act(self, memory: None, obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, None]:
        """The mode of the actor."""
        return self._choose(obs), None

    def assess(self, rows: Transition, valid: np.ndarray) -> dict[str, np.ndarray]:
        """Refused, as the policy on observations does."""
        raise SombrlError("dreamer's model remembers episodes: it says nothing about single transitions.")

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """Added one decision after the other."""
        return np.asarray(rewards.cumsum(axis=1)[:, -1])


def latent_imagination(
    dreamer: Dreamer, networks: Networks, seeds: Sequence[int], envs: AbstractEnvs
) -> tuple[LatentActor, ImaginedEnvs]:
    """The model of every seed as environments that begin where `envs` do, and the actor in it."""
    size, numbers = dreamer.size, np.asarray(seeds, np.uint32)

    def begin(networks: Networks, seed: jax.Array, episode: jax.Array, obs: Any) -> jax.Array:
        nothing = jax.tree.map(lambda leaf: leaf[0], dreamer.initial_latents(1)), jnp.zeros(dreamer.action_dim)
        _, latent = dreamer.act(networks, *nothing, obs, jnp.ones((), bool), sample=False, key=_key(seed, episode, 0))
        return latent.features

    def act(networks: Networks, features: jax.Array) -> jax.Array:
        return networks.policy.mode(features)

    def move(networks: Networks, seed: jax.Array, episode: jax.Array, decision: jax.Array, x: Any, action: Any) -> Any:
        assert networks.ensemble is not None
        latent = Latent(x[: size.deter], jnp.reshape(x[size.deter :], (size.latents, size.classes)))
        later = networks.rssm.imagine(latent, action, key=_key(seed, episode, decision + 1)).features
        ends = networks.cont.mean(later) < 0.5 * networks.cont.discount
        sigma = networks.ensemble.sigma(x, action, dreamer.config.explore.sigma)
        return later, networks.reward.mean(later), ends, sigma

    begins, acts, moves = over_seeds(begin), over_seeds(act), over_seeds(move)

    def starts(rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        obs = envs.spec.obs_layout.split(envs.reset_rows(rows, episodes))
        return np.asarray(begins(networks, numbers, jnp.asarray(episodes, jnp.int32), jax.tree.map(jnp.asarray, obs)))

    def moved(obs: np.ndarray, actions: np.ndarray, episodes: np.ndarray, decisions: np.ndarray) -> Moved:
        when = jnp.asarray(episodes), jnp.asarray(decisions)
        return Moved(*map(np.asarray, moves(networks, numbers, *when, jnp.asarray(obs), jnp.asarray(actions))))

    spec = dataclasses.replace(envs.spec, obs_dim=size.features, layout=None)
    actor = LatentActor(lambda obs: np.asarray(acts(networks, jnp.asarray(obs))))
    return actor, ImaginedEnvs(spec, seeds, starts, moved)


def _key(seed: jax.Array, episode: jax.Array, number: Any) -> jax.Array:
    return jr.fold_in(jr.fold_in(jr.fold_in(jr.key(seed), STREAM), episode), number)
