"""How much one episode may lose: the simple-regret lemma, and the same for H-UCRL, whose error feeds on itself.

SOMBRL (lemmas "simple regret" and "simple regret sub Gaussian"):

    rₙ = J(π*, f*) - J(πₙ, f*) <= (2λₙ + λₙ²) Σₙ(πₙ, f*)

H-UCRL (Curi et al., 2020) plans in a world of its choice, f̃ = μₙ + βₙσₙ ⊙ η. With the same noise, and the errors
weighed at the states that are really visited,

    ‖x̃ₜ₊₁ - xₜ₊₁‖ <= ‖f̃(x̃ₜ) - f*(x̃ₜ)‖ + ‖f*(x̃ₜ) - f*(xₜ)‖ <= 2βₙ‖σₙ(zₜ)‖ + (L_f + 2βₙL_σ)(1 + L_π) ‖x̃ₜ - xₜ‖:

2βₙL_σ stands in the base, for f̃ is only as smooth as the width of the interval lets it be. fₙ has the Lipschitz
constant of B whatever the data; that is what the paper's "exponential factor" of Γ_N means.
"""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from sombrl.theory.require import require_nonnegative, require_positive


def simple_regret_bound(
    bonus_weight: Float[Array, "*batch"], uncertainty: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """(2λₙ + λₙ²) Σₙ(πₙ, f*)."""
    return (2.0 * bonus_weight + bonus_weight**2) * uncertainty


def simple_regret_factor(
    regret: Float[Array, "*batch"], bonus_weight: Float[Array, "*batch"], uncertainty: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """The least c with rₙ <= (2cλₙ + c²λₙ²) Σₙ(πₙ, f*): c λₙ = √(1 + rₙ/Σₙ) - 1; 0 where nothing is lost."""
    lost = jnp.maximum(regret, 0.0)
    ratio = jnp.where(lost > 0.0, lost / uncertainty, 0.0)
    return (jnp.sqrt(1.0 + ratio) - 1.0) / bonus_weight


def hallucinated_growth(
    beta: Float[Array, "*batch"],
    *,
    policy_lipschitz: ArrayLike,
    dynamics_lipschitz: ArrayLike,
    std_lipschitz: ArrayLike,
) -> Float[Array, "*batch"]:
    """By what H-UCRL's bound grows with every decision of the horizon: (L_f + 2βₙL_σ)(1 + L_π), with L_f at least 1."""
    require_nonnegative(
        policy_lipschitz=policy_lipschitz, dynamics_lipschitz=dynamics_lipschitz, std_lipschitz=std_lipschitz
    )
    policy, dynamics, std = (jnp.asarray(x, beta.dtype) for x in (policy_lipschitz, dynamics_lipschitz, std_lipschitz))
    return (jnp.maximum(dynamics, 1.0) + 2.0 * beta * std) * (1.0 + policy)


def hallucinated_bound(
    beta: Float[Array, "*batch"],
    uncertainty: Float[Array, "*batch"],
    *,
    horizon: int,
    reward_lipschitz: ArrayLike,
    policy_lipschitz: ArrayLike,
    dynamics_lipschitz: ArrayLike,
    std_lipschitz: ArrayLike,
) -> Float[Array, "*batch"]:
    """rₙ <= 2 L_r (1 + L_π) L̃ₙ^{T-1} T βₙ Σₙ(πₙ, f*) of H-UCRL, with L̃ₙ = `hallucinated_growth`."""
    require_positive(horizon=horizon, reward_lipschitz=reward_lipschitz)
    growth = hallucinated_growth(
        beta,
        policy_lipschitz=policy_lipschitz,
        dynamics_lipschitz=dynamics_lipschitz,
        std_lipschitz=std_lipschitz,
    )
    reward, policy = (jnp.asarray(x, beta.dtype) for x in (reward_lipschitz, policy_lipschitz))
    return 2.0 * reward * (1.0 + policy) * growth ** (horizon - 1) * float(horizon) * beta * uncertainty
