"""One check of the optimism lemma: does it hold here, and how much of λₙ did it need?

J(π, f*) <= J(π, μₙ) + λₙ Σₙ(π, μₙ)    and    |J(π, f*) - J(π, μₙ)| <= λₙ Σₙ(π, ·) under either dynamics
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from sombrl.paper.lab.gp import GridPosterior
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld, over_systems
from sombrl.paper.lab.tables import Truth
from sombrl.records import SombrlError
from sombrl.theory import required_beta
from sombrl.theory.require import require_nonnegative

ROUNDING = 1e-9
"""Values are exact up to this."""


class Check(NamedTuple):
    """One check of the lemma, on one system after n episodes."""

    holds: Float[Array, ""]  # the share of the random policies with J(π, f*) <= Jₙ(π)
    holds_planned: Float[Array, ""]  # the same for πₙ: 0 or 1
    both_sides: Float[Array, ""]  # the share of all policies with |J(π, f*) - J(π, μₙ)| <= λₙ min{Σₙ(π, μₙ), Σₙ(π, f*)}
    required_factor: Float[Array, ""]  # the least factor on λₙ for all policies, the planned one included
    holds_without: Float[Array, ""]  # the share of the policies that need no bonus at all: J(π, f*) <= J(π, μₙ)
    calibrated: Float[Array, ""]  # |μₙ - f*| <= βₙσₙ at every point: 0 or 1
    required_beta: Float[Array, ""]  # the least factor on βₙ for that
    beta: Float[Array, ""]
    bonus_weight: Float[Array, ""]


def check(
    true: Truth,
    now: GridPosterior,
    width: Float[Array, ""],
    weight: Float[Array, ""],
    in_truth: Float[Array, "policies 2"],
    in_model: Float[Array, "policies 2"],
) -> Check:
    """Compares (J, Σ) of the same policies in the truth and in the model; the planned policy is the last."""
    excess = in_truth[:, 0] - in_model[:, 0]
    promised = weight * in_model[:, 1]
    holds = excess <= promised + ROUNDING
    cautious = jnp.minimum(in_truth[:, 1], in_model[:, 1])
    both_sides = jnp.abs(excess) <= weight * cautious + ROUNDING
    needed = jnp.maximum(excess, 0.0) / promised
    stds = jnp.broadcast_to(now.std[:, None], now.mean.shape)
    needed_beta = required_beta(now.mean, stds, true.residual) / width
    return Check(
        holds=_share(holds[:-1]),
        holds_planned=_share(holds[-1:]),
        both_sides=_share(both_sides),
        required_factor=jnp.max(needed),
        holds_without=_share(excess <= ROUNDING),
        calibrated=_share(needed_beta[None] <= 1.0),
        required_beta=needed_beta,
        beta=width,
        bonus_weight=weight,
    )


def lemma_on_systems(
    watch: Callable[..., Check],
    setting: AbstractExactSetting,
    name: str,
    world: GridWorld,
    env: str,
    *,
    systems: int,
    episodes: int,
    policies: int,
    factor: float,
    seed: int,
) -> list[LabRow]:
    """The rows of `watch(setting, world, episodes, policies, basis, factor, key=key)` on so many systems."""
    require_nonnegative(factor=factor)
    if systems < 1 or episodes < 1 or policies < 1:
        raise SombrlError(f"{systems} systems, {episodes} episodes, {policies} policies: take at least one of each.")
    with jax.enable_x64(True):
        keys = jr.split(jr.key(seed), systems)
        arrays = world.basis, jnp.asarray(factor, jnp.float64)
        checks: Check = over_systems(watch, (setting, world, episodes, policies), arrays, keys)
        return lemma_rows(checks, env, name, setting.lengths(episodes))


def _share(true: Array) -> Float[Array, ""]:
    return jnp.mean(true.astype(jnp.float64))


_NAMES = {
    "holds": "lemma_holds",
    "holds_planned": "lemma_holds_planned",
    "both_sides": "lemma_both_sides",
    "required_factor": "required_factor",
    "holds_without": "lemma_holds_without_bonus",
    "calibrated": "calibrated",
    "required_beta": "required_beta",
    "beta": "beta",
    "bonus_weight": "bonus_weight",
}


def shown_episodes(last: int) -> list[int]:
    """n = 0, 1, 4, 16, 64 and the last."""
    return [0] + [n for n in range(1, last + 1) if n in (1, 4, 16, 64) or n == last]


def lemma_rows(checks: Check, env: str, setting: str, lengths: Sequence[int]) -> list[LabRow]:
    """Rows for n = 0, 1, 4, 16, … episodes and the last; "_always" and "_worst" are over all n. Checks [systems, n]."""
    seen = {f"lab/{_NAMES[field]}": np.asarray(values) for field, values in checks._asdict().items()}
    decisions = np.concatenate([[0], np.cumsum(lengths)])
    last = len(lengths)
    shown = shown_episodes(last)
    rows = make_rows("sombrl", env, setting, decisions[shown], {m: v[:, shown] for m, v in seen.items()})
    always = {
        f"{metric}_always": seen[metric].min(axis=1, keepdims=True) == 1.0
        for metric in ("lab/lemma_holds", "lab/lemma_holds_planned", "lab/lemma_both_sides", "lab/calibrated")
    }
    worst = {
        f"{metric}_worst": seen[metric].max(axis=1, keepdims=True)
        for metric in ("lab/required_factor", "lab/required_beta")
    }
    return rows + make_rows("sombrl", env, setting, decisions[-1:], always | worst)
