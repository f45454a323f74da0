"""Process noise of a known sub-Gaussian size R, E exp(tw) <= exp(t²R²/2), and what it does to a grid.

Dynamic programming on a grid needs one function per noise, G(t) = E max(t - w, 0), the integral of the distribution
function: with it the probability of every cell is a difference of differences, exactly (see `grid.py`).
"""

import abc
import functools
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float, Key

from sombrl.records import SombrlError
from sombrl.theory.require import require_positive

CUT = 3.0
"""Where the Laplace distribution is cut off, in its own scales. Uncut it is not sub-Gaussian at all."""


class AbstractNoise(eqx.Module):
    """One coordinate of w; coordinates are independent."""

    size: float = eqx.field(static=True)  # R, the sub-Gaussian size; of a Gaussian its standard deviation

    def __check_init__(self) -> None:
        """R must be positive."""
        require_positive(size=self.size)

    @abc.abstractmethod
    def sample(self, shape: tuple[int, ...], *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Independent draws."""

    @abc.abstractmethod
    def shortfall(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        """G(t) = E max(t - w, 0)."""


class Gaussian(AbstractNoise):
    """N(0, R²)."""

    def sample(self, shape: tuple[int, ...], *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Normal draws."""
        draws: Array = self.size * jr.normal(key, shape, jnp.float64)
        return draws

    def shortfall(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        """tΦ(t/R) + Rφ(t/R)."""
        scaled = t / self.size
        # Φ from erf alone: its absolute error is what counts here, and XLA's erfc is the slowest part of a plan.
        below = 0.5 + 0.5 * erf(scaled * math.sqrt(0.5))
        expected: Array = t * below + self.size / math.sqrt(2.0 * math.pi) * jnp.exp(-0.5 * scaled**2)
        return expected


class Uniform(AbstractNoise):
    """Uniform on ±√3 R: its variance is R², and no sub-Gaussian size can be smaller than the standard deviation."""

    def sample(self, shape: tuple[int, ...], *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Uniform draws."""
        edge = math.sqrt(3.0) * self.size
        return jr.uniform(key, shape, jnp.float64, -edge, edge)

    def shortfall(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        """A parabola inside the support, a line beyond it."""
        edge = math.sqrt(3.0) * self.size
        return (jnp.clip(t, -edge, edge) + edge) ** 2 / (4.0 * edge) + jnp.maximum(t - edge, 0.0)


class Rademacher(AbstractNoise):
    """±R with equal chances: as unlike a Gaussian as a sub-Gaussian noise can be."""

    def sample(self, shape: tuple[int, ...], *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """Signs times R."""
        return self.size * jr.rademacher(key, shape, jnp.float64)

    def shortfall(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        """The mean of two ramps."""
        return 0.5 * (jnp.maximum(t - self.size, 0.0) + jnp.maximum(t + self.size, 0.0))


class TruncatedLaplace(AbstractNoise):
    """Laplace cut off at `CUT` scales, the scale chosen so that the sub-Gaussian size is R exactly."""

    @property
    def scale(self) -> float:
        """The Laplace scale."""
        return self.size / _laplace_size()

    def sample(self, shape: tuple[int, ...], *, key: Key[Array, ""]) -> Float[Array, "..."]:
        """The inverse of the distribution function."""
        uniform = jr.uniform(key, shape, jnp.float64, -1.0, 1.0)
        return -jnp.sign(uniform) * self.scale * jnp.log1p(-jnp.abs(uniform) * -jnp.expm1(-CUT))

    def shortfall(self, t: Float[Array, "..."]) -> Float[Array, "..."]:
        """For t < 0 the integral of the truncated exponential; G(t) = t + G(-t) gives the rest."""
        left = jnp.maximum(-jnp.abs(t) / self.scale, -CUT)
        tail = float(np.exp(-CUT))
        below = self.scale * (jnp.exp(left) - tail - (left + CUT) * tail) / (2.0 * (1.0 - tail))
        return below + jnp.maximum(t, 0.0)


NOISES: dict[str, type[AbstractNoise]] = {
    "gaussian": Gaussian,
    "uniform": Uniform,
    "rademacher": Rademacher,
    "truncated-laplace": TruncatedLaplace,
}


def make_noise(name: str, size: float) -> AbstractNoise:
    """The noise of that name and sub-Gaussian size."""
    if name not in NOISES:
        raise SombrlError(f"there is no noise {name!r}: take one of {', '.join(NOISES)}.")
    return NOISES[name](size)


@functools.cache
def _laplace_size() -> float:
    """The sub-Gaussian size of the cut-off Laplace of scale 1: sup over t of √(2 ln E exp(tw)) / t."""
    w = np.linspace(-CUT, CUT, 20_001)
    density = np.exp(-np.abs(w))
    density /= density.sum()
    t = np.linspace(0.01, 5.0, 500)
    # The maximum is flat, so a grid of t finds it to 1e-6; the last factor keeps us on the safe side of it.
    return float(np.max(np.sqrt(2.0 * np.log(np.exp(t[:, None] * w[None, :]) @ density)) / t)) * (1.0 + 1e-5)
