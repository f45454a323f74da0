"""Is J(π, f*) <= J(π, μₙ) + λₙ Σₙ(π, μₙ) for every policy, at the λₙ of the theory? And by how much?

On every system, after every episode, the lemma is tried on many random policies and on the planned one. All values are
exact, so a failure would be a real one. The claim is uniform in n, z and π with probability 1 - δ over the noise,
therefore what must reach 1 - δ is the share of *systems* on which nothing ever fails.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.gp import Evidence, posterior
from sombrl.paper.lab.lemma import Check, check, lemma_on_systems
from sombrl.paper.lab.policies import random_policy
from sombrl.paper.lab.rows import LabRow
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld, random_system
from sombrl.paper.lab.tables import bonus, confidence, truth
from sombrl.paper.lab.trajectory import rollout


def optimism(
    setting: AbstractExactSetting,
    world: GridWorld,
    env: str,
    *,
    systems: int,
    episodes: int,
    policies: int = 24,
    factor: float = 1.0,
    seed: int = 0,
) -> list[LabRow]:
    """Rows about the lemma with λₙ = `factor` × theory. The data come from the policies planned with that λₙ."""
    sizes = {"systems": systems, "episodes": episodes, "policies": policies}
    return lemma_on_systems(_watch, setting, setting.name, world, env, **sizes, factor=factor, seed=seed)


def _watch(
    setting: AbstractExactSetting,
    world: GridWorld,
    episodes: int,
    policies: int,
    basis: Float[Array, "inputs features"],
    factor: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Check:
    """The lemma on one system, for n = 0 … episodes."""
    system_key, policy_key, run_key = jr.split(key, 3)
    true = truth(world, random_system(world, key=system_key))
    constant = setting.constant(world, true.transition, true.reward)
    candidates = jax.vmap(lambda key: random_policy(world.grid, key=key))(jr.split(policy_key, policies))

    def episode(carry: tuple[Evidence, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Evidence, Array], Check]:
        evidence, state = carry
        length, key = inputs
        now = posterior(basis, evidence)
        width = confidence(world, now)
        weight = factor * setting.bonus_weight(width, world, constant)
        model = world.transition(now.mean)
        planned = setting.plan(model, true.reward + weight * bonus(world, now))
        rewards = jnp.stack([true.reward, bonus(world, now)], axis=-1)

        def value(policy: Array) -> tuple[Array, Array]:
            return (
                setting.performance(world, true.transition, rewards, policy),
                setting.performance(world, model, rewards, policy),
            )

        # Not vmap: a batch of linear solves inside a scan can deadlock XLA's thread pool on a CPU.
        values = jax.tree.map(
            lambda many, one: jnp.concatenate([many, one[None]]), jax.lax.map(value, candidates), value(planned)
        )
        start = jnp.asarray(world.grid.middle, jnp.int32)
        state, seen = rollout(
            world, true.residual, planned, start if setting.resets else state, length, longest, key=key
        )
        return (evidence.add(basis, *seen, world.noise.size), state), check(true, now, width, weight, *values)

    # The lemma is checked once more after the last episode, so there is one more length than episodes.
    lengths = setting.lengths(episodes + 1)
    longest = max(lengths)
    first = Evidence.none(basis.shape[1], world.grid.state_dim), jnp.asarray(world.grid.middle, jnp.int32)
    checks: Check
    _, checks = jax.lax.scan(episode, first, (jnp.asarray(lengths, jnp.int32), jr.split(run_key, episodes + 1)))
    return checks
