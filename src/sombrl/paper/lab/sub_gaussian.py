"""The optimism lemma for sub-Gaussian noise, where one plans under fₙ, the mean projected to ‖f‖_k <= B.

λₙ then needs Lipschitz constants, all of them known here: of the reward from its bumps, of the policies by their
making, of f* and fₙ alike from the kernel and B. "Planned" is the best of the random policies, for a table found by
dynamic programming is not Lipschitz.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.gp import Evidence, gram, posterior
from sombrl.paper.lab.lemma import Check, check, lemma_on_systems
from sombrl.paper.lab.policies import LIPSCHITZ, random_policy
from sombrl.paper.lab.rows import LabRow
from sombrl.paper.lab.settings import ExactFiniteHorizon
from sombrl.paper.lab.systems import GridWorld, random_system
from sombrl.paper.lab.tables import bonus, confidence, truth
from sombrl.paper.lab.trajectory import Observations, rollout
from sombrl.theory import bonus_weight, project
from sombrl.theory.rkhs import shrink

NAME = "sub-gaussian"


def sub_gaussian_optimism(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    env: str,
    *,
    systems: int,
    episodes: int,
    policies: int = 24,
    factor: float = 1.0,
    seed: int = 0,
) -> list[LabRow]:
    """Rows about the lemma, as `optimism` makes them, for plans under fₙ."""
    sizes = {"systems": systems, "episodes": episodes, "policies": policies}
    return lemma_on_systems(_watch, setting, NAME, world, env, **sizes, factor=factor, seed=seed)


def _watch(
    setting: ExactFiniteHorizon,
    world: GridWorld,
    episodes: int,
    policies: int,
    basis: Float[Array, "inputs features"],
    factor: Float[Array, ""],
    *,
    key: Key[Array, ""],
) -> Check:
    """The lemma on one system with sub-Gaussian noise: plans under fₙ, over Lipschitz policies."""
    system_key, policy_key, run_key = jr.split(key, 3)
    system = random_system(world, key=system_key)
    true = truth(world, system)
    candidates = jax.vmap(lambda key: random_policy(world.grid, key=key))(jr.split(policy_key, policies))
    horizon, capacity = setting.horizon, setting.horizon * (episodes + 1)
    inputs = world.scaled

    def episode(
        carry: tuple[Evidence, Observations], step: tuple[Array, Array]
    ) -> tuple[tuple[Evidence, Observations], Check]:
        evidence, memory = carry
        n, key = step
        now = posterior(basis, evidence)
        width = confidence(world, now)
        weight = factor * bonus_weight.sub_gaussian(
            width,
            horizon=horizon,
            state_dim=world.grid.state_dim,
            reward_lipschitz=system.reward_lipschitz(),
            policy_lipschitz=LIPSCHITZ,
            dynamics_lipschitz=world.lipschitz,
        )
        model = world.transition(projected(inputs, memory, world.noise.size, world.norm_bound))
        rewards = jnp.stack([true.reward, bonus(world, now)], axis=-1)

        def value(where: Array, rewards: Array = rewards) -> Array:
            return jnp.asarray(jax.vmap(lambda policy: setting.performance(world, where, rewards, policy))(candidates))

        in_truth, in_model = value(true.transition), value(model)
        best = jnp.argmax(in_model[:, 0] + weight * in_model[:, 1])
        start = jnp.asarray(world.grid.middle, jnp.int32)
        _, seen = rollout(
            world, true.residual, candidates[best], start, jnp.asarray(horizon, jnp.int32), horizon, key=key
        )
        memory = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, n * horizon, 0), memory, seen
        )
        in_truth, in_model = (jnp.concatenate([each, each[best][None]]) for each in (in_truth, in_model))
        checked = check(true, now, width, weight, in_truth, in_model)
        return (evidence.add(basis, *seen, world.noise.size), memory), checked

    empty = Observations(
        jnp.zeros(capacity, jnp.int32),
        jnp.zeros((capacity, world.grid.state_dim), jnp.float64),
        jnp.zeros(capacity, bool),
    )
    first = Evidence.none(basis.shape[1], world.grid.state_dim), empty
    steps = jnp.arange(episodes + 1, dtype=jnp.int32), jr.split(run_key, episodes + 1)
    checks: Check
    _, checks = jax.lax.scan(episode, first, steps)
    return checks


def bounded_mean(
    basis: Float[Array, "inputs features"], evidence: Evidence, norm_bound: float
) -> Float[Array, "inputs state"]:
    """fₙ at every input of the grid, as `projected` has it, at a cost that does not grow with the data.

    For f = Φw on the grid ‖f‖_k = ‖w‖ and ‖f‖²_{kₙ} = wᵀAw. The nearest w to the posterior's is in the span of the data
    by itself, for A and the constraint both leave that span alone; so it is the fₙ of the paper.
    """
    stiffness, vectors = jnp.linalg.eigh(evidence.precision)
    weights = (vectors.T @ evidence.moment) / stiffness[:, None]
    ones = jnp.ones_like(stiffness)
    shrunk = jax.lax.map(lambda column: shrink(column, ones, stiffness, norm_bound), weights.T)
    values: Array = basis @ (vectors @ shrunk.T)
    return values


def projected(
    inputs: Float[Array, "inputs input"], memory: Observations, noise_std: float, norm_bound: float
) -> Float[Array, "inputs state"]:
    """fₙ at every input of the grid. Rows that hold no data have a zero row in the Gram matrix and drop out."""
    both = memory.mask[:, None] & memory.mask[None, :]
    seen = inputs[memory.places]
    kernel = jnp.where(both, gram(seen, seen), 0.0)
    noisy = kernel + noise_std**2 * jnp.eye(memory.mask.shape[0], dtype=inputs.dtype)
    alpha = jnp.linalg.solve(noisy, jnp.where(memory.mask[:, None], memory.targets, 0.0))
    alpha = jax.lax.map(lambda column: project(kernel, column, noise_std, norm_bound), alpha.T)
    values: Array = jnp.where(memory.mask[None, :], gram(inputs, seen), 0.0) @ alpha.T
    return values
