"""Whether an exported policy acts as its agent does."""

import numpy as np

CLOSE = 2e-6  # of half the range: float32 sums of a few dozen numbers in another order


def observations(size, number=100, seed=0):
    obs = np.random.default_rng(seed).normal(size=(number, size)).astype(np.float32)
    return obs * np.logspace(-2, 2, number, dtype=np.float32)[:, None]


def largest(agent, pilot):
    """The largest difference from `predict`, in half ranges, over many observations of all magnitudes."""
    low, high = (np.array(pilot.info["action"][side]) for side in ("low", "high"))
    differences = []
    for obs in observations(agent.envs.spec.obs_dim):
        expected, _ = agent.predict(obs)
        action, _ = pilot.act(obs)
        assert action.dtype == expected.dtype and action.shape == expected.shape
        assert (low <= action).all() and (action <= high).all()
        differences.append(np.max(np.abs(action - expected) / (0.5 * (high - low))))
    return max(differences)
