"""Data and small learners shared by the GP tests."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from sombrl.dynamics.gp import GPConfig, GPLearner
from sombrl.records import Transition
from sombrl.replay import Replay


def wave(number: int, *, seed: int = 0, noise: float = 0.0) -> Transition:
    """A smooth two-dimensional system with one action."""
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-2, 2, (number, 2))
    action = rng.uniform(-1, 1, (number, 1))
    change = 0.3 * np.stack([np.sin(obs[:, 1]) + action[:, 0], np.cos(obs[:, 0]) * action[:, 0]], axis=1)
    change += noise * rng.normal(size=change.shape)
    columns = (obs, action, -np.sum(obs**2, axis=1), obs + change)
    terminated = jnp.asarray(obs[:, 0] > 1.5)
    return Transition(
        *(jnp.asarray(column.astype(np.float32)) for column in columns), terminated, jnp.zeros(number, bool)
    )


def replay_of(rows: Transition, capacity: int = 128) -> Replay:
    replay = Replay.empty(capacity, rows.obs.shape[1], rows.action.shape[1])
    return replay.add(rows, jnp.ones(rows.reward.shape[0], bool))


def learner(learn_task: bool = False, **settings) -> GPLearner:
    settings = {"capacity": 128, "rank": 128, "fit_steps": 20, "draw_features": 2048} | settings
    return GPLearner(2, 1, learn_task, GPConfig(**settings))


@functools.cache
def _compiled(learn_task: bool, config: GPConfig):
    """One compilation per configuration, whatever the data."""
    gp = GPLearner(2, 1, learn_task, config)
    return jax.jit(lambda key: gp.init(key=key)), jax.jit(lambda s, r, k: gp.fit(s, r, key=k))


def fit(learner: GPLearner, replay: Replay, state=None, seed: int = 1):
    with jax.enable_x64(True):
        init, compiled = _compiled(learner.learn_task, learner.config)
        return compiled(init(jr.key(0)) if state is None else state, replay, jr.key(seed))


def predict(dynamics, obs, action):
    return jax.jit(jax.vmap(dynamics.predict))(obs, action)


def same(a, b):
    """Whether two trees are equal in every bit."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def exact(state, rows: Transition, queries: Transition, kernel=None):
    """μ and σ of s' - s by the textbook formulas, in NumPy, in normalised units."""
    kernel = kernel or (lambda a, b: np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1)))
    x = np.concatenate([rows.obs, rows.action], axis=1).astype(np.float64)
    q = np.concatenate([queries.obs, queries.action], axis=1).astype(np.float64)
    y = np.asarray(rows.next_obs, np.float64) - np.asarray(rows.obs, np.float64)
    x, q = ((a - np.asarray(state.inputs.mean)) / np.asarray(state.inputs.std) for a in (x, q))
    y = (y - np.asarray(state.outputs.mean)[:2]) / np.asarray(state.outputs.std)[:2]
    means, stds = [], []
    for j in range(2):
        lengthscale = np.exp(np.asarray(state.hyperparameters.log_lengthscale[j]))
        noise = np.exp(2 * float(state.hyperparameters.log_noise_std[j]))
        gram = kernel(x / lengthscale, x / lengthscale) + noise * np.eye(len(x))
        cross = kernel(q / lengthscale, x / lengthscale)
        weights = np.linalg.solve(gram, cross.T).T
        prior = np.diagonal(kernel(q / lengthscale, q / lengthscale))
        means.append(weights @ y[:, j])
        stds.append(np.sqrt(np.maximum(prior - np.sum(weights * cross, axis=1), 0)))
    return np.stack(means, 1), np.stack(stds, 1)


def normalised(state, prediction, queries: Transition):
    """Our prediction in the units of `exact`."""
    change = np.asarray(prediction.mean, np.float64) - np.asarray(queries.obs, np.float64)
    mean = (change - np.asarray(state.outputs.mean)[:2]) / np.asarray(state.outputs.std)[:2]
    return mean, np.asarray(prediction.epistemic_std / prediction.scale)
