"""With r = 0, does the largest uncertainty that any policy can still find go to zero, and how fast?

max_π Σ_N(π, f*) is found exactly, by dynamic programming on the true system with the reward ‖σ_N‖. The theorem bounds
it by a multiple of √(Γ_N³/N); exploring at random is the comparison.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.paper.lab.gp import Evidence, GridPosterior, posterior
from sombrl.paper.lab.policies import uniform_policy
from sombrl.paper.lab.regret import Draw
from sombrl.paper.lab.rows import LabRow, make_rows
from sombrl.paper.lab.settings import ExactFiniteHorizon
from sombrl.paper.lab.systems import GridWorld, over_systems
from sombrl.paper.lab.tables import bonus, truth
from sombrl.paper.lab.trajectory import rollout
from sombrl.records import SombrlError
from sombrl.theory import greedy_information_gain
from sombrl.theory.kernels import rbf


def unsupervised(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    draw: Draw,
    env: str,
    *,
    systems: int,
    episodes: int,
    checkpoints: int = 50,
    seed: int = 0,
) -> list[LabRow]:
    """Rows "lab/max_uncertainty" of SOMBRL without a reward and of random actions, and "lab/rate" = √(Γ³/N)."""
    if episodes % checkpoints or systems < 1:
        raise SombrlError(f"{episodes} episodes in {checkpoints} checkpoints: take a multiple, and a system.")
    every = episodes // checkpoints
    decisions = np.cumsum(setting.lengths(episodes))[every - 1 :: every]
    rows: list[LabRow] = []
    with jax.enable_x64(True):
        basis = world.basis
        for name, random in (("sombrl", False), ("random", True)):
            keys = jr.split(jr.key(seed), systems)
            left, gain = over_systems(_explore, (setting, world, draw, episodes), (basis, jnp.asarray(random)), keys)
            metrics = {"lab/max_uncertainty": left, "lab/information_gain": gain}
            metrics = {metric: np.asarray(values)[:, every - 1 :: every] for metric, values in metrics.items()}
            rows += make_rows(name, env, setting.name, decisions, metrics)
        most, _ = jax.jit(lambda z: greedy_information_gain(rbf, z, world.noise.size, int(decisions[-1])))(world.scaled)
    gains = np.asarray(most)[decisions - 1]
    rate = np.sqrt(gains**3 / np.arange(every, episodes + 1, every))
    theory = {"lab/rate": rate[None], "lab/max_information_gain": gains[None]}
    return rows + make_rows("theory", env, setting.name, decisions, theory)


def _explore(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    draw: Draw,
    episodes: int,
    basis: Float[Array, "inputs features"],
    random: Bool[Array, ""],
    *,
    key: Key[Array, ""],
) -> tuple[Float[Array, " episodes"], Float[Array, " episodes"]]:
    """max_π Σₙ(π, f*) and the information gain after each episode."""
    system_key, run_key = jr.split(key)
    true = truth(world, draw(world, key=system_key))
    start = jnp.asarray(world.grid.middle, jnp.int32)
    length = jnp.asarray(setting.horizon, jnp.int32)
    aimless = jnp.broadcast_to(
        uniform_policy(world.grid), (setting.horizon, world.grid.num_states, world.grid.num_actions)
    )

    def episode(
        carry: tuple[Evidence, GridPosterior], key: Array
    ) -> tuple[tuple[Evidence, GridPosterior], tuple[Array, Array]]:
        evidence, now = carry
        policy = jnp.where(random, aimless, setting.plan(world.transition(now.mean), bonus(world, now)))
        _, seen = rollout(world, true.residual, policy, start, length, setting.horizon, key=key)
        evidence = evidence.add(basis, *seen, world.noise.size)
        now = posterior(basis, evidence)
        ignorance = bonus(world, now)
        worst = setting.plan(true.transition, ignorance)
        left = setting.performance(world, true.transition, ignorance[:, :, None], worst)[0]
        return (evidence, now), (left, now.information_gain)

    evidence = Evidence.none(basis.shape[1], world.grid.state_dim)
    seen: tuple[Array, Array]
    _, seen = jax.lax.scan(episode, (evidence, posterior(basis, evidence)), jr.split(run_key, episodes))
    return seen
