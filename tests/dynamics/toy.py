"""A curve y(x) as if it were dynamics, and a simulator of such curves: what the tests of particle models learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from sombrl.dynamics.coordinates import AbstractCoordinates
from sombrl.dynamics.sim_prior import AbstractSimulator
from sombrl.records import Transition
from sombrl.replay import Replay

TINY = {
    "particles": 3,
    "hidden": (6,),
    "batch_size": 5,
    "steps": 4,
    "check_every": 3,
    "functions": 6,
    "measurement_points": 8,
    "additive_scales": (0.1,),
}


def fast_jit(function):
    """Many small programs, each run a few times: compiling is all that takes time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


class Curve(AbstractCoordinates):
    """Observation x, next observation y; the action is not seen."""

    input_dim: int = eqx.field(static=True, default=1)
    target_dim: int = eqx.field(static=True, default=1)

    def inputs(self, obs, action):
        return obs

    def targets(self, obs, action, next_obs):
        return next_obs

    def next_obs(self, obs, action, target):
        return target

    def spread(self, obs, std):
        return std


class Sines(AbstractSimulator):
    """y = a sin(2x) + c with a in [0.5, 1.5] and c in [-1, 1], for x in [-2, 2]."""

    def draw(self, *, key):
        a, c = jr.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        return {"a": 1.0 + 0.5 * a, "c": c}

    def __call__(self, parameters, inputs):
        return parameters["a"] * jnp.sin(2.0 * inputs) + parameters["c"]

    def domain(self, *, key):
        return jr.uniform(key, (1,), jnp.float32, -2.0, 2.0)

    @staticmethod
    def mean(x):
        """E[y]."""
        return jnp.sin(2.0 * x)

    @staticmethod
    def std(x):
        """The std of y; a uniform of half width h has std h/√3."""
        return jnp.sqrt((0.25 * jnp.sin(2.0 * x) ** 2 + 1.0) / 3.0)


class Nothing(AbstractSimulator):
    """y = 0, for x in the box that a model without a simulator takes."""

    def draw(self, *, key):
        return jr.uniform(key, (), jnp.float32)

    def __call__(self, parameters, inputs):
        return 0.0 * inputs

    def domain(self, *, key):
        return jr.uniform(key, (1,), jnp.float32, -3.0, 3.0)


def curve(x, y, capacity=64):
    """A replay of the pairs (x, y)."""
    x, y = (jnp.asarray(column, jnp.float32)[:, None] for column in (x, y))
    no = jnp.zeros(x.shape[0], bool)
    rows = Transition(x, jnp.zeros_like(x), jnp.zeros(x.shape[0], jnp.float32), y, no, no)
    return Replay.empty(capacity, 1, 1).add(rows, jnp.ones(x.shape[0], bool))
