"""LaProp (Ziyin et al., 2020) with adaptive gradient clipping (Brock et al., 2021): Dreamer's one optimiser.

Adam divides averaged gradients by their size; LaProp divides first and averages then, so that all gradients
count alike, whatever their size. Each tensor's gradient is clipped beforehand, in proportion to the tensor.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from sombrl.records import SombrlError


class LaPropState(eqx.Module):
    """Updates made so far, and for every parameter the mean square of its gradient and the mean of its direction."""

    count: Int[Array, ""]
    square: Any
    direction: Any


def laprop(
    learning_rate: float = 4e-5,
    warmup: int = 1000,
    agc: float | None = 0.3,
    *,
    agc_floor: float = 1e-3,
    momentum: float = 0.9,
    square_decay: float = 0.999,
    eps: float = 1e-20,
) -> optax.GradientTransformation:
    """Clip, divide by the root mean square, average, times a rate that climbs from 0 over `warmup` updates.

    `agc`: the largest norm of a tensor's gradient as a multiple of the tensor's own, which counts as `agc_floor` at
    least, so that tensors can leave 0; None clips nothing.
    """

    def init(parameters: Any) -> LaPropState:
        return LaPropState(jnp.zeros((), jnp.int32), _zeros(parameters), _zeros(parameters))

    def update(gradient: Any, state: LaPropState, parameters: Any = None) -> tuple[Any, LaPropState]:
        if agc is not None:
            if parameters is None:
                raise SombrlError("Adaptive clipping needs the parameters: pass them to `update`, or set agc to None.")
            gradient = jax.tree.map(
                lambda g, p: clip_to(g, agc * jnp.maximum(agc_floor, _norm(p))), gradient, parameters
            )
        before = state.count.astype(jnp.float32)
        square_part, direction_part = (_seen(decay, before + 1.0) for decay in (square_decay, momentum))
        square = jax.tree.map(lambda v, g: square_decay * v + (1.0 - square_decay) * g**2, state.square, gradient)
        unit = jax.tree.map(lambda g, v: g / (jnp.sqrt(v / square_part) + eps), gradient, square)
        direction = jax.tree.map(lambda m, u: momentum * m + (1.0 - momentum) * u, state.direction, unit)
        rate = learning_rate * jnp.minimum(1.0, before / warmup) if warmup else jnp.float32(learning_rate)
        change = jax.tree.map(lambda m: -rate * (m / direction_part), direction)
        return change, LaPropState(state.count + 1, square, direction)

    return optax.GradientTransformation(init, update)


def clip_to(gradient: Float[Array, "*shape"], bound: Float[Array, ""]) -> Float[Array, "*shape"]:
    """The gradient, shortened to `bound` if it is longer."""
    return gradient / jnp.maximum(1.0, _norm(gradient) / bound)


def _zeros(parameters: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, parameters)


def _norm(tensor: Float[Array, "*shape"]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(tensor**2))


def _seen(decay: float, updates: Float[Array, ""]) -> Float[Array, ""]:
    """1 - decayⁿ, the share of an average from 0 that is data; by expm1, as float32 has few digits so close to 1."""
    return -jnp.expm1(updates * math.log(decay))
