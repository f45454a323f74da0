"""λₙ as the proofs need it, and the growing horizon of the discounted setting.

With these weights J(π) <= Jₙ(π) for every policy with probability >= 1 - δ (lemma "optimism"). They are loose by
orders of magnitude; a run multiplies them by one factor of its own. β is that of the posterior one plans with: the
statements write β_{n-1} beside σₙ, but the proofs use the two of the same index.

`c_max` is C_max = max{R_max, σ_max}. R_max bounds the reward, which must lie in [0, R_max] (shift it); σ_max must
bound ‖σₙ(z)‖, which the proofs treat as a second reward: √d_x · max_z √k(z,z). (The assumption writes
k(z,z) <= σ_max, the proofs use σ_max² for it and once forget d_x.)
"""

import math

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from sombrl.records import SombrlError
from sombrl.theory.require import require_fraction, require_nonnegative, require_positive


def finite_horizon(
    beta: Float[Array, ""], *, horizon: int, state_dim: int, noise_std: ArrayLike, c_max: ArrayLike
) -> Float[Array, ""]:
    """λₙ = C_max T (1 + √d_x) β / σ (main lemma, finite horizon, Gaussian noise)."""
    require_positive(horizon=horizon)
    return horizon * _one_step(beta, state_dim, noise_std, c_max)


def discounted(
    beta: Float[Array, ""], *, discount: float, state_dim: int, noise_std: ArrayLike, c_max: ArrayLike
) -> Float[Array, ""]:
    """λₙ = C_max γ/(1 - γ) (1 + √d_x) β / σ (main lemma, discounted case)."""
    require_fraction(discount=discount)
    return discount / (1.0 - discount) * _one_step(beta, state_dim, noise_std, c_max)


def nonepisodic(beta: Float[Array, ""], *, constant: ArrayLike) -> Float[Array, ""]:
    """λₙ = D₄(x₀, γ, K) β (main lemma, average reward).

    The `constant` D₄ is left to the caller: the paper refers to NeoRL (Sukhija et al., 2024, theorem 3.1), where it
    depends on a Lyapunov function that is not known. It bounds how much one wrong step can change the bias B(π, x).
    """
    require_positive(constant=constant)
    return jnp.asarray(constant, beta.dtype) * beta


def sub_gaussian(
    beta: Float[Array, ""],
    *,
    horizon: int,
    state_dim: int,
    reward_lipschitz: ArrayLike,
    policy_lipschitz: ArrayLike,
    dynamics_lipschitz: ArrayLike,
) -> Float[Array, ""]:
    """λₙ = (1 + d_x) L_r (1 + L_π) L̄^{T-1} T β, L̄ = L_* (1 + L_π) (main lemma, sub-Gaussian noise, planning with fₙ).

    `dynamics_lipschitz` is L_* = max{L_f, L_B}, taken as at least 1. Of the two readings in the paper, (1 + d_x) in
    the statement and (1 + √d_x) in the derivation, the larger is the safe one. A factor 2 is what is needed:
    ‖fₙ - μₙ‖_{kₙ} <= β (as the paper's theorem says, though its proof only gives 2β: the k-orthogonal projection of
    f* onto the span is feasible and no farther from μₙ than f* is) and ‖f* - μₙ‖_{kₙ} <= β.
    """
    require_positive(horizon=horizon, state_dim=state_dim, reward_lipschitz=reward_lipschitz)
    require_nonnegative(policy_lipschitz=policy_lipschitz, dynamics_lipschitz=dynamics_lipschitz)
    dtype = beta.dtype
    reward, policy, dynamics = (jnp.asarray(x, dtype) for x in (reward_lipschitz, policy_lipschitz, dynamics_lipschitz))
    closed_loop = jnp.maximum(dynamics, 1.0) * (1.0 + policy)
    return (1.0 + state_dim) * reward * (1.0 + policy) * closed_loop ** (horizon - 1) * float(horizon) * beta


def discounted_horizon(iteration: int, discount: float, floor: int = 1) -> int:
    """T(n) = max(floor, ⌈-ln n / ln γ⌉), so that γ^{T(n)} <= 1/n (proof of the discounted theorem).

    `iteration` is n, counted from 1. T(1) would be 0, an empty episode: hence the floor.
    """
    require_fraction(discount=discount)
    if iteration < 1 or floor < 1:
        raise SombrlError(f"Iteration {iteration} and floor {floor}: count both from 1.")
    # The offset allows for the rounding of logarithms: γ = 0.2, n = 125 is 3 steps, not 4.
    return max(floor, math.ceil(-math.log(iteration) / math.log(discount) - 1e-9))


def _one_step(beta: Float[Array, ""], state_dim: int, noise_std: ArrayLike, c_max: ArrayLike) -> Float[Array, ""]:
    """C_max (1 + √d_x) β / σ: what one unit of ‖σₙ‖ may cost per remaining step."""
    require_positive(state_dim=state_dim, noise_std=noise_std, c_max=c_max)
    scale = jnp.asarray(c_max, beta.dtype) / jnp.asarray(noise_std, beta.dtype)
    return scale * (1.0 + math.sqrt(state_dim)) * beta
