"""Ensemble dynamics: several networks on the same data, whose disagreement is the epistemic standard deviation.

`EnsembleLearner` trains them by gradient steps on replay batches; `EnsembleDynamics` is what planners and policies
call. The members start apart and only data bring them together (Lakshminarayanan et al., 2017).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from annotated_types import Ge, Gt, Interval, Le, Lt, MinLen
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.config.check import Configuration
from sombrl.dynamics.base import AbstractDrawable, AbstractLearner, AbstractResampled, AbstractVectorDynamics
from sombrl.networks.mlp import MLP, soft_reset, stacked
from sombrl.networks.normaliser import RunningNormaliser
from sombrl.numerics import safe_sqrt
from sombrl.records import AbstractCost, AbstractTask, Prediction, SombrlError, Transition
from sombrl.replay import Replay

TargetName = Literal["delta", "absolute"]

LARGEST_STD = 1e2  # of a learned noise, normalised


@dataclasses.dataclass(frozen=True)
class EnsembleConfig(Configuration, prefix="ensemble"):
    """The ensemble. The defaults are those of the authors' MBPO; noise is in units of normalised data."""

    members: Annotated[int, Ge(1)] = 5
    """Networks. A single one has no epistemic uncertainty."""
    hidden: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (256, 256)
    """Widths of the hidden layers (SiLU); the paper's humanoid and quadruped: 512 512."""
    learn_std: bool = False
    """Members predict their noise too and are trained by Gaussian likelihood; otherwise by squared error."""
    noise_floor: Annotated[float, Gt(0), Lt(LARGEST_STD)] = 1e-3
    """Aleatoric std: the least when it is learned, the constant when it is not."""
    target: TargetName = "delta"
    """What is predicted: the change s' - s, or s' itself (less variance on some tasks of DeepMind Control)."""
    learn_termination: bool = False
    """Where the task is learned, learn its end too (by cross-entropy); otherwise it is taken never to end."""
    reward_loss_weight: Annotated[float, Ge(0)] = 1.0
    """Weight of the reward's error; 1: as much as one coordinate of the state. Every target, the reward too, is divided
    by its own running std, so the reward's units never matter."""
    bootstrap: bool = False
    """Each member draws its own batch from the replay; otherwise only the initialisation tells members apart."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Transitions per gradient step (and member, with bootstrap)."""
    steps_per_fit: Annotated[int, Ge(1)] | None = 5
    """Gradient steps per decision, done at once where the model is fitted between episodes. None: 1 where a policy
    learns at every decision, else 5."""
    learning_rate: Annotated[float, Gt(0)] = 3e-4
    """AdamW's."""
    weight_decay: Annotated[float, Ge(0)] = 0.0
    """AdamW's."""
    gradient_clip: Annotated[float, Gt(0), Le(math.inf)] | None = 0.5
    """Largest norm of the gradient over all members together; None or inf: no limit."""
    soft_reset_every: Annotated[int, Ge(0)] | None = None
    """Gradient steps between soft resets, rounded up to whole fits; 0 or None: never."""
    soft_reset_mix: Annotated[float, Interval(ge=0, le=1)] = 0.2
    """Share of a fresh initialisation in the weights after a soft reset; the optimiser starts afresh."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """The layout of a member's output: means of state, reward and cost, their stds, a logit of termination."""

    state_dim: int
    reward: bool
    termination: bool
    learn_std: bool
    noise_floor: float
    target: TargetName
    cost: bool = False

    @property
    def targets(self) -> int:
        """Regressed numbers: the state, then the reward, then the cost."""
        return self.state_dim + self.reward + self.cost

    @property
    def size(self) -> int:
        """Numbers that a member puts out."""
        return self.targets * (2 if self.learn_std else 1) + self.termination

    def split(self, output: Float[Array, " output"]) -> "Output":
        """Name the numbers of one member."""
        mean = output[: self.targets]
        if self.learn_std:
            spread = jax.nn.softplus(output[self.targets : 2 * self.targets])
            std = jnp.minimum(self.noise_floor + spread, LARGEST_STD)
        else:
            std = jnp.full_like(mean, self.noise_floor)
        return Output(mean, std, output[-1] if self.termination else None)


class Output(eqx.Module):
    """One member's output at one (state, action), normalised units."""

    mean: Float[Array, " target"]
    std: Float[Array, " target"]
    termination: Float[Array, ""] | None  # a logit


class Ensemble(eqx.Module):
    """The members and their normalisers, evaluated at one (state, action)."""

    members: MLP  # every leaf [members, ...]
    inputs: RunningNormaliser
    outputs: RunningNormaliser  # of the targets
    heads: Heads = eqx.field(static=True)

    @property
    def number(self) -> int:
        """How many members."""
        return self.members.layers[0].bias.shape[0]

    def member(self, network: MLP, state: Float[Array, " state"], action: Float[Array, " action"]) -> Output:
        """One member's output."""
        return self.heads.split(network(self.inputs.normalise(jnp.concatenate([state, action]))))

    def __call__(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Output:
        """Every member's output, a leading axis on each leaf."""
        return jax.vmap(lambda network: self.member(network, state, action))(self.members)

    def next_state(self, state: Float[Array, " state"], mean: Float[Array, " target"]) -> Float[Array, " state"]:
        """The next state of a normalised output."""
        predicted = self.outputs.denormalise(mean)[: self.heads.state_dim]
        return state + predicted if self.heads.target == "delta" else predicted

    @property
    def scale(self) -> Float[Array, " state"]:
        """The std of the state's targets."""
        return self.outputs.std[: self.heads.state_dim]


class EnsembleState(eqx.Module):
    """The state of an ensemble learner."""

    ensemble: Ensemble
    optimiser: Any
    updates: Int[Array, ""]  # gradient steps so far


class EnsembleDynamics(AbstractVectorDynamics, AbstractDrawable, AbstractResampled):
    """x' = x + mean over members (or that mean itself), and their disagreement."""

    ensemble: Ensemble

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """μₙ, and as σₙ the population std over members. Differentiable in both arguments."""
        ensemble, output = self.ensemble, self.ensemble(state, action)
        dims, scale = ensemble.heads.state_dim, ensemble.scale
        disagreement = _std_over_members(output.mean)
        task_std = disagreement[dims : dims + ensemble.heads.reward]
        if output.termination is not None:
            ending = _std_over_members(jax.nn.sigmoid(output.termination))  # a probability has no units
            task_std = jnp.concatenate([task_std, ending[None]])
        noise = jnp.sqrt(jnp.mean(output.std[:, :dims] ** 2, axis=0))
        return Prediction(
            mean=ensemble.next_state(state, jnp.mean(output.mean, axis=0)),
            epistemic_std=disagreement[:dims] * scale,
            aleatoric_std=noise * scale,
            scale=scale,
            task_std=task_std,
        )

    def resample(
        self, state: Float[Array, " state"], action: Float[Array, " action"], *, key: Key[Array, ""]
    ) -> Float[Array, " state"]:
        """A random member's prediction plus its noise: TS1 of PETS (Chua et al., 2018)."""
        ensemble = self.ensemble
        if ensemble.number == 1:
            return self.transition(state, action, key=key)
        member_key, noise_key = jr.split(key)
        chosen = jr.randint(member_key, (), 0, ensemble.number)
        # The outputs are gathered, not the weights: those would be copied for every particle.
        output: Output = jax.tree.map(lambda leaf: leaf[chosen], ensemble(state, action))
        std = output.std[: ensemble.heads.state_dim] * ensemble.scale
        return ensemble.next_state(state, output.mean) + std * jr.normal(noise_key, std.shape, std.dtype)

    def draw(self, *, key: Key[Array, ""]) -> "DrawnMember":
        """One member, drawn once."""
        chosen = jr.randint(key, (), 0, self.ensemble.number)
        members = jax.tree.map(lambda leaf: leaf[chosen][None], self.ensemble.members)
        return DrawnMember(Ensemble(members, self.ensemble.inputs, self.ensemble.outputs, self.ensemble.heads))


class DrawnMember(AbstractVectorDynamics):
    """One member of an ensemble, with no epistemic uncertainty."""

    ensemble: Ensemble  # of one

    def predict(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Prediction:
        """The member's value, with σ = 0."""
        return EnsembleDynamics(self.ensemble).predict(state, action)


class EnsembleTask(AbstractTask):
    """Reward and termination as the members' mean."""

    ensemble: Ensemble

    def reward(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Float[Array, ""]:
        """E[r | x, u]."""
        mean = jnp.mean(self.ensemble(state, action).mean, axis=0)
        return self.ensemble.outputs.denormalise(mean)[self.ensemble.heads.state_dim]

    def terminated(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Bool[Array, ""]:
        """Whether termination is more likely than not."""
        logits = self.ensemble(state, action).termination
        return jnp.zeros((), bool) if logits is None else jnp.asarray(jnp.mean(jax.nn.sigmoid(logits)) > 0.5)


class EnsembleCost(AbstractCost):
    """The cost as the members' mean, and their disagreement on it."""

    ensemble: Ensemble

    def __call__(
        self, state: Float[Array, " state"], action: Float[Array, " action"], next_state: Float[Array, " state"]
    ) -> Float[Array, ""]:
        """E[c | x, u], at least 0."""
        mean = jnp.mean(self.ensemble(state, action).mean, axis=0)
        return jnp.maximum(self.ensemble.outputs.denormalise(mean)[self.ensemble.heads.targets - 1], 0.0)

    def std(self, state: Float[Array, " state"], action: Float[Array, " action"]) -> Float[Array, ""]:
        """The std over members, in units of the cost."""
        last = self.ensemble.heads.targets - 1
        return _std_over_members(self.ensemble(state, action).mean[:, last]) * self.ensemble.outputs.std[last]


class EnsembleLearner(AbstractLearner):
    """Gradient steps on replay batches."""

    double_precision: ClassVar[bool] = False
    state_dim: int
    action_dim: int
    learn_task: bool  # also fit the reward, and the termination if the config says so
    config: EnsembleConfig
    learn_cost: bool = False  # also fit the cost

    def __check_init__(self) -> None:
        """Refuse to learn the termination of a known task."""
        if self.config.learn_termination and not self.learn_task:
            raise SombrlError("--ensemble.learn-termination needs a learned task: add --reward learned.")

    @property
    def heads(self) -> Heads:
        """The layout of the members' outputs."""
        config = self.config
        return Heads(
            state_dim=self.state_dim,
            reward=self.learn_task,
            termination=self.learn_task and config.learn_termination,
            learn_std=config.learn_std,
            noise_floor=config.noise_floor,
            target=config.target,
            cost=self.learn_cost,
        )

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Clipping over all members, then AdamW; without decay this is Adam, which saves a pass over memory."""
        config = self.config
        clip, decay = config.gradient_clip, config.weight_decay
        adam = optax.adamw(config.learning_rate, weight_decay=decay) if decay else optax.adam(config.learning_rate)
        if clip is None or math.isinf(clip):
            return adam
        return optax.chain(optax.clip_by_global_norm(clip), adam)

    def init(self, *, key: Key[Array, ""]) -> EnsembleState:
        """The prior: untrained members, which disagree by about one std of the data."""
        inputs = RunningNormaliser.identity(self.state_dim + self.action_dim)
        outputs = RunningNormaliser.identity(self.heads.targets)
        ensemble = Ensemble(self._members(key), inputs, outputs, self.heads)
        return EnsembleState(ensemble, self.optimiser.init(ensemble.members), jnp.zeros((), jnp.int32))

    def fit(
        self, state: EnsembleState, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[EnsembleState, dict[str, Float[Array, ""]]]:
        """`steps_per_fit` gradient steps, each on a fresh batch; nothing while there are no data."""
        steps = self.steps

        def train(state: EnsembleState) -> tuple[EnsembleState, dict[str, Array]]:
            return self.update(state, self.sample(replay, steps, key=key))

        def wait(state: EnsembleState) -> tuple[EnsembleState, dict[str, Array]]:
            nothing = jax.eval_shape(train, state)[1]
            return state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nothing)

        if replay.at_least > 0:
            return train(state)
        fitted: tuple[EnsembleState, dict[str, Array]] = jax.lax.cond(replay.count > 0, train, wait, state)
        return fitted

    def sample(self, replay: Replay, steps: int, *, key: Key[Array, ""]) -> Transition:
        """The data of `steps` updates: a batch each, or with bootstrap one per member, [steps, members, batch, ...]."""
        config = self.config
        shape = (steps, config.members, config.batch_size) if config.bootstrap else (steps, config.batch_size)
        rows = replay.sample(math.prod(shape), key=key)
        batches: Transition = jax.tree.map(lambda leaf: jnp.reshape(leaf, (*shape, *leaf.shape[1:])), rows)
        return batches

    def update(self, state: EnsembleState, rows: Transition) -> tuple[EnsembleState, dict[str, Float[Array, ""]]]:
        """A gradient step per batch of `sample`: [steps, batch, ...], or [steps, members, batch, ...], one each.

        The normalisers are updated with all of it before it is normalised.
        """
        ensemble = state.ensemble
        x = jnp.concatenate([rows.obs, rows.action], axis=-1)
        y = rows.next_obs - rows.obs if self.config.target == "delta" else rows.next_obs
        if self.learn_task:
            y = jnp.concatenate([y, rows.reward[..., None]], axis=-1)
        if self.learn_cost and rows.cost is not None:
            y = jnp.concatenate([y, rows.cost[..., None]], axis=-1)
        inputs = ensemble.inputs.update(x.reshape(-1, x.shape[-1]))
        outputs = ensemble.outputs.update(y.reshape(-1, y.shape[-1]))
        x, y = _over_rows(inputs.normalise, x), _over_rows(outputs.normalise, y)

        def step(carry: tuple[MLP, Any], batch: tuple[Array, ...]) -> tuple[tuple[MLP, Any], dict[str, Array]]:
            members, memory = carry
            (_, metrics), gradient = jax.value_and_grad(self._loss, has_aux=True)(members, *batch)
            metrics["model/gradient_norm"] = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
            with jax.numpy_dtype_promotion("standard"):  # optax relies on implicit promotion
                change, memory = self.optimiser.update(gradient, memory, members)
                return (optax.apply_updates(members, change), memory), metrics

        batches = x, y, rows.terminated.astype(jnp.float32)
        (members, memory), metrics = jax.lax.scan(step, (ensemble.members, state.optimiser), batches)
        ensemble = Ensemble(members, inputs, outputs, ensemble.heads)
        updated = EnsembleState(ensemble, memory, state.updates + rows.reward.shape[0])
        return updated, jax.tree.map(jnp.mean, metrics)

    @property
    def steps(self) -> int:
        """Gradient steps of a fit."""
        return 5 if self.config.steps_per_fit is None else self.config.steps_per_fit

    @property
    def renew_every(self) -> int | None:
        """Soft resets, after every `soft_reset_every` gradient steps, rounded up to whole fits."""
        every = self.config.soft_reset_every
        return None if not every else -(-every // self.steps)

    def renew(self, state: EnsembleState, *, key: Key[Array, ""]) -> EnsembleState:
        """A soft reset: mix fresh weights into the members and forget the optimiser's moments; normalisers stay."""
        ensemble = state.ensemble
        members = soft_reset(ensemble.members, self._members(key), self.config.soft_reset_mix)
        ensemble = Ensemble(members, ensemble.inputs, ensemble.outputs, ensemble.heads)
        return EnsembleState(ensemble, self.optimiser.init(members), state.updates)

    def dynamics(self, state: EnsembleState) -> EnsembleDynamics:
        """The posterior, ready to plan with."""
        return EnsembleDynamics(state.ensemble)

    def task(self, state: EnsembleState) -> EnsembleTask | None:
        """Reward and termination, if they are learned."""
        return EnsembleTask(state.ensemble) if self.learn_task else None

    def cost(self, state: EnsembleState) -> EnsembleCost | None:
        """The cost, if it is learned."""
        return EnsembleCost(state.ensemble) if self.learn_cost else None

    def _members(self, key: Key[Array, ""]) -> MLP:
        inputs, config = self.state_dim + self.action_dim, self.config

        def make(*, key: Key[Array, ""]) -> MLP:
            return MLP(inputs, config.hidden, self.heads.size, activation="silu", key=key)

        return stacked(make, config.members, key=key)

    def _loss(
        self,
        members: MLP,
        x: Float[Array, "*members batch input"],
        y: Float[Array, "*members batch target"],
        ended: Float[Array, "*members batch"],
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """The mean over members, rows and outputs of the error: squared, or the negative log-likelihood."""
        heads = self.heads

        def row_loss(network: MLP, x: Array, y: Array, ended: Array) -> Array:
            output = heads.split(network(x))
            if heads.learn_std:
                losses = 0.5 * ((output.mean - y) / output.std) ** 2 + jnp.log(output.std)
            else:
                losses = (output.mean - y) ** 2
            if output.termination is not None:
                cross_entropy = jax.nn.softplus(output.termination) - ended * output.termination
                losses = jnp.concatenate([losses, cross_entropy[None]])
            return losses

        shared = None if x.ndim == 2 else 0
        over_rows = jax.vmap(row_loss, in_axes=(None, 0, 0, 0))
        losses = jax.vmap(over_rows, in_axes=(0, shared, shared, shared))(members, x, y, ended)
        losses = jnp.mean(losses, axis=(0, 1))  # per output
        state, reward, end = jnp.split(losses, [self.state_dim, heads.targets])  # the cost counts as the reward does
        total = jnp.sum(state) + self.config.reward_loss_weight * jnp.sum(reward) + jnp.sum(end)
        metrics = {"model/loss": total / losses.shape[0], "model/state_loss": jnp.mean(state)}
        if heads.reward:
            metrics["model/reward_loss"] = reward[0]
        if heads.termination:
            metrics["model/termination_loss"] = end[0]
        return metrics["model/loss"], metrics


def _over_rows(
    function: Callable[[Array], Array], rows: Float[Array, "*members batch column"]
) -> Float[Array, "*members batch column"]:
    for _ in range(rows.ndim - 1):
        function = jax.vmap(function)
    return function(rows)


def _std_over_members(values: Float[Array, " members *column"]) -> Float[Array, "*column"]:
    """The population std, exactly 0 for one member and with a finite derivative where all agree."""
    return safe_sqrt(jnp.var(values, axis=0))
