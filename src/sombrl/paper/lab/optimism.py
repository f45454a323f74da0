"""Is J(π, f*) <= J(π, μₙ) + λₙ Σₙ(π, μₙ) for every policy, at the λₙ of the theory? And by how much?

On every system, after every episode, the lemma is tried on many random policies and on the planned one. All values are
exact, so a failure would be a real one. The claim is uniform in n, z and π with probability 1 - δ over the noise,
therefore what must reach 1 - δ is the share of *systems* on which nothing ever fails.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.along import Look, Moment, along
from sombrl.paper.lab.lemma import Check, check, lemma_on_systems
from sombrl.paper.lab.planner import Policy, Transition
from sombrl.paper.lab.policies import random_policy
from sombrl.paper.lab.rows import LabRow
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld, random_system
from sombrl.paper.lab.tables import Truth, bonus


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

    def prepare(true: Truth, key: Key[Array, ""]) -> Look:
        candidates = jax.vmap(lambda key: random_policy(world.grid, key=key))(jr.split(key, policies))

        def look(moment: Moment) -> Check:
            values = values_of(setting, world, true, moment, candidates)
            return check(true, moment.now, moment.width, moment.weight, *values)

        return look

    checks: Check = along(setting, world, random_system, episodes, prepare, basis, factor, key=key)
    return checks


def values_of(
    setting: AbstractExactSetting,
    world: GridWorld,
    true: Truth,
    moment: Moment,
    candidates: Float[Array, "policies stages states actions"],
) -> tuple[Float[Array, "values 2"], Float[Array, "values 2"]]:
    """(J, Σₙ) of the candidates and last of πₙ, in the truth and under μₙ."""
    rewards = jnp.stack([true.reward, bonus(world, moment.now)], axis=-1)

    def value(policy: Policy) -> tuple[Array, Array]:
        def under(transition: Transition) -> Array:
            return setting.performance(world, transition, rewards, policy)

        return under(true.transition), under(moment.model)

    # Not vmap: a batch of linear solves inside a scan can deadlock XLA's thread pool on a CPU.
    in_truth, in_model = jax.tree.map(
        lambda many, one: jnp.concatenate([many, one[None]]), jax.lax.map(value, candidates), value(moment.planned)
    )
    return in_truth, in_model
