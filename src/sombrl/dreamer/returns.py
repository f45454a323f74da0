"""Returns: λ-returns in imagination and on replay, their scale, and the weights of imagined steps.

One sequence with times 0 … H. What belongs to a state (reward on arrival, continue, value) has H + 1 entries; what
belongs to a decision (bonus, return, weight) has H, decision t leading from state t to state t + 1. The reward and the
continue of state 0 came before the first decision, so no return has them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

DISCOUNT = 1.0 - 1.0 / 333.0
RETURN_RATE = 0.01  # of the moving percentiles
PERCENTILES = (5.0, 95.0)
UNROLL = 16  # steps of a recursion that are one kernel on a GPU


def with_bonus(
    rewards: Float[Array, " time"],
    bonus: Float[Array, " time-1"],
    weight: Float[Array, ""],
    first: Bool[Array, " time"] | None = None,
) -> Float[Array, " time"]:
    """r_{t+1} + λ σ(s_t, a_t): the bonus of a decision is paid on arrival.

    A record that is `first` was not reached by the decision before it, and gets none. No gradient goes to λ.
    """
    if first is not None:
        bonus = jnp.where(first[1:], 0.0, bonus)
    return rewards.at[1:].add(jax.lax.stop_gradient(weight) * bonus)


def lambda_returns(
    rewards: Float[Array, " time"], continues: Float[Array, " time"], values: Float[Array, " time"], lam: float
) -> Float[Array, " time-1"]:
    """R_H = v_H and R_t = r_{t+1} + c_{t+1} [(1 - λ) v_{t+1} + λ R_{t+1}]; the discount is inside c."""
    return _backwards(rewards[1:], continues[1:], values[1:], jnp.full_like(values[1:], lam))


def replay_returns(
    rewards: Float[Array, " time"],
    terminal: Bool[Array, " time"],
    last: Bool[Array, " time"],
    bootstrap: Float[Array, " time"],
    discount: float,
    lam: float,
) -> Float[Array, " time-1"]:
    """λ-returns of recorded decisions. `bootstrap`: the return imagined from each record.

    Past a `last` record there is nothing of the same episode, so there only the bootstrap counts; past a `terminal`
    one there is nothing at all.
    """
    continues = jnp.where(terminal[1:], 0.0, jnp.full_like(rewards[1:], discount))
    trust = jnp.where(last[1:], 0.0, jnp.full_like(rewards[1:], lam))
    return _backwards(rewards[1:], continues, bootstrap[1:], trust)


def _backwards(
    rewards: Float[Array, " decision"],
    continues: Float[Array, " decision"],
    values: Float[Array, " decision"],
    lam: Float[Array, " decision"],
) -> Float[Array, " decision"]:
    """All of the state arrived at: r + c [(1 - λ) v + λ R], from the last decision, where R = v, to the first."""

    def step(later: Array, arrival: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, keep, value, trust = arrival
        now = reward + keep * ((1.0 - trust) * value + trust * later)
        return now, now

    return jax.lax.scan(step, values[-1], (rewards, continues, values, lam), reverse=True, unroll=UNROLL)[1]


def imagination_weights(continues: Float[Array, " time"]) -> Float[Array, " time-1"]:
    """w_t = c_0 … c_t, the probability that an imagined decision is reached, from the root on. No gradient."""
    return jax.lax.stop_gradient(jnp.cumprod(continues[:-1]))


class ReturnScale(eqx.Module):
    """Moving 5th and 95th percentiles of the returns, from 0. Advantages are divided by their distance, or by 1.

    Small returns are thus left small: they may be noise. Nothing is debiased, so the scale starts at 1.
    """

    lo: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros((), jnp.float32))
    hi: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros((), jnp.float32))

    def update(self, returns: Float[Array, "*batch"]) -> "ReturnScale":
        """One step of the average towards the percentiles of these returns."""
        returns = jax.lax.stop_gradient(returns)
        lo, hi = (jnp.percentile(returns, percentile) for percentile in PERCENTILES)
        return ReturnScale(self.lo + RETURN_RATE * (lo - self.lo), self.hi + RETURN_RATE * (hi - self.hi))

    @property
    def scale(self) -> Float[Array, ""]:
        """max(1, hi - lo)."""
        return jnp.maximum(1.0, self.hi - self.lo)
