"""The recurrent state-space model of DreamerV3: its memory, and its prediction of the next observation.

The state has two parts. `deter` is the memory of a recurrent network; `stoch` is a handful of categorical variables,
sampled given the memory and the observation (posterior), or, when imagining, given the memory alone (prior).
Everything is for one state; a batch is the caller's `vmap`, which leaves one matrix product per layer.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key

from sombrl.dreamer.blocks import MLP, BlockLinear, Dense, Linear, RMSNorm
from sombrl.dreamer.recurrence import recur
from sombrl.dreamer.sizes import Size

UNIFORM = 0.01  # share of the uniform distribution: no class is ever impossible, and no KL infinite


class Latent(eqx.Module):
    """A state of the model."""

    deter: Float[Array, "*batch deter"]
    stoch: Float[Array, "*batch latents classes"]  # one-hot

    @property
    def features(self) -> Float[Array, "*batch feature"]:
        """Both parts in one vector, for the heads."""
        return jnp.concatenate([self.deter, jnp.reshape(self.stoch, (*self.stoch.shape[:-2], -1))], axis=-1)


def zero_latent(size: Size, dtype: jnp.dtype) -> Latent:
    """The state before an episode."""
    return Latent(jnp.zeros(size.deter, dtype), jnp.zeros((size.latents, size.classes), dtype))


def squash(action: Float[Array, " action"]) -> Float[Array, " action"]:
    """a / max(1, |a|) by coordinate: the action as the environment clips it, its gradient scaled but never 0."""
    return action / jax.lax.stop_gradient(jnp.maximum(1.0, jnp.abs(action)))


def mixed(logits: Float[Array, "*batch classes"]) -> Float[Array, "*batch classes"]:
    """The probabilities, float32: softmax, and 1 % of the uniform distribution."""
    return (1.0 - UNIFORM) * jax.nn.softmax(logits.astype(jnp.float32), axis=-1) + UNIFORM / logits.shape[-1]


def sample(logits: Float[Array, "latents classes"], *, key: Key[Array, ""]) -> Float[Array, "latents classes"]:
    """A one-hot sample, float32, whose gradient is that of the probabilities (straight-through)."""
    return _choose(logits, jr.gumbel(key, logits.shape, jnp.float32))


def _choose(
    logits: Float[Array, "latents classes"], gumbel: Float[Array, "latents classes"]
) -> Float[Array, "latents classes"]:
    chances = mixed(logits)
    chosen = jnp.argmax(jax.lax.stop_gradient(jnp.log(chances)) + gumbel, axis=-1)
    # The difference first: it is exactly 0, so the sample is exactly one-hot.
    return jax.nn.one_hot(chosen, logits.shape[-1], dtype=jnp.float32) + (chances - jax.lax.stop_gradient(chances))


def kl(
    posterior: Float[Array, "*batch latents classes"], prior: Float[Array, "*batch latents classes"]
) -> Float[Array, "*batch"]:
    """KL(posterior ‖ prior) from logits, summed over the latents; float32."""
    p, q = mixed(posterior), mixed(prior)
    return jnp.sum(p * (jnp.log(p) - jnp.log(q)), axis=(-2, -1))


def dynamics_losses(
    posterior: Float[Array, "*batch latents classes"],
    prior: Float[Array, "*batch latents classes"],
    free_nats: float = 1.0,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """From logits: the prior's loss and the posterior's, each the KL with the other one held fixed.

    Below `free_nats` each is constant, at every time step separately.
    """
    fixed = jax.lax.stop_gradient
    dynamics, representation = kl(fixed(posterior), prior), kl(posterior, fixed(prior))
    return jnp.maximum(free_nats, dynamics), jnp.maximum(free_nats, representation)


class RSSM(eqx.Module):
    """The sequence model: h' = core(h, z, a), z' ~ prior(h') or z' ~ posterior(h', tokens)."""

    deter_in: Dense
    stoch_in: Dense
    action_in: Dense
    mix: BlockLinear
    mix_norm: RMSNorm
    gates: BlockLinear
    prior_body: MLP
    prior_head: Linear
    posterior_body: Dense
    posterior_head: Linear
    discrete: bool = eqx.field(static=True)
    size: Size = eqx.field(static=True)

    def __init__(self, token_width: int, action_dim: int, discrete: bool, size: Size, *, key: Key[Array, ""]):
        """`discrete`: actions are one-hot and taken as they are, otherwise they are squashed first."""
        keys = iter(jr.split(key, 9))
        self.deter_in = Dense(size.deter, size.hidden, key=next(keys))
        self.stoch_in = Dense(size.stoch, size.hidden, key=next(keys))
        self.action_in = Dense(action_dim, size.hidden, key=next(keys))
        self.mix = BlockLinear(size.deter + size.blocks * 3 * size.hidden, size.deter, size.blocks, key=next(keys))
        self.mix_norm = RMSNorm(size.deter)
        self.gates = BlockLinear(size.deter, 3 * size.deter, size.blocks, key=next(keys))
        self.prior_body = MLP(size.deter, size.hidden, 2, key=next(keys))
        self.prior_head = Linear(size.hidden, size.stoch, key=next(keys))
        self.posterior_body = Dense(size.deter + token_width, size.hidden, key=next(keys))
        self.posterior_head = Linear(size.hidden, size.stoch, key=next(keys))
        self.discrete, self.size = discrete, size

    @property
    def dtype(self) -> jnp.dtype:
        """The type that it computes in: that of its parameters."""
        return self.deter_in.linear.weight.dtype

    def initial(self) -> Latent:
        """The state before an episode: zeros."""
        return zero_latent(self.size, self.dtype)

    def core(self, latent: Latent, action: Float[Array, " action"]) -> Float[Array, " deter"]:
        """The memory one action later."""
        return self._advance(latent, self._command(action))

    def prior(self, deter: Float[Array, " deter"]) -> Float[Array, "latents classes"]:
        """Logits of the latents, from the memory; float32."""
        return self._logits(self.prior_head(self.prior_body(deter)))

    def posterior(
        self, deter: Float[Array, " deter"], tokens: Float[Array, " token"]
    ) -> Float[Array, "latents classes"]:
        """Logits of the latents, from the memory and the observation's tokens; float32."""
        memory, sight = self._posterior_rows()
        return self._judge(memory, deter, tokens @ sight)

    def observe(
        self,
        latent: Latent,
        action: Float[Array, " action"],
        tokens: Float[Array, " token"],
        first: Bool[Array, ""],
        *,
        key: Key[Array, ""],
    ) -> tuple[Latent, Float[Array, "latents classes"], Float[Array, "latents classes"]]:
        """The state after `action`, the previous one, and an observation; the logits of prior and posterior.

        On an episode's first observation, state and action count as zeros.
        """
        gumbel = jr.gumbel(key, latent.stoch.shape, jnp.float32)
        memory, sight = self._posterior_rows()
        latent, logits = self._follow(memory, latent, self._start(action, first), tokens @ sight, first, gumbel)
        return latent, self.prior(latent.deter), logits

    def imagine(self, latent: Latent, action: Float[Array, " action"], *, key: Key[Array, ""]) -> Latent:
        """The state after `action`, without an observation."""
        deter = self.core(latent, action)
        return Latent(deter, sample(self.prior(deter), key=key).astype(deter.dtype))

    def observe_sequences(
        self,
        latent: Latent,
        actions: Float[Array, "batch time action"],
        tokens: Float[Array, "batch time token"],
        first: Bool[Array, "batch time"],
        *,
        key: Key[Array, ""],
    ) -> tuple[Latent, Float[Array, "batch time latents classes"], Float[Array, "batch time latents classes"]]:
        """`observe` step by step along every sequence of a batch; `actions` are those before each observation.

        The key of step t of sequence b is `jr.split(jr.split(key, batch)[b], time)[t]`. What does not depend on the
        state is computed for all steps at once, before or after the recurrence; so is the gradient (`recurrence.py`),
        which is why the batch is in here.
        """
        batch, time = first.shape
        keys = jax.vmap(lambda key: jr.split(key, time))(jr.split(key, batch))
        gumbels = jax.vmap(jax.vmap(lambda key: jr.gumbel(key, latent.stoch.shape[1:], jnp.float32)))(keys)
        memory, sight = self._posterior_rows()
        commands = jax.vmap(jax.vmap(self._start))(actions, first)
        inputs = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (commands, tokens @ sight, first, gumbels))
        found = recur(_follow_all, (self, memory), latent, inputs)
        latents, logits = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), found)
        return latents, jax.vmap(jax.vmap(self.prior))(latents.deter), logits

    # The rest is cut so that a scan can keep what needs no state, and every slice of a matrix, out of its steps.

    def _start(self, action: Float[Array, " action"], first: Bool[Array, ""]) -> Float[Array, " hidden"]:
        return self._command(jnp.where(first, jnp.zeros_like(action), action))

    def _command(self, action: Float[Array, " action"]) -> Float[Array, " hidden"]:
        """The action as an input of the core."""
        return self.action_in((action if self.discrete else squash(action)).astype(self.dtype))

    def _posterior_rows(self) -> tuple[Float[Array, "deter hidden"], Float[Array, "token hidden"]]:
        """The rows of the posterior's first layer: those that the memory meets, and those that the tokens meet."""
        weight = self.posterior_body.linear.weight
        return weight[: self.size.deter], weight[self.size.deter :]

    def _judge(
        self, memory: Float[Array, "deter hidden"], deter: Float[Array, " deter"], evidence: Float[Array, " hidden"]
    ) -> Float[Array, "latents classes"]:
        """The posterior's logits; `evidence` is the tokens' share in its first layer."""
        layer = self.posterior_body
        x = deter @ memory + evidence + layer.linear.bias
        return self._logits(self.posterior_head(jax.nn.silu(layer.norm(x))))

    def _follow(
        self,
        memory: Float[Array, "deter hidden"],
        latent: Latent,
        command: Float[Array, " hidden"],
        evidence: Float[Array, " hidden"],
        first: Bool[Array, ""],
        gumbel: Float[Array, "latents classes"],
    ) -> tuple[Latent, Float[Array, "latents classes"]]:
        """One step of the recurrence: the state and the posterior's logits."""
        latent = jax.tree.map(lambda leaf: jnp.where(first, jnp.zeros_like(leaf), leaf), latent)
        deter = self._advance(latent, command)
        logits = self._judge(memory, deter, evidence)
        return Latent(deter, _choose(logits, gumbel).astype(deter.dtype)), logits

    def _advance(self, latent: Latent, command: Float[Array, " hidden"]) -> Float[Array, " deter"]:
        """A gated recurrent unit whose matrices are block-diagonal: a block reads all inputs, and its own memory."""
        deter, blocks = latent.deter, self.size.blocks
        shared = jnp.concatenate([self.deter_in(deter), self.stoch_in(jnp.reshape(latent.stoch, -1)), command])
        own = jnp.reshape(deter, (blocks, -1))
        inputs = jnp.concatenate([own, jnp.broadcast_to(shared, (blocks, *shared.shape))], axis=1)
        x = jax.nn.silu(self.mix_norm(self.mix(jnp.reshape(inputs, -1))))
        gates = jnp.reshape(self.gates(x), (blocks, 3, -1))
        reset, candidate, update = (jnp.reshape(gates[:, i], -1) for i in range(3))
        candidate = jnp.tanh(jax.nn.sigmoid(reset) * candidate)
        update = jax.nn.sigmoid(update - 1.0)  # at first it mostly remembers
        return update * candidate + (1.0 - update) * deter

    def _logits(self, flat: Float[Array, " stoch"]) -> Float[Array, "latents classes"]:
        return jnp.reshape(flat.astype(jnp.float32), (self.size.latents, self.size.classes))


def _follow_all(
    weights: tuple[RSSM, Float[Array, "deter hidden"]], latent: Latent, inputs: tuple[Array, ...]
) -> tuple[Latent, Float[Array, "batch latents classes"]]:
    """One step of the recurrence of every sequence."""
    rssm, memory = weights
    return jax.vmap(lambda latent, *inputs: rssm._follow(memory, latent, *inputs))(latent, *inputs)
