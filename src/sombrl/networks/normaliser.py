"""The running mean and standard deviation of data that come batch by batch, and networks that see data through them."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sombrl.networks import steps
from sombrl.networks.residual import Body


class RunningNormaliser(eqx.Module):
    """x ↦ (x - mean)/std per column, of all rows so far; beyond `LIMIT` rows old ones slowly lose weight.

    A row of replay that is drawn again counts again.
    """

    LIMIT: ClassVar[float] = 1e6  # the count stops here, so that a changing distribution is still followed
    FLOOR: ClassVar[float] = 1e-3  # of the std, in the units of the data: smaller variation is not amplified

    mean: Float[Array, " column"]
    std: Float[Array, " column"]
    count: Float[Array, ""]

    @staticmethod
    def identity(columns: int) -> "RunningNormaliser":
        """Before any data."""
        return RunningNormaliser(
            jnp.zeros(columns, jnp.float32), jnp.ones(columns, jnp.float32), jnp.zeros((), jnp.float32)
        )

    def update(self, rows: Float[Array, "batch column"]) -> "RunningNormaliser":
        """Merge a batch.

        With n old and m new rows, total = n + m: mean' = (n mean + Σx)/total, and
        var' = (n std² + Σ(x - mean')² + n (mean - mean')²)/total. Written as steps towards the batch, because
        n · mean does not fit a float32 when n is a million.
        """
        new = rows.shape[0]
        total = self.count + new
        share = new / total
        mean = self.mean + share * (jnp.mean(rows, axis=0) - self.mean)
        old = self.std**2 + (self.mean - mean) ** 2
        variance = old + share * (jnp.mean((rows - mean[None, :]) ** 2, axis=0) - old)
        std = jnp.maximum(jnp.sqrt(jnp.maximum(variance, 0.0)), self.FLOOR)
        return RunningNormaliser(mean, std, jnp.minimum(total, self.LIMIT))

    def normalise(self, x: Float[Array, " column"]) -> Float[Array, " column"]:
        """One row in units of its spread."""
        return (x - self.mean) / self.std

    def denormalise(self, x: Float[Array, " column"]) -> Float[Array, " column"]:
        """Back to physical units."""
        return self.mean + self.std * x


class Normalised(eqx.Module):
    """A network that sees its input in units of its spread, within ± `LIMIT` of them."""

    LIMIT: ClassVar[float] = steps.LIMIT

    normaliser: RunningNormaliser
    network: Body

    def __call__(self, x: Float[Array, " column"]) -> Float[Array, " output"]:
        """The network's value."""
        return self.network(within_limit(self.normaliser, x))


def within_limit(normaliser: RunningNormaliser, x: Float[Array, " column"]) -> Float[Array, " column"]:
    """What a `Normalised` network sees."""
    return jnp.clip(normaliser.normalise(x), -Normalised.LIMIT, Normalised.LIMIT)
