"""The distribution of initial states, where imagined episodes begin."""

import abc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.envs.base import AbstractEnvs, AbstractWorld
from sombrl.envs.jax_envs import JaxEnvs

STORED = 64  # resets of an environment that cannot be called inside a program
FIRST_EPISODE = 2_000_000  # their episode numbers, which neither training nor evaluation reaches


class AbstractInitialStates(eqx.Module):
    """A distribution of first observations."""

    @abc.abstractmethod
    def __call__(self, *, key: Key[Array, ""]) -> Float[Array, " obs"]:
        """One sample."""


class WorldInitialStates(AbstractInitialStates):
    """Resets of a world in JAX, a new one for every key."""

    world: AbstractWorld

    def __call__(self, *, key: Key[Array, ""]) -> Float[Array, " obs"]:
        """The observation after a reset."""
        return self.world.observe(self.world.reset(key=key))


class StoredInitialStates(AbstractInitialStates):
    """A uniform choice among observations that were recorded."""

    obs: Float[Array, "starts obs"]

    def __call__(self, *, key: Key[Array, ""]) -> Float[Array, " obs"]:
        """One of them."""
        return self.obs[jr.randint(key, (), 0, self.obs.shape[0])]


def initial_states_of(envs: AbstractEnvs) -> AbstractInitialStates:
    """The initial states of an environment. A simulator on the host is reset a few times to record some."""
    if isinstance(envs, JaxEnvs):
        return WorldInitialStates(envs.world)
    number = -(-STORED // len(envs.seeds))
    rows = [envs.reset(FIRST_EPISODE + i) for i in range(number)]
    return StoredInitialStates(jnp.asarray([obs for row in rows for obs in row], jnp.float32))
