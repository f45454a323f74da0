"""Two-hot numbers, reward, value, continue and policy heads, against NumPy, scipy and published parameter counts."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sombrl.dreamer import two_hot
from sombrl.dreamer.heads import ContinueHead, NormalPolicy, OneHotPolicy, TwoHotHead
from sombrl.networks.symlog import symexp, symlog

INPUTS, UNITS = 12, 16
BINS = np.asarray(two_hot.BINS, np.float64)


def f32(values):
    return jnp.asarray(values, jnp.float32)


def parameters(make):
    """How many a head has, without making it."""
    shapes = jax.tree.leaves(eqx.filter_eval_shape(lambda: make(key=jr.key(0))))
    return sum(math.prod(leaf.shape) for leaf in shapes)


def features(seed=1):
    return jr.normal(jr.key(seed), (INPUTS,), jnp.float32)


def louder(layer, gain=300.0):
    """An output layer that says something: at first they nearly say nothing."""
    return eqx.tree_at(lambda layer: layer.weight, layer, gain * layer.weight)


def half(tree):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tree)


# --------------------------------------------------------------------------------------------------------- two-hot


def test_symlog_and_symexp_are_numpys_and_each_others_inverse():
    x = np.array([-3e5, -2.0, -1e-3, 0.0, 0.5, 40.0, 1e6])
    np.testing.assert_allclose(symlog(f32(x)), np.sign(x) * np.log(1 + np.abs(x)), rtol=1e-5)
    np.testing.assert_allclose(symexp(symlog(f32(x))), x, rtol=2e-5)


def test_bins_are_symmetric_around_zero_and_even_after_symlog():
    assert BINS.shape == (255,) and BINS[127] == 0.0
    np.testing.assert_array_equal(BINS, -BINS[::-1])
    np.testing.assert_allclose(BINS[-1], math.exp(20) - 1, rtol=1e-7)
    np.testing.assert_allclose(BINS[-1], 4.85e8, rtol=1e-3)
    np.testing.assert_allclose(BINS[128], 0.1706, atol=5e-5)
    np.testing.assert_allclose(np.diff(np.sign(BINS) * np.log1p(np.abs(BINS))), 40 / 254, rtol=1e-5)


def test_two_hot_interpolates_linearly_between_the_bins_around_a_number():
    values = np.concatenate([[0.0, 0.1, -0.1, 1e-4, BINS[130], BINS[3]], np.geomspace(0.01, 1e6, 40)])
    values = np.concatenate([values, -values]).astype(np.float32)
    weights = np.asarray(jax.vmap(two_hot.two_hot)(f32(values)), np.float64)
    expected = np.stack([np.interp(values, BINS, unit) for unit in np.eye(255)], axis=1)
    np.testing.assert_allclose(weights, expected, atol=2e-6)
    assert (np.count_nonzero(weights, axis=1) <= 2).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-6)


def test_numbers_within_a_million_survive_the_way_to_logits_and_back():
    values = np.concatenate([[0.0], np.geomspace(1e-3, 1e6, 60), -np.geomspace(1e-3, 1e6, 60)]).astype(np.float32)
    there_and_back = jax.vmap(lambda value: two_hot.mean(jnp.log(two_hot.two_hot(value))))
    np.testing.assert_allclose(there_and_back(f32(values)), values, rtol=1e-5, atol=1e-7)


def test_numbers_beyond_the_bins_are_the_last_bin():
    weights = jax.vmap(two_hot.two_hot)(f32([1e9, -1e9, np.inf]))
    np.testing.assert_array_equal(np.argmax(weights, axis=1), [254, 0, 254])
    np.testing.assert_array_equal(np.max(weights, axis=1), 1.0)
    assert np.isnan(two_hot.two_hot(f32(np.nan))).any(), "a target that is not a number must be seen in the loss"


def test_uniform_logits_mean_exactly_zero():
    for level in (0.0, -3.7, 11.0):
        assert two_hot.mean(jnp.full(255, level, jnp.float32)) == 0.0
    assert jax.jit(jax.vmap(two_hot.mean))(jnp.full((7, 255), 0.3, jnp.float32)).tolist() == [0.0] * 7


def test_mean_and_loss_are_those_of_numpy():
    logits = np.asarray(jr.normal(jr.key(0), (255,), jnp.float32), np.float64)
    p, target = scipy.special.softmax(logits), 3.3
    np.testing.assert_allclose(two_hot.mean(f32(logits)), p @ BINS, rtol=1e-4)
    weights = np.array([np.interp(target, BINS, unit) for unit in np.eye(255)])
    np.testing.assert_allclose(two_hot.loss(f32(logits), f32(target)), -weights @ np.log(p), rtol=1e-6)
    by_logits, by_target = jax.grad(two_hot.loss, argnums=(0, 1))(f32(logits), f32(target))
    np.testing.assert_allclose(by_logits, p - weights, atol=1e-6)
    assert by_target == 0.0


# ----------------------------------------------------------------------------------------------------- prediction


def test_heads_have_the_published_numbers_of_parameters():
    """Features are deter + 32 · classes wide: 640 for the model called 1m, 2560 for 12m."""
    small, large = 512 + 32 * 4, 2048 + 32 * 16
    counts = {
        "1m reward": parameters(lambda key: TwoHotHead(small, 64, 1, 0.0, key=key)),
        "1m continue": parameters(lambda key: ContinueHead(small, 64, key=key)),
        "1m policy": parameters(lambda key: NormalPolicy(small, 6, 64, key=key)),
        "1m value": parameters(lambda key: TwoHotHead(small, 64, 3, 0.0, key=key)),
        "12m reward": parameters(lambda key: TwoHotHead(large, 256, 1, 0.0, key=key)),
        "12m continue": parameters(lambda key: ContinueHead(large, 256, key=key)),
        "12m value": parameters(lambda key: TwoHotHead(large, 256, 3, 0.0, key=key)),
        "walker": parameters(lambda key: NormalPolicy(large, 6, 256, key=key)),
        "finger": parameters(lambda key: NormalPolicy(large, 2, 256, key=key)),
        "cartpole": parameters(lambda key: NormalPolicy(large, 1, 256, key=key)),
        "atari": parameters(lambda key: OneHotPolicy(large, 18, 256, key=key)),
    }
    assert counts == {
        "1m reward": 57_663,
        "1m continue": 41_153,
        "1m policy": 50_316,
        "1m value": 66_111,
        "12m reward": 721_407,
        "12m continue": 656_129,
        "12m value": 853_503,
        "walker": 791_052,
        "finger": 788_996,
        "cartpole": 788_482,
        "atari": 792_594,
    }


@pytest.mark.parametrize("layers", [1, 3])
def test_heads_that_start_at_zero_predict_exactly_zero(layers, key):
    head = TwoHotHead(INPUTS, UNITS, layers, 0.0, key=key)
    assert head.mean(features()) == 0.0
    assert half(head).mean(features().astype(jnp.bfloat16)) == 0.0
    for target in (0.0, -17.3, 1e5):
        np.testing.assert_allclose(head.loss(features(), f32(target)), math.log(255), rtol=1e-6)


def test_a_head_is_the_mean_of_its_logits_and_learns_the_target(key):
    head = TwoHotHead(INPUTS, UNITS, 1, 1.0, key=key)
    logits = np.asarray(head(features()), np.float64)
    np.testing.assert_allclose(head.mean(features()), scipy.special.softmax(logits) @ BINS, rtol=1e-4)
    bias = jnp.log(two_hot.two_hot(f32(-2.5)) + 1e-12)
    exact = eqx.tree_at(lambda h: (h.output.weight, h.output.bias), head, (0.0 * head.output.weight, bias))
    np.testing.assert_allclose(exact.mean(features()), -2.5, rtol=1e-2)
    assert exact.loss(features(), f32(-2.5)) < head.loss(features(), f32(-2.5))


def test_a_reduced_head_still_puts_out_float32(key):
    head, policy = TwoHotHead(INPUTS, UNITS, 1, 1.0, key=key), NormalPolicy(INPUTS, 2, UNITS, key=jr.key(1))
    low = features().astype(jnp.bfloat16)
    assert half(head)(low).dtype == half(policy).sample(low, key=jr.key(2)).dtype == jnp.float32
    np.testing.assert_allclose(half(head)(low), head(features()), atol=0.1)
    np.testing.assert_allclose(half(policy)(low).std, policy(features()).std, atol=1e-2)


def constant_continue(logit):
    head = ContinueHead(INPUTS, UNITS, key=jr.key(0))
    parts = (jnp.zeros_like(head.output.weight), f32([logit]))
    return eqx.tree_at(lambda h: (h.output.weight, h.output.bias), head, parts)


def test_continue_loss_has_its_floor_where_the_discount_is_predicted():
    best = math.log(332)  # the logit of 1 - 1/333
    entropy = scipy.stats.entropy([332 / 333, 1 / 333])
    np.testing.assert_allclose(entropy, 0.0204, atol=5e-5)
    losses = [float(constant_continue(best + d).loss(features(), jnp.asarray(False))) for d in (-0.5, 0.0, 0.5)]
    np.testing.assert_allclose(losses[1], entropy, rtol=1e-5)
    assert losses[0] > losses[1] < losses[2]
    np.testing.assert_allclose(constant_continue(best).mean(features()), 0.996997, atol=1e-6)


def test_continue_loss_at_an_end_is_the_cross_entropy_to_zero():
    for logit in (-2.0, 3.0):
        expected = -np.log(1 - scipy.special.expit(logit))
        np.testing.assert_allclose(constant_continue(logit).loss(features(), jnp.asarray(True)), expected, rtol=1e-5)


# --------------------------------------------------------------------------------------------------------- policies


def test_a_fresh_normal_policy_is_wide_and_centred(key):
    start = NormalPolicy(INPUTS, 6, UNITS, key=key)(features())
    np.testing.assert_allclose(start.std, 0.8927, atol=3e-3)
    np.testing.assert_allclose(start.mean, 0.0, atol=0.03)


def loud_normal():
    policy = NormalPolicy(INPUTS, 3, UNITS, key=jr.key(3))
    return eqx.tree_at(
        lambda p: (p.mean_output, p.std_output), policy, (louder(policy.mean_output), louder(policy.std_output))
    )


def normal_by_hand(policy):
    hidden = policy.body(features())
    mean, std = np.asarray(policy.mean_output(hidden)), np.asarray(policy.std_output(hidden))
    return np.tanh(mean), 0.9 * scipy.special.expit(std + 2) + 0.1


def test_normal_policy_is_that_of_scipy():
    policy, action = loud_normal(), np.array([1.7, -0.2, 0.4])
    mean, std = normal_by_hand(policy)
    assert np.ptp(mean) > 0.2 and np.ptp(std) > 0.02, "or nothing is tested"
    oracle = scipy.stats.norm(mean, std)
    np.testing.assert_allclose(policy.mode(features()), mean, rtol=1e-5)
    np.testing.assert_allclose(policy.log_prob(features(), f32(action)), oracle.logpdf(action).sum(), rtol=1e-5)
    np.testing.assert_allclose(policy.entropy(features()), oracle.entropy().sum(), rtol=1e-5)


def test_normal_samples_are_neither_squashed_nor_clipped():
    policy = loud_normal()
    mean, std = normal_by_hand(policy)
    samples = np.asarray(jax.vmap(lambda k: policy.sample(features(), key=k))(jr.split(jr.key(4), 4000)))
    for i in range(3):
        assert scipy.stats.kstest(samples[:, i], scipy.stats.norm(mean[i], std[i]).cdf).pvalue > 1e-3
    assert np.abs(samples).max() > 1.5


def test_no_gradient_flows_through_samples_and_one_flows_through_their_log_probability():
    policy = loud_normal()

    def mean_of(policy):
        return jnp.sum(policy.sample(features(), key=jr.key(5)))

    def score(policy):
        return policy.log_prob(features(), f32([0.1, 0.2, 0.3]))

    assert all((leaf == 0).all() for leaf in jax.tree.leaves(jax.grad(mean_of)(policy)))
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(jax.grad(score)(policy)))


def test_a_fresh_discrete_policy_is_nearly_uniform(key):
    start = OneHotPolicy(INPUTS, 18, UNITS, key=key)
    np.testing.assert_allclose(np.exp(start(features()).log_probs), 1 / 18, rtol=0.05)
    np.testing.assert_allclose(start.entropy(features()), math.log(18), rtol=1e-3)


def loud_discrete(unimix=0.01, gain=300.0):
    policy = OneHotPolicy(INPUTS, 4, UNITS, unimix=unimix, key=jr.key(6))
    return eqx.tree_at(lambda p: p.output, policy, louder(policy.output, gain))


@pytest.mark.parametrize("unimix", [0.01, 0.0])
def test_discrete_policy_is_that_of_scipy(unimix):
    policy = loud_discrete(unimix)
    p = scipy.special.softmax(np.asarray(policy.output(policy.body(features())), np.float64))
    p = (1 - unimix) * p + unimix / 4
    assert p.max() > 2 * p.min(), "or nothing is tested"
    logs = [float(policy.log_prob(features(), action)) for action in jnp.eye(4, dtype=jnp.float32)]
    np.testing.assert_allclose(logs, np.log(p), rtol=1e-4)
    np.testing.assert_allclose(policy.entropy(features()), scipy.stats.entropy(p), rtol=1e-4)
    np.testing.assert_array_equal(policy.mode(features()), np.eye(4)[p.argmax()])


def test_discrete_samples_are_one_hot_and_as_frequent_as_probable():
    policy = loud_discrete()
    samples = np.asarray(jax.vmap(lambda k: policy.sample(features(), key=k))(jr.split(jr.key(7), 4000)))
    assert set(np.unique(samples)) == {0.0, 1.0} and (samples.sum(axis=1) == 1).all()
    expected = 4000 * np.exp(np.asarray(policy(features()).log_probs, np.float64))
    assert scipy.stats.chisquare(samples.sum(axis=0), expected * 4000 / expected.sum()).pvalue > 1e-3


def test_no_action_is_ever_given_up():
    policy = loud_discrete(gain=1e6)
    p = np.exp(np.asarray(policy(features()).log_probs, np.float64))
    np.testing.assert_allclose(np.sort(p), [0.0025, 0.0025, 0.0025, 0.9925], rtol=1e-5)
    assert np.isfinite(policy.entropy(features()))
