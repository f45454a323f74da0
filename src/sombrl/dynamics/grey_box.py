"""A simulator fitted to the data, alone (system identification) or with networks for what it gets wrong (grey box).

The alternative to a simulator as a prior: one set of parameters, without uncertainty about them.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from annotated_types import Ge, Gt
from jaxtyping import Array, Float, Key, PyTree
from typing_extensions import override

from sombrl.config.check import Configuration
from sombrl.dynamics.base import AbstractLearner, AbstractVectorDynamics
from sombrl.dynamics.coordinates import AbstractCoordinates
from sombrl.dynamics.measurement import Rows
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particle_learner import INITIAL_NOISE, ParticleLearner, ParticleState
from sombrl.dynamics.particles import ParticleDynamics, Statistics, noise_std, raw_noise
from sombrl.dynamics.sim_prior import AbstractSimulator, simulator_statistics
from sombrl.records import Prediction
from sombrl.replay import Replay

SPREAD_DRAWS = 256  # parameters whose std is the unit of a parameter's step


@dataclasses.dataclass(frozen=True)
class GreyBoxConfig(Configuration, prefix="system"):
    """How a simulator's parameters are fitted."""

    steps: Annotated[int, Ge(1)] = 10_000
    """Gradient steps of a fit."""
    learning_rate: Annotated[float, Gt(0)] = 1e-3
    """Adam's. A parameter's unit is the std of its prior, so one that the prior fixes stays fixed."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Transitions per step, drawn with replacement."""
    residual: bool = True
    """Networks learn what the fitted simulator gets wrong (grey box); otherwise it is all there is."""


class Residual(AbstractCoordinates):
    """Coordinates whose targets are the residuals of a simulator with known parameters."""

    inner: AbstractCoordinates
    simulator: AbstractSimulator
    parameters: PyTree

    @property
    @override
    def input_dim(self) -> int:
        return self.inner.input_dim

    @property
    @override
    def target_dim(self) -> int:
        return self.inner.target_dim

    def simulated(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, " target"]:
        """The simulator's target."""
        return self.simulator(self.parameters, self.inner.inputs(obs, action))

    @override
    def inputs(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Float[Array, " input"]:
        return self.inner.inputs(obs, action)

    def targets(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], next_obs: Float[Array, " obs"]
    ) -> Float[Array, " target"]:
        """The residual: what the simulator gets wrong."""
        return self.inner.targets(obs, action, next_obs) - self.simulated(obs, action)

    def next_obs(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], target: Float[Array, " target"]
    ) -> Float[Array, " obs"]:
        """The residual plus the simulator's prediction."""
        return self.inner.next_obs(obs, action, target + self.simulated(obs, action))

    def spread(self, obs: Float[Array, " obs"], std: Float[Array, " target"]) -> Float[Array, " obs"]:
        """Of the residual alone: the simulator is certain."""
        return self.inner.spread(obs, std)


class SystemDynamics(AbstractVectorDynamics):
    """A fitted simulator and its noise; σ = 0."""

    coordinates: Residual
    raw_noise: Float[Array, " target"]
    statistics: Statistics

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """The simulator's prediction."""
        nothing = jnp.zeros_like(self.statistics.y_std)
        scale = self.coordinates.spread(state, self.statistics.y_std)
        return Prediction(
            mean=self.coordinates.next_obs(state, action, nothing),
            epistemic_std=jnp.zeros_like(state),
            aleatoric_std=self.coordinates.spread(state, noise_std(self.raw_noise) * self.statistics.y_std),
            scale=jnp.where(scale > 0, scale, 1.0),
        )


class GreyBoxState(eqx.Module):
    """The fitted simulator, and the networks beside it."""

    parameters: PyTree
    raw_noise: Float[Array, " target"]  # of the simulator alone, normalised
    statistics: Statistics
    residual: ParticleState | None


class GreyBoxLearner(AbstractLearner):
    """First the parameters by maximum likelihood, then FSVGD on the residuals.

    Targets are normalised on both sides of the likelihood by the simulator's own statistics.
    """

    double_precision: ClassVar[bool] = False
    coordinates: AbstractCoordinates
    simulator: AbstractSimulator
    system: GreyBoxConfig
    model: ParticleConfig  # of the residual
    statistics: Statistics | None = None  # default: the simulator's
    noise_std: Float[Array, " target"] | None = None  # at first, physical

    def init(self, *, key: Key[Array, ""]) -> GreyBoxState:
        """Parameters drawn from their prior, and untrained networks."""
        parameter_key, residual_key = jr.split(key)
        units = self.statistics
        if units is None:
            units = simulator_statistics(self.simulator, key=jr.key(0))  # the same units for every seed
        parameters = self.simulator.draw(key=parameter_key)
        residual = self._residual(parameters, units).init(key=residual_key) if self.system.residual else None
        return GreyBoxState(parameters, self._first_noise(units), units, residual)

    def fit(
        self, state: GreyBoxState, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[GreyBoxState, dict[str, Float[Array, ""]]]:
        """Fit both stages from scratch, or from the last fit if the model's configuration says so (`fresh`)."""
        start_key, identify_key, residual_key = jr.split(key, 3)
        units = state.statistics
        if self.model.fresh:
            state = GreyBoxState(self.simulator.draw(key=start_key), self._first_noise(units), units, state.residual)
        parameters, raw, metrics = self._identify(state, replay, key=identify_key)
        if state.residual is None:
            return GreyBoxState(parameters, raw, units, None), metrics
        residual, more = self._residual(parameters, units).fit(state.residual, replay, key=residual_key)
        return GreyBoxState(parameters, raw, units, residual), metrics | more

    def dynamics(self, state: GreyBoxState) -> ParticleDynamics | SystemDynamics:
        """The simulator, with its networks if it has them."""
        coordinates = Residual(self.coordinates, self.simulator, state.parameters)
        if state.residual is not None:
            return ParticleDynamics(state.residual.particles, coordinates)
        return SystemDynamics(coordinates, state.raw_noise, state.statistics)

    def task(self, state: GreyBoxState) -> None:
        """The environment's own."""
        return None

    def _first_noise(self, units: Statistics) -> Float[Array, " target"]:
        if self.noise_std is None:
            return raw_noise(jnp.full_like(units.y_std, INITIAL_NOISE))
        return raw_noise(self.noise_std / units.y_std)

    def _residual(self, parameters: PyTree, units: Statistics) -> ParticleLearner:
        """FSVGD in the units of the simulator, on its domain, around 0."""
        coordinates = Residual(self.coordinates, self.simulator, parameters)
        units = Statistics(units.x_mean, units.x_std, jnp.zeros_like(units.y_mean), units.y_std)
        return ParticleLearner(coordinates, self.model, None, units, self.noise_std, domain_of=self.simulator)

    def _identify(
        self, state: GreyBoxState, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[PyTree, Float[Array, " target"], dict[str, Float[Array, ""]]]:
        """Adam on parameters = start + spread · z and the noise; nothing moves while there are no data."""
        spread_key, train_key = jr.split(key)
        optimiser, units = optax.adam(self.system.learning_rate), state.statistics
        rows = Rows.of(replay, self.coordinates, self.model.period)
        movable, fixed = eqx.partition(state.parameters, eqx.is_inexact_array)
        draws = jax.vmap(lambda k: self.simulator.draw(key=k))(jr.split(spread_key, SPREAD_DRAWS))
        spread = jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), eqx.filter(draws, eqx.is_inexact_array))

        def parameters_at(z: PyTree) -> PyTree:
            moved = jax.tree.map(lambda first, unit, step: first + unit * step, movable, spread, z)
            return eqx.combine(moved, fixed)

        def loss(free: Any, chosen: Array) -> Float[Array, ""]:
            """The mean negative log-likelihood, everything normalised."""
            z, raw = free
            parameters, std = parameters_at(z), noise_std(raw)
            simulated = jax.vmap(lambda x: units.targets(self.simulator(parameters, x)))(rows.inputs[chosen])
            error = (jax.vmap(units.targets)(rows.targets[chosen]) - simulated) / std[None, :]
            return jnp.mean(jnp.sum(0.5 * error**2, axis=1)) + jnp.sum(jnp.log(std))

        def step(carry: tuple[Any, Any], key: Key[Array, ""]) -> tuple[tuple[Any, Any], Array]:
            free, memory = carry
            uniform = jr.uniform(key, (self.system.batch_size,), jnp.float32)
            value, gradient = jax.value_and_grad(loss)(free, rows.pick(uniform))
            # A gradient that is not finite is skipped: a simulator may break far from its prior.
            usable = (rows.training > 0) & jnp.all(
                jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(gradient)])
            )
            gradient = jax.tree.map(lambda leaf: jnp.where(usable, leaf, 0.0), gradient)
            with jax.numpy_dtype_promotion("standard"):  # optax relies on implicit promotion
                change, memory = optimiser.update(gradient, memory, free)
                return (optax.apply_updates(free, change), memory), jnp.where(usable, value, 0.0)

        free = jax.tree.map(jnp.zeros_like, movable), state.raw_noise
        carry = free, optimiser.init(free)
        ((z, raw), _), losses = jax.lax.scan(step, carry, jr.split(train_key, self.system.steps))
        return parameters_at(z), raw, {"model/system_nll": losses[-1], "model/noise": jnp.mean(noise_std(raw))}
