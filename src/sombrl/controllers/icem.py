"""iCEM (Pinneri et al. 2020): the cross-entropy method with coloured noise, kept elites and a warm start."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from annotated_types import Ge, Interval
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.config.check import Configuration
from sombrl.controllers.base import AbstractController, Watch
from sombrl.controllers.horizon_value import HorizonValue, ValueFit
from sombrl.controllers.noise import sample_plans
from sombrl.controllers.rollout import AbstractPlanValue, better_start, score_candidates, watch, within_budget
from sombrl.exploration.base import ImaginedMDP
from sombrl.records import SombrlError, State
from sombrl.replay import Replay


@dataclass(frozen=True)
class ICEMConfig(Configuration, prefix="icem"):
    """The knobs of iCEM. The defaults are the `light` preset: two CPU cores."""

    num_samples: Annotated[int, Ge(1)] = 200
    """Fresh candidates per iteration."""
    num_elites: Annotated[int, Ge(1)] = 20
    """The search distribution is refitted to this many; a tenth of the samples is usual."""
    iterations: Annotated[int, Ge(1)] = 4
    """Refits per decision."""
    horizon: Annotated[int, Ge(1)] = 20
    """Decisions looked ahead."""
    particles: Annotated[int, Ge(1)] = 5
    """Imagined futures per candidate; where imagination is deterministic it is always 1."""
    init_std: Annotated[float, Ge(0)] = 0.5
    """Standard deviation of the noise at the start of each decision; actions span [-1, 1]."""
    momentum: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """Share of the old mean and variance in the new ones; 1 never refits (random shooting)."""
    noise_exponent: Annotated[float, Ge(0)] = 0.25
    """Power spectrum f^-exponent of the noise along time; 0 is white."""
    keep_fraction: Annotated[float, Interval(ge=0, le=1)] = 0.3
    """Share of the elites that compete again in the next iteration."""
    shift_elites: bool = True
    """Whether they compete in the next decision too, shifted by one."""
    population_decay: Annotated[float, Ge(1)] = 1.0
    """Iteration i draws samples/decay^i; above 1 it compiles slowly, because it is unrolled."""
    execute: Literal["best", "mean"] = "best"
    """Execute the best plan ever scored, or the mean of the last elites."""

    def refuse_combinations(self) -> None:
        """No more elites than samples."""
        if self.num_elites > self.num_samples:
            raise SombrlError(
                f"--icem.num-elites {self.num_elites} must not exceed --icem.num-samples {self.num_samples}; a tenth "
                "of the samples is usual."
            )

    @property
    def kept(self) -> int:
        """How many elites are carried. Rounded first: 0.3 · 10 is a little less than 3 in binary."""
        return math.floor(round(self.keep_fraction * self.num_elites, 6))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Fresh candidates in each iteration, at least twice the elites where there are as many samples."""
        fewest = min(self.num_samples, 2 * self.num_elites)
        decayed = (int(self.num_samples / self.population_decay**i) for i in range(self.iterations))
        return tuple(max(n, fewest) for n in decayed)


PRESETS: dict[str, ICEMConfig] = {
    "light": ICEMConfig(),
    # The published nonepisodic GP runs (opax). They do not carry elites from one decision to the next.
    "pendulum": ICEMConfig(num_samples=500, num_elites=50, iterations=10, horizon=20, shift_elites=False),
    "mountain-car": ICEMConfig(num_samples=1000, num_elites=100, iterations=5, horizon=50, shift_elites=False),
}
PRESET_FIELDS: dict[str, dict[str, Any]] = {
    name: {f"{ICEMConfig.prefix}.{field}": value for field, value in asdict(numbers).items()}
    for name, numbers in PRESETS.items()
}
"""The presets by the names of the settings of a run ("icem.horizon")."""


class ICEMState(eqx.Module):
    """What one decision passes to the next, already shifted by one, and its statistics."""

    plan: Float[Array, "horizon plan"]  # the warm start
    elites: Float[Array, "kept horizon plan"]  # best first
    valid: Bool[Array, " kept"]  # which of them were really scored; the others must not compete
    num_nan: Int[Array, ""]  # candidates of the last decision without a finite return
    planned_return: Float[Array, ""]  # the best return of the last decision; -inf if no candidate had one
    value: AbstractPlanValue | None = None


class _Search(eqx.Module):
    """What one iteration passes to the next."""

    mean: Float[Array, "horizon plan"]
    variance: Float[Array, "horizon plan"]
    elites: Float[Array, "kept horizon plan"]
    valid: Bool[Array, " kept"]
    best: Float[Array, "horizon plan"]
    best_score: Float[Array, ""]
    num_nan: Int[Array, ""]


def shift(plan: Float[Array, "horizon plan"]) -> Float[Array, "horizon plan"]:
    """The same plan one decision later: the first action is spent, the last one repeated."""
    return jnp.concatenate([plan[1:], plan[-1:]])


def weighted_moments(
    plans: Float[Array, "batch horizon plan"], weights: Float[Array, " batch"]
) -> tuple[Float[Array, "horizon plan"], Float[Array, "horizon plan"]]:
    """The mean and variance of plans whose weights sum to 1."""

    def average(values: Array) -> Array:  # "highest": a GPU would use TF32, of three digits
        return jnp.einsum("b,bhp->hp", weights, values, precision="highest")

    mean = average(plans)
    return mean, average((plans - mean[None]) ** 2)


class ICEM(AbstractController):
    """Replans at every decision; all that is learned is the value beyond the horizon, if there is to be one."""

    config: ICEMConfig = eqx.field(static=True, default_factory=ICEMConfig)
    value: ValueFit | None = eqx.field(static=True, default=None)

    @property
    def learns_from_data(self) -> bool:
        """Whether there is a value beyond the horizon."""
        return self.value is not None

    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> ICEMState:
        """Nothing planned: the warm start is doing nothing, and no elites compete."""
        plan = jnp.zeros((self.config.horizon, mdp.action_dim), jnp.float32)
        return ICEMState(
            plan=plan,
            elites=jnp.zeros((self.config.kept, *plan.shape), jnp.float32),
            valid=jnp.zeros(self.config.kept, bool),
            num_nan=jnp.zeros((), jnp.int32),
            planned_return=jnp.full((), -jnp.inf, jnp.float32),
            value=None if self.value is None else self.value.init(),
        )

    def begin_episode(self, state: ICEMState, mdp: ImaginedMDP) -> ICEMState:
        """Forget the warm start and the elites: the system is somewhere else now."""
        return ICEMState(
            plan=jnp.zeros_like(state.plan),
            elites=jnp.zeros_like(state.elites),
            valid=jnp.zeros_like(state.valid),
            num_nan=state.num_nan,
            planned_return=state.planned_return,
            value=None if state.value is None else state.value.begin_episode(),
        )

    def improve(
        self, state: ICEMState, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[ICEMState, dict[str, Float[Array, ""]]]:
        """Fit the value beyond the horizon."""
        if self.value is None or not isinstance(state.value, HorizonValue):
            return state, {}
        return replace(state, value=self.value.improve(state.value, mdp, replay, key=key)), {}

    def act(
        self, state: ICEMState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], ICEMState]:
        """Search, and take the first action of the plan that was found."""
        config = self.config
        noise_key, particle_key = jr.split(key)
        search = self._begin(state, mdp, belief, particle_key)
        if config.population_decay == 1:

            def body(i: Any, search: _Search) -> _Search:
                key = jr.fold_in(noise_key, i)
                return self._iterate(search, mdp, belief, state.value, config.num_samples, key, particle_key)

            search = jax.lax.fori_loop(0, config.iterations, body, search)
        else:  # the sizes differ, so that the loop must be unrolled
            for i, size in enumerate(config.sizes):
                search = self._iterate(search, mdp, belief, state.value, size, jr.fold_in(noise_key, i), particle_key)

        plan = search.best
        if config.execute == "mean":
            options: dict[str, Any] = {"particles": config.particles, "key": jr.clone(particle_key)}
            plan = within_budget(mdp, belief, search.mean, search.best, **options)
        return plan[0], ICEMState(
            plan=shift(plan),
            elites=jax.vmap(shift)(search.elites),
            valid=search.valid if config.shift_elites else jnp.zeros_like(search.valid),
            num_nan=search.num_nan,
            planned_return=search.best_score,
            value=None if state.value is None else state.value.after_decision(),
        )

    def act_watched(
        self, state: ICEMState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], ICEMState, Watch]:
        """The plan's own cost is what is foreseen."""
        act_key, watch_key = jr.split(key)
        action, new = self.act(state, mdp, belief, key=act_key)
        plan = jnp.concatenate([action[None], new.plan[:-1]])  # before it was shifted
        return action, new, watch(mdp, belief, plan, particles=self.config.particles, key=watch_key)

    def progress(
        self, state: ICEMState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> Float[Array, " iterations"]:
        """The best return after each iteration of the search that `act` makes with the same key."""
        if self.config.population_decay != 1:
            raise SombrlError("the progress of a search is for constant populations: use population_decay=1.")
        noise_key, particle_key = jr.split(key)

        def body(search: _Search, i: Int[Array, ""]) -> tuple[_Search, Float[Array, ""]]:
            key = jr.fold_in(noise_key, i)
            search = self._iterate(search, mdp, belief, state.value, self.config.num_samples, key, particle_key)
            return search, search.best_score

        iterations = jnp.arange(self.config.iterations, dtype=jnp.int32)
        _, best = jax.lax.scan(body, self._begin(state, mdp, belief, particle_key), iterations)
        return best

    def _begin(self, state: ICEMState, mdp: ImaginedMDP, belief: State, particle_key: Key[Array, ""]) -> _Search:
        """The search before its first iteration: around the warm start, or what the value proposes if better."""
        plan, score = state.plan, jnp.full((), -jnp.inf, jnp.float32)
        if state.value is not None:
            key = jr.clone(particle_key)
            plan, score = better_start(mdp, belief, plan, state.value, particles=self.config.particles, key=key)
        return _Search(
            mean=plan,
            variance=jnp.full_like(plan, self.config.init_std**2),
            elites=state.elites,
            valid=state.valid,
            best=plan,  # if every candidate is NaN, the old plan is kept: it is finite
            best_score=score,
            num_nan=jnp.zeros((), jnp.int32),
        )

    def _iterate(
        self,
        search: _Search,
        mdp: ImaginedMDP,
        belief: State,
        value: AbstractPlanValue | None,
        size: int,
        noise_key: Key[Array, ""],
        particle_key: Key[Array, ""],
    ) -> _Search:
        """Sample, score, refit to the elites."""
        config = self.config
        fresh = sample_plans(search.mean, jnp.sqrt(search.variance), size, config.noise_exponent, key=noise_key)
        plans = jnp.concatenate([fresh, search.elites])
        competes = jnp.concatenate([jnp.ones(size, bool), search.valid])
        # Cloned, i.e. reused on purpose: all iterations of a decision use the same random numbers, so that
        # the plan with the best score is the best plan and not one with favourable noise.
        particles_key = jr.clone(particle_key)
        scores = score_candidates(mdp, belief, plans, particles=config.particles, value=value, key=particles_key)
        num_nan = jnp.sum(competes & ~jnp.isfinite(scores), dtype=jnp.int32)
        scores = jnp.where(competes, scores, -jnp.inf)

        top_scores, top = jax.lax.top_k(scores, config.num_elites)
        elites = plans[top]
        finite = jnp.isfinite(top_scores)  # with fewer finite scores than elites, the rest are not elites
        count = jnp.sum(finite, dtype=jnp.float32)
        mean, variance = weighted_moments(elites, finite.astype(jnp.float32) / jnp.maximum(count, 1.0))
        old = jnp.where(count > 0, config.momentum, 1.0).astype(jnp.float32)
        better = top_scores[0] > search.best_score
        return _Search(
            mean=old * search.mean + (1.0 - old) * mean,
            variance=old * search.variance + (1.0 - old) * variance,
            elites=elites[: config.kept],
            valid=finite[: config.kept],
            best=jnp.where(better, elites[0], search.best),
            best_score=jnp.where(better, top_scores[0], search.best_score),
            num_nan=search.num_nan + num_nan,
        )


def cem(config: ICEMConfig = PRESETS["light"], value: ValueFit | None = None) -> ICEM:
    """The plain cross-entropy method of that size: white noise, no elites kept, and the mean is executed."""
    return ICEM(
        replace(
            config,
            noise_exponent=0.0,
            keep_fraction=0.0,
            shift_elites=False,
            population_decay=1.0,
            execute="mean",
        ),
        value,
    )
