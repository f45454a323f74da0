"""What a longer horizon does to the bounds of SOMBRL and H-UCRL, and to their regret: "exponential in T"?

For every T both methods run with the weights of their theory on the same systems with sub-Gaussian noise, over the same
class of policies. Kept are what the proofs allow them to lose in an episode, what they lose, by how much the plan
over-estimates itself, and by what the bound grows with one decision more.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from sombrl.paper.lab.lipschitz import lipschitz_run
from sombrl.paper.lab.policies import LIPSCHITZ
from sombrl.paper.lab.regret import Draw
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.settings import ExactFiniteHorizon
from sombrl.paper.lab.sub_gaussian import NAME
from sombrl.paper.lab.systems import GridWorld
from sombrl.theory import hallucinated_growth

METHODS = {"sombrl-theory": False, "hucrl": True}


def horizons(
    world: GridWorld, draw: Draw, env: str, *, lengths: Sequence[int], systems: int, episodes: int, seed: int = 0
) -> list[LabRow]:
    """Rows by T, which stands where other rows count decisions; "_first" is before any data, the others at the end."""
    rows: list[LabRow] = []
    for name, hallucinated in METHODS.items():
        found: dict[str, list[np.ndarray]] = {}
        for horizon in lengths:
            seen = lipschitz_run(
                ExactFiniteHorizon(horizon),
                world,
                draw,
                factor=1.0,
                hallucinated=hallucinated,
                systems=systems,
                episodes=episodes,
                seed=seed,
            )
            bound, beta = (np.asarray(part) for part in (seen.loss.simple_regret_bound, seen.beta))
            growth = growth_of(world, beta, hallucinated)
            for metric, values in {
                "horizon_regret": np.asarray(seen.loss.simple_regret).mean(axis=1),
                "horizon_promised": np.asarray(seen.promised)[:, -1],
                "horizon_bound_first": bound[:, 0],
                "horizon_bound": bound[:, -1],
                "horizon_growth_first": growth[:, 0],
                "horizon_growth": growth[:, -1],
                "horizon_beta": beta[:, -1],
            }.items():
                found.setdefault(f"lab/{metric}", []).append(values)
        by_length = {metric: np.stack(values, axis=1) for metric, values in found.items()}
        rows += make_rows(name, env, NAME, np.asarray(lengths), by_length)
    return rows


def growth_of(world: GridWorld, beta: np.ndarray, hallucinated: bool) -> np.ndarray:
    """By what the bound grows per decision, beside the T in front: L̃ₙ of H-UCRL, and L̄² of SOMBRL for the λₙ²."""
    constants = {"policy_lipschitz": LIPSCHITZ, "dynamics_lipschitz": world.lipschitz}
    if hallucinated:
        return np.asarray(hallucinated_growth(jnp.asarray(beta), std_lipschitz=world.std_lipschitz, **constants))
    # With σ certain nothing is hallucinated, and L̃ₙ is L̄.
    base = hallucinated_growth(jnp.zeros_like(jnp.asarray(beta)), std_lipschitz=world.std_lipschitz, **constants)
    return np.asarray(base) ** 2


def passing_beta(world: GridWorld) -> float:
    """The βₙ from which on H-UCRL's bound grows faster in T than SOMBRL's: (L + 2βL_σ)(1 + L_π) = L²(1 + L_π)²."""
    base = max(world.lipschitz, 1.0)
    return base * (base * (1.0 + LIPSCHITZ) - 1.0) / (2.0 * world.std_lipschitz)
