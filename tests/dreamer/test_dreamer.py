"""The update of Dreamer: what teaches whom, and that optimism with λ = 0 is Dreamer."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.dreamer.actor_critic import imagine, judge, policy_loss, replay_value_loss, value_loss
from sombrl.dreamer.config import DreamerConfig, DreamerExplore
from sombrl.dreamer.dreamer import Dreamer, Sequences
from sombrl.dreamer.rssm import Latent
from sombrl.dreamer.sizes import SIZES
from sombrl.envs.layout import Part
from sombrl.errors import SombrlError

PARTS = (Part("obs", (3,), "vector"),)
BATCH, TIME = 2, 5
CONFIG = DreamerConfig(size="tiny", batch_size=BATCH, batch_length=TIME, horizon=3, precision="float32", warmup=0)


def dreamer(explore: DreamerExplore | None = None, **fields) -> Dreamer:
    explore = explore or DreamerExplore(hidden=(8,), members=2)
    return Dreamer(dataclasses.replace(CONFIG, explore=explore, **fields), PARTS, 2, False)


def sequences(agent: Dreamer, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    flags = np.zeros((BATCH, TIME), bool)
    first, last = flags.copy(), flags.copy()
    last[0, 1], first[0, 2] = True, True
    return Sequences(
        obs={"obs": jnp.asarray(rng.normal(size=(BATCH, TIME, 3)), jnp.float32)},
        action=jnp.asarray(rng.normal(size=(BATCH, TIME + 1, 2)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=(BATCH, TIME)), jnp.float32),
        first=jnp.asarray(first),
        last=jnp.asarray(last),
        terminal=jnp.asarray(flags),
        deter=jnp.zeros((BATCH, agent.size.deter), jnp.float32),
        stoch=jnp.zeros((BATCH, agent.size.latents), jnp.int32),
        new=jnp.arange(BATCH) == 0,
        positions=jnp.asarray([[0, 3], [1, 8]], jnp.int32),
    )


SMALL = DreamerExplore(hidden=(8,), members=2)
STILL = dataclasses.replace(SMALL, bonus_weight=0.0, schedule="constant")


@functools.cache  # a program takes ten seconds to compile
def learner(explore: DreamerExplore):
    agent = dreamer(explore)
    return agent, jax.jit(lambda state, batch, key: agent.learn(state, batch, key=key))


@functools.cache
def trained(explore: DreamerExplore):
    """After three updates: the agent, its state, the posteriors and the metrics."""
    agent, learn = learner(explore)
    state, metrics = agent.init(key=jr.key(1)), {}
    for i in range(3):
        state, fresh, metrics = learn(state, sequences(agent, i), jr.key(100 + i))
    return agent, state, fresh, metrics


@pytest.fixture(scope="module")
def optimistic():
    return trained(SMALL)


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


@pytest.mark.thorough
def test_everything_is_learned_and_nothing_is_infinite(optimistic):
    agent, state, fresh, metrics = optimistic
    for before, after in zip(leaves(agent.init(key=jr.key(1)).networks), leaves(state.networks), strict=True):
        assert np.isfinite(after).all()
        assert (before != after).any()
    assert all(np.isfinite(np.asarray(value)) for value in metrics.values())
    assert int(state.updates) == 3
    assert fresh.deter.shape == (BATCH, TIME, agent.size.deter)
    assert fresh.deter.dtype == jnp.float16
    assert int(fresh.stoch.max()) < agent.size.classes


def test_the_slow_copies_follow(optimistic):
    agent, *_ = optimistic
    start = agent.init(key=jr.key(1))
    for slow, fast in zip(leaves(start.slow_value), leaves(start.networks.value), strict=True):
        np.testing.assert_array_equal(slow, fast)
    after, _, _ = learner(SMALL)[1](start, sequences(agent), jr.key(100))
    parts = zip(leaves(start.networks.policy), leaves(after.networks.policy), leaves(after.slow_policy), strict=True)
    for old, new, slow in parts:
        np.testing.assert_allclose(slow, 0.98 * old + 0.02 * new, atol=1e-7)


@pytest.mark.thorough
def test_optimism_without_weight_is_dreamer():
    optimistic, greedy = trained(STILL)[1], trained(DreamerExplore(explore="greedy"))[1]
    assert greedy.networks.ensemble is None
    ours = eqx.tree_at(lambda n: n.ensemble, optimistic.networks, None)
    for a, b in zip(leaves(ours), leaves(greedy.networks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_the_bonus_changes_the_policy_and_unsupervised_ignores_the_reward():
    loud = dataclasses.replace(STILL, bonus_weight=50.0)
    ours, theirs = (trained(explore)[1].networks.policy for explore in (loud, STILL))
    assert any((a != b).any() for a, b in zip(leaves(ours), leaves(theirs), strict=True))
    agent, learn = learner(dataclasses.replace(SMALL, explore="unsupervised"))
    bonus, task = agent.weights(agent.init(key=jr.key(0)))
    assert (float(bonus), float(task)) == (1.0, 0.0)
    state, batch = agent.init(key=jr.key(0)), sequences(agent)
    rich = eqx.tree_at(lambda b: b.reward, batch, 100.0 * batch.reward)
    poor, rich = (learn(state, records, jr.key(3))[2] for records in (batch, rich))
    for name in ("loss/policy", "loss/value", "loss/replay_value"):
        np.testing.assert_array_equal(np.asarray(poor[name]), np.asarray(rich[name]))


@pytest.mark.thorough
def test_a_part_of_an_observation_may_be_called_as_a_loss_is():
    """Reconstructing a part named `dynamics` is a loss of its own, beside the dynamics'."""
    plain, learn = learner(DreamerExplore(explore="greedy"))
    named = Dreamer(plain.config, (Part("dynamics", (3,), "vector"),), 2, False)
    batch = sequences(named)
    batch = eqx.tree_at(lambda b: b.obs, batch, {"dynamics": batch.obs["obs"]})
    _, _, ours = jax.jit(lambda state, b: named.learn(state, b, key=jr.key(1)))(named.init(key=jr.key(0)), batch)
    _, _, theirs = learn(plain.init(key=jr.key(0)), sequences(plain), jr.key(1))
    assert float(ours["model/loss"]) == pytest.approx(float(theirs["model/loss"]))
    assert float(ours["loss/dynamics"]) == pytest.approx(float(theirs["loss/dynamics"]))


def test_the_loss_of_the_ensemble_is_told_apart_by_age(optimistic):
    agent, state, _, _ = optimistic
    batch = sequences(agent, 7)
    learn = learner(SMALL)[1]
    metrics = {name: float(value) for name, value in learn(state, batch, jr.key(3))[2].items()}
    assert (metrics["count/ensemble_new"], metrics["count/ensemble_old"]) == (1.0, BATCH - 1.0)
    total = metrics["sum/ensemble_new"] + metrics["sum/ensemble_old"]
    assert total == pytest.approx(BATCH * metrics["loss/ensemble"], rel=1e-5)
    _, _, other = learn(state, eqx.tree_at(lambda b: b.new, batch, jnp.arange(BATCH) == 1), jr.key(3))
    assert float(other["sum/ensemble_new"]) != pytest.approx(metrics["sum/ensemble_new"], rel=1e-3)


def test_lambda_is_tuned(optimistic):
    _, state, _, metrics = optimistic
    weight = float(state.bonus_weight.weight)
    assert weight != 2.0
    assert abs(weight - 2.0) < 2.0 * 3 * 1.1 * 4e-5  # three steps of the learning rate, in log λ
    assert float(metrics["explore/bonus_share"]) > 0


@pytest.mark.thorough
def test_imagination_teaches_the_world_model_nothing():
    agent = dreamer()
    networks = agent.init(key=jr.key(0)).networks
    rng = np.random.default_rng(0)
    networks = jax.tree.map(  # heads start at 0, and would hide a gradient
        lambda leaf: leaf + jnp.asarray(0.1 * rng.normal(size=leaf.shape), jnp.float32) if eqx.is_array(leaf) else leaf,
        networks,
    )
    start = Latent(jnp.ones(agent.size.deter, jnp.float32), jnp.zeros((agent.size.latents, agent.size.classes)))
    one, zero = jnp.ones((), jnp.float32), jnp.zeros((), jnp.float32)

    def loss(networks, which: str):
        path = imagine(
            *(networks.rssm, networks.reward, networks.cont, networks.policy, networks.ensemble, start, 3),
            "mean-std",
            key=jr.key(2),
        )
        judged = judge(path, networks.value, one, one)
        if which == "policy":
            return policy_loss(networks.policy, path, judged, one)[0]
        return value_loss(judged, networks.value, path)

    policy = eqx.filter_grad(lambda n: loss(n, "policy"))(networks)
    value = eqx.filter_grad(lambda n: loss(n, "value"))(networks)
    for gradient, taught in ((policy, "policy"), (value, "value")):
        for name in ("encoder", "rssm", "decoder", "reward", "cont", "ensemble", "policy", "value"):
            size = sum(float(np.abs(leaf).sum()) for leaf in leaves(getattr(gradient, name)))
            assert (size > 0) == (name == taught), (taught, name)

    features = jnp.broadcast_to(start.features, (TIME, agent.size.features))
    flags, numbers = jnp.zeros(TIME, bool), jnp.ones(TIME, jnp.float32)
    into = jax.grad(
        lambda x: replay_value_loss(networks.value, networks.value, x, numbers, flags, flags, zero * numbers)
    )(features)
    assert float(jnp.abs(into).sum()) > 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"size": "13m"}, "did you mean"),
        ({"ratio": -1.0}, "--ratio"),
        ({"capacity": 100, "envs": 4}, "--capacity"),
        ({"batch_length": 1}, "--batch-length"),
    ],
)
def test_impossible_numbers_are_refused(settings, says):
    with pytest.raises(SombrlError, match=says):
        DreamerConfig(**settings)


def test_impossible_explorations_are_refused():
    with pytest.raises(SombrlError, match="greedy"):
        DreamerExplore(explore="greedi")
    with pytest.raises(SombrlError, match="constant"):
        DreamerExplore(bonus_weight=0.0)


def test_those_that_compute_the_same_are_equal():
    other = dataclasses.replace(SMALL, hidden=(9,))
    assert {dreamer(SMALL), dreamer(SMALL, start_from="somewhere")} == {dreamer()}
    assert dreamer(other) != dreamer() and dreamer(SMALL, horizon=4) != dreamer()


def test_the_protocols():
    assert CONFIG.resolved(images=True).ratio == 512
    head = DreamerConfig(protocol="head")
    assert (head.resolved(images=True).ratio, head.resolved(images=False).ratio) == (256, 1024)
    assert (head.resolved(images=True).cnn, head.resolved(images=True).size) == ("head", "12m")


# ------------------------------------------------------------------------------------------------------ what σ is


def test_the_ensemble_is_as_wide_as_the_size_says():
    """512 x 512 as published from 12m on; an explicit width holds for every size."""
    explore = DreamerExplore()
    assert {name: explore.widths(size) for name, size in SIZES.items() if name in ("tiny", "1m")} == {
        "tiny": (16, 16),
        "1m": (64, 64),
    }
    assert all(explore.widths(size) == (512, 512) for name, size in SIZES.items() if name not in ("tiny", "1m"))
    assert DreamerExplore(hidden=(7,)).widths(SIZES["tiny"]) == (7,)


def everything_else(state) -> list[np.ndarray]:
    return leaves(eqx.tree_at(lambda n: n.ensemble, state.networks, None))


def equal(ours, theirs):
    for a, b in zip(everything_else(ours), everything_else(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_what_the_ensemble_learns_changes_nothing_else():
    """Without weight: another target, records of each member's own, and a learning rate of 0."""
    other = dataclasses.replace(STILL, ensemble_target="deter", bootstrap=0.5, ensemble_lr=0.0)
    agent, state, *_ = trained(other)
    equal(state, trained(STILL)[1])
    start = agent.init(key=jr.key(1)).networks.ensemble
    assert start.members.output.bias.shape == (2, agent.size.deter)
    for a, b in zip(leaves(start), leaves(state.networks.ensemble), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.thorough
def test_a_scaled_bonus_is_that_of_a_weight_divided_by_the_std():
    """The first update: σ/std with λ is σ with λ/std; std is that of σ under the policy and its EMA copy."""
    scaled = dataclasses.replace(STILL, bonus_weight=0.5, bonus_scale="scale", bonus_floor=1e-6)
    agent, learn = learner(scaled)
    state, _, metrics = learn(agent.init(key=jr.key(1)), sequences(agent), jr.key(3))
    std = float(metrics["explore/bonus_std"])
    assert 0 < std < float(metrics["explore/imagined_std"])
    assert float(state.statistics.count) == 2 * BATCH * TIME
    plain, learn = learner(dataclasses.replace(STILL, bonus_weight=0.5 / std))
    same, _, expected = learn(plain.init(key=jr.key(1)), sequences(plain), jr.key(3))
    for name in ("explore/bonus_share", "loss/policy", "loss/value", "loss/replay_value", "explore/imagined_std"):
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4, err_msg=name)
    equal(state, same)
    np.testing.assert_allclose(metrics["explore/bonus_gap"], expected["explore/bonus_gap"] / std, rtol=1e-3)


@pytest.mark.thorough
def test_imagining_from_all_records_at_the_end_is_imagining_from_all():
    agent = dreamer(STILL, imagine_last=TIME)
    learn = jax.jit(lambda state, batch, key: agent.learn(state, batch, key=key))
    ours, _, _ = learn(agent.init(key=jr.key(1)), sequences(agent), jr.key(3))
    theirs, _, _ = learner(STILL)[1](agent.init(key=jr.key(1)), sequences(agent), jr.key(3))
    equal(ours, theirs)


@pytest.mark.thorough
def test_imagining_from_the_last_records_alone():
    """Losses on the records are those of the last two: the replay's value has one pair, not four."""
    agent = dreamer(STILL, imagine_last=2)
    learn = jax.jit(lambda state, batch, key: agent.learn(state, batch, key=key))
    state, batch = trained(STILL)[1], sequences(agent)  # heads that are 0 at first have learned something
    early, late = batch.reward.at[:, :-1].add(5.0), batch.reward.at[:, -1].add(5.0)
    before, early, late = (
        learn(state, eqx.tree_at(lambda b: b.reward, batch, reward), jr.key(3))[2]
        for reward in (batch.reward, early, late)
    )
    np.testing.assert_array_equal(before["loss/replay_value"], early["loss/replay_value"])
    assert before["loss/reward"] != early["loss/reward"]
    assert before["loss/replay_value"] != late["loss/replay_value"]


def test_impossible_options_of_sigma_are_refused():
    with pytest.raises(SombrlError, match="--imagine-last 9 is more than the 5 records"):
        dreamer(imagine_last=9)
    with pytest.raises(SombrlError, match="--learning-rate"):
        dreamer(dataclasses.replace(SMALL, ensemble_lr=1e-3), learning_rate=0.0)
