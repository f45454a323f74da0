"""Where imagined episodes begin: as real ones do."""

import abc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.envs.base import AbstractEnvs, AbstractWorld
from sombrl.envs.jax_envs import JaxEnvs

STORED = 64  # starts of an environment that cannot be asked inside a program
FIRST_EPISODE = 2_000_000  # their episode numbers, which neither training nor evaluation reaches


class AbstractStarts(eqx.Module):
    """A distribution of first observations."""

    @abc.abstractmethod
    def __call__(self, *, key: Key[Array, ""]) -> Float[Array, " obs"]:
        """One of them."""


class WorldStarts(AbstractStarts):
    """Those of a world in JAX, never the same twice."""

    world: AbstractWorld

    def __call__(self, *, key: Key[Array, ""]) -> Float[Array, " obs"]:
        """The observation of a fresh start."""
        return self.world.observe(self.world.reset(key=key))


class StoredStarts(AbstractStarts):
    """Some that were met, each as likely as the others."""

    obs: Float[Array, "starts obs"]

    def __call__(self, *, key: Key[Array, ""]) -> Float[Array, " obs"]:
        """One of them."""
        return self.obs[jr.randint(key, (), 0, self.obs.shape[0])]


def starts_of(envs: AbstractEnvs) -> AbstractStarts:
    """The starts of an environment. A simulator on the host is reset a few times for them."""
    if isinstance(envs, JaxEnvs):
        return WorldStarts(envs.world)
    number = -(-STORED // len(envs.seeds))
    rows = [envs.reset(FIRST_EPISODE + i) for i in range(number)]
    return StoredStarts(jnp.asarray([obs for row in rows for obs in row], jnp.float32))
