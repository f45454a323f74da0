"""The latent ensemble and its weight: NumPy's disagreement and loss, and what must not leave or enter them."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from sombrl.dreamer.disagreement import BonusWeight, LatentEnsemble, bootstrap_shares
from sombrl.dreamer.laprop import laprop
from sombrl.records import SombrlError

FEATURES, ACTION, TARGET, MEMBERS, TIME = 6, 2, 4, 3, 5


def f32(values):
    return jnp.asarray(values, jnp.float32)


@functools.cache
def ensemble():
    return LatentEnsemble(FEATURES, ACTION, TARGET, MEMBERS, (8, 8), key=jr.key(0))


def pick(members):
    """The ensemble with these members, in this order."""
    return jax.tree.map(lambda leaf: leaf[jnp.asarray(members)], ensemble())


def point():
    return jr.normal(jr.key(1), (FEATURES,), jnp.float32), f32([0.3, -0.8])


def sequence():
    features, actions, targets = (jr.normal(jr.key(k), (TIME, n), jnp.float32) for k, n in ((2, 6), (3, 2), (4, 4)))
    return features, actions, targets, jnp.asarray([True, False, False, True, False])


def by_hand(features, action):
    """Every member, layer by layer, in float64."""
    members = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), ensemble().members)
    predictions = []
    for k in range(MEMBERS):
        x = np.concatenate([np.asarray(features, np.float64), np.clip(np.asarray(action, np.float64), -1, 1)])
        for layer in members.layers:
            x = x @ layer.linear.weight[k] + layer.linear.bias[k]
            x = x / np.sqrt(np.mean(x**2) + 1e-4) * layer.norm.scale[k]
            x = x / (1 + np.exp(-x))
        predictions.append(x @ members.output.weight[k] + members.output.bias[k])
    return np.array(predictions)


@jax.jit
def loss(ensemble, features, actions, targets, first):
    return ensemble.loss(features, actions, targets, first)


# -------------------------------------------------------------------------------------------------------- the ensemble


def test_the_published_ensemble_has_nine_million_parameters():
    """Per member 2566 · 512 + 512 · 512 + 512 · 512, biases and norms: 1.84 million, at 12m with 6 actions."""
    shapes = eqx.filter_eval_shape(lambda: LatentEnsemble(2560, 6, 512, key=jr.key(0)))
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)) == 5 * 1_840_640


def test_members_are_the_networks_of_the_definition():
    expected = by_hand(*point())
    np.testing.assert_allclose(ensemble().predict(*point()), expected, rtol=1e-4, atol=1e-5)
    assert np.ptp(expected, axis=0).min() > 0.01, "members start apart"


def test_disagreement_is_that_of_numpy():
    std = by_hand(*point()).std(axis=0)
    expected = {
        "mean-std": std.mean(),
        "norm": np.linalg.norm(std),
        "variance": (std**2).mean(),
        "log": np.log(std.mean()),
    }
    for how, value in expected.items():
        np.testing.assert_allclose(ensemble().sigma(*point(), how), value, rtol=1e-4, err_msg=how)
    np.testing.assert_array_equal(ensemble().sigma(*point()), ensemble().sigma(*point(), "mean-std"))


def test_identical_members_do_not_disagree():
    same = pick([1, 1, 1, 1, 1])
    assert [float(same.sigma(*point(), how)) for how in ("mean-std", "norm", "variance")] == [0.0, 0.0, 0.0]
    assert np.isfinite(same.sigma(*point(), "log"))


def test_the_order_of_members_does_not_matter():
    for order in ([2, 0, 1], [1, 0, 2]):
        np.testing.assert_allclose(pick(order).sigma(*point()), ensemble().sigma(*point()), rtol=1e-5)


def test_actions_count_as_they_are_executed():
    features, _ = point()
    far, edge, inside = (ensemble().sigma(features, f32(action)) for action in ([7.0, -3.0], [1.0, -1.0], [0.9, -1.0]))
    assert far == edge != inside


def test_disagreement_has_no_gradient():
    gradients = jax.grad(lambda e, x, a: e.sigma(x, a), argnums=(0, 1, 2))(ensemble(), *point())
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradients))


def test_a_reduced_ensemble_disagrees_in_float32():
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), ensemble())
    features, action = point()
    sigma = low.sigma(features.astype(jnp.bfloat16), action)
    assert sigma.dtype == jnp.float32
    np.testing.assert_allclose(sigma, ensemble().sigma(features, action), rtol=0.1)


def test_loss_is_that_of_numpy():
    """Records 0 1 2 | 3 4: the decision at record 2 did not lead to record 3, and is one of the four in the mean."""
    features, actions, targets, first = sequence()
    total = 0.0
    for t in (0, 1, 3):
        errors = by_hand(features[t], actions[t]) - np.asarray(targets[t + 1], np.float64)
        total += np.sum(errors**2)
    np.testing.assert_allclose(loss(ensemble(), features, actions, targets, first), total / 4, rtol=1e-4)


def test_pairs_across_a_border_of_episodes_do_not_count():
    features, actions, targets, first = sequence()
    before = loss(ensemble(), features, actions, targets, first)
    other = features.at[2].set(9.0), actions.at[2].set(-1.0), targets.at[3].set(50.0)
    assert loss(ensemble(), *other, first) == before
    assert loss(ensemble(), *other, first.at[3].set(False)) > before + 1.0
    gradient = jax.grad(loss)(ensemble(), features, actions, targets, first)
    same = jax.grad(loss)(ensemble(), *other, first)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (gradient, same)), strict=True))


def test_the_loss_trains_the_members_alone():
    gradients = jax.grad(loss, argnums=(0, 1, 2, 3))(ensemble(), *sequence())
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(gradients[0]))
    assert all((leaf == 0).all() for leaf in gradients[1:])


def test_members_agree_where_they_were_taught():
    features, actions, targets, first = sequence()
    optimiser = laprop(1e-2, 0)

    def step(carry, _):
        members, state = carry
        value, gradient = jax.value_and_grad(loss)(members, features, actions, targets, first)
        change, state = optimiser.update(gradient, state, members)
        return (optax.apply_updates(members, change), state), value

    def train(members):
        return jax.lax.scan(step, (members, optimiser.init(members)), length=300)

    (taught, _), values = jax.jit(train)(ensemble())
    assert values[-1] < 1e-2 * values[0]
    known = [float(taught.sigma(features[t], actions[t])) for t in (0, 1, 3)]
    unknown = float(taught.sigma(-features[0], -actions[0]))
    assert max(known) < 0.1 * unknown


def test_one_member_is_refused():
    with pytest.raises(SombrlError, match="at least 2"):
        LatentEnsemble(FEATURES, ACTION, TARGET, 1, key=jr.key(0))


# ----------------------------------------------------------------------------------------------------------- its weight


def test_the_weight_starts_at_two_and_its_gradient_is_gap_plus_alpha_lambda():
    weight = BonusWeight()
    np.testing.assert_allclose(weight.weight, 2.0, rtol=1e-6)
    for gap in (-0.4, 0.0, 0.3):
        gradient = jax.grad(lambda w, gap=gap: w.loss(f32(gap), 0.001))(BonusWeight(5.0))
        np.testing.assert_allclose(gradient.log_weight, gap + 0.001 * 5.0, rtol=1e-5)
        np.testing.assert_allclose(weight.loss(f32(gap), 0.001), math.log(2) * gap + 0.002, rtol=1e-5)
    assert jax.grad(lambda gap: weight.loss(gap, 0.001))(f32(0.3)) == 0.0


def tuned(gap, alpha, updates=69, rate=1e-2):
    """λ after some updates from 2."""
    optimiser, start = laprop(rate, 0, None), BonusWeight()

    def step(carry, _):
        weight, state = carry
        gradient = jax.grad(lambda w: w.loss(f32(gap), alpha))(weight)
        change, state = optimiser.update(gradient, state)
        return (optax.apply_updates(weight, change), state), None

    return jax.jit(lambda: jax.lax.scan(step, (start, optimiser.init(start)), length=updates)[0][0].weight)()


def test_the_weight_falls_while_the_policy_explores_more_than_its_copy():
    """By steps of the same size it is halved or doubled in ln 2 / rate = 69.3 updates."""
    np.testing.assert_allclose(tuned(0.01, 0.0), 1.0, rtol=5e-3)
    np.testing.assert_allclose(tuned(-0.01, 0.0), 4.0, rtol=5e-3)


def test_the_regulariser_alone_lets_the_weight_fall():
    """A little slower: the gradient α λ falls with λ, and is divided by what it was before."""
    log_weight, square, direction = math.log(2.0), 0.0, 0.0
    for n in range(1, 70):
        gradient = 0.001 * math.exp(log_weight)
        square = 0.999 * square + 0.001 * gradient**2
        direction = 0.9 * direction + 0.1 * gradient / math.sqrt(square / (1 - 0.999**n))
        log_weight -= 1e-2 * direction / (1 - 0.9**n)
    assert math.exp(log_weight) < 1.1
    np.testing.assert_allclose(tuned(0.0, 0.001), math.exp(log_weight), rtol=1e-4)


def test_the_weight_stays_within_bounds_and_can_come_back():
    lost = eqx.tree_at(lambda w: w.log_weight, BonusWeight(), f32(400.0))
    np.testing.assert_allclose(lost.weight, 1e8, rtol=1e-4)
    assert jax.grad(lambda w: w.loss(f32(0.5), 0.0))(lost).log_weight == 0.5


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_has_no_logarithm_is_refused(weight):
    with pytest.raises(SombrlError, match="must start positive"):
        BonusWeight(weight)


# ---------------------------------------------------------------------------------------- records of a member's own


def test_shares_weigh_the_error_of_each_member():
    features, actions, targets, first = sequence()
    shares = np.random.default_rng(0).uniform(size=(TIME, MEMBERS))
    total = 0.0
    for t in (0, 1, 3):
        errors = by_hand(features[t], actions[t]) - np.asarray(targets[t + 1], np.float64)
        total += np.sum(shares[t + 1] * np.sum(errors**2, axis=1))
    found = ensemble().loss(features, actions, targets, first, f32(shares))
    np.testing.assert_allclose(found, total / 4, rtol=1e-4)
    whole = ensemble().loss(features, actions, targets, first, jnp.ones((TIME, MEMBERS), jnp.float32))
    np.testing.assert_allclose(whole, loss(ensemble(), features, actions, targets, first), rtol=1e-6)


def test_a_record_is_a_members_own_in_every_window():
    def shares(stream, start, share=0.5):
        return np.asarray(bootstrap_shares(jnp.int32(stream), jnp.int32(start), 400, 5, share))

    drawn = shares(1, 10)
    np.testing.assert_array_equal(drawn[7:], shares(1, 17)[:-7])
    assert set(np.unique(drawn)) == {0.0, 2.0}
    np.testing.assert_allclose(drawn.mean(axis=0), 1.0, atol=4 / np.sqrt(400))
    correlated = np.corrcoef(drawn, rowvar=False)[~np.eye(5, dtype=bool)]
    assert np.abs(correlated).max() < 4 / np.sqrt(400), "members draw on their own"
    assert (drawn != shares(2, 10)).any()
    assert (shares(1, 10, 1.0) == 1.0).all()
