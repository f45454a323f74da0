"""SOMBRL's own run on one system, and whatever is looked at before each of its episodes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from sombrl.paper.lab.gp import Evidence, GridPosterior, posterior
from sombrl.paper.lab.planner import Policy, Transition
from sombrl.paper.lab.settings import AbstractExactSetting
from sombrl.paper.lab.systems import GridWorld, System
from sombrl.paper.lab.tables import Truth, bonus, confidence, truth
from sombrl.paper.lab.trajectory import rollout


class Moment(NamedTuple):
    """What is known before an episode, and what is about to be done in it."""

    now: GridPosterior
    width: Float[Array, ""]  # βₙ
    weight: Float[Array, ""]  # λₙ
    model: Transition  # under μₙ
    planned: Policy  # πₙ


Look = Callable[[Moment], Any]
Prepare = Callable[[Truth, Key[Array, ""]], Look]
"""What is computed once for a system: (truth, a key of its own) -> what is looked at."""
ConstantOf = Callable[[AbstractExactSetting, GridWorld, Truth], Float[Array, ""]]


def any_policys_constant(setting: AbstractExactSetting, world: GridWorld, true: Truth) -> Float[Array, ""]:
    """The setting's own constant, which holds for every policy."""
    return setting.constant(world, true.transition, true.reward)


def along(
    setting: AbstractExactSetting,
    world: GridWorld,
    draw: Callable[..., System],
    episodes: int,
    prepare: Prepare,
    basis: Float[Array, "inputs features"],
    factor: Float[Array, ""],
    *,
    key: Key[Array, ""],
    constant_of: ConstantOf = any_policys_constant,
) -> Any:
    """What `prepare(truth, key)` sees for n = 0 … episodes, stacked; λₙ is `factor` times that of the theory."""
    system_key, look_key, run_key = jr.split(key, 3)
    true = truth(world, draw(world, key=system_key))
    constant = constant_of(setting, world, true)
    look = prepare(true, look_key)

    def episode(carry: tuple[Evidence, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Evidence, Array], Any]:
        evidence, state = carry
        length, key = inputs
        now = posterior(basis, evidence)
        width = confidence(world, now)
        weight = factor * setting.bonus_weight(width, world, constant)
        model = world.transition(now.mean)
        planned = setting.plan(model, true.reward + weight * bonus(world, now))
        seen_here = look(Moment(now, width, weight, model, planned))
        start = jnp.asarray(world.grid.middle, jnp.int32)
        state, seen = rollout(
            world, true.residual, planned, start if setting.resets else state, length, longest, key=key
        )
        return (evidence.add(basis, *seen, world.noise.size), state), seen_here

    # One look more after the last episode, so there is one more length than episodes.
    lengths = setting.lengths(episodes + 1)
    longest = max(lengths)
    first = Evidence.none(basis.shape[1], world.grid.state_dim), jnp.asarray(world.grid.middle, jnp.int32)
    _, everything = jax.lax.scan(episode, first, (jnp.asarray(lengths, jnp.int32), jr.split(run_key, episodes + 1)))
    return everything
