"""Tiny worlds for policies: a model that knows what it does not know, a task with an end, and replays of them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from sombrl.dynamics.base import AbstractVectorDynamics
from sombrl.exploration.base import AbstractBonus, ImaginedMDP
from sombrl.exploration.bonus import EpistemicMean, NoBonus
from sombrl.exploration.propagation import Mean
from sombrl.records import AbstractTask, Prediction, Transition
from sombrl.replay import Replay

TRACES = [0]  # how often Python ran `Model.predict`: a compiled function does not


def f32(x):
    return jnp.asarray(x, jnp.float32)


class Model(AbstractVectorDynamics):
    """x' = x/2 + u₀/4, uncertain where u₀ is large: σ = spread · exp(u₀)."""

    spread: Float[Array, ""]

    def predict(self, state, action):
        TRACES[0] += 1
        mean = 0.5 * state + 0.25 * action[0]
        std = jnp.full_like(mean, self.spread * jnp.exp(action[0]))
        return Prediction(mean, std, jnp.full_like(mean, 0.1), jnp.ones_like(mean))


class Task(AbstractTask):
    """-|u - ½|², over once x'₀ exceeds `limit`."""

    limit: Float[Array, ""]

    def reward(self, state, action, next_state):
        return -jnp.sum((action - 0.5) ** 2)

    def terminated(self, state, action, next_state):
        return next_state[0] > self.limit


class Poison(AbstractBonus):
    """Not a number."""

    def __call__(self, prediction):
        return jnp.log(-prediction.epistemic_std[0])


class Certain(AbstractBonus):
    """‖0 σ‖: zero, with a gradient that is not a number."""

    def __call__(self, prediction):
        return jnp.sqrt(jnp.sum((0.0 * prediction.epistemic_std) ** 2))


def world(bonus=None, *, weight=1.0, spread=1.0, limit=jnp.inf, discount=1.0, task_weight=1.0, action_dim=2):
    """The imagined MDP of those parts; no bonus unless given."""
    return ImaginedMDP(
        dynamics=Model(f32(spread)),
        task=Task(f32(limit)),
        propagation=Mean(),
        bonus=NoBonus() if bonus is None else bonus,
        bonus_weight=f32(0.0 if bonus is None else weight),
        task_weight=f32(task_weight),
        discount=f32(discount),
        env_action_dim=action_dim,
        action_dim=action_dim,
        stochastic=False,
    )


def uncertain(**options):
    """The same with SOMBRL's bonus."""
    return world(EpistemicMean(), **options)


def transitions(obs, action, reward, next_obs, terminated=False, truncated=False):
    """A batch of transitions from lists."""
    n = len(reward)
    flags = [jnp.broadcast_to(jnp.asarray(flag, bool), (n,)) for flag in (terminated, truncated)]
    return Transition(f32(obs), f32(action), f32(reward), f32(next_obs), *flags)


def filled(rows, capacity=64):
    """A replay that holds those rows."""
    n = rows.reward.shape[0]
    empty = Replay.empty(max(capacity, n), rows.obs.shape[1], rows.action.shape[1])
    return empty.add(rows, jnp.ones(n, bool))


def random_replay(number=40, obs_dim=3, action_dim=2, seed=0, terminated=0.2, truncated=0.2):
    """Random transitions, some of which end the task and some the episode."""
    rng = np.random.default_rng(seed)
    return filled(
        transitions(
            rng.normal(size=(number, obs_dim)),
            rng.uniform(-1, 1, size=(number, action_dim)),
            rng.normal(size=number),
            rng.normal(size=(number, obs_dim)),
            rng.random(number) < terminated,
            rng.random(number) < truncated,
        )
    )


# Without LLVM's optimisation: most of the time here is compilation.
improve = jax.jit(
    lambda sac, state, mdp, replay, key: sac.improve(state, mdp, replay, key=key),
    compiler_options={"xla_backend_optimization_level": 0},
)


def train(sac, mdp, replay, calls, seed=0):
    """The state and the metrics after so many calls."""
    state, metrics = sac.init(mdp, key=jr.key(seed)), {}
    for i in range(calls):
        state, metrics = improve(sac, state, mdp, replay, jr.fold_in(jr.key(seed + 1), i))
    return state, metrics
