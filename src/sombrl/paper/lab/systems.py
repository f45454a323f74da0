"""Systems that satisfy every assumption of the theorems, with all constants known.

    y = a x + g*(x, u) + w,    g*_j = Σᵢ αᵢⱼ k(cᵢ, ·),    ‖g*_j‖_k = B exactly,    r ∈ [0, 1]

The learner knows the contraction a x, the kernel, B, the noise and the reward; it learns g*. Everything the theorems
say about f* they say about g*, since a known part shifts f* and μₙ alike. The grid's edge bounds the state.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.gp import features, gram
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import AbstractNoise, Gaussian
from sombrl.records import SombrlError
from sombrl.theory.require import require_fraction, require_positive

R_MAX = 1.0
"""Rewards lie in [0, R_MAX]."""


@dataclass(frozen=True)
class GridWorld:
    """What the learner knows."""

    grid: Grid
    noise: AbstractNoise = field(default_factory=lambda: Gaussian(0.2))
    lengthscales: tuple[float, float] = (1.0, 0.7)  # of the states, of the action
    contraction: float = 0.5  # a
    norm_bound: float = 2.0  # B
    delta: float = 0.1  # δ, the chance at which a statement may fail

    def __post_init__(self) -> None:
        """Refuse impossible numbers before anything is drawn."""
        require_positive(norm_bound=self.norm_bound, lengthscale=min(self.lengthscales))
        require_fraction(delta=self.delta)
        if not 0.0 <= self.contraction < 1.0:
            raise SombrlError(f"contraction = {self.contraction}: a x must contract, give 0 <= a < 1.")

    @property
    def scaled(self) -> Float[Array, "inputs input"]:
        """Every z of the grid in lengthscales."""
        return self.scale(self.grid.inputs)

    def scale(self, inputs: Float[Array, "points input"]) -> Float[Array, "points input"]:
        """Inputs in lengthscales."""
        states, action = self.lengthscales
        return inputs / jnp.asarray([states] * self.grid.state_dim + [action], jnp.float64)[None, :]

    @property
    def known(self) -> Float[Array, "inputs state"]:
        """a x at every input."""
        return self.contraction * jnp.repeat(self.grid.states, self.grid.num_actions, axis=0)

    @property
    def basis(self) -> Float[Array, "inputs features"]:
        """The features of the exact GP."""
        return features(self.scaled)

    def transition(self, residual: Float[Array, "inputs state"]) -> Float[Array, "states actions states"]:
        """The transition probabilities under a x + residual: the truth's with g*, the model's with μₙ."""
        return self.grid.transition(self.noise, self.known + residual)

    @property
    def c_max(self) -> float:
        """C_max = max{R_max, σ_max}: ‖σₙ(z)‖ <= √d_x, for k(z, z) = 1."""
        return max(R_MAX, math.sqrt(self.grid.state_dim))

    @property
    def lipschitz(self) -> float:
        """L_* of a x + g for every g with ‖g_j‖_k <= B, in a world that rounds.

        |g_j(z) - g_j(z')| <= B ‖k_z - k_z'‖_k <= B ‖z - z'‖/ℓ for the rbf kernel, so a + √d_x B/ℓ before rounding.
        Two states rounded by the same chance keep their distance on average, but coordinate by coordinate: that is
        the 1-norm, and costs another √d_x.
        """
        root = math.sqrt(self.grid.state_dim)
        return root * (self.contraction + root * self.norm_bound / min(self.lengthscales))

    @property
    def std_lipschitz(self) -> float:
        """L_σ of ‖σₙ‖, after any data: |σₙ(z) - σₙ(z')| <= ‖k_z - k_z'‖_k <= ‖z - z'‖/ℓ, in a world that rounds."""
        return self.grid.state_dim / min(self.lengthscales)


class System(eqx.Module):
    """What the learner does not know, g*, and the reward: bumps in the state, and a share for small actions."""

    centers: Float[Array, "terms input"]
    weights: Float[Array, "terms state"]  # α
    bump_heights: Float[Array, " bumps"]
    bump_places: Float[Array, "bumps state"]
    bump_widths: Float[Array, " bumps"]
    idle_share: Float[Array, ""]  # times 1 - u²

    def residual(self, world: GridWorld) -> Float[Array, "inputs state"]:
        """g* at every input of the grid."""
        return gram(world.scaled, world.scale(self.centers)) @ self.weights

    def norms(self, world: GridWorld) -> Float[Array, " state"]:
        """‖g*_j‖_k = √(αᵀKα)."""
        scaled = world.scale(self.centers)
        return jnp.sqrt(jnp.sum(self.weights * (gram(scaled, scaled) @ self.weights), axis=0))

    def reward(self, grid: Grid) -> Float[Array, "states actions"]:
        """r(x, u) on the grid."""

        def of_state(state: Array) -> Array:
            distance = jnp.sum((self.bump_places - state[None, :]) ** 2, axis=1)
            return jnp.sum(self.bump_heights * jnp.exp(-0.5 * distance / self.bump_widths**2))

        idle: Array = self.idle_share * (1.0 - grid.actions**2)
        return jax.vmap(of_state)(grid.states)[:, None] + idle[None, :]

    def reward_lipschitz(self) -> Float[Array, ""]:
        """L_r: a Gaussian bump of height h and width w is steepest at one width, with slope h e^{-1/2}/w."""
        slope = jnp.sum(self.bump_heights / self.bump_widths) * jnp.exp(-0.5)
        return jnp.maximum(slope, 2.0 * self.idle_share)


def random_system(world: GridWorld, *, key: Key[Array, ""], terms: int = 30) -> System:
    """α and the centres at random, one goal somewhere in the inner half of the state space."""
    center_key, weight_key, goal_key = jr.split(key, 3)
    dim, width = world.grid.state_dim, world.grid.half_width
    edges = jnp.asarray([width] * dim + [1.0], jnp.float64)
    system = System(
        centers=jr.uniform(center_key, (terms, dim + 1), jnp.float64, -1.0, 1.0) * edges[None, :],
        weights=jr.normal(weight_key, (terms, dim), jnp.float64),
        bump_heights=jnp.asarray([0.9], jnp.float64),
        bump_places=jr.uniform(goal_key, (1, dim), jnp.float64, -0.5 * width, 0.5 * width),
        bump_widths=jnp.asarray([0.25 * width * dim**0.5], jnp.float64),
        idle_share=jnp.asarray(0.1, jnp.float64),
    )
    return _of_norm(system, world)


def trap(world: GridWorld, *, key: Key[Array, ""], disturbance: float = 0.3) -> System:
    """A small certain reward for doing nothing, a large one far to one side, and a lever that must be discovered.

    g* is odd in u, so nothing moves at u = 0. The prior mean of g* is 0 as well: to a greedy learner no action does
    anything, u = 0 is the cheapest, and what it sees there is noise, which never contradicts it. `disturbance` is the
    share of a random function, odd in u too, so that no two traps are alike.
    """
    if world.grid.state_dim != 1:
        raise SombrlError(f"the trap has one state dimension, not {world.grid.state_dim}.")
    shape_key, side_key, place_key = jr.split(key, 3)
    width = world.grid.half_width
    side = jr.rademacher(side_key, (1,), jnp.float64)
    lever = jnp.linspace(-0.75 * width, 0.75 * width, 5, dtype=jnp.float64)
    shape = random_system(world, key=shape_key)
    random = _odd(shape, world)
    pull = eqx.tree_at(
        lambda s: (s.centers, s.weights),
        shape,
        (jnp.stack([lever, jnp.ones_like(lever)], axis=1), jnp.ones((5, 1), jnp.float64)),
    )
    pull = _odd(pull, world)
    return _of_norm(
        System(
            centers=jnp.concatenate([pull.centers, random.centers]),
            weights=jnp.concatenate([pull.weights, disturbance * random.weights]),
            bump_heights=jnp.asarray([0.7], jnp.float64),
            bump_places=(side * jr.uniform(place_key, (1,), jnp.float64, 0.6, 0.75) * width)[:, None],
            bump_widths=jnp.asarray([0.15 * width], jnp.float64),
            idle_share=jnp.asarray(0.3, jnp.float64),
        ),
        world,
    )


def _odd(system: System, world: GridWorld) -> System:
    """(g(x, u) - g(x, -u))/c, of norm B."""
    mirror = jnp.asarray([1.0] * world.grid.state_dim + [-1.0], jnp.float64)[None, :]
    both = jnp.concatenate([system.centers, system.centers * mirror])
    odd = eqx.tree_at(
        lambda s: (s.centers, s.weights), system, (both, jnp.concatenate([system.weights, -system.weights]))
    )
    return _of_norm(odd, world)


def _of_norm(system: System, world: GridWorld) -> System:
    """The same g*, scaled to norm B in every coordinate."""
    scale = world.norm_bound / system.norms(world)
    scaled: System = eqx.tree_at(lambda s: s.weights, system, system.weights * scale[None, :])
    return scaled


@functools.partial(jax.jit, static_argnums=(0, 1))
def over_systems(
    measure: Callable[..., Any], fixed: tuple[Any, ...], arrays: tuple[Any, ...], keys: Key[Array, " systems"]
) -> Any:
    """`measure(*fixed, *arrays, key=key)` of every key; each key draws a system.

    One system after the other: a batch of them would only wait for the slowest plan.
    """
    return jax.lax.map(lambda key: measure(*fixed, *arrays, key=key), keys)
