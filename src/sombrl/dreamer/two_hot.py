"""Regression as classification: a number is a distribution over 255 bins, whose mean it is (DreamerV3's two-hot).

The bins are equally far apart after `symlog` and reach ±4.85e8, so rewards and returns need no scaling. A target puts
its weight on the two bins around it, linearly in its own units, and the loss is a cross-entropy: its gradient does not
grow with the target.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_ABOVE = np.expm1(np.linspace(0.0, 20.0, 128)[1:]).astype(np.float32)  # mirrored, so that the symmetry is exact
BINS = np.concatenate([-_ABOVE[::-1], np.zeros(1, np.float32), _ABOVE])
_GAPS = np.diff(BINS)


def two_hot(value: Float[Array, ""]) -> Float[Array, "255"]:
    """The weights of the two bins around `value`, of one where it is beyond them all; their mean is `value`."""
    value = jnp.clip(value.astype(jnp.float32), BINS[0], BINS[-1])
    into = (
        jnp.full_like(_GAPS, value) - BINS[:-1]
    ) / _GAPS  # how far from each bin to the next: 0 to 1 in one gap only
    end = jnp.ones(1, jnp.float32)
    tent = jnp.minimum(jnp.concatenate([end, into]), jnp.concatenate([1.0 - into, end]))
    return jnp.clip(tent, 0.0, 1.0)


def mean(logits: Float[Array, "255"]) -> Float[Array, ""]:
    """Σ p · bin. Each bin is paired with its mirror image: uniform logits give exactly 0, in whatever order it sums."""
    p = jax.nn.softmax(logits.astype(jnp.float32))
    return jnp.sum((p[128:] - p[126::-1]) * _ABOVE)


def loss(logits: Float[Array, "255"], target: Float[Array, ""]) -> Float[Array, ""]:
    """The cross-entropy to the two-hot target; no gradient goes to the target."""
    return -jnp.sum(jax.lax.stop_gradient(two_hot(target)) * jax.nn.log_softmax(logits.astype(jnp.float32)))
