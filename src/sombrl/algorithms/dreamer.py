"""Dreamer-Optimistic: DreamerV3 (Hafner et al., 2023) with the disagreement of a latent ensemble in its rewards.

A world model learns to compress and predict what is seen; inside it a policy is trained for r + λσ, all by one
optimiser in one step, `learn`. `--explore greedy` is DreamerV3, `--explore unsupervised` is Plan2Explore (Sekar et al.,
2020).

Everything here is for one seed. `sombrl/dreamer/loop.py` runs it.
"""

import dataclasses
import math
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import tyro
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from sombrl.algorithms.base import Algorithm
from sombrl.controllers.dreamer_actor_critic import imagine, judge, policy_loss, replay_value_loss, value_loss
from sombrl.controllers.icem import check_count, check_range
from sombrl.dreamer.decoder import Decoder
from sombrl.dreamer.disagreement import BonusWeight, LatentEnsemble, SigmaName
from sombrl.dreamer.encoder import CnnName, Encoder
from sombrl.dreamer.heads import AbstractPolicy, ContinueHead, NormalPolicy, OneHotPolicy, TwoHotHead
from sombrl.dreamer.laprop import laprop
from sombrl.dreamer.returns import ReturnScale, with_bonus
from sombrl.dreamer.sizes import SIZES, Size
from sombrl.dynamics.rssm import RSSM, Latent, dynamics_losses, zero_latent
from sombrl.names import check_choices, nearest
from sombrl.records import SombrlError

REPRESENTATION_SCALE, REPLAY_VALUE_SCALE = 0.1, 0.3  # of these losses; all others count once
STRATEGIES = ("greedy", "optimistic", "unsupervised")


@dataclasses.dataclass(frozen=True)
class DreamerExplore:
    """How to explore."""

    explore: Annotated[str, tyro.conf.arg(metavar="|".join(STRATEGIES))] = "optimistic"
    """The task alone (DreamerV3); the task and the bonus; or the bonus alone (Plan2Explore)."""
    bonus_weight: float = 2.0
    """λ of the optimistic strategy, where it starts."""
    schedule: Literal["constant", "auto"] = "auto"
    """λ stays; or is tuned so that the policy stays as curious as its own slow copy."""
    bonus_weight_lr: float = 4e-5
    """Auto: learning rate of log λ (LaProp)."""
    bonus_weight_decay: float = 1e-3
    """Auto: α of the term α λ that pulls λ down."""
    sigma: SigmaName = "mean-std"
    """σ from the members' spread: its mean over the latents; its norm (the paper, to the letter); the mean variance; or
    the logarithm of the mean, which is negative."""
    members: int = 5
    """Networks of the ensemble."""
    hidden: tuple[int, ...] = (512, 512)
    """Widths of their hidden layers."""

    def __post_init__(self):
        """Refuse unknown names and impossible numbers."""
        if self.explore not in STRATEGIES:
            raise nearest(self.explore, STRATEGIES, "exploration of dreamer")
        check_choices(self)
        for name in ("bonus_weight", "bonus_weight_lr", "bonus_weight_decay"):
            check_range("--" + name.replace("_", "-"), getattr(self, name), 0.0)
        if self.schedule == "auto" and self.explore == "optimistic" and self.bonus_weight == 0:
            raise SombrlError("--schedule auto cannot leave --bonus-weight 0: use --schedule constant, or greedy.")
        if self.members < 2:
            raise SombrlError(f"--members must be at least 2, or nobody disagrees, not {self.members}.")
        for width in self.hidden:
            check_count("--hidden", width)

    @property
    def curious(self) -> bool:
        """Whether there is an ensemble."""
        return self.explore != "greedy"

    @property
    def tuned(self) -> bool:
        """Whether λ is learned."""
        return self.explore == "optimistic" and self.schedule == "auto"


@dataclasses.dataclass(frozen=True)
class DreamerConfig:
    """DreamerV3. Where nothing else is said the numbers are the published ones."""

    explore: Annotated[DreamerExplore, tyro.conf.arg(name="")] = dataclasses.field(default_factory=DreamerExplore)
    protocol: Literal["paper", "head"] = "paper"
    """Defaults of size, ratio, cnn and the action repeat on dmc: those of the published scores (12m, 512, paper, 2), or
    those of the authors' newest code, with their 12m model (256 with images, 1024 without; head; 1)."""
    size: Annotated[str | None, tyro.conf.arg(metavar="|".join(SIZES))] = None
    """Millions of parameters; default: the protocol's."""
    ratio: float | None = None
    """Records trained on per record collected; default: the protocol's, on Atari 256, or 32 with protocol=atari200m."""
    cnn: CnnName | None = None
    """The convolutions; default: the protocol's."""
    envs: int = 4
    """Environments per seed, stepped together (published: 16, and 1 for Atari 100k)."""
    batch_size: int = 16
    """Sequences per update."""
    batch_length: int = 64
    """Records of each."""
    horizon: int = 15
    """Decisions of an imagined trajectory; one starts at every record of a batch."""
    capacity: int = 1_000_000
    """Records kept per seed, in the machine's memory (published: 5 million)."""
    learning_rate: float = 4e-5
    """Of everything but λ (LaProp)."""
    warmup: int = 1000
    """Updates over which it climbs from 0."""
    slow_rate: float = 0.02
    """How far the slow value and the slow policy move towards the learned ones in an update."""
    unimix: float = 0.01
    """Discrete actions: share of the uniform distribution in the policy, so that none is ever given up."""
    start_from: str | None = None
    """A run of dreamer whose world model, and on the same environment whose records, this one begins with."""
    start_updates: int = 0
    """Updates on those records before the first decision: what comes out is evaluated as eval/zero_shot."""
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    """What networks compute in (losses and returns are float32 always); auto: bfloat16 on an accelerator."""

    def __post_init__(self):
        """Refuse what cannot be learned with."""
        check_choices(self)
        if self.size is not None and self.size not in SIZES:
            raise nearest(self.size, SIZES, "size of dreamer")
        for name in ("envs", "batch_size", "batch_length", "horizon", "capacity"):
            check_count(_flag(name), getattr(self, name))
        for name in ("learning_rate", "warmup"):
            check_range(_flag(name), getattr(self, name), 0.0)
        check_range(_flag("slow_rate"), self.slow_rate, 0.0, 1.0)
        check_range(_flag("unimix"), self.unimix, 0.0, 1.0)
        check_range(_flag("start_updates"), self.start_updates, 0.0)
        if self.start_updates and self.start_from is None:
            raise SombrlError("--start-updates are made on the records of another run: name it with --start-from.")
        if self.ratio is not None and not 0 < self.ratio < math.inf:
            raise SombrlError(f"--ratio must be positive and finite, not {self.ratio}.")
        if self.batch_length < 2:
            raise SombrlError(f"--batch-length must be at least 2 records, not {self.batch_length}.")
        if self.capacity < self.envs * (self.batch_length + 1):
            raise SombrlError(
                f"--capacity must hold a sequence of every environment, {self.envs * (self.batch_length + 1)} records, "
                f"not {self.capacity}: raise it, or lower --envs or --batch-length."
            )

    def resolved(self, images: bool) -> "DreamerConfig":
        """With the protocol's defaults filled in."""
        ratio = 512.0 if self.protocol == "paper" else (256.0 if images else 1024.0)
        filled: dict[str, Any] = {
            "size": self.size or "12m",
            "ratio": self.ratio or ratio,
            "cnn": self.cnn or self.protocol,
        }
        return dataclasses.replace(self, **filled)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


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
            self.ensemble = LatentEnsemble(
                size.features, action_dim, size.stoch, explore.members, explore.hidden, key=keys[7]
            )


class DreamerState(eqx.Module):
    """What has been learned, and what the optimisers remember."""

    networks: Networks
    slow_value: TwoHotHead
    slow_policy: AbstractPolicy
    scale: ReturnScale
    bonus_weight: BonusWeight | None  # None: constant
    optimiser: Any
    weight_optimiser: Any
    updates: Int[Array, ""]


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


class Fresh(eqx.Module):
    """The posteriors of a batch, on their way back into the replay."""

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
        """Whether it computes the same, so that one may use the programs of the other."""
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

        The state is always sampled, the action unless it is to be the likeliest. States come and go in float32, so
        that a run saved on an accelerator goes on anywhere.
        """
        networks = self._cast(networks)
        latent = jax.tree.map(lambda leaf: leaf.astype(self.dtype), latent)
        observe_key, action_key = jr.split(key)
        latent, _, _ = networks.rssm.observe(latent, action, networks.encoder(obs), first, key=observe_key)
        chosen = networks.policy(latent.features)
        latent = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), latent)
        return (chosen.sample(key=action_key) if sample else chosen.mode()), latent

    def initial_latents(self, rows: int) -> Latent:
        """Where episodes begin, [rows, ...], float32."""
        latent = zero_latent(self.size, jnp.dtype(jnp.float32))
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, *leaf.shape)), latent)

    # ------------------------------------------------------------------------------------------ learn

    def learn(
        self, state: DreamerState, batch: Sequences, *, key: Key[Array, ""]
    ) -> tuple[DreamerState, Fresh, dict[str, Float[Array, ""]]]:
        """One update of everything."""
        parameters, static = eqx.partition(state.networks, eqx.is_array)

        def loss(parameters):
            return self._loss(eqx.combine(parameters, static), state, batch, key=key)

        (_, (fresh, scale, gap, metrics)), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
        change, optimiser = self._optimiser.update(gradient, state.optimiser, parameters)
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
        )
        return state, fresh, metrics

    def weights(self, state: DreamerState) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Those of the bonus and of the task."""
        explore = self.config.explore
        if state.bonus_weight is not None:
            bonus = jax.lax.stop_gradient(state.bonus_weight.weight)
        else:
            constant = {"greedy": 0.0, "unsupervised": 1.0}.get(explore.explore, explore.bonus_weight)
            bonus = jnp.asarray(constant, jnp.float32)
        return bonus, jnp.asarray(0.0 if explore.explore == "unsupervised" else 1.0, jnp.float32)

    def _loss(self, networks: Networks, state: DreamerState, batch: Sequences, *, key: Key[Array, ""]):
        """The sum of all losses, each a mean over the batch."""
        config, explore = self.config, self.config.explore
        observe_key, imagine_key, slow_key = jr.split(key, 3)
        bonus_weight, task_weight = self.weights(state)
        net = self._cast(networks)
        still = jax.lax.stop_gradient(net)  # for whatever teaches nobody
        metrics: dict[str, Float[Array, ""]] = {}

        # The world model: what the records were, from states that have seen them.
        over_batch, over_all = jax.vmap, lambda f: jax.vmap(jax.vmap(f))
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

        # Imagination from every record, and what the policy and the value make of it.
        roots = jax.tree.map(lambda leaf: jnp.reshape(leaf, (-1, *leaf.shape[2:])), jax.lax.stop_gradient(latents))
        imagined = jax.vmap(
            lambda root, key: imagine(
                *(still.rssm, still.reward, still.cont, still.policy, still.ensemble, root, config.horizon),
                explore.sigma,
                key=key,
            )
        )(roots, jr.split(imagine_key, features.shape[0] * features.shape[1]))
        judged = jax.vmap(lambda path: judge(path, net.value, bonus_weight, task_weight))(imagined)
        scale = state.scale.update(judged.returns)
        chosen = jax.vmap(lambda path, seen: policy_loss(net.policy, path, seen, scale.scale))(imagined, judged)
        slow_value = self._cast(state.slow_value)
        losses["policy"] = jnp.mean(chosen[0])
        losses["value"] = jnp.mean(jax.vmap(lambda path, seen: value_loss(seen, slow_value, path))(imagined, judged))

        # The value on the records themselves; the ensemble; and how curious the policy is beside its slow copy.
        actions = batch.action[:, 1:]
        rewards = task_weight * batch.reward
        gap, sigma = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32)
        if net.ensemble is not None and still.ensemble is not None:
            ensemble, measured = net.ensemble, still.ensemble
            targets = jnp.reshape(latents.stoch, (*latents.stoch.shape[:2], -1))
            missed = over_batch(ensemble.loss)(features, actions, targets, batch.first)
            losses["ensemble"] = jnp.mean(missed)
            for age, of_age in {"new": batch.new, "old": ~batch.new}.items():  # not every batch has new windows
                metrics[f"sum/ensemble_{age}"] = jnp.sum(jnp.where(of_age, missed, 0.0))
                metrics[f"count/ensemble_{age}"] = jnp.sum(of_age.astype(jnp.float32))
            recorded = over_all(lambda x, a: measured.sigma(x, a, explore.sigma))(features[:, :-1], actions[:, :-1])
            rewards = over_batch(lambda r, s, first: with_bonus(r, s, bonus_weight, first))(
                rewards, recorded, batch.first
            )
            sigma = jnp.mean(recorded)
            slow_policy = self._cast(state.slow_policy)

            def slow_sigma(x: Array, key: Key[Array, ""]) -> Float[Array, ""]:
                return measured.sigma(x, slow_policy.sample(x, key=key), explore.sigma)

            slow = jax.vmap(slow_sigma)(imagined.features[:, 0], jr.split(slow_key, imagined.features.shape[0]))
            gap = jnp.mean(imagined.sigma[:, 0]) - jnp.mean(slow)
        bootstrap = jnp.reshape(judged.returns[:, 0], batch.reward.shape)
        replayed = over_batch(lambda *sequence: replay_value_loss(net.value, slow_value, *sequence))(
            features, rewards, batch.terminal, batch.last, bootstrap
        )
        losses["replay_value"] = REPLAY_VALUE_SCALE * jnp.mean(replayed)

        bonus = jnp.mean(bonus_weight * imagined.sigma)
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
            "explore/imagined_std": jnp.mean(imagined.sigma),
            "explore/bonus_share": bonus / jnp.maximum(bonus + paid, 1e-8),
            "explore/bonus_gap": gap,
        }
        fresh = Fresh(latents.deter.astype(jnp.float16), jnp.argmax(latents.stoch, axis=-1).astype(jnp.int32))
        total = sum(losses.values(), jnp.zeros((), jnp.float32))
        return total, (fresh, scale, gap, metrics)

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


def _agent() -> type:
    from sombrl.dreamer.agent import DreamerAgent

    return DreamerAgent


DREAMER = Algorithm(
    "dreamer", DreamerConfig, None, "a latent world model, and a policy trained inside it; images and vectors", _agent
)
