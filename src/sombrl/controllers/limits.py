"""Plans within a budget of costs come first, by their return; the others after them, by how far they are beyond it.

The order is lexicographic, in one number: a plan beyond the budget scores less than any return. So what compares
scores today (elites, the best plan of several rounds) compares them rightly, no price has to be found for a cost, and a
search that begins without a plan within the budget is led to one: its elites are those that cost least.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

BEYOND = -1e10
"""Less than any return of a decision's plan; with an excess of at most MOST its square is still a float32."""
MOST = 1e6


def lexicographic(
    returns: Float[Array, " batch"], costs: Float[Array, " batch"], budget: Float[Array, ""]
) -> Float[Array, " batch"]:
    """The return of a plan whose cost is within the budget, BEYOND · (1 + excess) of the others; NaN scores -inf."""
    excess = jnp.clip(costs - budget, 0.0, MOST)
    scores = jnp.where(costs <= budget, returns, BEYOND * (1.0 + excess))
    return jnp.where(jnp.isfinite(costs) & jnp.isfinite(returns), scores, -jnp.inf)


def beyond(scores: Float[Array, "*batch"]) -> Bool[Array, "*batch"]:
    """Which scores are of plans beyond the budget."""
    return scores <= BEYOND


def best_class(scores: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """-inf for plans beyond the budget, where there are others: for weights that depend on differences of scores."""
    return jnp.where(beyond(scores) & ~jnp.all(beyond(scores)), -jnp.inf, scores)
