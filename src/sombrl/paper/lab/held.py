"""How small may λₙ be? The optimism lemma in the worlds of the regret figures, with λₙ scaled as it is there.

A run with a factor on λₙ sees other data than one without, so every factor has its own runs: it plans with the scaled
λₙ, and before every episode the lemma is tried with the scaled λₙ, on random policies, on πₙ and on π*. The regret
theorems use the lemma for πₙ and π* alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.along import Look, Moment, along
from sombrl.paper.lab.lemma import ROUNDING
from sombrl.paper.lab.optimism import values_of
from sombrl.paper.lab.planner import Policy
from sombrl.paper.lab.policies import random_policy
from sombrl.paper.lab.regret import Draw, bellman_gaps
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld, over_systems
from sombrl.paper.lab.tables import Truth
from sombrl.records import SombrlError
from sombrl.theory.require import require_positive


class Held(NamedTuple):
    """Before one episode: whether the lemma held, for every policy that was tried and for π* and πₙ alone."""

    lemma_held: Float[Array, ""]
    lemma_held_regret: Float[Array, ""]


def held(
    setting: AbstractExactSetting,
    world: GridWorld,
    draw: Draw,
    env: str,
    *,
    factors: Sequence[float],
    systems: int,
    episodes: int,
    policies: int = 24,
    seed: int = 0,
) -> list[LabRow]:
    """A row per system and factor: 1 where the lemma never failed in `episodes` episodes."""
    if systems < 1 or episodes < 1 or policies < 1:
        raise SombrlError(f"{systems} systems, {episodes} episodes, {policies} policies: take at least one of each.")
    rows: list[LabRow] = []
    decisions = np.asarray([sum(setting.lengths(episodes))])
    with jax.enable_x64(True):
        for factor in factors:
            require_positive(factor=factor)
            arrays = world.basis, jnp.asarray(factor, jnp.float64)
            seen: Held = over_systems(
                _watch, (setting, world, draw, episodes, policies), arrays, jr.split(jr.key(seed), systems)
            )
            always = {f"lab/{name}": np.asarray(v).min(axis=1, keepdims=True) for name, v in seen._asdict().items()}
            rows += make_rows(f"sombrl x{factor:g}", env, setting.name, decisions, always)
    return rows


def _watch(
    setting: AbstractExactSetting,
    world: GridWorld,
    draw: Draw,
    episodes: int,
    policies: int,
    basis: Float[Array, "inputs features"],
    factor: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Held:
    """One system, for n = 0 … episodes."""

    def prepare(true: Truth, key: Key[Array, ""]) -> Look:
        best = setting.plan(true.transition, true.reward)
        stages = best.shape[0]

        def candidate(key: Key[Array, ""]) -> Policy:
            policy = random_policy(world.grid, key=key)
            return jnp.broadcast_to(policy, (stages, *policy.shape[1:]))

        tried = jnp.concatenate([jax.vmap(candidate)(jr.split(key, policies)), best[None]])

        def look(moment: Moment) -> Held:
            in_truth, in_model = values_of(setting, world, true, moment, tried)
            fine = in_truth[:, 0] <= in_model[:, 0] + moment.weight * in_model[:, 1] + ROUNDING
            return Held(*(jnp.all(part).astype(jnp.float64) for part in (fine, fine[-2:])))

        return look

    seen: Held = along(
        setting, world, draw, episodes, prepare, basis, factor, key=key, constant_of=constant_of_the_regret
    )
    return seen


def constant_of_the_regret(setting: AbstractExactSetting, world: GridWorld, true: Truth) -> Float[Array, ""]:
    """The constant that λₙ has in the regret figures, so that the factors are the same."""
    return jnp.ones((), jnp.float64) if setting.resets else bellman_gaps(true)[1]
