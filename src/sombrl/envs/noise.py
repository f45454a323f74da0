"""Process noise of the worlds: Gaussian, or bounded and therefore sub-Gaussian; the same everywhere, or not."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.envs.guards import check_choice, check_cost
from sombrl.records import SombrlError

KINDS = ("none", "gaussian", "uniform", "laplace", "rademacher")
LAPLACE_CUT = 4.0  # where the Laplace distribution is cut off, in units of its scale


def unit_noise(kind: str, shape: tuple[int, ...], *, key: Key[Array, ""]) -> Float[Array, "..."]:
    """Independent numbers with mean 0 and variance 1.

    All but the Gaussian are bounded: uniform by √3, rademacher by 1 and laplace (cut at ±4 scales) by about 3.2.
    """
    if kind == "gaussian":
        return jr.normal(key, shape, jnp.float32)
    if kind == "rademacher":
        return jr.rademacher(key, shape, jnp.float32)
    if kind == "uniform":
        return math.sqrt(3.0) * jr.uniform(key, shape, jnp.float32, -1.0, 1.0)
    if kind == "laplace":
        # By the inverse of the cut-off distribution function, P(|x| <= t) = (1 - e^-t)/(1 - e^-cut).
        mass = -math.expm1(-LAPLACE_CUT)
        variance = 2.0 - LAPLACE_CUT * (LAPLACE_CUT + 2.0) * math.exp(-LAPLACE_CUT) / mass
        signed = jr.uniform(key, shape, jnp.float32, -1.0, 1.0)
        return -jnp.sign(signed) * jnp.log1p(-mass * jnp.abs(signed)) / math.sqrt(variance)
    return jnp.zeros(shape, jnp.float32)


class Noise(eqx.Module):
    """w with standard deviation `std` (1 + `growth`·‖u‖), per coordinate; a growth above 0 is heteroscedastic."""

    kind: str = eqx.field(static=True)
    std: float = eqx.field(static=True)
    growth: float = eqx.field(static=True)

    def __init__(self, kind: str = "none", std: float | int = 0.0, growth: float | int = 0.0):
        self.kind = check_choice(kind, "noise", KINDS)
        self.std, self.growth = check_cost(std, "noise_std"), check_cost(growth, "noise_growth")
        if (kind == "none") != (self.std == 0.0):
            raise SombrlError(f"noise={kind} with noise_std={std}: give both a kind and a positive size, or neither.")

    def __call__(self, action: Float[Array, " action"], size: int, *, key: Key[Array, ""]) -> Float[Array, " state"]:
        """The noise of one frame, in the world's units."""
        spread = self.std * (1.0 + self.growth * jnp.sqrt(jnp.sum(action**2)))
        return spread * unit_noise(self.kind, (size,), key=key)
