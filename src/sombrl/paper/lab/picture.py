"""One system to look at: the truth, the posterior with its βσ band, and the projection fₙ, along u = 0."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sombrl.paper.lab.gp import Evidence, posterior
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.noise import Rademacher
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.sub_gaussian import projected
from sombrl.paper.lab.systems import GridWorld, random_system
from sombrl.paper.lab.tables import confidence
from sombrl.paper.lab.trajectory import Observations

WORLD = GridWorld(Grid(1, 61, 3), noise=Rademacher(0.4), lengthscales=(0.5, 1.0), contraction=0.0, norm_bound=1.0)
"""A small B and a large noise, so that ‖μₙ‖_k exceeds B and the projection has something to do."""


def picture(observations: int = 20, seed: int = 4) -> list[LabRow]:
    """Curves as rows: the method is the curve, `decisions` counts its points, "lab/x" and "lab/y" are the places."""
    with jax.enable_x64(True):
        curves, states, data = _curves(WORLD.basis, observations, key=jr.key(seed))
        x = np.asarray(WORLD.grid.states)
        lines = {name: (x, np.asarray(curve)) for name, curve in curves.items()}
        lines["data"] = (x[np.asarray(states)], np.asarray(data))
    rows: list[LabRow] = []
    for name, (across, up) in lines.items():
        rows += make_rows(name, "picture", "sub-gaussian", np.arange(len(up)), {"lab/x": across.T, "lab/y": up.T})
    return rows


@functools.partial(jax.jit, static_argnums=1)
def _curves(
    basis: Float[Array, "inputs features"], observations: int, *, key: Key[Array, ""]
) -> tuple[dict[str, Float[Array, "states 1"]], Int[Array, " data"], Float[Array, "data 1"]]:
    """Every curve along u = 0, the states where data were taken, and the data."""
    system_key, place_key, noise_key = jr.split(key, 3)
    grid = WORLD.grid
    idle = jnp.arange(grid.num_states) * grid.num_actions + grid.num_actions // 2
    truth = random_system(WORLD, key=system_key).residual(WORLD)
    # Three quarters of the axis, so that the band can be seen to open where nothing is known.
    states = jr.randint(place_key, (observations,), grid.num_states // 4, grid.num_states, jnp.int32)
    places = idle[states]
    targets = truth[places] + WORLD.noise.sample((observations, 1), key=noise_key)
    memory = Observations(places, targets, jnp.ones(observations, bool))
    now = posterior(basis, Evidence.none(basis.shape[1], 1).add(basis, *memory, WORLD.noise.size))
    width = confidence(WORLD, now) * now.std[:, None]
    curves = {
        "truth": truth,
        "mean": now.mean,
        "band-low": now.mean - width,
        "band-high": now.mean + width,
        "projection": projected(WORLD.scaled, memory, WORLD.noise.size, WORLD.norm_bound),
    }
    return {name: (WORLD.known + f)[idle] for name, f in curves.items()}, states, WORLD.known[places] + targets
