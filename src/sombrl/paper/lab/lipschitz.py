"""The regret theorem for sub-Gaussian noise: plans under fₙ, over a class Π of policies that are Lipschitz.

Π is finite here, the constant policies and many random ones, so that argmax over Π is exact and every assumption of
the theorem holds: J(π*) is the best of Π. H-UCRL searches the same class, for each policy over all plausible worlds.
Of every episode rₙ is kept beside the bound that the proofs give it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.gp import Evidence, GridPosterior, posterior
from sombrl.paper.lab.grid import Grid
from sombrl.paper.lab.hucrl import plausible
from sombrl.paper.lab.lemma import ROUNDING, shown_episodes
from sombrl.paper.lab.policies import LIPSCHITZ, random_policy
from sombrl.paper.lab.regret import Draw
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.settings import ExactFiniteHorizon
from sombrl.paper.lab.simple_regret import Loss, loss, loss_rows
from sombrl.paper.lab.sub_gaussian import NAME, bounded_mean
from sombrl.paper.lab.systems import GridWorld, System, over_systems
from sombrl.paper.lab.tables import Truth, bonus, confidence, truth
from sombrl.paper.lab.trajectory import rollout
from sombrl.records import SombrlError
from sombrl.theory import bonus_weight, hallucinated_bound
from sombrl.theory.require import require_nonnegative

POLICIES = 60
"""Random policies in Π, beside one constant policy per action."""


class LipschitzEpisode(NamedTuple):
    """What one episode leaves behind."""

    loss: Loss
    beta: Float[Array, ""]
    bonus_weight: Float[Array, ""]
    information_gain: Float[Array, ""]
    promised: Float[Array, ""]  # what the plan expected of itself beyond what it is worth
    lemma_held: Float[Array, ""]  # J(π, f*) <= Jₙ(π) for all of Π
    lemma_held_regret: Float[Array, ""]  # and for π* and πₙ alone, which is what the theorem uses


def lipschitz_regret(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    draw: Draw,
    env: str,
    *,
    methods: Mapping[str, tuple[float, bool]],
    systems: int,
    episodes: int,
    checkpoints: int = 50,
    seed: int = 0,
) -> list[LabRow]:
    """Rows as `regret` makes them, and those of the simple-regret lemma. `methods`: (factor, H-UCRL or not)."""
    if episodes % checkpoints:
        raise SombrlError(f"{episodes} episodes in {checkpoints} checkpoints: take a multiple.")
    every = episodes // checkpoints
    coarse = max(1, checkpoints // 5) * every
    decisions = setting.horizon * np.arange(1, episodes + 1)
    rows: list[LabRow] = []
    for name, (factor, hallucinated) in methods.items():
        seen = lipschitz_run(
            setting,
            world,
            draw,
            factor=factor,
            hallucinated=hallucinated,
            systems=systems,
            episodes=episodes,
            seed=seed,
        )
        totals = np.cumsum(np.asarray(seen.loss.simple_regret), axis=1)
        rows += make_rows(name, env, NAME, decisions[every - 1 :: every], {"lab/regret": totals[:, every - 1 :: every]})
        others = {
            "lab/beta": seen.beta,
            "lab/bonus_weight": seen.bonus_weight,
            "lab/information_gain": seen.information_gain,
        }
        rows += make_rows(
            name,
            env,
            NAME,
            decisions[coarse - 1 :: coarse],
            {metric: np.asarray(values)[:, coarse - 1 :: coarse] for metric, values in others.items()},
        )
        if factor > 0.0 and not hallucinated:
            shown = [n for n in shown_episodes(episodes) if n < episodes]
            rows += loss_rows(name, env, NAME, decisions - setting.horizon, shown, seen.loss)
    return rows


def lipschitz_held(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    draw: Draw,
    env: str,
    *,
    factors: Sequence[float],
    systems: int,
    episodes: int,
    seed: int = 0,
) -> list[LabRow]:
    """Rows as `held` makes them: 1 where the lemma never failed on a system, with λₙ scaled by each factor."""
    rows: list[LabRow] = []
    for factor in factors:
        seen = lipschitz_run(
            setting, world, draw, factor=factor, hallucinated=False, systems=systems, episodes=episodes, seed=seed
        )
        always = {
            f"lab/{name}": np.asarray(getattr(seen, name)).min(axis=1, keepdims=True)
            for name in ("lemma_held", "lemma_held_regret")
        }
        rows += make_rows(f"sombrl x{factor:g}", env, NAME, np.asarray([setting.horizon * episodes]), always)
    return rows


def lipschitz_run(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    draw: Draw,
    *,
    factor: float,
    hallucinated: bool,
    systems: int,
    episodes: int,
    seed: int,
) -> LipschitzEpisode:
    """Every episode of every system, [systems, episodes]."""
    if systems < 1 or episodes < 1:
        raise SombrlError(f"{systems} systems, {episodes} episodes: take at least one of each.")
    require_nonnegative(factor=factor)
    with jax.enable_x64(True):
        arrays = world.basis, jnp.asarray(factor, jnp.float64)
        keys = jr.split(jr.key(seed), systems)
        seen: LipschitzEpisode = over_systems(_run, (setting, world, draw, episodes, hallucinated), arrays, keys)
        return seen


def policy_class(grid: Grid, *, key: Key[Array, ""]) -> Float[Array, "policies 1 states actions"]:
    """Π: every constant policy, which has L_π = 0, and `POLICIES` random ones with L_π = `LIPSCHITZ`."""
    constant = jnp.eye(grid.num_actions, dtype=jnp.float64)[:, None, None, :]
    constant = jnp.broadcast_to(constant, (grid.num_actions, 1, grid.num_states, grid.num_actions))
    return jnp.concatenate([constant, jax.vmap(lambda key: random_policy(grid, key=key))(jr.split(key, POLICIES))])


def _run(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    draw: Draw,
    episodes: int,
    hallucinated: bool,
    basis: Float[Array, "inputs features"],
    factor: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> LipschitzEpisode:
    """Episodes from the same start on one system."""
    system_key, policy_key, run_key = jr.split(key, 3)
    system = draw(world, key=system_key)
    true = truth(world, system)
    policies = policy_class(world.grid, key=policy_key)

    def values(where: Array, rewards: Array) -> Array:
        return jnp.asarray(jax.vmap(lambda policy: setting.performance(world, where, rewards, policy))(policies))

    worth = values(true.transition, true.reward[:, :, None])[:, 0]
    start = jnp.asarray(world.grid.middle, jnp.int32)

    def episode(evidence: Evidence, key: Array) -> tuple[Evidence, LipschitzEpisode]:
        now = posterior(basis, evidence)
        width = confidence(world, now)
        ignorance = bonus(world, now)
        if hallucinated:
            weight = factor * width
            promises = _best_worlds(setting, world, true, now, weight, policies)
        else:
            weight = factor * _weight(setting, world, system, width)
            model = world.transition(bounded_mean(basis, evidence, world.norm_bound))
            both = values(model, jnp.stack([true.reward, ignorance], axis=-1))
            promises = both[:, 0] + weight * both[:, 1]
        best = jnp.argmax(promises)
        in_truth = setting.performance(world, true.transition, ignorance[:, :, None], policies[best])[0]
        lost = jnp.max(worth) - worth[best]
        if hallucinated:
            allowed = hallucinated_bound(
                weight,
                in_truth,
                horizon=setting.horizon,
                reward_lipschitz=system.reward_lipschitz(),
                policy_lipschitz=LIPSCHITZ,
                dynamics_lipschitz=world.lipschitz,
                std_lipschitz=world.std_lipschitz,
            )
            suffered = Loss(lost, allowed, allowed, jnp.zeros(()))
        else:
            suffered = loss(lost, weight, factor, in_truth, both[best, 1])
        _, seen = rollout(
            world, true.residual, policies[best], start, jnp.asarray(setting.horizon, jnp.int32), setting.horizon,
            key=key,
        )  # fmt: skip
        fine = worth <= promises + ROUNDING
        row = LipschitzEpisode(
            suffered,
            width,
            weight,
            now.information_gain,
            promises[best] - worth[best],
            jnp.all(fine).astype(jnp.float64),
            (fine[jnp.argmax(worth)] & fine[best]).astype(jnp.float64),
        )
        return evidence.add(basis, *seen, world.noise.size), row

    everything: LipschitzEpisode
    first = Evidence.none(basis.shape[1], world.grid.state_dim)
    _, everything = jax.lax.scan(episode, first, jr.split(run_key, episodes))
    return everything


def _weight(setting: ExactFiniteHorizon, world: GridWorld, system: System, width: Float[Array, ""]) -> Float[Array, ""]:
    """λₙ of the sub-Gaussian lemma."""
    return bonus_weight.sub_gaussian(
        width,
        horizon=setting.horizon,
        state_dim=world.grid.state_dim,
        reward_lipschitz=system.reward_lipschitz(),
        policy_lipschitz=LIPSCHITZ,
        dynamics_lipschitz=world.lipschitz,
    )


def _best_worlds(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    true: Truth,
    now: GridPosterior,
    reach: Float[Array, ""],
    policies: Float[Array, "policies 1 states actions"],
) -> Float[Array, " policies"]:
    """max over η of J(π, μₙ + reach σₙ η) for every π: backward induction with the best η at every state and action."""
    worlds = plausible(world, now, reach)

    def of(policy: Array) -> Array:
        def earlier(value: Array, _: None) -> tuple[Array, None]:
            ahead = true.reward + worlds.best(value)
            return jnp.sum(policy[0] * ahead, axis=1), None

        zero = jnp.zeros(world.grid.num_states, jnp.float64)
        value, _ = jax.lax.scan(earlier, zero, None, setting.horizon)
        return value[world.grid.middle]

    promises: Array = jax.vmap(of)(policies)
    return promises
