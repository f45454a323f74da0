"""Random actions for the first episodes: a model needs some data before it can say where it is unsure."""

from collections.abc import Sequence

import numpy as np

STREAM = 0x72616E64  # "rand": keeps these numbers apart from all others of the seed


def random_actions(
    seeds: Sequence[int], episodes: np.ndarray, decision: int, action_dim: int, size: float = 1.0
) -> np.ndarray:
    """An action, uniform in [-size, size], for every seed in its episode, [seeds, action]."""
    keys = [(seed, STREAM, episode, decision) for seed, episode in zip(seeds, episodes.tolist(), strict=True)]
    drawn = [np.random.default_rng(key).uniform(-1.0, 1.0, action_dim) for key in keys]
    return np.array(drawn, np.float32) * np.float32(size)
