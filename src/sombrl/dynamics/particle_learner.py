"""The learner of particle Bayesian neural networks: SVGD, FSVGD, and SimFSVGD if it is given a simulator."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key

from sombrl.dynamics.base import AbstractLearner
from sombrl.dynamics.coordinates import AbstractCoordinates
from sombrl.dynamics.fsvgd import FunctionSpace
from sombrl.dynamics.measurement import Rows, Sampler
from sombrl.dynamics.particle_config import ParticleConfig
from sombrl.dynamics.particles import Network, ParticleDynamics, Particles, Statistics, raw_noise
from sombrl.dynamics.prior_score import AbstractFunctionPrior, EstimatorName, GaussianProcessPrior
from sombrl.dynamics.sim_prior import AbstractSimulator, AdditiveGP, SimulatorPrior, simulator_statistics
from sombrl.dynamics.svgd import AbstractInference, Metrics, WeightSpace
from sombrl.records import SombrlError
from sombrl.replay import Replay

INITIAL_NOISE = 0.2  # normalised, where none is given
DATA_FLOOR = 1e-3  # of a std taken from data, in their units: smaller variation is not amplified


class ParticleState(eqx.Module):
    """The state of a particle learner."""

    particles: Particles
    optimiser: Any


class ParticleLearner(AbstractLearner):
    """Gradient steps from a prior over functions to a posterior; without data, to the prior itself."""

    double_precision: ClassVar[bool] = False
    coordinates: AbstractCoordinates
    config: ParticleConfig
    simulator: AbstractSimulator | None = None  # the prior; without one it is a GP (FSVGD)
    statistics: Statistics | None = None  # default: the simulator's, or those of the data at every fit
    noise_std: Float[Array, " target"] | None = None  # at first, physical; default: 0.2 of the targets' std
    domain_of: AbstractSimulator | None = None  # whose domain is measured on, where it is not the prior's

    def __check_init__(self) -> None:
        """Refuse scales that do not fit the outputs."""
        scales, targets = self.config.additive_scales, self.coordinates.target_dim
        if scales is not None and len(scales) != targets:
            raise SombrlError(f"--model.additive-scales needs one number per output, {targets}, not {len(scales)}.")

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """AdamW, or Adam; the noise does not decay."""
        config = self.config
        if config.weight_decay == 0:
            return optax.adam(config.learning_rate)
        return optax.adamw(config.learning_rate, weight_decay=config.weight_decay, mask=(True, False))

    def init(self, *, key: Key[Array, ""]) -> ParticleState:
        """Untrained networks, which disagree by about one std of the targets; fitted to no data they are the prior."""
        coordinates, statistics = self.coordinates, self.statistics
        if statistics is None and self.simulator is not None:
            statistics = simulator_statistics(self.simulator, key=jr.key(0))  # the same units for every seed
        return self._start(statistics or Statistics.identity(coordinates.input_dim, coordinates.target_dim), key=key)

    def fit(
        self, state: ParticleState, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[ParticleState, dict[str, Float[Array, ""]]]:
        """`steps` gradient steps; the particles that predict the held-out rows best, of all checks, are kept."""
        config = self.config
        start_key, train_key = jr.split(key)
        rows = Rows.of(replay, self.coordinates, config.period)
        statistics = state.particles.statistics
        if self.statistics is None and self.simulator is None:
            statistics = _data_statistics(rows, replay.mask)
        if config.fresh:
            state = self._start(statistics, key=start_key)
        else:
            particles = Particles(state.particles.networks, state.particles.raw_noise, statistics)
            state = ParticleState(particles, state.optimiser)

        best, metrics = _Best.none(state.particles), Metrics()
        for estimator, steps in config.phases:
            phase_key, train_key = jr.split(train_key)
            state, best, metrics = self._train(state, best, rows, estimator, steps, key=phase_key)
        return ParticleState(best.particles, state.optimiser), metrics | best.metrics

    def dynamics(self, state: ParticleState) -> ParticleDynamics:
        """The posterior, ready to plan with."""
        return ParticleDynamics(state.particles, self.coordinates)

    def task(self, state: ParticleState) -> None:
        """The environment's own."""
        return None

    def inference(self, estimator: EstimatorName, statistics: Statistics) -> AbstractInference:
        """The rule by which particles are updated."""
        config, legacy = self.config, self.config.prior_scaling == "legacy"
        kernel = config.bandwidth, config.repulsion, config.likelihood_exponent
        if config.inference != "fsvgd":
            stds, together = (config.weight_prior_std, config.bias_prior_std), config.inference == "svgd"
            return WeightSpace(statistics, *kernel, *stds, legacy, together)
        return FunctionSpace(statistics, self.prior(estimator, statistics), *kernel, legacy)

    def prior(self, estimator: EstimatorName, statistics: Statistics) -> AbstractFunctionPrior:
        """The simulator, or a GP."""
        config = self.config
        if self.simulator is None:
            return GaussianProcessPrior(statistics, config.prior_lengthscale, config.prior_scale, config.resolution)
        additive = None
        if config.additive_scales is not None:
            additive = AdditiveGP(jnp.asarray(config.additive_scales, jnp.float32), config.additive_lengthscale)
        return SimulatorPrior(
            *(self.simulator, additive, statistics),
            functions=config.functions,
            estimator=estimator,
            resolution=config.resolution,
            draw_additive=config.draw_additive,
        )

    def sampler(self, statistics: Statistics) -> Sampler:
        """The sampler of batches and measurement points."""
        config = self.config
        points = config.measurement_points if config.inference == "fsvgd" else 0
        neighbours = round(config.neighbourhood_share * points)
        visited = min(round(config.visited_share * points), points - neighbours)
        return Sampler(
            *(self.coordinates, self.domain_of if self.simulator is None else self.simulator, statistics),
            batch_size=config.batch_size,
            neighbours=neighbours,
            visited=visited,
            elsewhere=points - neighbours - visited,
            width=config.neighbourhood_width,
        )

    def _start(self, statistics: Statistics, *, key: Key[Array, ""]) -> ParticleState:
        coordinates, config = self.coordinates, self.config

        def make(key: Key[Array, ""]) -> Network:
            sizes = coordinates.input_dim, config.hidden, coordinates.target_dim
            return Network(*sizes, config.activation, key=key)

        networks = eqx.filter_vmap(make)(jr.split(key, config.particles))
        normalised = jnp.full(coordinates.target_dim, INITIAL_NOISE, jnp.float32)
        if self.noise_std is not None:
            normalised = self.noise_std / statistics.y_std
        particles = Particles(networks, raw_noise(normalised), statistics)
        return ParticleState(particles, self.optimiser.init((networks, particles.raw_noise)))

    def _train(
        self,
        state: ParticleState,
        best: "_Best",
        rows: Rows,
        estimator: EstimatorName,
        steps: int,
        *,
        key: Key[Array, ""],
    ) -> tuple[ParticleState, "_Best", Metrics]:
        """Steps with one estimator, in chunks between two checks of the held-out rows."""
        statistics = state.particles.statistics
        inference, sampler = self.inference(estimator, statistics), self.sampler(statistics)

        def step(carry: tuple[Any, ...], key: Key[Array, ""]) -> tuple[tuple[Any, ...], Metrics]:
            networks, raw, memory = carry
            batch_key, prior_key = jr.split(key)
            batch = sampler(rows, key=batch_key)
            *gradient, metrics = inference.gradient(networks, raw, batch, key=prior_key)
            if not self.config.learn_noise:
                gradient[1] = jnp.zeros_like(raw)
            with jax.numpy_dtype_promotion("standard"):  # optax relies on implicit promotion
                change, memory = self.optimiser.update(tuple(gradient), memory, (networks, raw))
                networks, raw = optax.apply_updates((networks, raw), change)
            return (networks, raw, memory), metrics

        def chunk(carry: tuple[Any, _Best], piece: tuple[Array, Array]) -> tuple[tuple[Any, _Best], Metrics]:
            (state, best), (length, key) = carry, piece
            start = (state.particles.networks, state.particles.raw_noise, state.optimiser)
            shapes = jax.eval_shape(step, start, key)[1]
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

            def one(i: Any, inner: tuple[Any, Metrics]) -> tuple[Any, Metrics]:
                return step(inner[0], jr.fold_in(key, i))

            (networks, raw, memory), metrics = jax.lax.fori_loop(0, length, one, (start, nothing))
            state = ParticleState(Particles(networks, raw, statistics), memory)
            return (state, best.or_better(state.particles, rows)), metrics

        every = min(self.config.check_every, steps)
        lengths = np.full(-(-steps // every), every, np.int32)
        lengths[-1] = steps - every * (len(lengths) - 1)
        pieces = jnp.asarray(lengths), jr.split(key, len(lengths))
        (state, best), metrics = jax.lax.scan(chunk, (state, best), pieces)
        return state, best, jax.tree.map(lambda leaf: leaf[-1], metrics)


class _Best(eqx.Module):
    """The best particles so far, and their metrics."""

    particles: Particles
    metrics: Metrics

    @staticmethod
    def none(particles: Particles) -> "_Best":
        """The start: any finite result is better."""
        worst = {"model/held_out_nll": jnp.inf, "model/held_out_rmse": jnp.inf, "model/noise": 0.0}
        return _Best(particles, {name: jnp.asarray(value, jnp.float32) for name, value in worst.items()})

    def or_better(self, particles: Particles, rows: Rows) -> "_Best":
        """The better of these and the new particles on held-out rows; the new ones if nothing is held out."""
        new = _Best(particles, judged(particles, rows))
        leaves = jax.tree.leaves(new)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
        wins = finite & (new.metrics["model/held_out_nll"] <= self.metrics["model/held_out_nll"])
        better: _Best = jax.tree.map(lambda new, old: jnp.where(wins, new, old), new, self)
        return better


def judged(particles: Particles, rows: Rows) -> Metrics:
    """How well held-out rows are predicted, physical units, outputs summed; 0 where there are none."""
    held = rows.held_out
    mask = held < rows.count
    number = jnp.maximum(jnp.sum(mask.astype(jnp.float32)), 1.0)

    def judge(x: Array, y: Array) -> tuple[Array, Array]:
        error = y - particles.statistics.physical(jnp.mean(particles(x), axis=0))
        return particles.log_density(x, y), jnp.sum(error**2)

    densities, errors = jax.vmap(judge)(rows.inputs[held], rows.targets[held])
    return {
        "model/held_out_nll": -jnp.sum(jnp.where(mask, densities, 0.0)) / number,
        "model/held_out_rmse": jnp.sqrt(jnp.sum(jnp.where(mask, errors, 0.0)) / number),
        "model/noise": jnp.mean(particles.noise_std),
    }


def _data_statistics(rows: Rows, mask: Bool[Array, " capacity"]) -> Statistics:
    """Mean and std of the rows that hold data; physical units while there are fewer than two."""
    weight = mask.astype(jnp.float32)[:, None]
    number = jnp.maximum(jnp.sum(weight), 1.0)
    enough = jnp.sum(weight) > 1

    def of(columns: Float[Array, "capacity column"]) -> tuple[Float[Array, " column"], Float[Array, " column"]]:
        mean = jnp.sum(weight * columns, axis=0) / number
        variance = jnp.sum(weight * (columns - mean[None, :]) ** 2, axis=0) / number
        std = jnp.maximum(jnp.sqrt(variance), DATA_FLOOR)
        return jnp.where(enough, mean, 0.0), jnp.where(enough, std, 1.0)

    return Statistics(*of(rows.inputs), *of(rows.targets))
