"""Is rₙ = J(π*, f*) - J(πₙ, f*) <= (2λₙ + λₙ²) Σₙ(πₙ, f*), and how far from tight?

The lemma follows from the optimism lemma, used four times; here it is measured by itself, with the line of its proof
before the last, rₙ <= λₙ (Σₙ(πₙ, f*) + Σₙ(πₙ, μₙ)). J(π*), J(πₙ) and both Σₙ are exact.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.along import Look, Moment, along
from sombrl.paper.lab.lemma import ROUNDING, shown_episodes
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld, over_systems, random_system
from sombrl.paper.lab.tables import Truth, bonus
from sombrl.records import SombrlError
from sombrl.theory import simple_regret_bound, simple_regret_factor
from sombrl.theory.require import require_positive


class Loss(NamedTuple):
    """One episode's simple regret beside what the proof allows it."""

    simple_regret: Float[Array, ""]
    simple_regret_bound: Float[Array, ""]  # (2λₙ + λₙ²) Σₙ(πₙ, f*)
    simple_regret_before: Float[Array, ""]  # λₙ (Σₙ(πₙ, f*) + Σₙ(πₙ, μₙ)), the line before
    simple_regret_factor: Float[Array, ""]  # on λₙ of the theory, the least with which this plan's regret is allowed


def loss(
    regret: Float[Array, ""],
    weight: Float[Array, ""],
    factor: Float[Array, ""],
    in_truth: Float[Array, ""],
    in_model: Float[Array, ""],
) -> Loss:
    """The regret of a plan made with λₙ = `weight`, its Σₙ in the truth and in the model; λₙ is `factor` × theory."""
    return Loss(
        regret,
        simple_regret_bound(weight, in_truth),
        weight * (in_truth + in_model),
        factor * simple_regret_factor(regret, weight, in_truth),
    )


def loss_rows(name: str, env: str, setting: str, decisions: np.ndarray, shown: list[int], losses: Loss) -> list[LabRow]:
    """Rows of the shown episodes; "_held" and "_worst" are over all. Losses are [systems, n]."""
    seen = {f"lab/{metric}": np.asarray(values) for metric, values in losses._asdict().items()}
    rows = make_rows(name, env, setting, decisions[shown], {metric: v[:, shown] for metric, v in seen.items()})
    regret = seen["lab/simple_regret"]
    all_of_it = {
        "lab/simple_regret_held": np.all(regret <= seen["lab/simple_regret_bound"] + ROUNDING, axis=1, keepdims=True),
        "lab/simple_regret_held_before": np.all(
            regret <= seen["lab/simple_regret_before"] + ROUNDING, axis=1, keepdims=True
        ),
        "lab/simple_regret_factor_worst": seen["lab/simple_regret_factor"].max(axis=1, keepdims=True),
    }
    return rows + make_rows(name, env, setting, decisions[-1:], all_of_it)


def simple_regret(
    setting: AbstractExactSetting,
    world: GridWorld,
    env: str,
    *,
    methods: Mapping[str, float],
    systems: int,
    episodes: int,
    seed: int = 0,
) -> list[LabRow]:
    """Rows about the lemma; `methods` maps a name to its factor on λₙ, with which it plans and is bounded."""
    if systems < 1 or episodes < 1:
        raise SombrlError(f"{systems} systems, {episodes} episodes: take at least one of each.")
    rows: list[LabRow] = []
    decisions = np.concatenate([[0], np.cumsum(setting.lengths(episodes))])
    with jax.enable_x64(True):
        for name, factor in methods.items():
            require_positive(factor=factor)
            arrays = world.basis, jnp.asarray(factor, jnp.float64)
            keys = jr.split(jr.key(seed), systems)
            losses: Loss = over_systems(_watch, (setting, world, episodes), arrays, keys)
            rows += loss_rows(name, env, setting.name, decisions, shown_episodes(episodes), losses)
    return rows


def _watch(
    setting: AbstractExactSetting,
    world: GridWorld,
    episodes: int,
    basis: Float[Array, "inputs features"],
    factor: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Loss:
    """The lemma on one system, for n = 0 … episodes."""

    def prepare(true: Truth, key: Key[Array, ""]) -> Look:
        best = setting.plan(true.transition, true.reward)
        optimal = setting.performance(world, true.transition, true.reward[:, :, None], best)[0]

        def look(moment: Moment) -> Loss:
            rewards = jnp.stack([true.reward, bonus(world, moment.now)], axis=-1)
            earned, in_truth = setting.performance(world, true.transition, rewards, moment.planned)
            _, in_model = setting.performance(world, moment.model, rewards, moment.planned)
            return loss(optimal - earned, moment.weight, factor, in_truth, in_model)

        return look

    losses: Loss = along(setting, world, random_system, episodes, prepare, basis, factor, key=key)
    return losses
