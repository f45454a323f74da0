"""Dreamer's policy: acts on what it has seen so far in an episode."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sombrl.dreamer.dreamer import Dreamer
from sombrl.dreamer.loop import DreamerPrograms, executed
from sombrl.dreamer.rssm import Latent
from sombrl.envs.layout import ObsLayout
from sombrl.errors import SombrlError
from sombrl.records import Transition
from sombrl.seeds import take
from sombrl.training.base import EVALUATION_EPISODES, Mode, Policy

NOISE_STRIDE = 30_000  # decisions that an episode may have before its noise is that of the next; Atari's have 27000


@dataclasses.dataclass(frozen=True)
class RecurrentState:
    """What is remembered of an episode."""

    latent: Latent
    action: np.ndarray
    """The last one, before the environment clipped it."""
    decision: int
    stream: int
    """Of random numbers: another for every episode."""


class LatentPolicy(Policy):
    """The likeliest actions, or sampled ones as in training."""

    def __init__(
        self,
        mode: Mode,
        dreamer: Dreamer,
        layout: ObsLayout,
        networks: Any,
        seeds: Sequence[int],
        new_stream: Callable[[], int],
    ):
        """`new_stream` gives the random numbers of what begins without saying which episode it is."""
        self.mode, self.seeds = mode, list(seeds)
        self._dreamer, self._layout, self._new_stream = dreamer, layout, new_stream
        self._programs = DreamerPrograms.of(dreamer, sample=mode == "explore")
        self._networks = [take(networks, shard) for shard in self._programs.shards(len(seeds))]

    def begin(self, copies: int = 1, *, stream: int | None = None) -> RecurrentState:
        """Nothing seen yet."""
        rows = copies * len(self.seeds)
        nothing = np.zeros((rows, self._dreamer.action_dim), np.float32)
        stream = self._new_stream() if stream is None else stream
        return RecurrentState(self._dreamer.initial_latents(rows), nothing, 0, stream)

    def act(self, memory: RecurrentState, obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, RecurrentState]:
        """Look, remember, and choose."""
        given = memory.latent, memory.action, self._layout.split(obs), first
        now = (EVALUATION_EPISODES + memory.stream * NOISE_STRIDE + memory.decision) % 2**31
        chosen, latent, _, _ = self._programs.choose(self._networks, self.seeds, now, given)
        after = RecurrentState(latent, chosen, memory.decision + 1, memory.stream)
        return executed(chosen, self._dreamer.discrete), after

    def assess(self, rows: Transition, valid: np.ndarray) -> dict[str, np.ndarray]:
        """Refused: it takes a model of single transitions."""
        raise SombrlError("dreamer's model remembers episodes: it says nothing about single transitions.")

    def returns(self, rewards: np.ndarray) -> np.ndarray:
        """Added one decision after the other."""
        return np.asarray(rewards.cumsum(axis=1)[:, -1])
