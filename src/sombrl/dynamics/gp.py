"""Gaussian-process dynamics: one GP per coordinate of s' - s, and of reward and termination when those are learned.

`GPLearner` turns the replay into posteriors (float64, gp_posterior.py); `GPDynamics` is what planners call (float32).

Not the paper's in two ways. The posterior is exact only while there are no more transitions than `rank`; beyond that
the pivots stand for all data, and what they leave unexplained stays in σ. And lengthscales are not fitted by maximum
likelihood but by the likelihood of a random subset (`fit_points`) times a log-normal prior (`lengthscale_prior_std`).
"""

import dataclasses
import functools
import math
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from annotated_types import Ge, Gt, Interval, Le
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.config.check import Configuration
from sombrl.config.kinds import Before
from sombrl.dynamics.base import AbstractDrawable, AbstractInformed, AbstractLearner, AbstractVectorDynamics
from sombrl.dynamics.gp_posterior import Pivots, Posterior, condition, log_marginal_likelihood
from sombrl.records import AbstractCost, AbstractTask, Prediction
from sombrl.replay import Replay
from sombrl.theory.kernels import KERNELS, AbstractPriorDraw, KernelName, draw_prior


@dataclasses.dataclass(frozen=True)
class GPConfig(Configuration, prefix="gp"):
    """The GP. Lengthscales and noise are in units of normalised data (mean 0, std 1)."""

    kernel: KernelName = "rbf"
    """rbf (paper), matern52, or linear; one lengthscale per input (ARD), signal variance 1."""
    capacity: Annotated[int, Ge(1)] = 2048
    """Transitions kept; the oldest are overwritten."""
    rank: Annotated[int, Ge(1)] = 128
    """Most pivots per output: bounds the cost of a prediction. The leftover is logged as model/unexplained."""
    tolerance: Annotated[float, Gt(0)] = 0.1
    """Variance the pivots may leave unexplained at a data point, as a fraction of the noise variance."""
    noise_std: Annotated[float, Gt(0)] = 0.03
    """Observation noise: fixed, or the start value with learn_noise (paper's code: variance 1e-3)."""
    learn_noise: bool = False
    """Fit the noise too; it has no prior."""
    lengthscale: Annotated[float, Gt(0)] = 1.0
    """Start value, and centre of the prior."""
    lengthscale_prior_std: Annotated[float, Gt(0), Le(math.inf)] = 1.0
    """Std of a log-normal prior on each lengthscale, so that one dull episode cannot make the model sure of
    everything; inf = none, maximum likelihood (of the fit_points)."""
    fit_points: Annotated[int, Ge(1)] = 256
    """Likelihood is computed on at most this many transitions (a fresh random subset per refit)."""
    fit_steps: Annotated[int, Ge(0)] = 100
    """Most Adam steps per refit, warm-started; stops early when the gradient is small."""
    fit_learning_rate: Annotated[float, Gt(0)] = 0.1
    """Adam's, on log-lengthscales."""
    refit_every: Annotated[int, Ge(1)] = 1
    """Iterations between refits of hyperparameters and normaliser; in between, data are only appended."""
    draw_features: Annotated[int, Ge(1)] = 256
    """Cosines of a function drawn for Thompson sampling."""
    norm_bound: Annotated[float, Gt(0), Le(math.inf)] | None = None
    """If given, plan with fₙ, the function of RKHS norm at most this that is nearest to the mean, per coordinate and
    in normalised units (the paper's sub-Gaussian setting)."""
    normalise: bool = True
    """False: data as they are, for a kernel known in physical units."""
    least_action: Annotated[float, Interval(ge=0, le=1), Before(0.0)] = 0.3
    """Where the actions in the data vary less than this, normalise as if they had varied so much and everything else
    in proportion: after an episode of standing still a move is not a hundred standard deviations. 0 turns it off."""


COLUMN_SHARE = 0.3
"""After standing still no column of the normaliser has less than this share of the spread of the widest."""


class Normaliser(eqx.Module):
    """x ↦ (x - mean)/std per column. A constant column keeps std 1."""

    mean: Float[Array, " column"]
    std: Float[Array, " column"]

    @staticmethod
    def identity(columns: int) -> "Normaliser":
        """Before any data."""
        return Normaliser(jnp.zeros(columns, jnp.float64), jnp.ones(columns, jnp.float64))

    @staticmethod
    def of(rows: Float[Array, "capacity column"], mask: Bool[Array, " capacity"]) -> "Normaliser":
        """The statistics of the masked rows."""
        weight = mask.astype(rows.dtype)[:, None]
        count = jnp.maximum(jnp.sum(weight), 1.0)
        mean = jnp.sum(weight * rows, axis=0) / count
        std = jnp.sqrt(jnp.sum(weight * (rows - mean[None, :]) ** 2, axis=0) / count)
        # Data are float32: a spread below its resolution is a constant, not a signal.
        constant = std <= 1e-6 * jnp.maximum(jnp.abs(mean), 1e-6)
        return Normaliser(mean, jnp.where(constant, 1.0, std))

    def widened(self, factor: Float[Array, ""]) -> "Normaliser":
        """With a spread that is `factor` times larger. The larger the factor, the less the columns differ.

        A column may grow faster than the actions do: around rest a cosine moves with the square of the angle.
        """
        least = COLUMN_SHARE * jnp.max(self.std) * (1.0 - 1.0 / factor)
        return Normaliser(self.mean, factor * jnp.maximum(self.std, least))


class Hyperparameters(eqx.Module):
    """What is fitted, per output."""

    log_lengthscale: Float[Array, "output input"]
    log_noise_std: Float[Array, " output"]


class GPFunction(eqx.Module):
    """The float32 view of the posteriors that is evaluated a hundred thousand times per decision."""

    input_mean: Float[Array, " input"]
    input_scale: Float[Array, "output input"]  # 1 / (std · lengthscale)
    output_mean: Float[Array, " output"]
    output_std: Float[Array, " output"]
    noise_std: Float[Array, " output"]
    centers: Float[Array, "output input rank"]
    mean_weights: Float[Array, "output rank"]  # μ = mean_weights · k(centers, z)
    explained: Float[Array, "output rank rank"]  # σ² = k(z,z) - ‖k(centers, z)ᵀ explained‖²
    whitener: Float[Array, "output rank rank"]  # for draws only: φ(z) = whitener @ k(centers, z)
    weight_mean: Float[Array, "output rank"]
    weight_factor: Float[Array, "output rank rank"]
    information_gain: Float[Array, " output"]  # ½ log det(I + K/s²)
    kernel: str = eqx.field(static=True)

    def kernel_rows(self, z: Float[Array, " input"], output: int) -> tuple[Float[Array, ""], Float[Array, " rank"]]:
        """k(z, z) and k(centers, z) of one output."""
        kernel = KERNELS[self.kernel]
        x = (z - self.input_mean) * self.input_scale[output]
        return kernel(x, x), jax.vmap(kernel, in_axes=(None, 1))(x, self.centers[output])

    def mean(self, z: Float[Array, " input"], output: int) -> Float[Array, ""]:
        """μ of one output, physical units."""
        _, row = self.kernel_rows(z, output)
        return self.output_mean[output] + self.output_std[output] * _dot(row, self.mean_weights[output])

    def std(self, z: Float[Array, " input"], output: int) -> Float[Array, ""]:
        """σ of one output, physical units."""
        prior, row = self.kernel_rows(z, output)
        variance = prior - jnp.sum(_dot(row, self.explained[output]) ** 2)
        # float32 leaves about 1e-6 of the variance undecided; the floor also keeps the gradient finite.
        return self.output_std[output] * jnp.sqrt(jnp.maximum(variance, 1e-8))


class GPState(eqx.Module):
    """The state of a GP learner."""

    hyperparameters: Hyperparameters
    inputs: Normaliser
    outputs: Normaliser
    pivots: Pivots  # [output, rank]
    function: GPFunction
    fits: Int[Array, ""]


class GPDynamics(AbstractVectorDynamics, AbstractDrawable, AbstractInformed):
    """x' = x + GP(x, u), one GP per coordinate."""

    function: GPFunction
    state_dim: int = eqx.field(static=True)
    draw_features: int = eqx.field(static=True)

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """μₙ and σₙ. The outputs are a Python loop: their matrix products stay two-dimensional under vmap."""
        z = jnp.concatenate([state, action])
        dims = range(self.state_dim)
        scale = self.function.output_std[: self.state_dim]
        return Prediction(
            mean=state + jnp.stack([self.function.mean(z, j) for j in dims]),
            epistemic_std=jnp.stack([self.function.std(z, j) for j in dims]),
            aleatoric_std=self.function.noise_std[: self.state_dim] * scale,
            scale=scale,
        )

    def information_gain(self) -> Float[Array, " state"]:
        """½ log det(I + K/s²) of the data, per coordinate."""
        return self.function.information_gain[: self.state_dim]

    def noise_std(self) -> Float[Array, " state"]:
        """s, per coordinate, in normalised units."""
        return self.function.noise_std[: self.state_dim]

    def draw(self, *, key: Key[Array, ""]) -> "DrawnGP":
        """One consistent function: f = f₀ + φᵀ(w - L⁻¹f₀(pivots)) with f₀ from the prior, w from the posterior.

        Pathwise conditioning (Wilson et al., 2020): where data are, f agrees with them; far away it is the prior
        draw f₀, and it is the same function however often and wherever it is asked.
        """
        function, draws, corrections = self.function, [], []
        for j, output_key in enumerate(jr.split(key, self.state_dim)):
            prior_key, weight_key = jr.split(output_key)
            input_dim, rank = function.centers[j].shape
            prior = draw_prior(function.kernel, input_dim, self.draw_features, key=prior_key)
            noise = jr.normal(weight_key, (rank,), jnp.float32)
            weights = function.weight_mean[j] + _dot(function.weight_factor[j], noise)
            at_pivots = jax.vmap(prior, in_axes=1)(function.centers[j])
            residual = weights - _dot(function.whitener[j], at_pivots)
            corrections.append(_dot(function.whitener[j].T, residual))
            draws.append(prior)
        prior = jax.tree.map(lambda *leaves: jnp.stack(leaves), *draws)
        return DrawnGP(function, prior, jnp.stack(corrections), self.state_dim)


class DrawnGP(AbstractVectorDynamics):
    """One function from the posterior, with no epistemic uncertainty."""

    function: GPFunction
    prior: AbstractPriorDraw  # [state, ...]
    correction: Float[Array, "state rank"]
    state_dim: int = eqx.field(static=True)

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """The drawn function's value, with σ = 0."""
        z = jnp.concatenate([state, action])
        function = self.function
        scale = function.output_std[: self.state_dim]
        values = []
        for j in range(self.state_dim):
            _, row = function.kernel_rows(z, j)
            prior = jax.tree.map(lambda leaf, j=j: leaf[j], self.prior)
            values.append(prior((z - function.input_mean) * function.input_scale[j]) + _dot(row, self.correction[j]))
        return Prediction(
            mean=state + function.output_mean[: self.state_dim] + scale * jnp.stack(values),
            epistemic_std=jnp.zeros_like(scale),
            aleatoric_std=function.noise_std[: self.state_dim] * scale,
            scale=scale,
        )


class LearnedTask(AbstractTask):
    """Reward and termination as the posterior means of two more GPs."""

    function: GPFunction
    state_dim: int = eqx.field(static=True)

    def reward(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Float[Array, ""]:
        """E[r | x, u]."""
        return self.function.mean(jnp.concatenate([state, action]), self.state_dim)

    def terminated(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Bool[Array, ""]:
        """Whether termination is more likely than not."""
        return self.function.mean(jnp.concatenate([state, action]), self.state_dim + 1) > 0.5


class LearnedCost(AbstractCost):
    """The cost as the posterior mean of one more GP, with its σ."""

    function: GPFunction
    output: int = eqx.field(static=True)

    def __call__(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Float[Array, ""]:
        """E[c | x, u], at least 0."""
        return jnp.maximum(self.function.mean(jnp.concatenate([state, action]), self.output), 0.0)

    def std(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Float[Array, ""]:
        """σ of the cost, in its units."""
        return self.function.std(jnp.concatenate([state, action]), self.output)


class GPLearner(AbstractLearner):
    """Fits the GPs to everything in the replay."""

    double_precision: ClassVar[bool] = True
    state_dim: int
    action_dim: int
    learn_task: bool  # also fit reward and termination
    config: GPConfig
    learn_cost: bool = False  # also fit the cost

    @property
    def num_outputs(self) -> int:
        """s' - s, with learn_task the reward and the termination, and with learn_cost the cost."""
        return self.state_dim + (2 if self.learn_task else 0) + self.learn_cost

    def init(self, *, key: Key[Array, ""]) -> GPState:
        """The prior."""
        config, outputs, inputs = self.config, self.num_outputs, self.state_dim + self.action_dim

        def repeat(leaf: Array) -> Array:
            return jnp.broadcast_to(leaf, (outputs, *leaf.shape))

        hyperparameters = Hyperparameters(
            jnp.full((outputs, inputs), jnp.log(config.lengthscale), jnp.float64),
            jnp.full(outputs, jnp.log(config.noise_std), jnp.float64),
        )
        normalisers = Normaliser.identity(inputs), Normaliser.identity(outputs)
        prior = jax.tree.map(repeat, Posterior.prior(config.rank, inputs))
        return GPState(
            hyperparameters,
            *normalisers,
            pivots=jax.tree.map(repeat, Pivots.none(config.rank)),
            function=self._function(hyperparameters, *normalisers, prior),
            fits=jnp.zeros((), jnp.int32),
        )

    def fit(
        self, state: GPState, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[GPState, dict[str, Float[Array, ""]]]:
        """Append the new data; every `refit_every`-th time also refit hyperparameters and normalisers."""
        data = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), replay.data)
        rows_in = jnp.concatenate([data.obs, data.action], axis=1)
        rows_out = data.next_obs - data.obs
        if self.learn_task:
            rows_out = jnp.concatenate([rows_out, data.reward[:, None], data.terminated[:, None]], axis=1)
        if self.learn_cost and data.cost is not None:
            rows_out = jnp.concatenate([rows_out, data.cost[:, None]], axis=1)
        mask = replay.mask

        overwritten = replay.added > replay.capacity  # then pivots may point to rows that are gone
        due = (state.fits % self.config.refit_every == 0) | overwritten

        def refit(state: GPState) -> GPState:
            inputs, outputs = state.inputs, state.outputs
            if self.config.normalise:
                inputs, outputs = Normaliser.of(rows_in, mask), Normaliser.of(rows_out, mask)
                if self.config.least_action > 0:
                    factor = self._stillness(data.action, mask)
                    inputs, outputs = inputs.widened(factor), outputs.widened(factor)
            x, y = _normalise(rows_in, inputs), _normalise(rows_out, outputs)
            hyperparameters = self._maximise_likelihood(state.hyperparameters, x, y, mask, key)
            pivots = jax.tree.map(jnp.zeros_like, state.pivots)
            return GPState(hyperparameters, inputs, outputs, pivots, state.function, state.fits)

        state = jax.lax.cond(due, refit, lambda state: state, state)
        x, y = _normalise(rows_in, state.inputs), _normalise(rows_out, state.outputs)
        kernel = KERNELS[self.config.kernel]

        # The bound is for the dynamics only, not for the reward and the termination.
        norm_bound = self.config.norm_bound
        bounds = jnp.where(jnp.arange(self.num_outputs) < self.state_dim, norm_bound or jnp.inf, jnp.inf)

        def condition_output(output: tuple[Any, ...]) -> tuple[Posterior, Pivots, Array]:
            log_lengthscale, log_noise_std, targets, pivots, bound = output
            scaled = x * jnp.exp(-log_lengthscale)[None, :]
            noise_std = jnp.exp(log_noise_std)
            bounded = None if norm_bound is None else bound
            return condition(kernel, scaled, targets, mask, noise_std, self.config.tolerance, pivots, bounded)

        hyper = state.hyperparameters
        posterior, pivots, unexplained = jax.lax.map(
            condition_output, (hyper.log_lengthscale, hyper.log_noise_std, y.T, state.pivots, bounds)
        )
        metrics = {
            "model/information_gain": jnp.sum(posterior.information_gain),
            "model/pivots": jnp.max(pivots.number).astype(jnp.float64),
            "model/unexplained": jnp.sqrt(jnp.max(unexplained)),
            "model/lengthscale": jnp.exp(jnp.mean(hyper.log_lengthscale)),
            "model/noise_std": jnp.exp(jnp.mean(hyper.log_noise_std)),
        }
        function = self._function(hyper, state.inputs, state.outputs, posterior)
        state = GPState(hyper, state.inputs, state.outputs, pivots, function, state.fits + 1)
        return state, {name: value.astype(jnp.float32) for name, value in metrics.items()}

    def _stillness(self, actions: Float[Array, "capacity action"], mask: Bool[Array, " capacity"]) -> Float[Array, ""]:
        """How many times larger everything might be if the actions varied as they can, at least 1 and at most 100."""
        weight = mask.astype(actions.dtype)[:, None]
        count = jnp.maximum(jnp.sum(weight), 1.0)
        mean = jnp.sum(weight * actions, axis=0) / count
        spread = jnp.sqrt(jnp.sum(weight * (actions - mean[None, :]) ** 2) / (count * actions.shape[1]))
        return jnp.clip(self.config.least_action / jnp.maximum(spread, 1e-6), 1.0, 100.0)

    def _maximise_likelihood(
        self,
        start: Hyperparameters,
        x: Float[Array, "capacity input"],
        y: Float[Array, "capacity output"],
        mask: Bool[Array, " capacity"],
        key: Key[Array, ""],
    ) -> Hyperparameters:
        """Adam on the log marginal likelihood of a random subset plus the log prior, warm-started, outputs at once."""
        config = self.config
        kernel = KERNELS[config.kernel]
        points = min(config.fit_points, mask.shape[0])
        order = jnp.argsort(jr.uniform(key, mask.shape, jnp.float64) + jnp.where(mask, 0.0, 1.0))[:points]
        x, y, mask = x[order], y[order], mask[order]
        count = jnp.maximum(jnp.sum(mask.astype(jnp.float64)), 1.0)

        def loss_of_output(log_lengthscale: Array, log_noise_std: Array, targets: Array) -> Array:
            scaled = x * jnp.exp(-log_lengthscale)[None, :]
            likelihood = log_marginal_likelihood(kernel, scaled, targets, mask, jnp.exp(log_noise_std))
            departure = (log_lengthscale - jnp.log(config.lengthscale)) / config.lengthscale_prior_std
            return (0.5 * jnp.sum(departure**2) - likelihood) / count

        def loss(hyper: Hyperparameters) -> Array:
            losses = jax.vmap(loss_of_output)(hyper.log_lengthscale, hyper.log_noise_std, y.T)
            return jnp.sum(losses)

        optimiser = optax.adam(config.fit_learning_rate)

        def unfinished(carry: tuple[Any, Any, Array, Array]) -> Array:
            _, _, gradient_size, step = carry
            return (step < config.fit_steps) & (gradient_size > 1e-3)

        def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            hyper, opt_state, _, step = carry
            gradient = jax.grad(loss)(hyper)
            if not config.learn_noise:
                gradient = eqx.tree_at(lambda h: h.log_noise_std, gradient, replace_fn=jnp.zeros_like)
            # A failed Cholesky must not end the run: no step is better than a NaN step.
            gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), gradient)
            with jax.numpy_dtype_promotion("standard"):  # optax relies on implicit promotion
                updates, opt_state = optimiser.update(gradient, opt_state)
                hyper = optax.apply_updates(hyper, updates)
            lengthscale = jnp.clip(hyper.log_lengthscale, jnp.log(1e-2), jnp.log(1e2))
            noise_std = jnp.clip(hyper.log_noise_std, jnp.log(1e-3), jnp.log(1.0))
            hyper = Hyperparameters(lengthscale, noise_std if config.learn_noise else start.log_noise_std)
            size = functools.reduce(jnp.maximum, [jnp.max(jnp.abs(g)) for g in jax.tree.leaves(gradient)])
            return hyper, opt_state, size, step + 1

        first = (start, optimiser.init(start), jnp.asarray(jnp.inf, jnp.float64), jnp.zeros((), jnp.int32))
        hyper, *_ = jax.lax.while_loop(unfinished, step, first)
        return hyper

    def dynamics(self, state: GPState) -> GPDynamics:
        """The posterior, ready to plan with."""
        return GPDynamics(state.function, self.state_dim, self.config.draw_features)

    def task(self, state: GPState) -> LearnedTask | None:
        """Reward and termination, if they are learned."""
        return LearnedTask(state.function, self.state_dim) if self.learn_task else None

    def cost(self, state: GPState) -> LearnedCost | None:
        """The cost, if it is learned."""
        return LearnedCost(state.function, self.num_outputs - 1) if self.learn_cost else None

    def _function(
        self, hyper: Hyperparameters, inputs: Normaliser, outputs: Normaliser, posterior: Posterior
    ) -> GPFunction:
        """Fold everything that does not depend on the query into as few float32 arrays as possible."""
        function = GPFunction(
            input_mean=inputs.mean,
            input_scale=jnp.exp(-hyper.log_lengthscale) / inputs.std[None, :],
            output_mean=outputs.mean,
            output_std=outputs.std,
            noise_std=jnp.exp(hyper.log_noise_std),
            centers=jnp.swapaxes(posterior.centers, 1, 2),
            mean_weights=jnp.einsum("orm,or->om", posterior.whitener, posterior.weight_mean),
            explained=jnp.einsum("ork,okm->omr", posterior.explained, posterior.whitener),
            whitener=posterior.whitener,
            weight_mean=posterior.weight_mean,
            weight_factor=posterior.weight_factor,
            information_gain=posterior.information_gain,
            kernel=self.config.kernel,
        )
        single: GPFunction = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), function)
        return single


def _normalise(rows: Float[Array, "capacity column"], by: Normaliser) -> Float[Array, "capacity column"]:
    return (rows - by.mean[None, :]) / by.std[None, :]


def _dot(a: Array, b: Array) -> Array:
    """A product in full float32: the default of some accelerators (TF32) has an error larger than σ."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
