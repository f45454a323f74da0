"""Is J(π, f*) <= J(π, μₙ) + λₙ Σₙ(π, μₙ) for every policy, at the λₙ of the theory? And by how much?

On every system, after every episode, the lemma is tried on many random policies and on the planned one. All values are
exact, so a failure would be one. The claim is uniform in n, z and π with probability 1 - δ over the noise, therefore
what must reach 1 - δ is the share of *systems* on which nothing ever fails.
"""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.gp import Evidence, posterior
from sombrl.paper.lab.lemma import Check, check, lemma_rows
from sombrl.paper.lab.policies import random_policy
from sombrl.paper.lab.rows import Row
from sombrl.paper.lab.settings import AbstractSetting
from sombrl.paper.lab.systems import World, random_system
from sombrl.paper.lab.tables import bonus, confidence, truth
from sombrl.paper.lab.trajectory import rollout
from sombrl.records import SombrlError
from sombrl.theory.require import require_nonnegative


def optimism(
    setting: AbstractSetting,
    world: World,
    env: str,
    *,
    systems: int,
    episodes: int,
    policies: int = 24,
    factor: float = 1.0,
    seed: int = 0,
) -> list[Row]:
    """Rows about the lemma with λₙ = `factor` × theory. The data come from the policies planned with that λₙ."""
    require_nonnegative(factor=factor)
    if systems < 1 or episodes < 1 or policies < 1:
        raise SombrlError(f"{systems} systems, {episodes} episodes, {policies} policies: take at least one of each.")
    with jax.enable_x64(True):
        keys = jr.split(jr.key(seed), systems)
        checks = _watch_all(setting, world, episodes, policies, world.basis, jnp.asarray(factor, jnp.float64), keys)
        return lemma_rows(checks, env, setting.name, setting.lengths(episodes))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _watch_all(setting, world, episodes, policies, basis, factor, keys):
    """One system after the other: a batch of them would only wait for the slowest plan."""
    return jax.lax.map(lambda key: _watch(setting, world, basis, episodes, policies, factor, key=key), keys)


def _watch(
    setting: AbstractSetting,
    world: World,
    basis: Float[Array, "inputs features"],
    episodes: int,
    policies: int,
    factor: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Check:
    """The lemma on one system, for n = 0 … episodes."""
    system_key, policy_key, run_key = jr.split(key, 3)
    true = truth(world, random_system(world, key=system_key))
    constant = setting.constant(world, true.transition, true.reward)
    candidates = jax.vmap(lambda key: random_policy(world.grid, key=key))(jr.split(policy_key, policies))

    def episode(carry, inputs):
        evidence, state = carry
        length, key = inputs
        now = posterior(basis, evidence)
        width = confidence(world, now)
        weight = factor * setting.bonus_weight(width, world, constant)
        model = world.transition(now.mean)
        planned = setting.plan(model, true.reward + weight * bonus(world, now))
        rewards = jnp.stack([true.reward, bonus(world, now)], axis=-1)

        def value(policy):
            return (
                setting.performance(world, true.transition, rewards, policy),
                setting.performance(world, model, rewards, policy),
            )

        # Not vmap: a batch of linear solves inside a scan can block XLA's thread pool on a CPU for ever.
        values = jax.tree.map(
            lambda many, one: jnp.concatenate([many, one[None]]), jax.lax.map(value, candidates), value(planned)
        )
        start = jnp.asarray(world.grid.middle, jnp.int32)
        state, seen = rollout(
            world, true.residual, planned, start if setting.resets else state, length, longest, key=key
        )
        return (evidence.add(basis, *seen, world.noise.size), state), check(true, now, width, weight, *values)

    # After the last episode the lemma is looked at once more, hence one length too many.
    lengths = setting.lengths(episodes + 1)
    longest = max(lengths)
    first = Evidence.none(basis.shape[1], world.grid.state_dim), jnp.asarray(world.grid.middle, jnp.int32)
    _, checks = jax.lax.scan(episode, first, (jnp.asarray(lengths, jnp.int32), jr.split(run_key, episodes + 1)))
    return checks
