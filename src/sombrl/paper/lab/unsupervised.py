"""With r = 0, does the largest uncertainty that any policy can still find go to zero, and how fast?

max_π Σ_N(π, f*) is found exactly, by dynamic programming on the true system with the reward ‖σ_N‖. The theorem bounds
it by a multiple of √(Γ_N³/N); exploring at random is the comparison.
"""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from sombrl.paper.lab.gp import Evidence, posterior
from sombrl.paper.lab.policies import uniform_policy
from sombrl.paper.lab.regret import Draw
from sombrl.paper.lab.rows import Row, make_rows
from sombrl.paper.lab.settings import FiniteHorizon
from sombrl.paper.lab.systems import World
from sombrl.paper.lab.tables import bonus, truth
from sombrl.paper.lab.trajectory import rollout
from sombrl.records import SombrlError
from sombrl.theory import greedy_information_gain
from sombrl.theory.kernels import rbf


def unsupervised(
    setting: FiniteHorizon,
    world: World,
    draw: Draw,
    env: str,
    *,
    systems: int,
    episodes: int,
    checkpoints: int = 50,
    seed: int = 0,
) -> list[Row]:
    """Rows "lab/max_uncertainty" of SOMBRL without a reward and of random actions, and "lab/rate" = √(Γ³/N)."""
    if episodes % checkpoints or systems < 1:
        raise SombrlError(f"{episodes} episodes in {checkpoints} checkpoints: take a multiple, and a system.")
    every = episodes // checkpoints
    decisions = np.cumsum(setting.lengths(episodes))[every - 1 :: every]
    rows: list[Row] = []
    with jax.enable_x64(True):
        basis = world.basis
        for name, random in (("sombrl", False), ("random", True)):
            keys = jr.split(jr.key(seed), systems)
            left, gain = _explore_all(setting, world, draw, episodes, basis, jnp.asarray(random), keys)
            metrics = {"lab/max_uncertainty": left, "lab/information_gain": gain}
            metrics = {metric: np.asarray(values)[:, every - 1 :: every] for metric, values in metrics.items()}
            rows += make_rows(name, env, setting.name, decisions, metrics)
        most, _ = jax.jit(lambda z: greedy_information_gain(rbf, z, world.noise.size, int(decisions[-1])))(world.scaled)
    gains = np.asarray(most)[decisions - 1]
    rate = np.sqrt(gains**3 / np.arange(every, episodes + 1, every))
    theory = {"lab/rate": rate[None], "lab/max_information_gain": gains[None]}
    return rows + make_rows("theory", env, setting.name, decisions, theory)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _explore_all(setting, world, draw, episodes, basis, random, keys):
    """One system after the other."""
    return jax.lax.map(lambda key: _explore(setting, world, draw, basis, random, episodes, key=key), keys)


def _explore(
    setting: FiniteHorizon,
    world: World,
    draw: Draw,
    basis: Float[Array, "inputs features"],
    random: Bool[Array, ""],
    episodes: int,
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

    def episode(carry, key):
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
    _, seen = jax.lax.scan(episode, (evidence, posterior(basis, evidence)), jr.split(run_key, episodes))
    return seen
