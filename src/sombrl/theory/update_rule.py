"""When a single endless trajectory should pause to learn: after one bit of information (nonepisodic setting).

    T_n = max(T̂_n, Lyapunov minimum),   T̂_n = 1 + max{T : Σ_{k<=T} Σ_j ln(1 + σ²_{n-1,j}(z_k)/σ²) <= ln 2}

(equation "definition of Hn"). σ_{n-1} is the posterior frozen since the last update. In words: update right after the
first step at which the sum exceeds ln 2; if that is the very first step, no T is feasible and one step is what is
left. There is no factor ½, so the "one bit" is half a bit of information gain in the usual sense. The main text has
another form, Σ‖σ‖ > C; the proofs use this one.
"""

import math

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from sombrl.records import SombrlError
from sombrl.theory.require import require_fraction, require_positive

ONE_BIT = math.log(2.0)
"""The threshold on the accumulated `information`."""


def information(std: Float[Array, " state"], noise_std: ArrayLike) -> Float[Array, ""]:
    """Σ_j ln(1 + σ_j²/σ²) of one step, to be accumulated; `noise_std` is one number or one per coordinate."""
    require_positive(noise_std=noise_std)
    noise = jnp.broadcast_to(jnp.asarray(noise_std, std.dtype), std.shape)
    return jnp.sum(jnp.log1p((std / noise) ** 2))


def update_due(stds: Float[Array, "time state"], noise_std: ArrayLike, minimum: int = 1) -> Bool[Array, " time"]:
    """Whether to update after each step: the information since the last update exceeds ln 2, never before `minimum`.

    T_n is the place of the first True, counted from 1; it stays True from then on.
    """
    require_positive(noise_std=noise_std)
    noise = jnp.broadcast_to(jnp.asarray(noise_std, stds.dtype), stds.shape)
    accumulated = jnp.cumsum(jnp.sum(jnp.log1p((stds / noise) ** 2), axis=1))
    return (accumulated > ONE_BIT) & (jnp.arange(stds.shape[0]) + 1 >= minimum)


def lyapunov_minimum(c_upper: float, c_lower: float, drift: float) -> int:
    """The fewest steps T between updates with (C_u/C_l) γᵀ < 1: switching policies must not pump energy.

    From the assumption "Policies with bounded energy", C_l ξ(‖x‖) <= V(x) <= C_u ξ(‖x‖) and E V(x₊) <= γ V(x) + K;
    `drift` is that γ, not a discount. The paper typesets ⌈ln(C_u/C_l)⌉ / ln(1/γ), which is not an integer; the ceiling
    belongs around the ratio. We take the next integer even when the ratio is one: at (C_u/C_l) γᵀ = 1 the energy
    can still grow by a constant at every switch.
    """
    require_positive(c_lower=c_lower)
    require_fraction(drift=drift)
    if not c_upper >= c_lower:
        raise SombrlError(f"c_upper = {c_upper} bounds V from above: give at least c_lower = {c_lower}.")
    ratio = math.log(c_upper / c_lower) / math.log(1.0 / drift)
    return math.floor(ratio + 1e-9) + 1  # the offset: a ratio that rounds below its integer is that integer
