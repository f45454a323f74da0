"""Does the regret grow sublinearly? SOMBRL against greedy, Thompson and H-UCRL, with exact planning and exact regret.

No Monte Carlo in the regret: J(π*) and J(πₙ) are computed on the true system, and on one trajectory without resets the
regret is the sum of Bellman gaps,

    R_N = Σₙ J* + h*(xₙ) - r(xₙ, uₙ) - E h*(xₙ₊₁),

whose expectation is that of Σₙ J_avg(π*) - r(xₙ, uₙ) up to h*(x_N) - h*(x₀), without the randomness of the rewards.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.paper.lab import planner
from sombrl.paper.lab.gp import Evidence, GridPosterior, posterior
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.settings import AbstractExactSetting, ExactNonEpisodic
from sombrl.paper.lab.systems import GridWorld, System, over_systems
from sombrl.paper.lab.tables import Truth, bonus, confidence, truth
from sombrl.paper.lab.trajectory import rollout, step
from sombrl.records import SombrlError
from sombrl.theory import information
from sombrl.theory.require import require_nonnegative
from sombrl.theory.update_rule import ONE_BIT

FACTORS: dict[str, float] = {"finite-horizon": 1e-3, "discounted": 1e-3, "non-episodic": 1e-2, "sub-gaussian": 1e-6}
"""What λₙ of the theory is multiplied with: per setting the power of ten that did well in the part "factors"."""
REACH = 0.1
"""What βₙ of the theory is multiplied with for H-UCRL, chosen in the same way."""

Draw = Callable[..., System]


class Method(eqx.Module):
    """How a method chooses: a factor on λₙ, and whether it plans with a posterior sample. Greedy is factor 0."""

    factor: Float[Array, ""]
    thompson: Bool[Array, ""]


Choice = tuple[planner.Policy, GridPosterior, Float[Array, ""], Float[Array, ""]]
"""πₙ, the posterior, βₙ and the weight of the method."""
Chooser = Callable[..., Choice]


class Iteration(NamedTuple):
    """What one iteration leaves behind."""

    regret: Float[Array, ""]  # of this iteration
    beta: Float[Array, ""]
    bonus_weight: Float[Array, ""]
    information_gain: Float[Array, ""]


def regret(
    setting: AbstractExactSetting,
    world: GridWorld,
    draw: Draw,
    env: str,
    *,
    methods: Mapping[str, tuple[float, bool]],
    systems: int,
    iterations: int,
    checkpoints: int = 50,
    seed: int = 0,
    chooser: Chooser | None = None,
) -> list[LabRow]:
    """Rows "lab/regret" (cumulative) and what λₙ was made of, for each method on the same systems.

    `methods` maps a name to (factor on λₙ, Thompson or not). `iterations` are episodes, or decisions where nothing
    resets; rows come at `checkpoints` equal steps, which leave a log-log slope as it is. Each system has one key, so
    every method sees the same system and the same random numbers. `chooser` plans instead of `choose`.
    """
    if iterations % checkpoints or systems < 1:
        raise SombrlError(f"{iterations} iterations in {checkpoints} checkpoints: take a multiple, and a system.")
    for factor, _ in methods.values():
        require_nonnegative(factor=factor)
    with jax.enable_x64(True):
        experience = _single_trajectory if isinstance(setting, ExactNonEpisodic) else _episodes
        basis = world.basis
        decisions = np.arange(1, iterations + 1)
        if not isinstance(setting, ExactNonEpisodic):
            decisions = np.cumsum(setting.lengths(iterations))
        every = iterations // checkpoints
        coarse = max(1, checkpoints // 5) * every
        rows: list[LabRow] = []
        for name, (factor, thompson) in methods.items():
            method = Method(jnp.asarray(factor, jnp.float64), jnp.asarray(thompson))
            keys = jr.split(jr.key(seed), systems)
            fixed = setting, world, draw, iterations, chooser or choose
            seen: Iteration = over_systems(experience, fixed, (basis, method), keys)
            totals = np.cumsum(np.asarray(seen.regret), axis=1)
            rows += make_rows(
                name, env, setting.name, decisions[every - 1 :: every], {"lab/regret": totals[:, every - 1 :: every]}
            )
            others = {
                "lab/step_regret": seen.regret,
                "lab/beta": seen.beta,
                "lab/bonus_weight": seen.bonus_weight,
                "lab/information_gain": seen.information_gain,
            }
            rows += make_rows(
                name,
                env,
                setting.name,
                decisions[coarse - 1 :: coarse],
                {metric: np.asarray(values)[:, coarse - 1 :: coarse] for metric, values in others.items()},
            )
        return rows


def choose(
    setting: AbstractExactSetting,
    world: GridWorld,
    true: Truth,
    constant: Float[Array, ""],
    basis: Float[Array, "inputs features"],
    method: Method,
    evidence: Evidence,
    *,
    key: Key[Array, ""],
) -> Choice:
    """πₙ = argmax of r + λₙ‖σₙ‖ under μₙ + w, exactly; with the posterior, βₙ and λₙ."""
    now = posterior(basis, evidence)
    width = confidence(world, now)
    weight = method.factor * setting.bonus_weight(width, world, constant)
    imagined = jnp.where(method.thompson, now.draw(basis, key=key), now.mean)
    policy = setting.plan(world.transition(imagined), true.reward + weight * bonus(world, now))
    return policy, now, width, weight


def bellman_gaps(true: Truth) -> tuple[Float[Array, "states actions"], Float[Array, ""]]:
    """J* + h*(x) - r(x, u) - E h*(x') >= 0, the loss of an action against π*; and span(h*), for D₄ of π*.

    The regret proof uses the lemma for π* and for πₙ; the span of π*'s own bias is what optimism needs.
    """
    best = planner.plan_average(true.transition, true.reward)
    average, bias = planner.value_average(true.transition, true.reward[:, :, None], best)
    return average[0] + bias - true.reward - true.transition @ bias[:, 0], jnp.ptp(bias)


def _episodes(
    setting: AbstractExactSetting,
    world: GridWorld,
    draw: Draw,
    iterations: int,
    chooser: Chooser,
    basis: Float[Array, "inputs features"],
    method: Method,
    *,
    key: Key[Array, ""],
) -> Iteration:
    """Episodes from the same start, an update after each."""
    system_key, run_key = jr.split(key)
    true = truth(world, draw(world, key=system_key))
    kinds = true.reward[:, :, None]
    best = setting.performance(world, true.transition, kinds, setting.plan(true.transition, true.reward))[0]
    lengths = setting.lengths(iterations)
    start = jnp.asarray(world.grid.middle, jnp.int32)

    def episode(evidence: Evidence, inputs: tuple[Array, Array]) -> tuple[Evidence, Iteration]:
        length, key = inputs
        choose_key, act_key = jr.split(key)
        policy, now, width, weight = chooser(
            setting, world, true, jnp.ones((), jnp.float64), basis, method, evidence, key=choose_key
        )
        value = setting.performance(world, true.transition, kinds, policy)[0]
        _, seen = rollout(world, true.residual, policy, start, length, max(lengths), key=act_key)
        evidence = evidence.add(basis, *seen, world.noise.size)
        return evidence, Iteration(best - value, width, weight, now.information_gain)

    inputs = jnp.asarray(lengths, jnp.int32), jr.split(run_key, iterations)
    seen: Iteration
    _, seen = jax.lax.scan(episode, Evidence.none(basis.shape[1], world.grid.state_dim), inputs)
    return seen


def _single_trajectory(
    setting: AbstractExactSetting,
    world: GridWorld,
    draw: Draw,
    iterations: int,
    chooser: Chooser,
    basis: Float[Array, "inputs features"],
    method: Method,
    *,
    key: Key[Array, ""],
) -> Iteration:
    """One trajectory that is never reset; model and policy change after one bit of information."""
    system_key, first_key, run_key = jr.split(key, 3)
    true = truth(world, draw(world, key=system_key))
    gaps, span = bellman_gaps(true)

    def fresh(evidence: Evidence, *, key: Array) -> tuple[Array, ...]:
        policy, now, width, weight = chooser(setting, world, true, span, basis, method, evidence, key=key)
        return policy[0], now.std, width, weight, now.information_gain

    def decide(carry: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], Iteration]:
        state, evidence, bits, plan = carry
        step_key, plan_key = jr.split(key)
        policy, std, width, weight, gain = plan
        following, place, target = step(world, true.residual, policy, state, key=step_key)
        evidence = evidence.add(basis, place[None], target[None], jnp.ones(1, bool), world.noise.size)
        stds = jnp.full(world.grid.state_dim, std[place])
        bits = bits + information(stds, world.noise.size)
        due = bits > ONE_BIT
        plan = jax.lax.cond(due, lambda: fresh(evidence, key=plan_key), lambda: plan)
        row = Iteration(gaps.reshape(-1)[place], width, weight, gain)
        return (following, evidence, jnp.where(due, 0.0, bits), plan), row

    evidence = Evidence.none(basis.shape[1], world.grid.state_dim)
    start = jnp.asarray(world.grid.middle, jnp.int32)
    carry = start, evidence, jnp.zeros((), jnp.float64), fresh(evidence, key=first_key)
    seen: Iteration
    _, seen = jax.lax.scan(decide, carry, jr.split(run_key, iterations))
    return seen
