"""The paper's settings on tables, all exact: how to plan, the value of a policy, what λₙ is, how long to act.

The settings of a training run are in `sombrl.settings`. `performance` values several rewards at once and starts in the
middle of the grid.
"""

import abc
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sombrl.paper.lab import planner
from sombrl.paper.lab.planner import Policy, Reward, Rewards, Transition
from sombrl.paper.lab.systems import GridWorld
from sombrl.theory import bonus_weight, discounted_horizon
from sombrl.theory.require import require_fraction, require_positive

Scalar = Float[Array, ""]


@dataclass(frozen=True)
class AbstractExactSetting(abc.ABC):
    """What differs between the settings."""

    name: ClassVar[str]
    resets: ClassVar[bool] = True

    @abc.abstractmethod
    def plan(self, transition: Transition, reward: Reward) -> Policy:
        """The best policy under these tables."""

    @abc.abstractmethod
    def performance(
        self, world: GridWorld, transition: Transition, rewards: Rewards, policy: Policy
    ) -> Float[Array, " kinds"]:
        """J(π, f), Σ(π, f), or the value of any other rewards, under the dynamics of `transition`."""

    @abc.abstractmethod
    def bonus_weight(self, beta: Scalar, world: GridWorld, constant: Scalar) -> Scalar:
        """The λₙ of the theory. `constant` is what `constant` returned for the system."""

    @abc.abstractmethod
    def lengths(self, episodes: int) -> tuple[int, ...]:
        """How many decisions each episode takes."""

    def constant(self, world: GridWorld, transition: Transition, reward: Reward) -> Scalar:
        """What λₙ needs to know about the true system; only the average reward needs anything."""
        return jnp.ones((), jnp.float64)


@dataclass(frozen=True)
class ExactFiniteHorizon(AbstractExactSetting):
    """T decisions, then back to the start. Plans count time."""

    name: ClassVar[str] = "finite-horizon"
    horizon: int = 10

    def __post_init__(self) -> None:
        """T is positive."""
        require_positive(horizon=self.horizon)

    def plan(self, transition: Transition, reward: Reward) -> Policy:
        """Backward induction."""
        return planner.plan_finite_horizon(transition, reward, self.horizon)

    def performance(
        self, world: GridWorld, transition: Transition, rewards: Rewards, policy: Policy
    ) -> Float[Array, " kinds"]:
        """E Σ_{t<T}."""
        return planner.value_finite_horizon(transition, rewards, policy, self.horizon)[world.grid.middle]

    def bonus_weight(self, beta: Scalar, world: GridWorld, constant: Scalar) -> Scalar:
        """C_max T (1 + √d_x) β/σ."""
        return bonus_weight.finite_horizon(
            beta,
            horizon=self.horizon,
            state_dim=world.grid.state_dim,
            noise_std=world.noise.size,
            c_max=world.c_max,
        )

    def lengths(self, episodes: int) -> tuple[int, ...]:
        """T each."""
        return (self.horizon,) * episodes


@dataclass(frozen=True)
class ExactDiscounted(AbstractExactSetting):
    """γ-discounted rewards; episode n stops after T(n) = -ln n/ln γ decisions, but the regret counts all rewards."""

    name: ClassVar[str] = "discounted"
    discount: float = 0.9

    def __post_init__(self) -> None:
        """γ is a fraction."""
        require_fraction(discount=self.discount)

    def plan(self, transition: Transition, reward: Reward) -> Policy:
        """Policy iteration."""
        return planner.plan_discounted(transition, reward, self.discount)

    def performance(
        self, world: GridWorld, transition: Transition, rewards: Rewards, policy: Policy
    ) -> Float[Array, " kinds"]:
        """E Σ γᵗ, to infinity."""
        return planner.value_discounted(transition, rewards, policy, self.discount)[world.grid.middle]

    def bonus_weight(self, beta: Scalar, world: GridWorld, constant: Scalar) -> Scalar:
        """C_max γ/(1 - γ) (1 + √d_x) β/σ."""
        return bonus_weight.discounted(
            beta,
            discount=self.discount,
            state_dim=world.grid.state_dim,
            noise_std=world.noise.size,
            c_max=world.c_max,
        )

    def lengths(self, episodes: int) -> tuple[int, ...]:
        """T(1), T(2), …"""
        return tuple(discounted_horizon(n, self.discount) for n in range(1, episodes + 1))


@dataclass(frozen=True)
class ExactNonEpisodic(AbstractExactSetting):
    """One endless trajectory and the average reward. λₙ = D₄ βₙ, and here D₄ can be computed.

    J_avg(π, μₙ) - J_avg(π, f*) is the mean, over the states π visits under μₙ, of E B(μₙ + w) - E B(f* + w), where B is
    the bias of π on the true system. Two Gaussians at distance e differ by at most e/2σ in total variation, so

        |J_avg(π, μₙ) - J_avg(π, f*)| <= span(B) βₙ/(2σ) Σₙ(π, μₙ):    D₄ = span(B)/(2σ).

    `constant` is a span that no policy exceeds (see `uniform_span`).
    """

    name: ClassVar[str] = "non-episodic"
    resets: ClassVar[bool] = False
    chunk: int = 10  # decisions between two looks at the lemma; a learner uses the one-bit rule instead

    def plan(self, transition: Transition, reward: Reward) -> Policy:
        """Policy iteration for the average reward."""
        return planner.plan_average(transition, reward)

    def performance(
        self, world: GridWorld, transition: Transition, rewards: Rewards, policy: Policy
    ) -> Float[Array, " kinds"]:
        """The average per decision, the same from every start."""
        return planner.value_average(transition, rewards, policy)[0]

    def bonus_weight(self, beta: Scalar, world: GridWorld, constant: Scalar) -> Scalar:
        """D₄ β with D₄ = span/(2σ)."""
        return bonus_weight.nonepisodic(beta, constant=constant / (2.0 * world.noise.size))

    def lengths(self, episodes: int) -> tuple[int, ...]:
        """Chunks of one trajectory."""
        return (self.chunk,) * episodes

    def constant(self, world: GridWorld, transition: Transition, reward: Reward) -> Scalar:
        """A bound on the span of the bias of every policy, for a reward of at most C_max."""
        return world.c_max * uniform_span(transition)


def uniform_span(transition: Transition, steps: int = 30) -> Scalar:
    """A number that span(B(π, ·))/R_max exceeds for no policy π, whether stationary or not (Doeblin's argument).

    Let m_k(y) be the least probability of being in y after k steps, over all starts and all policies: a dynamic
    programme with a minimum. ε_k = Σ_y m_k(y) of the probability mass then does not remember start or policy, so the
    influence of the start decays by 1 - ε_k every k steps and sums to at most k/ε_k, and to the least of these over k.
    """

    def longer(least: Array, _: None) -> tuple[Array, Array]:
        least = jnp.min(jnp.einsum("xuy,yz->xuz", transition, least), axis=1)
        return least, jnp.sum(jnp.min(least, axis=0))

    _, mass = jax.lax.scan(longer, jnp.eye(transition.shape[0], dtype=transition.dtype), None, steps)
    return jnp.min(jnp.arange(1, steps + 1, dtype=mass.dtype) / mass)


SETTINGS: dict[str, AbstractExactSetting] = {
    setting.name: setting for setting in (ExactFiniteHorizon(), ExactDiscounted(), ExactNonEpisodic())
}
