"""Values as distributions: regression by classification, in which no large target drowns the others.

101 bins are equally far apart after `symlog` and reach ±22000. The value is that of the mean bin, and a target puts its
weight on the two bins around it (TD-MPC2; Hansen et al., 2024). Dreamer's critic has bins of its own (`two_hot`).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sombrl.networks.symlog import symexp, symlog

NUMBER = 101
LIMIT = 10.0
"""The outermost bins are at ± this, after `symlog`."""
AT = np.linspace(-LIMIT, LIMIT, NUMBER, dtype=np.float32)


def value(logits: Float[Array, "101"]) -> Float[Array, ""]:
    """The value that a distribution stands for; that of equal logits is 0."""
    return symexp(jnp.sum(jax.nn.softmax(logits) * AT))


def loss(logits: Float[Array, "101"], target: Float[Array, ""]) -> Float[Array, ""]:
    """The cross-entropy to the two bins around the target; no gradient goes to the target."""
    at = jnp.clip(symlog(target), -LIMIT, LIMIT)
    weights = jnp.clip(1.0 - jnp.abs(at - AT) / (2.0 * LIMIT / (NUMBER - 1)), 0.0, 1.0)
    return -jnp.sum(jax.lax.stop_gradient(weights) * jax.nn.log_softmax(logits))
