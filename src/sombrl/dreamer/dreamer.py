"""Dreamer-Optimistic: DreamerV3 (Hafner et al., 2023) with the disagreement of a latent ensemble in its rewards.

A world model learns to compress and predict observations; inside it a policy is trained for r + λσ, all by one
optimiser in one step, `learn`. `--explore greedy` is DreamerV3, `--explore unsupervised` is Plan2Explore (Sekar et al.,
2020).

Everything here is for one seed. `sombrl/dreamer/loop.py` runs it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from sombrl.controllers.sac_losses import BonusStatistics
from sombrl.dreamer.actor_critic import imagine, judge, policy_loss, replay_value_loss, value_loss
from sombrl.dreamer.config import DreamerConfig, DreamerExplore
from sombrl.dreamer.decoder import Decoder
from sombrl.dreamer.disagreement import BonusWeight, LatentEnsemble, bootstrap_shares
from sombrl.dreamer.encoder import CnnName, Encoder
from sombrl.dreamer.heads import AbstractPolicy, ContinueHead, NormalPolicy, OneHotPolicy, TwoHotHead
from sombrl.dreamer.laprop import laprop
from sombrl.dreamer.returns import ReturnScale, with_bonus
from sombrl.dreamer.rssm import RSSM, Latent, dynamics_losses, zero_latent
from sombrl.dreamer.sizes import SIZES, Size

REPRESENTATION_SCALE, REPLAY_VALUE_SCALE = 0.1, 0.3  # of these losses; all others count once


class Networks(eqx.Module):
    """All that the optimiser learns."""

    encoder: Encoder
    rssm: RSSM
    decoder: Decoder
    reward: TwoHotHead
    cont: ContinueHead
    policy: AbstractPolicy
    value: TwoHotHead
    ensemble: LatentEnsemble | None

    def __init__(
        self,
        parts: tuple[Any, ...],
        action_dim: int,
        discrete: bool,
        size: Size,
        cnn: CnnName,
        explore: DreamerExplore,
        unimix: float,
        *,
        key: Key[Array, ""],
    ):
        """`parts` of an observation (`sombrl.envs.layout`)."""
        keys = jr.split(key, 8)
        self.encoder = Encoder(parts, size, cnn=cnn, key=keys[0])
        self.rssm = RSSM(self.encoder.tokens, action_dim, discrete, size, key=keys[1])
        self.decoder = Decoder(parts, size, cnn=cnn, key=keys[2])
        self.reward = TwoHotHead(size.features, size.units, 1, key=keys[3])
        self.cont = ContinueHead(size.features, size.units, key=keys[4])
        self.policy = (
            OneHotPolicy(size.features, action_dim, size.units, unimix=unimix, key=keys[5])
            if discrete
            else NormalPolicy(size.features, action_dim, size.units, key=keys[5])
        )
        self.value = TwoHotHead(size.features, size.units, 3, key=keys[6])
        self.ensemble = None
        if explore.curious:
            target = {"stoch": size.stoch, "deter": size.deter, "embedding": self.encoder.tokens}
            shape = target[explore.ensemble_target], explore.members, explore.widths(size)
            self.ensemble = LatentEnsemble(size.features, action_dim, *shape, key=keys[7])


class DreamerState(eqx.Module):
    """The networks and the states of their optimisers."""

    networks: Networks
    slow_value: TwoHotHead
    slow_policy: AbstractPolicy
    scale: ReturnScale
    bonus_weight: BonusWeight | None  # None: constant
    optimiser: Any
    weight_optimiser: Any
    updates: Int[Array, ""]
    statistics: BonusStatistics | None = None  # of σ; None: it is not scaled


class Sequences(eqx.Module):
    """A batch of windows of the replay, [batch, time, ...]; the context record gives `start` and the first action."""

    obs: dict[str, Shaped[Array, "..."]]
    action: Float[Array, "*seeds batch time_and_one action"]  # from the context record on
    reward: Float[Array, "*seeds batch time"]
    first: Bool[Array, "*seeds batch time"]
    last: Bool[Array, "*seeds batch time"]
    terminal: Bool[Array, "*seeds batch time"]
    deter: Float[Array, "*seeds batch deter"]
    stoch: Int[Array, "*seeds batch latents"]
    new: Bool[Array, "*seeds batch"]  # windows that no batch has had before
    positions: Int[Array, "*seeds batch 2"]  # stream, and time of the first record in that stream


class Posteriors(eqx.Module):
    """The posteriors of a batch, which go back into the replay."""

    deter: Float[Array, "batch time deter"]  # half precision
    stoch: Int[Array, "batch time latents"]


class Dreamer:
    """The algorithm: `init`, `learn` and `act` of one seed, to be compiled and vmapped."""

    def __init__(self, config: DreamerConfig, parts: tuple[Any, ...], action_dim: int, discrete: bool):
        images = any(part.kind == "image" for part in parts)
        self.config = config.resolved(images)
        self.parts, self.action_dim, self.discrete = tuple(parts), action_dim, discrete
        self.size = SIZES[self.config.size or ""]
        self._optimiser = laprop(config.learning_rate, config.warmup)
        # No clipping by the parameter's own size: log λ passes through 0.
        self._weight_optimiser = laprop(config.explore.bonus_weight_lr, warmup=0, agc=None)
        low = config.precision == "bfloat16" or (config.precision == "auto" and jax.default_backend() != "cpu")
        self.dtype = jnp.dtype(jnp.bfloat16 if low else jnp.float32)
        learned = dataclasses.replace(self.config, start_from=None, start_updates=0)
        self._computes = (learned, self.parts, action_dim, discrete, self.dtype)

    def __eq__(self, other: object) -> bool:
        """Whether it computes the same, so that compiled programs can be shared."""
        return isinstance(other, Dreamer) and self._computes == other._computes

    def __hash__(self) -> int:
        """Of what it computes."""
        return hash(self._computes)

    def init(self, *, key: Key[Array, ""]) -> DreamerState:
        """Untrained."""
        explore, cnn = self.config.explore, self.config.cnn or "paper"
        networks = Networks(
            *(self.parts, self.action_dim, self.discrete, self.size, cnn, explore, self.config.unimix), key=key
        )
        weight = BonusWeight(explore.bonus_weight) if explore.tuned else None
        return DreamerState(
            networks=networks,
            slow_value=jax.tree.map(jnp.copy, networks.value),
            slow_policy=jax.tree.map(jnp.copy, networks.policy),
            scale=ReturnScale(),
            bonus_weight=weight,
            optimiser=self._optimiser.init(eqx.filter(networks, eqx.is_array)),
            weight_optimiser=self._weight_optimiser.init(weight),
            updates=jnp.zeros((), jnp.int32),
            statistics=BonusStatistics.empty() if explore.scaled else None,
        )

    # -------------------------------------------------------------------------------------------- act

    def act(
        self,
        networks: Networks,
        latent: Latent,
        action: Float[Array, " action"],
        obs: dict[str, Shaped[Array, "..."]],
        first: Bool[Array, ""],
        *,
        sample: bool = True,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, " action"], Latent]:
        """The action after an observation, and the state it was chosen in; `action` is the previous one.

        The state is always sampled, the action with `sample`; otherwise it is the most likely one. States are float32
        outside, so that a run saved on an accelerator can be resumed anywhere.
        """
        networks = self._cast(networks)
        latent = jax.tree.map(lambda leaf: leaf.astype(self.dtype), latent)
        observe_key, action_key = jr.split(key)
        latent, _, _ = networks.rssm.observe(latent, action, networks.encoder(obs), first, key=observe_key)
        chosen = networks.policy(latent.features)
        latent = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), latent)
        return (chosen.sample(key=action_key) if sample else chosen.mode()), latent

    def initial_latents(self, rows: int) -> Latent:
        """The latent state at the start of an episode, [rows, ...], float32."""
        latent = zero_latent(self.size, jnp.dtype(jnp.float32))
        latents: Latent = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape)), latent)
        return latents

    # ------------------------------------------------------------------------------------------ learn

    def learn(
        self, state: DreamerState, batch: Sequences, *, key: Key[Array, ""]
    ) -> tuple[DreamerState, Posteriors, dict[str, Float[Array, ""]]]:
        """One update of everything."""
        parameters, static = eqx.partition(state.networks, eqx.is_array)

        def loss(parameters: Networks) -> Any:
            return self._loss(eqx.combine(parameters, static), state, batch, key=key)

        found, gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
        posteriors, scale, gap, statistics, metrics = found[1]
        change, optimiser = self._optimiser.update(gradient, state.optimiser, parameters)
        if (rate := self.config.explore.ensemble_lr) is not None:
            faster = jax.tree.map(lambda step: rate / self.config.learning_rate * step, change.ensemble)
            change = eqx.tree_at(lambda c: c.ensemble, change, faster)
        networks = eqx.combine(optax.apply_updates(parameters, change), static)
        weight, weight_optimiser = self._tune(state, gap)
        state = DreamerState(
            networks=networks,
            slow_value=self._towards(state.slow_value, networks.value),
            slow_policy=self._towards(state.slow_policy, networks.policy),
            scale=scale,
            bonus_weight=weight,
            optimiser=optimiser,
            weight_optimiser=weight_optimiser,
            updates=state.updates + 1,
            statistics=statistics,
        )
        return state, posteriors, metrics

    def weights(self, state: DreamerState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The weights of the bonus and of the task."""
        explore = self.config.explore
        if state.bonus_weight is not None:
            bonus = jax.lax.stop_gradient(state.bonus_weight.weight)
        else:
            constant = {"greedy": 0.0, "unsupervised": 1.0}.get(explore.explore, explore.bonus_weight)
            bonus = jnp.asarray(constant, jnp.float32)
        return bonus, jnp.asarray(0.0 if explore.explore == "unsupervised" else 1.0, jnp.float32)

    def _loss(
        self, networks: Networks, state: DreamerState, batch: Sequences, *, key: Key[Array, ""]
    ) -> tuple[Array, tuple[Posteriors, ReturnScale, Array, BonusStatistics | None, dict[str, Array]]]:
        """The sum of all losses, each a mean over the batch."""
        config, explore = self.config, self.config.explore
        observe_key, imagine_key, slow_key = jr.split(key, 3)
        bonus_weight, task_weight = self.weights(state)
        net = self._cast(networks)
        frozen = jax.lax.stop_gradient(net)  # no gradients
        metrics: dict[str, Float[Array, ""]] = {}

        # The world model: reconstruct the records from the posterior states.
        tokens = over_all(net.encoder)(batch.obs)
        start = Latent(batch.deter.astype(self.dtype), jax.nn.one_hot(batch.stoch, self.size.classes, dtype=self.dtype))
        before = batch.action[:, :-1]
        latents, prior, posterior = net.rssm.observe_sequences(start, before, tokens, batch.first, key=observe_key)
        dynamics, representation = dynamics_losses(posterior, prior)
        losses = {"dynamics": jnp.mean(dynamics), "representation": REPRESENTATION_SCALE * jnp.mean(representation)}
        seen = over_all(lambda latent, obs: net.decoder.losses(net.decoder(latent), obs))(latents, batch.obs)
        losses |= {f"reconstruction/{name}": jnp.mean(values) for name, values in seen.items()}
        features = latents.features
        losses["reward"] = jnp.mean(over_all(net.reward.loss)(features, batch.reward))
        losses["continue"] = jnp.mean(over_all(net.cont.loss)(features, batch.terminal))
        model_loss = sum(losses.values(), jnp.zeros((), jnp.float32))

        # Imagination from every record, or from the last ones of every sequence.
        last = slice(-(config.imagine_last or batch.reward.shape[1]), None)
        roots = jax.tree.map(
            lambda leaf: jnp.reshape(leaf[:, last], (-1, *leaf.shape[2:])), jax.lax.stop_gradient(latents)
        )
        imagined = jax.vmap(
            lambda root, key: imagine(
                *(frozen.rssm, frozen.reward, frozen.cont, frozen.policy, frozen.ensemble, root, config.horizon),
                explore.sigma,
                key=key,
            )
        )(roots, jr.split(imagine_key, roots.deter.shape[0]))

        disagreement = jnp.mean(imagined.sigma)

        # The ensemble; σ there and on the records; and the policy's bonus compared with that of its EMA copy.
        actions = batch.action[:, 1:]
        rewards = task_weight * batch.reward
        gap, sigma = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32)
        bonus, statistics = imagined.sigma, state.statistics
        if net.ensemble is not None and frozen.ensemble is not None:
            measured = frozen.ensemble
            missed = self._ensemble_losses(net.ensemble, batch, latents, tokens)
            losses["ensemble"] = jnp.mean(missed)
            for age, of_age in {"new": batch.new, "old": ~batch.new}.items():  # not every batch has new windows
                metrics[f"sum/ensemble_{age}"] = jnp.sum(jnp.where(of_age, missed, 0.0))
                metrics[f"count/ensemble_{age}"] = jnp.sum(of_age.astype(jnp.float32))
            recorded = over_all(lambda x, a: measured.sigma(x, a, explore.sigma))(features[:, :-1], actions[:, :-1])
            sigma = jnp.mean(recorded)
            slow_policy = self._cast(state.slow_policy)

            def slow_sigma(x: Array, key: Key[Array, ""]) -> Float[Array, ""]:
                slow: Array = measured.sigma(x, slow_policy.sample(x, key=key), explore.sigma)
                return slow

            slow = jax.vmap(slow_sigma)(imagined.features[:, 0], jr.split(slow_key, imagined.features.shape[0]))
            if statistics is not None:
                statistics = statistics.add(
                    jnp.concatenate([imagined.sigma[:, 0], slow]), floor=explore.bonus_floor, cap=explore.bonus_memory
                )
                metrics["explore/bonus_std"] = statistics.std
                bonus, recorded, slow = (
                    jnp.reshape(statistics.scale(jnp.ravel(values), explore.bonus_scale), values.shape)
                    for values in (bonus, recorded, slow)
                )
            gap = jnp.mean(bonus[:, 0]) - jnp.mean(slow)
            rewards = jax.vmap(lambda r, s, first: with_bonus(r, s, bonus_weight, first))(
                rewards, recorded, batch.first
            )

        # Policy and value, in imagination and on the records.
        imagined = eqx.tree_at(lambda path: path.sigma, imagined, bonus)
        judged = jax.vmap(lambda path: judge(path, net.value, bonus_weight, task_weight))(imagined)
        scale = state.scale.update(judged.returns)
        chosen = jax.vmap(lambda path, seen: policy_loss(net.policy, path, seen, scale.scale))(imagined, judged)
        slow_value = self._cast(state.slow_value)
        losses["policy"] = jnp.mean(chosen[0])
        losses["value"] = jnp.mean(jax.vmap(lambda path, seen: value_loss(seen, slow_value, path))(imagined, judged))
        bootstrap = jnp.reshape(judged.returns[:, 0], (features.shape[0], -1))
        replayed = jax.vmap(lambda *sequence: replay_value_loss(net.value, slow_value, *sequence))(
            *(values[:, last] for values in (features, rewards, batch.terminal, batch.last)), bootstrap
        )
        losses["replay_value"] = REPLAY_VALUE_SCALE * jnp.mean(replayed)

        bonus = jnp.mean(jnp.abs(bonus_weight * bonus))
        paid = jnp.mean(jnp.abs(task_weight * imagined.rewards[:, 1:]))
        metrics |= {f"loss/{name}": value for name, value in losses.items()}
        metrics |= {
            "model/loss": model_loss,
            "policy/entropy": jnp.mean(chosen[1]),
            "policy/return": jnp.mean(judged.returns),
            "policy/return_scale": scale.scale,
            "policy/value": jnp.mean(judged.values),
            "explore/bonus_weight": bonus_weight,
            "explore/mean_std": sigma,
            "explore/imagined_std": disagreement,
            "explore/bonus_share": bonus / jnp.maximum(bonus + paid, 1e-8),
            "explore/bonus_gap": gap,
        }
        posteriors = Posteriors(latents.deter.astype(jnp.float16), jnp.argmax(latents.stoch, axis=-1).astype(jnp.int32))
        total = sum(losses.values(), jnp.zeros((), jnp.float32))
        return total, (posteriors, scale, gap, statistics, metrics)

    def targets(self, latent: Latent, tokens: Float[Array, "*batch token"]) -> Float[Array, "*batch target"]:
        """What the ensemble predicts of a record."""
        match self.config.explore.ensemble_target:
            case "stoch":
                return jnp.reshape(latent.stoch, (*latent.stoch.shape[:-2], -1))
            case "deter":
                return latent.deter
            case "embedding":
                return tokens

    def _ensemble_losses(
        self, ensemble: LatentEnsemble, batch: Sequences, latents: Latent, tokens: Float[Array, "batch time token"]
    ) -> Float[Array, " batch"]:
        """Of every sequence."""
        explore = self.config.explore
        given = latents.features, batch.action[:, 1:], self.targets(latents, tokens), batch.first
        if explore.bootstrap == 1.0:
            return jax.vmap(ensemble.loss)(*given)
        time = batch.first.shape[1]
        shares = jax.vmap(
            lambda where: bootstrap_shares(where[0], where[1] + 1, time, explore.members, explore.bootstrap)
        )(batch.positions)
        return jax.vmap(ensemble.loss)(*given, shares)

    def _tune(self, state: DreamerState, gap: Float[Array, ""]) -> tuple[BonusWeight | None, Any]:
        """A step of λ, which has an optimiser of its own."""
        weight = state.bonus_weight
        if weight is None:
            return weight, state.weight_optimiser
        gradient = jax.grad(lambda w: w.loss(gap, self.config.explore.bonus_weight_decay))(weight)
        change, optimiser = self._weight_optimiser.update(gradient, state.weight_optimiser)
        return optax.apply_updates(weight, change), optimiser

    def _towards(self, slow: Any, fast: Any) -> Any:
        rate = self.config.slow_rate
        return jax.tree.map(lambda old, new: (1.0 - rate) * old + rate * new if eqx.is_array(old) else old, slow, fast)

    def _cast(self, networks: Any) -> Any:
        """A copy that computes in `dtype`."""
        return jax.tree.map(lambda leaf: leaf.astype(self.dtype) if eqx.is_array(leaf) else leaf, networks)


def over_all(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of one record → of all records of a batch, [batch, time, ...]."""
    return jax.vmap(jax.vmap(function))
