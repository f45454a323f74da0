"""The best plan there is: gradient ascent from many starts, and for linear systems a proof that nothing is better."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key

from sombrl.controllers.noise import coloured_noise
from sombrl.controllers.rollout import imagined_return
from sombrl.exploration.base import ImaginedMDP
from sombrl.exploration.propagation import Hallucinated
from sombrl.paper.planning.systems import SLOPE, Chain, Masses
from sombrl.records import SombrlError

SMOOTH = 2.0  # the exponent of the starts' noise: from white, most would be the same plan to a slow system
RATE = 0.05  # of the ascent, at its start; it falls to 0


class Optimum(NamedTuple):
    """What the ascent found."""

    plan: Float[Array, "horizon plan"]
    value: float  # of that plan
    idle: float  # of doing nothing, where the planners begin
    agreeing: float  # the share of starts that end within 1 % of value - idle of the best

    def quality(self, value: Any) -> Any:
        """0 for doing nothing, 1 for the optimum."""
        return (value - self.idle) / (self.value - self.idle)


def ascend(
    mdp: ImaginedMDP, start: Float[Array, " state"], horizon: int, *, starts: int, steps: int, key: Key[Array, ""]
) -> Optimum:
    """The best of `starts` projected ascents (Adam, float64) of the return of a plan in [-1, 1]."""
    with jax.enable_x64(True):
        mdp, start = _double((mdp, start))
        noise = coloured_noise((starts, mdp.action_dim, horizon), SMOOTH, key=key)
        plans = jnp.clip(jnp.swapaxes(noise, 1, 2), -1.0, 1.0).at[0].set(0.0)
        found, values, idle = _ascend(steps, mdp, start, plans.astype(jnp.float64))
        best = jnp.argmax(values)
        agreeing = jnp.mean(values >= values[best] - 0.01 * (values[best] - idle))
        return Optimum(found[best], float(values[best]), float(idle), float(agreeing))


def linear_bound(
    chain: Chain, mdp: ImaginedMDP, start: Float[Array, " state"], plan: Float[Array, "horizon plan"]
) -> float:
    """An upper bound of what a better plan for masses could gain: both objectives are concave over a convex set.

    f* - f(z) ≤ max_v ∇f(z)·(v - z) (Frank & Wolfe). The maximum is over actions in [-1, 1] and, for H-UCRL, over
    hallucinated moves w with |w| ≤ β σ(u), where w = ± β σ(u) is best and σ is affine in u.
    """
    if not isinstance(chain, Masses):
        raise SombrlError("only the objectives of masses are concave: for others there is no such bound.")
    with jax.enable_x64(True):
        masses: Masses = _double(chain)
        mdp, start, plan = _double((mdp, start, plan))
        u, eta = plan[:, : masses.motors], plan[:, masses.motors :]
        key = jr.key(0)
        if not isinstance(mdp.propagation, Hallucinated):
            slope = jax.grad(lambda u: imagined_return(mdp, start, u, key=key))(u)
            return float(jnp.sum(jnp.abs(slope)) - jnp.sum(slope * u))
        width = mdp.propagation.beta * masses.sigma

        def value(u: Array, moves: Array) -> Array:
            def step(state: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
                action, move = now
                moved = masses.predict(state, action).mean + move
                return moved, mdp.task.reward(state, action, moved)

            return jnp.sum(jax.lax.scan(step, start, (u, moves))[1])

        moves = width * (1.0 + SLOPE * (u @ masses.driven.T)) * eta
        slope_u, slope_w = jax.grad(value, argnums=(0, 1))(u, moves)
        through_sigma = slope_u + width * SLOPE * (jnp.abs(slope_w) @ masses.driven)
        most = jnp.sum(jnp.abs(through_sigma)) + width * jnp.sum(jnp.abs(slope_w))
        return float(most - jnp.sum(slope_u * u) - jnp.sum(slope_w * moves))


@eqx.filter_jit
def _ascend(steps: int, mdp: ImaginedMDP, start: Array, plans: Array) -> tuple[Array, Array, Array]:
    """Where every start ends, its value, and that of doing nothing."""
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def value(plan: Array) -> Array:
        return imagined_return(mdp, start, plan, key=jr.key(0))

    def one(plan: Array) -> tuple[Array, Array]:
        def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], None]:
            plan, memory = carry
            with jax.numpy_dtype_promotion("standard"):  # optax relies on implicit promotion
                move, memory = optimiser.update(-jax.grad(value)(plan), memory)
                return (jnp.clip(plan + move, -1.0, 1.0), memory), None

        (plan, _), _ = jax.lax.scan(step, (plan, optimiser.init(plan)), length=steps)
        return plan, value(plan)

    found, values = jax.vmap(one)(plans)
    return found, values, value(jnp.zeros_like(plans[0]))


def _double(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, tree)
