"""MPPI (Williams et al. 2017): every candidate counts, weighted by the exponential of its return."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from annotated_types import Ge, Gt, Interval
from jaxtyping import Array, Float, Int, Key

from sombrl.config.check import Configuration
from sombrl.config.kinds import Advice
from sombrl.controllers.base import AbstractController, Watch
from sombrl.controllers.horizon_value import HorizonValue, ValueFit
from sombrl.controllers.icem import shift, weighted_moments
from sombrl.controllers.limits import best_class
from sombrl.controllers.noise import sample_plans
from sombrl.controllers.rollout import AbstractPlanValue, better_start, score_candidates, watch, within_budget
from sombrl.exploration.base import ImaginedMDP
from sombrl.records import State
from sombrl.replay import Replay


@dataclass(frozen=True)
class MPPIConfig(Configuration, prefix="mppi"):
    """The knobs of MPPI. The defaults cost as much as the `light` preset of iCEM."""

    num_samples: Annotated[int, Ge(1)] = 200
    """Candidates per iteration."""
    iterations: Annotated[int, Ge(1)] = 4
    """Updates per decision."""
    horizon: Annotated[int, Ge(1)] = 20
    """Decisions looked ahead."""
    particles: Annotated[int, Ge(1)] = 5
    """Imagined futures per candidate; where imagination is deterministic it is always 1."""
    init_std: Annotated[float, Ge(0)] = 0.5
    """Standard deviation of the noise at the start of each decision; actions span [-1, 1]."""
    noise_exponent: Annotated[float, Ge(0)] = 0.25
    """Power spectrum f^-exponent of the noise along time; 0 is white."""
    temperature: Annotated[float, Gt(0), Advice("for the best candidate alone use iCEM")] = 0.3
    """In standard deviations of the scores, so that it means the same at every scale of reward."""
    std_update: Annotated[float, Interval(ge=0, le=1)] = 0.5
    """Share of the weighted samples' variance in the new variance; 0 is plain MPPI."""


class MPPIState(eqx.Module):
    """What one decision passes to the next, and its statistics."""

    plan: Float[Array, "horizon plan"]  # the warm start, already shifted by one
    num_nan: Int[Array, ""]  # candidates of the last decision without a finite return
    planned_return: Float[Array, ""]  # the best return of the last decision; -inf if no candidate had one
    value: AbstractPlanValue | None = None


def softmax_weights(scores: Float[Array, " batch"], temperature: float) -> Float[Array, " batch"]:
    """exp((score - best)/(temperature · std of the scores)), normalised; a score of -inf weighs nothing.

    With no finite score at all every weight is zero.
    """
    finite = jnp.isfinite(scores)
    count = jnp.maximum(jnp.sum(finite, dtype=jnp.float32), 1.0)
    # Centred on the best: the differences are small numbers even where the scores are large ones.
    gaps = jnp.where(finite, scores - jnp.max(jnp.where(finite, scores, -jnp.inf)), 0.0)
    centred = jnp.where(finite, gaps - jnp.sum(gaps) / count, 0.0)
    std = jnp.sqrt(jnp.sum(centred**2) / count)
    # Equal scores have no std and no gaps: 0/tiny = 0, and the weights are uniform.
    scale = jnp.maximum(temperature * std, jnp.finfo(jnp.float32).tiny)
    weights = jnp.where(finite, jnp.exp(gaps / scale), 0.0)
    return weights / jnp.maximum(jnp.sum(weights), 1.0)  # the best weighs 1, so the sum is above that, or 0


class MPPI(AbstractController):
    """Replans at every decision; all that is learned is the value beyond the horizon, if there is to be one."""

    config: MPPIConfig = eqx.field(static=True, default_factory=MPPIConfig)
    value: ValueFit | None = eqx.field(static=True, default=None)

    @property
    def learns_from_data(self) -> bool:
        """Whether there is a value beyond the horizon."""
        return self.value is not None

    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> MPPIState:
        """Nothing planned: the warm start is doing nothing."""
        return MPPIState(
            plan=jnp.zeros((self.config.horizon, mdp.action_dim), jnp.float32),
            num_nan=jnp.zeros((), jnp.int32),
            planned_return=jnp.full((), -jnp.inf, jnp.float32),
            value=None if self.value is None else self.value.init(),
        )

    def begin_episode(self, state: MPPIState, mdp: ImaginedMDP) -> MPPIState:
        """Forget the warm start: the system is somewhere else now."""
        value = None if state.value is None else state.value.begin_episode()
        return replace(state, plan=jnp.zeros_like(state.plan), value=value)

    def improve(
        self, state: MPPIState, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[MPPIState, dict[str, Float[Array, ""]]]:
        """Fit the value beyond the horizon."""
        if self.value is None or not isinstance(state.value, HorizonValue):
            return state, {}
        return replace(state, value=self.value.improve(state.value, mdp, replay, key=key)), {}

    def act(
        self, state: MPPIState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], MPPIState]:
        """Average the candidates, and take the first action of the average."""
        config = self.config
        noise_key, particle_key = jr.split(key)
        first, score = state.plan, jnp.full((), -jnp.inf, jnp.float32)
        if state.value is not None:
            options: dict[str, Any] = {"particles": config.particles, "key": jr.clone(particle_key)}
            first, score = better_start(mdp, belief, first, state.value, **options)

        def iterate(i: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            mean, variance, best_score, num_nan, best = carry
            key = jr.fold_in(noise_key, i)
            plans = sample_plans(mean, jnp.sqrt(variance), config.num_samples, config.noise_exponent, key=key)
            # Cloned, i.e. reused on purpose: all iterations of a decision use the same random numbers.
            particles_key = jr.clone(particle_key)
            options: dict[str, Any] = {"particles": config.particles, "key": particles_key}
            scores = score_candidates(mdp, belief, plans, value=state.value, **options)
            finite = jnp.isfinite(scores)
            compared = scores if best is None else best_class(scores)
            new_mean, new_variance = weighted_moments(plans, softmax_weights(compared, config.temperature))
            found = jnp.any(finite)  # otherwise the search keeps its distribution
            update = jnp.where(found, config.std_update, 0.0).astype(jnp.float32)
            if best is not None:
                best = jnp.where(jnp.max(scores) > best_score, plans[jnp.argmax(scores)], best)
            return (
                jnp.where(found, new_mean, mean),
                (1.0 - update) * variance + update * new_variance,
                jnp.maximum(best_score, jnp.max(scores)),
                num_nan + jnp.sum(~finite, dtype=jnp.int32),
                best,
            )

        start = (
            first,
            jnp.full_like(first, config.init_std**2),
            score,
            jnp.zeros((), jnp.int32),
            None if mdp.limit is None else first,
        )
        plan, _, best_score, num_nan, best = jax.lax.fori_loop(0, config.iterations, iterate, start)
        if best is not None:
            plan = within_budget(mdp, belief, plan, best, particles=config.particles, key=jr.clone(particle_key))
        value = None if state.value is None else state.value.after_decision()
        return plan[0], MPPIState(shift(plan), num_nan, best_score, value)

    def act_watched(
        self, state: MPPIState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], MPPIState, Watch]:
        """The plan's own cost is what is foreseen."""
        act_key, watch_key = jr.split(key)
        action, new = self.act(state, mdp, belief, key=act_key)
        plan = jnp.concatenate([action[None], new.plan[:-1]])  # before it was shifted
        return action, new, watch(mdp, belief, plan, particles=self.config.particles, key=watch_key)
