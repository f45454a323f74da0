"""Soft actor-critic (Haarnoja et al. 2018) on real and imagined transitions: MBPO, and SOMBRL's optimism on top.

One improvement is `updates_per_call` updates. The policy changes only every `policy_every` of them, so they are done in
blocks between two policy steps: the batches, the imagined next states, the next actions and the bonuses of a whole
block are computed at once, and only the critic steps themselves are a loop.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sombrl.controllers.base import AbstractController
from sombrl.controllers.sac_batches import Policy, Role, batches_of, imagine, role_key, schedule
from sombrl.controllers.sac_config import SACConfig
from sombrl.controllers.sac_expansion import expand
from sombrl.controllers.sac_losses import (
    NUMBERS,
    BonusScale,
    BonusStatistics,
    CriticRows,
    actor_loss,
    bonus_weight_loss,
    bounded_log,
    critic_loss,
    finite_gradient,
    gaussian,
    polyak,
    sample_actions,
    squash,
    temperature_loss,
    twin_q,
    value_of,
)
from sombrl.dynamics.base import AbstractVectorDynamics
from sombrl.exploration.base import AbstractBonus, ImaginedMDP
from sombrl.exploration.bonus import NoBonus
from sombrl.networks import value_bins
from sombrl.networks.mlp import soft_reset, stacked
from sombrl.networks.normaliser import Normalised, RunningNormaliser, within_limit
from sombrl.networks.residual import Body, keep_norms, make_body
from sombrl.records import Prediction, SombrlError, State, Transition
from sombrl.replay import Replay

METRICS = ("critic_loss", "q", "actor_loss", "entropy", "bonus", "bonus_gap")

Bonus = Callable[[Float[Array, "batch obs"], Float[Array, "batch plan"]], Float[Array, " batch"]]


class SACState(eqx.Module):
    """All that is learned, the optimisers' states, and the last value of each metric."""

    normaliser: RunningNormaliser | None  # of observations, for actors and critics
    actor: Body
    target_actor: Body  # π̄, against which λ is tuned
    critic: Body  # stacked
    target_critic: Body
    log_temperature: Float[Array, ""]  # log α
    log_bonus_factor: Float[Array, ""]  # what λ is multiplied by
    statistics: BonusStatistics
    actor_memory: Any
    critic_memory: Any
    temperature_memory: Any
    factor_memory: Any
    updates: Int[Array, ""]
    latest: dict[str, Float[Array, ""]]

    def policy(self, actor: Body) -> Policy:
        """An actor that sees the state as it is trained to."""
        return actor if self.normaliser is None else Normalised(self.normaliser, actor)

    def seen(self, obs: Float[Array, "batch obs"]) -> Float[Array, "batch obs"]:
        """Observations as the critics see them."""
        normaliser = self.normaliser
        return obs if normaliser is None else jax.vmap(lambda obs: within_limit(normaliser, obs))(obs)


class Draws(eqx.Module):
    """The random numbers of a block of updates."""

    real: Transition  # the batches, one after the other
    next_action: Float[Array, "rows plan"]  # noise of u' ~ π(·|x')
    action: Float[Array, "batch plan"]  # noise of u ~ π(·|x), for the policy step
    target_action: Float[Array, "batch plan"]  # noise of ū ~ π̄(·|x)
    key: Key[Array, ""]  # for what is imagined


class ScaledBonus(AbstractBonus):
    """A bonus in the units that critics are paid in."""

    bonus: AbstractBonus
    statistics: BonusStatistics
    how: BonusScale = eqx.field(static=True)

    def __call__(self, prediction: Prediction) -> Float[Array, ""]:
        """(I - mean)/std, I/std, or I."""
        return self.statistics.scale(self.bonus(prediction)[None], self.how)[0]


class SAC(AbstractController):
    """Learns a tanh-Gaussian policy and twin critics; acting is one pass through the actor."""

    obs_dim: int = eqx.field(static=True)
    config: SACConfig = eqx.field(static=True, default_factory=SACConfig)
    deterministic: bool = eqx.field(static=True, default=False)  # act by the mode tanh(μ) instead of a sample

    @property
    def learns(self) -> bool:
        """Its state is a policy."""
        return True

    def for_evaluation(self) -> "SAC":
        """The same policy without its noise."""
        return SAC(self.obs_dim, self.config, deterministic=True)

    def init(self, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> SACState:
        """Untrained networks; the targets start as copies."""
        if not isinstance(mdp.dynamics, AbstractVectorDynamics):
            raise SombrlError(
                f"a policy learns from stored observations, and {type(mdp.dynamics).__name__} has a latent state: use "
                "an ensemble or a GP."
            )
        if mdp.action_dim != mdp.env_action_dim:
            raise SombrlError(
                "a policy learns from stored actions, which have no hallucinated controls: use --controller icem for "
                "--explore hucrl, or --explore optimistic."
            )
        actor_key, critic_key = jr.split(key)
        actor, critic = self._actor(mdp, actor_key), self._critic(mdp, critic_key)
        log_temperature = jnp.asarray(math.log(self.config.init_temperature), jnp.float32)
        zero = jnp.zeros((), jnp.float32)
        return SACState(
            normaliser=RunningNormaliser.identity(self.obs_dim) if self.config.normalise_observations else None,
            actor=actor,
            target_actor=actor,
            critic=critic,
            target_critic=critic,
            log_temperature=log_temperature,
            log_bonus_factor=zero,
            statistics=BonusStatistics.empty(),
            actor_memory=self._weights_optimiser(self.config.actor_lr).init(actor),
            critic_memory=self._weights_optimiser(self.config.critic_lr).init(critic),
            temperature_memory=self._optimiser(self.config.temperature_lr).init(log_temperature),
            factor_memory=self._optimiser(self.config.bonus_weight_lr).init(zero),
            updates=jnp.zeros((), jnp.int32),
            latest=dict.fromkeys(METRICS, zero),
        )

    def actor(self, state: SACState) -> Policy:
        """The policy's."""
        return state.policy(state.actor)

    def begin_episode(self, state: SACState, mdp: ImaginedMDP) -> SACState:
        """A policy has nothing that belongs to an episode."""
        return state

    def act(
        self, state: SACState, mdp: ImaginedMDP, belief: State, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, " plan"], SACState]:
        """A sample of the policy, or its mode."""
        mean, log_std = gaussian(self.actor(state), belief)
        noise = jnp.zeros_like(mean) if self.deterministic else jr.normal(key, mean.shape, mean.dtype)
        return squash(mean, log_std, noise)[0], state

    def objective(self, state: SACState, mdp: ImaginedMDP) -> ImaginedMDP:
        """The problem that actor and critics solve, entropy aside: their γ, and the bonus as it is paid to them."""
        if isinstance(mdp.bonus, NoBonus):
            return dataclasses.replace(mdp, discount=self._discount(mdp))
        weight = mdp.bonus_weight * _exp(state.log_bonus_factor)
        bonus = ScaledBonus(mdp.bonus, state.statistics, self.config.bonus_scale)
        return dataclasses.replace(mdp, discount=self._discount(mdp), bonus=bonus, bonus_weight=weight)

    def improve(
        self, state: SACState, mdp: ImaginedMDP, replay: Replay, *, key: Key[Array, ""]
    ) -> tuple[SACState, dict[str, Float[Array, ""]]]:
        """`updates_per_call` updates, or nothing while there is too little data."""
        config = self.config
        size = math.gcd(config.updates_per_call, config.policy_every)
        number = config.updates_per_call // size

        def learn(state: SACState) -> SACState:
            if number == 1:
                return self._block(state, mdp, size, self._draw(mdp, replay, size, jr.fold_in(key, 0)))
            draws = jax.vmap(lambda i: self._draw(mdp, replay, size, jr.fold_in(key, i)))(jnp.arange(number))
            return jax.lax.scan(lambda s, d: (self._block(s, mdp, size, d), None), state, draws)[0]

        enough = replay.at_least >= config.learning_starts  # known at compile time: no check in the program
        state = learn(state) if enough else _when(replay.count >= config.learning_starts, learn, state)
        metrics = {f"policy/{name}": value for name, value in state.latest.items()}
        metrics["policy/temperature"] = _exp(state.log_temperature)
        metrics["policy/bonus_weight"] = mdp.bonus_weight * _exp(state.log_bonus_factor)
        return state, metrics

    def _draw(self, mdp: ImaginedMDP, replay: Replay, size: int, key: Key[Array, ""]) -> Draws:
        """The random numbers of a block. Drawn for all blocks at once, outside their loop."""
        config = self.config
        real = replay.sample(size * config.batch_size, key=role_key(key, "batch"))
        real = dataclasses.replace(real, reward=mdp.task_weight * real.reward, cost=None)

        def normal(role: Role, rows: int) -> Array:
            return jr.normal(role_key(key, role), (rows, mdp.action_dim), jnp.float32)

        return Draws(
            real=real,
            next_action=normal("next_action", config.batch_size * batches_of(config, size)),
            action=normal("action", config.batch_size),
            target_action=normal("target_action", config.batch_size),
            key=key,
        )

    def _block(self, state: SACState, mdp: ImaginedMDP, size: int, draws: Draws) -> SACState:
        """`size` updates with the same policy, then the policy step if it is due."""
        config, real = self.config, draws.real
        if state.normaliser is not None:
            state = eqx.tree_at(lambda s: s.normaliser, state, state.normaliser.update(real.obs))
        imagined = None if config.imagined == "none" else imagine(config, self.actor(state), mdp, real, draws.key)
        steps = schedule(config, state.updates, real, imagined, size)
        rows = self._critic_rows(state, mdp, steps.rows, steps.weight, draws)
        state = self._critic_steps(state, rows, steps.tau, steps.due)
        state = eqx.tree_at(lambda s: s.updates, state, state.updates + size)

        obs = real.obs[-config.batch_size :]  # of the block's last update
        if size == config.policy_every:
            state = self._policy_step(state, mdp, obs, draws)
        else:
            due_now = state.updates % config.policy_every == 0
            state = _when(due_now, lambda state: self._policy_step(state, mdp, obs, draws), state)
        return state

    @property
    def renew_every(self) -> int | None:
        """Soft resets, after every `soft_reset_every` updates, rounded up to whole improvements."""
        every = self.config.soft_reset_every
        return None if every is None else -(-every // self.config.updates_per_call)

    def _critic_rows(
        self,
        state: SACState,
        mdp: ImaginedMDP,
        rows: Transition,
        weight: Float[Array, "steps batch"] | None,
        draws: Draws,
    ) -> CriticRows:
        """The batches as the critics see them: γ, next actions and bonuses of all at once."""
        config, policy = self.config, self.actor(state)
        discount = self._discount(mdp)
        steps, size = rows.reward.shape

        def flat(leaf: Array) -> Array:
            return leaf.reshape(steps * size, *leaf.shape[2:])

        obs, action, next_obs, reward = flat(rows.obs), flat(rows.action), flat(rows.next_obs), flat(rows.reward)
        next_action, log_prob = sample_actions(policy, next_obs, draws.next_action)
        soft = -_exp(state.log_temperature) * log_prob
        raw_bonus = _raw_bonus(mdp)
        if raw_bonus is not None:
            if config.bonus_enters == "target":
                soft = soft + self._weighted(state, mdp, state.statistics, raw_bonus(next_obs, next_action))
            else:
                reward = reward + self._weighted(state, mdp, state.statistics, raw_bonus(obs, action))
        bootstrap = jnp.where(flat(rows.terminated), 0.0, discount)
        if config.critic_expansion:
            arguments = self._expansion(
                state, mdp, state.statistics, config.critic_expansion, draws, "critic_expansion"
            )
            end = expand(policy, mdp, next_obs, next_action, **arguments)
            reward, bootstrap = reward + bootstrap * (soft + end.gathered), bootstrap * end.discount
            next_obs, next_action, soft = end.obs, end.action, jnp.zeros_like(soft)
        flat_rows = CriticRows(
            obs=state.seen(obs),
            action=action,
            reward=reward,
            bootstrap=bootstrap,
            next_obs=state.seen(next_obs),
            next_action=next_action,
            next_soft=soft,
            weight=None if weight is None else flat(weight),
        )
        rows_by_step: CriticRows = jax.tree.map(lambda leaf: leaf.reshape(steps, size, *leaf.shape[1:]), flat_rows)
        return rows_by_step

    def _discount(self, mdp: ImaginedMDP) -> Float[Array, ""]:
        """γ: the setting's, where it has one."""
        return jnp.where(mdp.discount < 1, mdp.discount, self.config.discount)

    def _expansion(
        self, state: SACState, mdp: ImaginedMDP, statistics: BonusStatistics, steps: int, draws: Draws, role: Role
    ) -> dict[str, Any]:
        """How `expand` goes about it."""
        raw_bonus = _raw_bonus(mdp)

        def bonus(obs: Float[Array, "batch obs"], action: Float[Array, "batch plan"]) -> Float[Array, " batch"]:
            assert raw_bonus is not None
            return self._weighted(state, mdp, statistics, raw_bonus(obs, action))

        return {
            "steps": steps,
            "discount": self._discount(mdp),
            "temperature": _exp(state.log_temperature),
            "bonus": None if raw_bonus is None else bonus,
            "bonus_is_reward": self.config.bonus_enters == "reward",
            "key": role_key(draws.key, role),
        }

    def _weighted(
        self, state: SACState, mdp: ImaginedMDP, statistics: BonusStatistics, raw: Float[Array, " batch"]
    ) -> Float[Array, " batch"]:
        """λ I, and 0 where λ is 0, whatever I may be there."""
        weight = mdp.bonus_weight * _exp(state.log_bonus_factor)
        scaled = statistics.scale(raw, self.config.bonus_scale)
        return jnp.where(weight > 0, weight * scaled, jnp.zeros_like(scaled))

    def _critic_steps(
        self, state: SACState, rows: CriticRows, tau: Float[Array, " steps"], due: Bool[Array, " steps"] | None
    ) -> SACState:
        """A gradient step and a Polyak step of the targets per batch."""
        config, optimiser = self.config, self._weights_optimiser(self.config.critic_lr)

        def step(carry: tuple[Any, ...], batch: CriticRows, tau: Array) -> tuple[Any, ...]:
            critic, target, memory, _ = carry
            gradient_of = jax.value_and_grad(critic_loss, has_aux=True)
            (loss, q), gradient = gradient_of(critic, target, batch, config.critics)
            critic, memory = self._learn(optimiser, gradient, memory, critic)
            return critic, polyak(target, critic, tau), memory, (loss, jnp.mean(q))

        def body(carry: tuple[Any, ...], x: tuple[CriticRows, Array, Array | None]) -> tuple[tuple[Any, ...], None]:
            batch, tau, due = x
            if due is None:
                return step(carry, batch, tau), None
            return _when(due, lambda carry: step(carry, batch, tau), carry), None

        carry = state.critic, state.target_critic, state.critic_memory, (state.latest["critic_loss"], state.latest["q"])
        if tau.shape[0] == 1:
            carry, _ = body(carry, jax.tree.map(lambda leaf: leaf[0], (rows, tau, due)))
        else:
            carry, _ = jax.lax.scan(body, carry, (rows, tau, due))
        critic, target, memory, (loss, q) = carry
        stepped: SACState = eqx.tree_at(
            lambda s: (s.critic, s.target_critic, s.critic_memory, s.latest["critic_loss"], s.latest["q"]),
            state,
            (critic, target, memory, loss, q),
        )
        return stepped

    def _policy_step(self, state: SACState, mdp: ImaginedMDP, obs: Float[Array, "batch obs"], draws: Draws) -> SACState:
        """One step of the actor, of its target (EMA) copy, of α and of λ."""
        config, raw_bonus = self.config, _raw_bonus(mdp)
        slow_raw, some = None, obs[: config.bonus_rows]
        if raw_bonus is not None:
            noise = draws.target_action[: config.bonus_rows]
            slow_raw = raw_bonus(some, sample_actions(state.policy(state.target_actor), some, noise)[0])

        def loss_of(actor: Body) -> tuple[Array, tuple[Array, BonusStatistics, Array]]:
            policy = state.policy(actor)
            action, log_prob = sample_actions(policy, obs, draws.action)
            value = value_of(twin_q(state.critic, state.seen(obs), action), config.critics)
            bonus, statistics, raw = jnp.zeros_like(log_prob), state.statistics, jnp.zeros_like(log_prob)
            if raw_bonus is not None and slow_raw is not None:
                raw = raw_bonus(some, finite_gradient(action[: config.bonus_rows]))
                seen = jnp.concatenate([raw, slow_raw])
                statistics = statistics.add(seen, floor=config.bonus_floor, cap=config.bonus_memory)
                if config.bonus_enters == "target":
                    bonus = self._weighted(state, mdp, statistics, raw)
                    bonus = bonus if config.bonus_rows is None else jnp.full_like(log_prob, jnp.mean(bonus))
            if config.actor_expansion:
                arguments = self._expansion(state, mdp, statistics, config.actor_expansion, draws, "actor_expansion")
                end = expand(policy, mdp, obs, action, **arguments)
                value = value_of(twin_q(state.critic, state.seen(end.obs), end.action), config.critics)
                value = end.gathered + end.discount * value
            return actor_loss(value, log_prob, bonus, _exp(state.log_temperature)), (log_prob, statistics, raw)

        (loss, (log_prob, statistics, raw)), gradient = jax.value_and_grad(loss_of, has_aux=True)(state.actor)
        optimiser = self._weights_optimiser(config.actor_lr)
        actor, actor_memory = self._learn(optimiser, gradient, state.actor_memory, state.actor)

        entropy = -jnp.mean(log_prob)
        target_entropy = -config.target_entropy_factor * mdp.action_dim
        gradient = jax.grad(temperature_loss)(state.log_temperature, entropy, target_entropy)
        log_temperature, temperature_memory = _descend(
            self._optimiser(config.temperature_lr), gradient, state.temperature_memory, state.log_temperature
        )
        latest = state.latest | {"actor_loss": loss, "entropy": entropy}
        state = eqx.tree_at(
            lambda s: (s.actor, s.target_actor, s.actor_memory, s.log_temperature, s.temperature_memory, s.latest),
            state,
            (
                *(actor, polyak(state.target_actor, actor, config.tau), actor_memory),
                *(log_temperature, temperature_memory, latest),
            ),
        )
        return state if slow_raw is None else self._tune_bonus_weight(state, mdp, statistics, raw, slow_raw)

    def _tune_bonus_weight(
        self,
        state: SACState,
        mdp: ImaginedMDP,
        statistics: BonusStatistics,
        raw: Float[Array, " batch"],
        slow_raw: Float[Array, " batch"],
    ) -> SACState:
        """One step of λ; where λ is 0 there is nothing to tune, and nothing changes."""
        scale = self.config.bonus_scale
        gap = jnp.mean(statistics.scale(raw, scale)) - jnp.mean(statistics.scale(slow_raw, scale))
        gradient = jax.grad(bonus_weight_loss)(state.log_bonus_factor, gap)
        optimiser = self._optimiser(self.config.bonus_weight_lr)
        log_factor, memory = _descend(optimiser, gradient, state.factor_memory, state.log_bonus_factor)
        latest = state.latest | {"bonus": jnp.mean(raw), "bonus_gap": gap}

        def where(s: SACState) -> tuple[Any, ...]:
            return s.statistics, s.log_bonus_factor, s.factor_memory, s.latest

        new = statistics, log_factor, memory, latest
        kept = jax.tree.map(lambda a, b: jnp.where(mdp.bonus_weight > 0, a, b), new, where(state))
        tuned: SACState = eqx.tree_at(where, state, kept)
        return tuned

    def renew(self, state: SACState, mdp: ImaginedMDP, *, key: Key[Array, ""]) -> SACState:
        """A soft reset: mix fresh parameters into each critic, and reset their Adam state."""
        config = self.config
        keys = jr.split(key, 4)
        critic = soft_reset(state.critic, self._critic(mdp, keys[0]), config.reset_mix)
        target_critic = soft_reset(state.target_critic, self._critic(mdp, keys[1]), config.reset_mix)
        memory = self._weights_optimiser(config.critic_lr).init(critic)
        state = eqx.tree_at(
            lambda s: (s.critic, s.target_critic, s.critic_memory), state, (critic, target_critic, memory)
        )
        if not config.reset_policy:
            return state
        actor = soft_reset(state.actor, self._actor(mdp, keys[2]), config.reset_mix)
        target_actor = soft_reset(state.target_actor, self._actor(mdp, keys[3]), config.reset_mix)
        memory = self._weights_optimiser(config.actor_lr).init(actor)
        where = lambda s: (s.actor, s.target_actor, s.actor_memory)  # noqa: E731
        reset: SACState = eqx.tree_at(where, state, (actor, target_actor, memory))
        return reset

    def take_over(self, state: SACState, fresh: SACState) -> SACState:
        """The networks; the scale of the bonus and the tuning of λ begin anew."""

        def of_strategy(s: SACState) -> tuple[Any, ...]:
            return s.statistics, s.log_bonus_factor, s.factor_memory

        taken: SACState = eqx.tree_at(of_strategy, state, of_strategy(fresh))
        return taken

    def _actor(self, mdp: ImaginedMDP, key: Key[Array, ""]) -> Body:
        """Two heads: the mean and the log-std."""
        config, heads = self.config, (mdp.action_dim, mdp.action_dim)
        hidden = config.hidden if config.actor_hidden is None else config.actor_hidden
        norm = config.first_norm
        return make_body(config.actor, self.obs_dim, hidden, heads, output_gain=1.0, first_norm=norm, key=key)

    def _critic(self, mdp: ImaginedMDP, key: Key[Array, ""]) -> Body:
        """All of them, stacked."""
        config, inputs = self.config, self.obs_dim + mdp.action_dim
        bins = config.critic_output == "bins"  # equal at first: the value of every state and action is 0
        outputs, gain = (value_bins.NUMBER, 0.0) if bins else (1, None)

        def make(*, key: Key[Array, ""]) -> Body:
            norm = config.first_norm
            return make_body(config.critic, inputs, config.hidden, outputs, output_gain=gain, first_norm=norm, key=key)

        return stacked(make, NUMBERS[config.critics], key=key)

    def _optimiser(self, learning_rate: float) -> optax.GradientTransformation:
        """Of α and λ."""
        return self._clipped(optax.adam(learning_rate))

    def _weights_optimiser(self, learning_rate: float) -> optax.GradientTransformation:
        """Of networks; without decay this is Adam, which saves a pass over memory."""
        decay = self.config.weight_decay
        return self._clipped(optax.adamw(learning_rate, weight_decay=decay) if decay else optax.adam(learning_rate))

    def _clipped(self, optimiser: optax.GradientTransformation) -> optax.GradientTransformation:
        clip = self.config.gradient_clip
        return optimiser if clip is None else optax.chain(optax.clip_by_global_norm(clip), optimiser)

    def _learn(
        self, optimiser: optax.GradientTransformation, gradient: Body, memory: Any, network: Body
    ) -> tuple[Body, Any]:
        """One step of a network."""
        stepped, memory = _descend(optimiser, gradient, memory, network)
        return keep_norms(network, stepped) if self.config.project_weights else stepped, memory


def _descend(optimiser: optax.GradientTransformation, gradient: Any, memory: Any, parameters: Any) -> tuple[Any, Any]:
    """The parameters after one step, and the optimiser's new memory."""
    with jax.numpy_dtype_promotion("standard"):  # optax relies on implicit promotion
        update, memory = optimiser.update(gradient, memory, parameters)
        return optax.apply_updates(parameters, update), memory


def _exp(log_weight: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.exp(bounded_log(log_weight))


def _raw_bonus(mdp: ImaginedMDP) -> Bonus | None:
    """I over a batch, or None where the strategy has no bonus: the model is then not evaluated at all."""
    if isinstance(mdp.bonus, NoBonus):
        return None
    return jax.vmap(lambda obs, action: mdp.bonus(mdp.dynamics.predict(obs, action)))


def _when(due: Bool[Array, ""], function: Callable[[Any], Any], state: Any) -> Any:
    """`function(state)` if due, else the state: a loop of one round or none.

    Not a `cond`, because over vmapped seeds that runs both branches every time.
    """
    return jax.lax.fori_loop(0, due.astype(jnp.int32), lambda _, state: function(state), state)
