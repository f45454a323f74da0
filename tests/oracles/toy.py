"""Tiny imagined MDPs whose answers are known, made of the smallest parts that satisfy the contracts."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sombrl.dynamics.base import AbstractVectorDynamics
from sombrl.exploration.base import AbstractBonus, AbstractPropagation, ImaginedMDP
from sombrl.records import AbstractTask, Prediction

TRACES = [0]  # how often Python ran `LinearDynamics.predict`: a compiled function does not


def f32(x):
    return jnp.asarray(x, jnp.float32)


class LinearDynamics(AbstractVectorDynamics):
    """x' = A x + B u + noise_std · w."""

    A: Float[Array, "state state"]
    B: Float[Array, "state action"]
    noise_std: Float[Array, ""]

    def predict(self, state, action):
        TRACES[0] += 1
        mean = self.A @ state + self.B @ action
        noise = jnp.broadcast_to(self.noise_std, mean.shape)
        return Prediction(mean, jnp.zeros_like(mean), noise, jnp.ones_like(mean))


class QuadraticTask(AbstractTask):
    """-(x'-target)ᵀ Q (x'-target) - uᵀ R u; ends once the first coordinate exceeds `limit`."""

    Q: Float[Array, "state state"]
    R: Float[Array, "action action"]
    target: Float[Array, " state"]
    limit: Float[Array, ""]

    def reward(self, state, action, next_state):
        gap = next_state - self.target
        return -(gap @ self.Q @ gap) - action @ self.R @ action

    def terminated(self, state, action, next_state):
        return next_state[0] > self.limit


class PoisonedTask(AbstractTask):
    """-1e6 + u₀, so that more is better, but NaN (or `poison`) as soon as u₀ exceeds `limit`."""

    limit: Float[Array, ""]
    poison: Float[Array, ""]

    def reward(self, state, action, next_state):
        return jnp.where(action[0] > self.limit, self.poison, -1e6 + action[0])

    def terminated(self, state, action, next_state):
        return jnp.zeros((), bool)


class ZeroBonus(AbstractBonus):
    def __call__(self, prediction):
        return f32(0.0)


class MeanPropagation(AbstractPropagation):
    stochastic: ClassVar[bool] = False

    def prepare(self, dynamics, *, key):
        return dynamics

    def extra_actions(self, state_dim):
        return 0

    def __call__(self, dynamics, state, action, *, key):
        return dynamics.predict(state, action).mean


class NoisyPropagation(AbstractPropagation):
    stochastic: ClassVar[bool] = True

    def prepare(self, dynamics, *, key):
        return dynamics

    def extra_actions(self, state_dim):
        return 0

    def __call__(self, dynamics, state, action, *, key):
        return dynamics.transition(state, action, key=key)


class SteeredPropagation(AbstractPropagation):
    """The mean, moved by one more control per coordinate, as hallucination does."""

    stochastic: ClassVar[bool] = False

    def prepare(self, dynamics, *, key):
        return dynamics

    def extra_actions(self, state_dim):
        return state_dim

    def __call__(self, dynamics, state, action, *, key):
        split = action.shape[0] - state.shape[0]
        return dynamics.predict(state, action[:split]).mean + action[split:]


def imagine(dynamics, task, *, action_dim, stochastic=False, steered=0, discount=1.0):
    """The MDP of those parts, without a bonus. `steered`: how many coordinates the planner may move, or 0."""
    propagation = NoisyPropagation() if stochastic else MeanPropagation()
    return ImaginedMDP(
        dynamics=dynamics,
        task=task,
        propagation=SteeredPropagation() if steered else propagation,
        bonus=ZeroBonus(),
        bonus_weight=f32(0.0),
        task_weight=f32(1.0),
        discount=f32(discount),
        env_action_dim=action_dim,
        action_dim=action_dim + steered,
        stochastic=stochastic,
    )


def linear_quadratic(A, B, Q, R, *, target=None, limit=jnp.inf, noise_std=0.0, stochastic=False, discount=1.0):
    """Linear dynamics, quadratic costs: solved by Riccati while no bound is active."""
    target = jnp.zeros(len(A), jnp.float32) if target is None else f32(target)
    return imagine(
        LinearDynamics(f32(A), f32(B), f32(noise_std)),
        QuadraticTask(f32(Q), f32(R), target, f32(limit)),
        action_dim=len(B[0]),
        stochastic=stochastic,
        discount=discount,
    )


def memoryless(target, *, stochastic=False, noise_std=0.0, discount=1.0):
    """x' = u (+ noise): the return is maximal when every action is `target`, and separable over decisions."""
    dim = len(target)
    eye, zero = np.eye(dim), np.zeros((dim, dim))
    return linear_quadratic(
        zero, eye, eye, zero, target=target, noise_std=noise_std, stochastic=stochastic, discount=discount
    )


def poisoned(limit, poison=jnp.nan):
    """Candidates with an action above `limit` have no finite return; the others have a very negative one."""
    dynamics = LinearDynamics(f32([[1.0]]), f32([[1.0]]), f32(0.0))
    return imagine(dynamics, PoisonedTask(f32(limit), f32(poison)), action_dim=1)
