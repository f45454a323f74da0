"""The recurrent state-space model: its core against NumPy, resets, samples, and where its losses send gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import entropy

from sombrl.dreamer.blocks import BlockLinear
from sombrl.dreamer.rssm import RSSM, Latent, dynamics_losses, kl, mixed, sample, squash
from sombrl.dreamer.sizes import SIZES
from tests.dreamer.reference import norm, silu

TINY = SIZES["tiny"]
TOKENS, ACTIONS, STEPS = 5, 2, 6


@pytest.fixture(scope="module")
def model():
    return RSSM(TOKENS, ACTIONS, False, TINY, key=jr.key(1))


@pytest.fixture(scope="module")
def observe():
    return eqx.filter_jit(lambda model, *args, key: model.observe(*args, key=key))


@pytest.fixture(scope="module")
def observe_sequence():
    """Of one sequence: a batch of one."""

    def one(model, *args, key):
        found = model.observe_sequences(*jax.tree.map(lambda leaf: leaf[None], args), key=key)
        return jax.tree.map(lambda leaf: leaf[0], found)

    return eqx.filter_jit(one)


def some_latent(key):
    deter_key, stoch_key = jr.split(key)
    stoch = jax.nn.one_hot(jr.randint(stoch_key, (TINY.latents,), 0, TINY.classes), TINY.classes, dtype=jnp.float32)
    return Latent(jnp.tanh(jr.normal(deter_key, (TINY.deter,))), stoch)


def some_sequence(key):
    action_key, token_key = jr.split(key)
    return jr.normal(action_key, (STEPS, ACTIONS)), jr.normal(token_key, (STEPS, TOKENS))


def dense(layer, x):
    return silu(norm(layer.norm, x @ np.asarray(layer.linear.weight, np.float64)))  # biases are 0 at first


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def test_the_core_block_by_block(model, key):
    latent, action = some_latent(key), np.array([0.4, -3.0])
    deter = np.asarray(latent.deter, np.float64)
    shared = np.concatenate(
        [
            dense(model.deter_in, deter),
            dense(model.stoch_in, np.asarray(latent.stoch, np.float64).ravel()),
            dense(model.action_in, np.array([0.4, -1.0])),
        ]
    )
    mixture = np.asarray(model.mix.weight, np.float64)
    x = np.concatenate([np.concatenate([deter[8 * b : 8 * b + 8], shared]) @ mixture[b] for b in range(8)])
    x = silu(norm(model.mix_norm, x))
    expected = np.zeros(64)
    for b in range(8):
        own = slice(8 * b, 8 * b + 8)
        reset, candidate, update = np.split(x[own] @ np.asarray(model.gates.weight[b], np.float64), 3)
        update = sigmoid(update - 1.0)
        expected[own] = update * np.tanh(sigmoid(reset) * candidate) + (1.0 - update) * deter[own]
    np.testing.assert_allclose(np.asarray(model.core(latent, jnp.asarray(action, jnp.float32))), expected, atol=2e-6)


def test_prior_and_posterior_are_plain_networks(model, key):
    deter_key, token_key = jr.split(key)
    deter, tokens = jr.normal(deter_key, (TINY.deter,)), jr.normal(token_key, (TOKENS,))
    x = np.asarray(deter, np.float64)
    for layer in model.prior_body.layers:
        x = dense(layer, x)
    assert len(model.prior_body.layers) == 2
    expected = (x @ np.asarray(model.prior_head.weight, np.float64)).reshape(4, 4)
    np.testing.assert_allclose(np.asarray(model.prior(deter)), expected, rtol=1e-4, atol=1e-5)
    x = dense(model.posterior_body, np.concatenate([np.asarray(deter, np.float64), np.asarray(tokens, np.float64)]))
    expected = (x @ np.asarray(model.posterior_head.weight, np.float64)).reshape(4, 4)
    np.testing.assert_allclose(np.asarray(model.posterior(deter, tokens)), expected, rtol=1e-4, atol=1e-5)


def test_block_linear_is_a_block_diagonal_matrix_scaled_for_its_full_width(key):
    layer_key, x_key = jr.split(key)
    layer = BlockLinear(512, 1024, 8, key=layer_key)
    x = jr.normal(x_key, (512,))
    weight = np.asarray(layer.weight, np.float64)
    np.testing.assert_allclose(np.asarray(layer(x)), np.asarray(x) @ block_diag(*weight), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weight.std() * np.sqrt(512), 1.0, atol=0.01)  # 65536 numbers: 0.003 is one std
    assert np.abs(weight).max() <= 2.0 / 0.8796 / np.sqrt(512)


def test_the_first_observation_forgets_everything_before(model, observe, key):
    """Bit for bit a fresh state and no action, whatever was there, even NaN."""
    history_key, sample_key = jr.split(key)
    tokens = jnp.linspace(-1.0, 1.0, TOKENS)

    def run(latent, action, first):
        return observe(model, latent, action, tokens, jnp.array(first), key=jr.clone(sample_key))

    fresh = run(model.initial(), jnp.zeros(ACTIONS), False)
    old = some_latent(history_key)
    broken = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), old)
    for latent, action in ((old, jnp.array([0.7, -9.0])), (broken, jnp.full(ACTIONS, jnp.nan))):
        assert eqx.tree_equal(run(latent, action, True), fresh)
    assert not np.allclose(run(old, jnp.zeros(ACTIONS), False)[0].deter, fresh[0].deter)
    assert not np.allclose(run(model.initial(), jnp.ones(ACTIONS), False)[0].deter, fresh[0].deter)


def test_an_episode_inside_a_sequence_does_not_know_the_one_before(model, observe_sequence, key):
    one_key, other_key, latent_key, sample_key = jr.split(key, 4)
    actions, tokens = some_sequence(one_key)
    other_actions, other_tokens = some_sequence(other_key)
    early = jnp.arange(STEPS) < 3
    first = jnp.zeros(STEPS, bool).at[3].set(True)
    mask = jnp.broadcast_to(early[:, None], (STEPS, 1))
    # The previous action of the first step was another one too.
    changed = jnp.where(jnp.broadcast_to(jnp.arange(STEPS)[:, None] <= 3, actions.shape), other_actions, actions)
    seen = jnp.where(jnp.broadcast_to(mask, tokens.shape), other_tokens, tokens)
    plain = observe_sequence(model, model.initial(), actions, tokens, first, key=sample_key)
    rewritten = observe_sequence(model, some_latent(latent_key), changed, seen, first, key=jr.clone(sample_key))
    assert eqx.tree_equal(*(jax.tree.map(lambda leaf: leaf[3:], run) for run in (plain, rewritten)))
    assert not np.allclose(plain[0].deter[:3], rewritten[0].deter[:3])


def test_a_sequence_is_a_loop(model, observe, observe_sequence, key):
    data_key, latent_key, sample_key = jr.split(key, 3)
    actions, tokens = some_sequence(data_key)
    first = jnp.zeros(STEPS, bool).at[4].set(True)
    start = latent = some_latent(latent_key)
    steps = []
    for t, step_key in enumerate(jr.split(jr.split(jr.clone(sample_key), 1)[0], STEPS)):
        latent, prior, posterior = observe(model, latent, actions[t], tokens[t], first[t], key=step_key)
        steps.append((latent, prior, posterior))
    loop = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
    sequence = observe_sequence(model, start, actions, tokens, first, key=sample_key)
    assert np.array_equal(loop[0].stoch, sequence[0].stoch)
    for a, b in zip(jax.tree.leaves(loop), jax.tree.leaves(sequence), strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), atol=1e-5)
    assert sequence[0].features.shape == (STEPS, TINY.features)
    np.testing.assert_array_equal(sequence[0].features[2, : TINY.deter], sequence[0].deter[2])


@pytest.mark.thorough
def test_a_batch_is_its_sequences_and_so_is_its_gradient(model, observe, key):
    """Step by step, one sequence after the other, differentiated by JAX alone."""
    *data_keys, latent_key, sample_key, weight_key = jr.split(key, 6)
    actions, tokens = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(some_sequence, data_keys))
    batch = len(data_keys)
    start = jax.vmap(some_latent)(jr.split(latent_key, batch))
    first = jnp.zeros((batch, STEPS), bool).at[1, 4].set(True)
    deter_weight, *logit_weights = (
        jr.normal(k, (batch, STEPS, *shape))
        for k, shape in zip(jr.split(weight_key, 3), [(TINY.deter,), (4, 4), (4, 4)], strict=True)
    )

    def score(found):
        latents, prior, posterior = found
        logits = sum(jnp.sum(w * x) for w, x in zip(logit_weights, (prior, posterior), strict=True))
        return logits + jnp.sum(deter_weight * latents.deter) + jnp.sum(latents.stoch * latents.deter[..., :1, None])

    def at_once(model, start, tokens):
        return score(model.observe_sequences(start, actions, tokens, first, key=sample_key))

    def by_hand(model, start, tokens):
        rows = []
        for b, row_key in enumerate(jr.split(jr.clone(sample_key), batch)):
            latent, steps = jax.tree.map(lambda leaf: leaf[b], start), []  # noqa: B023
            for t, step_key in enumerate(jr.split(row_key, STEPS)):
                latent, *logits = observe(model, latent, actions[b, t], tokens[b, t], first[b, t], key=step_key)
                steps.append((latent, *logits))
            rows.append(jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps))
        return score(jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows))

    arguments = (model, start, tokens)
    found = eqx.filter_jit(eqx.filter_value_and_grad(lambda a: at_once(*a)))(arguments)
    expected = eqx.filter_jit(eqx.filter_value_and_grad(lambda a: by_hand(*a)))(arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(b).any()
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-4 * np.abs(b).max())


def test_imagining_is_the_core_and_a_sample_of_the_prior(model, key):
    latent_key, sample_key = jr.split(key)
    latent, action = some_latent(latent_key), jnp.array([0.1, 0.2])
    imagined = model.imagine(latent, action, key=sample_key)
    assert np.array_equal(imagined.deter, model.core(latent, action))
    assert np.array_equal(imagined.stoch, sample(model.prior(imagined.deter), key=jr.clone(sample_key)))


def test_actions_are_clipped_with_a_gradient_and_one_hot_ones_left_alone(model):
    action = jnp.array([0.5, -0.2, 4.0, -8.0])
    assert squash(action).tolist() == [0.5, np.float32(-0.2), 1.0, -1.0]
    assert jax.grad(lambda a: jnp.sum(squash(a)))(action).tolist() == [1.0, 1.0, 0.25, 0.125]
    latent = model.initial()
    same, double = jnp.array([0.0, 1.0]), jnp.array([0.0, 2.0])
    assert np.array_equal(model.core(latent, same), model.core(latent, double))
    raw = eqx.tree_at(lambda m: m.action_in.linear.bias, RSSM(TOKENS, ACTIONS, True, TINY, key=jr.key(1)), jnp.ones(16))
    assert not np.allclose(raw.core(latent, same), raw.core(latent, double))


def test_no_class_is_impossible():
    logits = jnp.array([[1e4, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], jnp.bfloat16)
    chances = mixed(logits)
    assert chances.dtype == jnp.float32
    expected = [[0.9925, 0.0025, 0.0025, 0.0025], [0.25] * 4]
    np.testing.assert_allclose(np.asarray(chances), expected, rtol=1e-6)
    opposite = jnp.array([[0.0, 1e4, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], jnp.bfloat16)
    np.testing.assert_allclose(float(kl(logits, opposite)), 0.99 * np.log(0.9925 / 0.0025), rtol=1e-5)


def test_kl_sums_over_latents(key):
    post_key, prior_key = jr.split(key)
    posterior, prior = jr.normal(post_key, (3, 4, 4)), 2.0 * jr.normal(prior_key, (3, 4, 4))
    expected = entropy(np.asarray(mixed(posterior)), np.asarray(mixed(prior)), axis=-1).sum(-1)
    np.testing.assert_allclose(np.asarray(kl(posterior, prior)), expected, rtol=1e-5)


def test_samples_are_one_hot_and_as_frequent_as_the_mixed_chances(key):
    logits = jnp.array([[0.0, 1.0, -1.0, 20.0], [2.0, 0.0, 0.0, -30.0]])
    number = 20_000
    draws = np.asarray(jax.vmap(lambda k: sample(logits, key=k))(jr.split(key, number)), np.float64)
    assert set(np.unique(draws)) == {0.0, 1.0} and np.all(draws.sum(-1) == 1.0)
    chances = np.asarray(mixed(logits), np.float64)
    deviations = (draws.mean(0) - chances) / np.sqrt(chances * (1.0 - chances) / number)
    assert np.abs(deviations).max() < 4.0


def test_the_gradient_of_a_sample_is_that_of_its_chances(key):
    logits_key, weight_key, sample_key = jr.split(key, 3)
    logits, weights = jr.normal(logits_key, (4, 4)), jr.normal(weight_key, (4, 4))
    straight = jax.grad(lambda l: jnp.sum(weights * sample(l, key=sample_key)))(logits)
    through = jax.grad(lambda l: jnp.sum(weights * mixed(l)))(logits)
    assert np.array_equal(straight, through) and np.any(np.asarray(through) != 0)


def test_free_nats_clip_every_step_on_its_own():
    """One step with no KL at all and one with much: the mean is not what is clipped."""
    far = jnp.zeros((4, 4)).at[:, 0].set(5.0)
    posterior = jnp.stack([jnp.zeros((4, 4)), far])
    prior = jnp.zeros((2, 4, 4))
    large = float(kl(far, jnp.zeros((4, 4))))
    assert large > 2.0
    for loss in dynamics_losses(posterior, prior):
        np.testing.assert_allclose(np.asarray(loss), [1.0, large], rtol=1e-6)
    for loss in dynamics_losses(posterior, prior, free_nats=10.0):
        np.testing.assert_array_equal(np.asarray(loss), [10.0, 10.0])
    gradient = np.asarray(jax.grad(lambda p: jnp.sum(dynamics_losses(posterior, p)[0]))(prior + 0.01 * far[None]))
    assert not gradient[0].any() and gradient[1].any()


def test_the_losses_teach_one_side_each():
    posterior = jnp.zeros((4, 4)).at[:, 0].set(5.0)
    prior = jnp.zeros((4, 4)).at[:, 1].set(1.0)
    jacobian = jax.jacobian(dynamics_losses, argnums=(0, 1))(posterior, prior)
    (dynamics_to_posterior, dynamics_to_prior), (rep_to_posterior, rep_to_prior) = jacobian
    assert not np.asarray(dynamics_to_posterior).any() and not np.asarray(rep_to_prior).any()
    full = jax.grad(kl, argnums=(0, 1))(posterior, prior)
    np.testing.assert_allclose(np.asarray(rep_to_posterior), np.asarray(full[0]), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(dynamics_to_prior), np.asarray(full[1]), rtol=1e-6)
    assert np.asarray(full[0]).any() and np.asarray(full[1]).any()


@pytest.mark.thorough
def test_where_the_losses_reach_in_the_network(model, observe_sequence, key):
    """dyn trains the prior and, through the memory, the core; it reaches the posterior only through its samples."""
    data_key, sample_key = jr.split(key)
    actions, tokens = some_sequence(data_key)
    first = jnp.zeros(STEPS, bool)

    @eqx.filter_jit
    @eqx.filter_jacrev
    def gradients(model):
        _, prior, posterior = observe_sequence(model, model.initial(), actions, tokens, first, key=sample_key)
        dynamics, representation = dynamics_losses(posterior, prior, free_nats=0.0)
        return dynamics[0], representation[0]  # of the first step: no samples before

    def reached(part):
        return any(np.asarray(leaf).any() for leaf in jax.tree.leaves(part))

    dynamics, representation = gradients(model)
    assert reached(dynamics.prior_head) and reached(dynamics.prior_body) and reached(dynamics.gates)
    assert not reached((dynamics.posterior_head, dynamics.posterior_body))
    assert reached(representation.posterior_head) and reached(representation.posterior_body)
    assert not reached((representation.prior_head, representation.prior_body))
