"""Systems whose Lyapunov function is known: the assumption of the setting without resets, checked instead of assumed.

`energy`: for y = a x + g*(x, u) + w with |g*_j| <= B the norm V(x) = ‖x‖ serves every policy at once,

    E V(x') <= a V(x) + K,    K = √d (B + R + spacing/2),

so that no policy can keep the energy above K/(1 - a) for long. On a grid both sides are exact: the largest
E V(x') - a V(x) over all states and actions, and the largest average energy of any policy, by dynamic programming.

`switching`: two policies, each stable with a Lyapunov function of its own, that pump energy into the state when one
takes over from the other too often. This is what the least number of decisions between two updates is for.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.planner import plan_average, value_average
from sombrl.paper.lab.regret import Draw
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.systems import GridWorld, over_systems
from sombrl.paper.lab.tables import truth
from sombrl.theory import lyapunov_minimum

NAME = "non-episodic"
STABLE = np.array([[0.7, 0.8], [0.0, 0.7]])
"""The closed loop under one policy; under the other it is the transpose. Both forget at 0.7 per decision."""
DRIFT = 0.85
"""The γ of both Lyapunov functions: between 0.7, where they would need C_u = ∞, and 1, where T would be infinite."""
LONGEST = 16


def constant(world: GridWorld) -> float:
    """K: the noise and the rounding count with their standard deviations, the edge only takes energy away."""
    step = world.norm_bound + world.noise.size + 0.5 * world.grid.spacing
    return float(np.sqrt(world.grid.state_dim) * step)


def energy(world: GridWorld, draw: Draw, env: str, *, systems: int, seed: int = 0) -> list[LabRow]:
    """Rows per system: K as known beforehand and as it is, the largest average energy and the bound on it."""
    with jax.enable_x64(True):
        keys = jr.split(jr.key(seed), systems)
        drift, average, edge = (np.asarray(part) for part in over_systems(_energy, (world, draw), (), keys))
    known = np.full(systems, constant(world))
    values = {
        "lab/drift_constant": known,
        "lab/drift_constant_exact": drift,
        "lab/energy_bound": known / (1.0 - world.contraction),
        "lab/energy_largest": average,
        "lab/energy_at_edge": edge,
    }
    return make_rows("known", env, NAME, np.zeros(1, int), {metric: v[:, None] for metric, v in values.items()})


def _energy(
    world: GridWorld, draw: Draw, *, key: Key[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """max E V(x') - a V(x); max over policies of the average V; and how often the worst of them is at the edge."""
    true = truth(world, draw(world, key=key))
    value = jnp.linalg.norm(world.grid.states, axis=1)
    drift = jnp.max(true.transition @ value - world.contraction * value[:, None])
    paid = jnp.broadcast_to(value[:, None], true.reward.shape)
    edge = jnp.any(jnp.abs(world.grid.states) >= world.grid.half_width - 1e-9, axis=1).astype(jnp.float64)
    at_edge = jnp.broadcast_to(edge[:, None], true.reward.shape)
    worst = plan_average(true.transition, paid)
    average, _ = value_average(true.transition, jnp.stack([paid, at_edge], axis=-1), worst)
    return drift, average[0], average[1]


def switching() -> list[LabRow]:
    """Rows by T: the growth of ‖x‖ per decision when two policies take turns of T decisions; and the T of the theory.

    Each policy has V(x) = √(xᵀPx) with AᵀPA = γ²(P - I): then E V(x') <= γ V(x) + K for additive noise.
    """
    first, second = STABLE, STABLE.T
    lower, upper = _bounds()
    lengths = np.arange(1, LONGEST + 1)
    growth = np.array([_growth(first, second, turn) for turn in lengths.tolist()])
    rows = make_rows("taking-turns", "switched", NAME, lengths, {"lab/growth": growth[None]})
    minimum = lyapunov_minimum(upper, lower, DRIFT)
    constants = {"lab/lyapunov_minimum": minimum, "lab/c_upper": upper, "lab/c_lower": lower}
    return rows + make_rows(
        "theory",
        "switched",
        NAME,
        np.zeros(1, int),
        {metric: np.array([[value]]) for metric, value in constants.items()},
    )


def _growth(first: np.ndarray, second: np.ndarray, turn: int) -> float:
    """The growth per decision of `turn` decisions under the one policy and as many under the other."""
    cycle = np.linalg.matrix_power(first, turn) @ np.linalg.matrix_power(second, turn)
    return float(np.max(np.abs(np.linalg.eigvals(cycle))) ** (0.5 / turn))


def lyapunov_matrix(closed_loop: np.ndarray, drift: float) -> np.ndarray:
    """P with AᵀPA = γ²(P - I), so that √(xᵀPx) shrinks by γ at least."""
    scaled = closed_loop / drift
    size = len(scaled) ** 2
    solved = np.linalg.solve(np.eye(size) - np.kron(scaled.T, scaled.T), np.eye(len(scaled)).reshape(-1))
    return solved.reshape(scaled.shape)


def _bounds() -> tuple[float, float]:
    """C_l and C_u with C_l ‖x‖ <= V(x) <= C_u ‖x‖ for both policies."""
    eigenvalues = np.concatenate([np.linalg.eigvalsh(lyapunov_matrix(a, DRIFT)) for a in (STABLE, STABLE.T)])
    return float(np.sqrt(eigenvalues.min())), float(np.sqrt(eigenvalues.max()))
