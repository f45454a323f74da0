"""What a strong base agent adds to SAC, each part against NumPy or a closed form, and that λ = 0 stays greedy."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.controllers import MODEL_FREE, SAC, SACConfig
from sombrl.controllers.initial_states import StoredInitialStates
from sombrl.controllers.policy_search import PolicySearch, PolicySearchConfig
from sombrl.controllers.sac_batches import imagine, role_key, schedule
from sombrl.controllers.sac_expansion import expand
from sombrl.controllers.sac_losses import CriticRows, critic_loss, gaussian, sample_actions, twin_q, value_of
from sombrl.networks.mlp import MLP
from sombrl.networks.normaliser import RunningNormaliser
from sombrl.records import SombrlError
from tests.controllers.test_sac import assert_finite, assert_same, eager
from tests.controllers.worlds import Poison, f32, random_replay, uncertain, world

TINY = SACConfig(
    hidden=(4, 4),
    critic="plain",
    batch_size=6,
    updates_per_call=1,
    real_every=1,
    policy_every=1,
    gradient_clip=None,
    soft_reset_every=None,
)
STRONG = replace(
    TINY,
    actor="simba",
    critic="simba",
    critics="one",
    normalise_observations=True,
    weight_decay=1e-2,
    mix="half",
    imagined_action="policy",
    imagined_weight="certainty",
)


def always(action):
    """A policy that, but for a std of e⁻¹⁰, does this whatever it sees."""
    action = np.asarray(action, np.float32)
    network = MLP(3, (4, 4), (len(action), len(action)), output_gain=1.0, key=jr.key(0))
    heads = jnp.concatenate([jnp.arctanh(f32(action)), jnp.full(len(action), -10.0, jnp.float32)])
    return eqx.tree_at(
        lambda n: (n.layers[-1].weight, n.layers[-1].bias), network, (jnp.zeros_like(network.layers[-1].weight), heads)
    )


def rollout(mdp, action=(0.2, -0.4), *, steps=3, discount=0.7, temperature=0.0, bonus=None, is_reward=False):
    obs = f32([[0.4, -1.0, 2.0], [3.0, 0.0, 0.0]])
    actions = jnp.tile(f32(action)[None], (2, 1))
    return obs, expand(
        *(always(action), mdp, obs, actions),
        steps=steps,
        discount=f32(discount),
        temperature=f32(temperature),
        bonus=bonus,
        bonus_is_reward=is_reward,
        key=jr.key(1),
    )


# Value expansion.


@pytest.mark.parametrize("steps", [1, 3])
def test_expansion_gathers_what_the_task_pays(steps):
    """x' = x/2 + u₀/4 and r = -|u - ½|², with the task's weight in it."""
    obs, end = rollout(world(task_weight=0.6), steps=steps)
    paid = -0.6 * (0.3**2 + 0.9**2) * sum(0.7**i for i in range(steps))
    np.testing.assert_allclose(end.gathered, [paid, paid], rtol=1e-3)
    np.testing.assert_allclose(end.discount, 0.7**steps, rtol=1e-6)
    expected = np.asarray(obs)
    for _ in range(steps):
        expected = 0.5 * expected + 0.25 * 0.2
    np.testing.assert_allclose(end.obs, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(end.action, [[0.2, -0.4]] * 2, atol=1e-3)


def test_nothing_is_gathered_after_the_end():
    """The second row ends at once, as its x'₀ = 1.55 exceeds 1; what that step pays still counts."""
    _, end = rollout(world(limit=1.0))
    once = -(0.3**2 + 0.9**2)
    np.testing.assert_allclose(end.gathered, [once * (1 + 0.7 + 0.49), once], rtol=1e-3)
    np.testing.assert_allclose(end.discount, [0.343, 0.0], rtol=1e-6)


@pytest.mark.parametrize("is_reward", [False, True])
def test_bonus_and_entropy_on_the_way(is_reward):
    """As a reward the bonus counts where a step begins, like the entropy where one ends."""
    _, without = rollout(world())
    _, paid = rollout(world(), bonus=lambda obs, action: obs[:, 0], is_reward=is_reward)
    x = [np.array([0.4, 3.0])]
    for _ in range(3):
        x.append(0.5 * x[-1] + 0.05)
    where = range(3) if is_reward else range(1, 4)
    expected = sum(0.7**i * x[i] for i in where)
    np.testing.assert_allclose(paid.gathered - without.gathered, expected, rtol=1e-3)
    _, random = rollout(world(), temperature=0.1)
    # log π of a narrow Gaussian is -2 (log σ + ½ log 2π) - |ε|²/2 - Σ log(1 - u²), with σ = e⁻¹⁰.
    noise = [jr.normal(jr.split(key)[1], (2, 2), jnp.float32) for key in jr.split(jr.key(1), 3)]
    squashed = np.log(1 - 0.2**2) + np.log(1 - 0.4**2)
    log_prob = [20 - np.log(2 * np.pi) - 0.5 * np.sum(np.square(n), axis=1) - squashed for n in noise]
    expected = -0.1 * sum(0.7 ** (i + 1) * np.asarray(one) for i, one in enumerate(log_prob))
    np.testing.assert_allclose(random.gathered - without.gathered, expected, rtol=1e-3)


def test_the_gradient_goes_through_the_model():
    """d x_k/d u₀ = ½ᵏ⁻¹/4 by the first action alone."""

    def end_of(first):
        return rollout_from(first).obs[0, 0]

    def rollout_from(first):
        return expand(
            *(always((0.2, -0.4)), world(), f32([[0.4, -1.0, 2.0]]), first[None]),
            steps=3,
            discount=f32(0.7),
            temperature=f32(0.0),
            bonus=None,
            bonus_is_reward=False,
            key=jr.key(1),
        )

    np.testing.assert_allclose(jax.grad(end_of)(f32([0.1, 0.3])), [0.5**2 / 4, 0.0], rtol=1e-5)


@pytest.mark.parametrize("steps", [1, 2])
def test_critics_learn_the_expanded_target(steps):
    """By hand: r + γ (r̂ - α log π + …) + γᵏ⁺¹ min Q̄ at the end, from the keys of the roles."""
    sac = SAC(3, replace(TINY, imagined="none", critic_expansion=steps, critic_lr=0.0, init_temperature=0.3))
    mdp, replay, key = world(limit=0.5, discount=0.8), random_replay(terminated=0.4), jr.key(2)
    state = sac.init(mdp, key=jr.key(1))
    _, metrics = eager(sac, state, mdp, replay, key)
    block = jr.fold_in(key, 0)
    rows = replay.sample(6, key=role_key(block, "batch"))
    noise = jr.normal(role_key(block, "next_action"), (6, 2), jnp.float32)
    obs, (action, log_prob) = rows.next_obs, sample_actions(state.actor, rows.next_obs, noise)
    target = np.asarray(rows.reward, np.float64)
    left = np.where(rows.terminated, 0.0, 0.8)
    for step_key in jr.split(role_key(block, "critic_expansion"), steps):
        target += left * (-0.3 * np.asarray(log_prob) - np.sum((np.asarray(action) - 0.5) ** 2, axis=1))
        obs = 0.5 * obs + 0.25 * action[:, :1]
        left = left * np.where(obs[:, 0] > 0.5, 0.0, 0.8)
        noise = jr.normal(jr.split(step_key)[1], (6, 2), jnp.float32)
        action, log_prob = sample_actions(state.actor, obs, noise)
    target += left * (-0.3 * np.asarray(log_prob) + np.asarray(twin_q(state.critic, obs, action)).min(axis=0))
    q = np.asarray(twin_q(state.critic, rows.obs, rows.action))
    np.testing.assert_allclose(metrics["policy/critic_loss"], np.mean(np.sum((q - target) ** 2, axis=0)), rtol=1e-3)


def test_actors_are_paid_what_the_model_pays():
    """With critics that say 0 and hardly any entropy, the actor's loss is minus what a rollout gathers."""
    sac = SAC(3, replace(TINY, imagined="none", actor_expansion=2, critic_lr=0.0, init_temperature=1e-6))
    state = sac.init(world(), key=jr.key(1))
    critic = jax.tree.map(jnp.zeros_like, state.critic)
    state = eqx.tree_at(lambda s: (s.actor, s.critic), state, (always((0.2, -0.4)), critic))
    _, metrics = eager(sac, state, world(discount=0.7), random_replay(), jr.key(2))
    np.testing.assert_allclose(metrics["policy/actor_loss"], (0.3**2 + 0.9**2) * 1.7, rtol=1e-3)


# Imagined data.


def imagined(config, mdp, real):
    state = SAC(3, config).init(mdp, key=jr.key(1))
    return state, imagine(config, SAC(3, config).actor(state), mdp, real, jr.key(2))


@pytest.mark.parametrize("mix", ["separate", "half"])
def test_the_policys_own_action_is_imagined(mix):
    config, mdp = replace(TINY, imagined_action="policy", mix=mix), world(limit=0.3, task_weight=0.6)
    real = random_replay(12, terminated=0.3).data
    real = jax.tree.map(lambda leaf: leaf[:12], real)
    state, made = imagined(config, mdp, real)
    if mix == "half":  # of each of two batches the second half
        real = jax.tree.map(lambda leaf: jnp.concatenate([leaf[3:6], leaf[9:12]]), real)
    noise = jr.normal(role_key(jr.key(2), "imagined_action"), real.action.shape, jnp.float32)
    action, _ = sample_actions(state.actor, real.obs, noise)
    rows, next_obs = made.rows, 0.5 * np.asarray(real.obs) + 0.25 * np.asarray(action)[:, :1]
    assert_same(rows.obs, real.obs)
    np.testing.assert_allclose(rows.action, action, rtol=1e-6)
    np.testing.assert_allclose(rows.next_obs, next_obs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows.reward, -0.6 * np.sum((np.asarray(action) - 0.5) ** 2, axis=1), rtol=1e-4)
    ended = np.asarray(real.terminated) | (next_obs[:, 0] > 0.3)
    assert np.array_equal(rows.terminated, ended) and ended.any() and not ended.all()


def test_doubt_takes_weight_away():
    """σ = spread · exp(u₀) in every coordinate."""
    mdp = world(spread=0.5)
    real = jax.tree.map(lambda leaf: leaf[:6], random_replay().data)
    _, made = imagined(replace(TINY, imagined_weight="certainty"), mdp, real)
    np.testing.assert_allclose(made.weight, 1 / (1 + 0.5 * np.exp(np.asarray(real.action)[:, 0])), rtol=1e-5)


def test_weighted_errors():
    rng = np.random.default_rng(0)
    critic = SAC(3, TINY).init(world(), key=jr.key(0)).critic
    obs, action, reward = rng.normal(size=(6, 3)), rng.normal(size=(6, 2)), rng.normal(size=6)
    weight, zero = rng.uniform(size=6), np.zeros(6)
    rows = CriticRows(*map(f32, (obs, action, reward, zero, obs, action, zero, weight)))
    loss, q = critic_loss(critic, critic, rows)
    np.testing.assert_allclose(loss, np.mean(weight * np.sum((np.asarray(q) - reward) ** 2, axis=0)), rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("critic", ["plain", "simba"])
def test_critics_with_bins_begin_at_zero_and_learn_by_cross_entropy(critic):
    config = replace(TINY, critic=critic, critic_output="bins", imagined="none", init_temperature=1e-6)
    sac, mdp, replay = SAC(3, config), world(), random_replay()
    state = sac.init(mdp, key=jr.key(1))
    rows = replay.sample(6, key=jr.key(3))
    np.testing.assert_allclose(twin_q(state.critic, rows.obs, rows.action), np.zeros((2, 6)), atol=1e-5)
    new, metrics = eager(sac, state, mdp, replay, jr.key(2))
    np.testing.assert_allclose(metrics["policy/critic_loss"], 2 * np.log(101), rtol=1e-4)
    zero, weight = jnp.zeros(6, jnp.float32), f32(np.arange(6) / 6)
    batch = CriticRows(rows.obs, rows.action, f32(np.full(6, 7.0)), zero, rows.obs, rows.action, zero, weight)
    before, after = (critic_loss(s.critic, s.target_critic, batch)[0] for s in (state, new))
    np.testing.assert_allclose(before, 2 * np.log(101) * np.mean(weight), rtol=1e-4)
    assert after != before


@pytest.mark.parametrize("weight", ["equal", "certainty"])
@pytest.mark.parametrize(
    ("mix", "batch", "where"), [("half", 6, [0, 0, 0, 1, 1, 1]), ("concatenated", 12, [0] * 6 + [1] * 6)]
)
def test_where_imagined_rows_are(mix, batch, where, weight):
    config = replace(TINY, mix=mix, imagined_weight=weight)
    mdp, real = world(), jax.tree.map(lambda leaf: leaf[:12], random_replay().data)
    _, made = imagined(config, mdp, real)
    steps = schedule(config, jnp.zeros((), jnp.int32), real, made, 2)
    assert steps.rows.reward.shape == (2, batch) and (steps.due is None or steps.due.all())
    np.testing.assert_allclose(steps.tau, 0.005)
    moved = np.asarray(steps.rows.next_obs) - (0.5 * steps.rows.obs + 0.25 * steps.rows.action[..., :1])
    assert np.array_equal(np.all(np.abs(moved) < 1e-6, axis=2), np.array([where, where]) > 0)
    if mix == "half":
        assert_same(steps.rows.obs, real.obs.reshape(2, 6, 3))
    if weight == "certainty":
        assert np.array_equal(np.asarray(steps.weight) < 1, np.array([where, where]) > 0)
    else:
        assert steps.weight is None


@pytest.mark.thorough
def test_a_policy_step_looks_at_the_bonus_of_some_rows():
    """The first three stand for all six."""
    config = replace(TINY, imagined="none", bonus_rows=3, bonus_scale="none", actor_lr=0.0, critic_lr=0.0)
    sac, mdp, replay, key = SAC(3, config), uncertain(spread=0.3), random_replay(), jr.key(2)
    other = sac.init(mdp, key=jr.key(5)).actor
    state = eqx.tree_at(lambda s: s.target_actor, sac.init(mdp, key=jr.key(1)), other)
    new, metrics = eager(sac, state, mdp, replay, key)
    block = jr.fold_in(key, 0)
    obs = replay.sample(6, key=role_key(block, "batch")).obs
    raw = []
    for actor, role in ((state.actor, "action"), (other, "target_action")):
        action, _ = sample_actions(actor, obs, jr.normal(role_key(block, role), (6, 2), jnp.float32))
        raw.append(0.3 * np.exp(np.asarray(action)[:, 0]))
    np.testing.assert_allclose(metrics["policy/bonus_gap"], raw[0][:3].mean() - raw[1][:3].mean(), rtol=1e-3)
    np.testing.assert_allclose(new.statistics.mean, np.concatenate([raw[0][:3], raw[1][:3]]).mean(), rtol=1e-4)
    assert new.statistics.count == 6
    noise = jr.normal(role_key(block, "action"), (6, 2), jnp.float32)
    action, log_prob = sample_actions(state.actor, obs, noise)
    least = np.asarray(twin_q(state.critic, obs, action)).min(axis=0)
    expected = -np.mean(least - np.asarray(log_prob)) - raw[0][:3].mean()
    np.testing.assert_allclose(metrics["policy/actor_loss"], expected, rtol=1e-4)


# Networks.


def test_values_of_several_critics():
    q = f32([[1.0, 5.0], [3.0, -1.0]])
    np.testing.assert_allclose(value_of(q, "two-min"), [1.0, -1.0])
    np.testing.assert_allclose(value_of(q, "two-mean"), [2.0, 2.0])
    np.testing.assert_allclose(value_of(q[:1], "one"), [1.0, 5.0])


@pytest.mark.thorough
@pytest.mark.parametrize(("critics", "number"), [("two-min", 2), ("two-mean", 2), ("one", 1)])
def test_critics_bootstrap_from_their_value(critics, number):
    sac = SAC(3, replace(TINY, imagined="none", critics=critics, critic_lr=0.0, init_temperature=1e-6))
    mdp, replay, key = world(), random_replay(terminated=0.0), jr.key(2)
    state = sac.init(mdp, key=jr.key(1))
    assert jax.tree.leaves(state.critic)[0].shape[0] == number
    _, metrics = eager(sac, state, mdp, replay, key)
    block = jr.fold_in(key, 0)
    rows = replay.sample(6, key=role_key(block, "batch"))
    noise = jr.normal(role_key(block, "next_action"), (6, 2), jnp.float32)
    next_q = np.asarray(twin_q(state.critic, rows.next_obs, sample_actions(state.actor, rows.next_obs, noise)[0]))
    best = {"two-min": next_q.min(0), "two-mean": next_q.mean(0), "one": next_q[0]}[critics]
    q = np.asarray(twin_q(state.critic, rows.obs, rows.action))
    expected = np.mean(np.sum((q - (np.asarray(rows.reward) + 0.99 * best)) ** 2, axis=0))
    np.testing.assert_allclose(metrics["policy/critic_loss"], expected, rtol=1e-3)


def test_observations_are_normalised_everywhere():
    """Statistics of all rows that were drawn; the same policy then acts, is exported and is asked for next actions."""
    config = replace(
        TINY, imagined="none", normalise_observations=True, critic_lr=0.0, actor_lr=0.0, updates_per_call=3
    )
    sac, mdp, replay = SAC(3, config), world(), random_replay(terminated=0.0)
    replay = eqx.tree_at(
        lambda r: (r.data.obs, r.data.next_obs), replay, (5 + 20 * replay.data.obs, replay.data.next_obs)
    )
    start = sac.init(mdp, key=jr.key(1))
    state, metrics = eager(sac, start, mdp, replay, jr.key(2))
    blocks = [jr.fold_in(jr.key(2), i) for i in range(3)]
    drawn = [replay.sample(6, key=role_key(block, "batch")) for block in blocks]
    seen = np.concatenate([np.asarray(rows.obs) for rows in drawn])
    np.testing.assert_allclose(state.normaliser.mean, seen.mean(0), rtol=1e-4)
    np.testing.assert_allclose(state.normaliser.std, seen.std(0), rtol=1e-4)

    def normal(obs):
        return f32(np.clip((np.asarray(obs) - seen.mean(0)) / seen.std(0), -10, 10))

    obs = f32([40.0, -3.0, 1000.0])
    expected = jnp.tanh(gaussian(start.actor, normal(obs))[0])
    np.testing.assert_allclose(sac.for_evaluation().act(state, mdp, obs, key=jr.key(0))[0], expected, atol=1e-5)
    np.testing.assert_allclose(jnp.tanh(gaussian(sac.actor(state), obs)[0]), expected, atol=1e-5)
    rows, noise = drawn[-1], jr.normal(role_key(blocks[-1], "next_action"), (6, 2), jnp.float32)
    next_action, log_prob = sample_actions(start.actor, normal(rows.next_obs), noise)
    temperature = np.exp(2 * -3e-4)  # two steps of it before: the policy is more random than asked for
    next_q = np.asarray(twin_q(state.target_critic, normal(rows.next_obs), next_action)).min(0)
    target = np.asarray(rows.reward) + 0.99 * (next_q - temperature * np.asarray(log_prob))
    q = np.asarray(twin_q(state.critic, normal(rows.obs), rows.action))
    np.testing.assert_allclose(metrics["policy/critic_loss"], np.mean(np.sum((q - target) ** 2, axis=0)), rtol=1e-3)


def test_without_the_option_there_are_no_statistics():
    """So a checkpoint has the arrays that it always had."""
    paths = [
        jax.tree_util.keystr(path)
        for path, _ in jax.tree_util.tree_flatten_with_path(SAC(3, TINY).init(world(), key=jr.key(0)))[0]
    ]
    assert not any("normaliser" in path for path in paths)
    assert paths[0] == ".actor.layers[0].weight"
    with_them = SAC(3, replace(TINY, normalise_observations=True)).init(world(), key=jr.key(0))
    assert isinstance(with_them.normaliser, RunningNormaliser)


@pytest.mark.parametrize(("decay", "kept"), [(0.0, False), (0.5, False), (0.0, True)])
def test_decay_and_projection(decay, kept):
    """One step of Adam has the size of the learning rate in every number; decay takes its share beside it."""
    config = replace(TINY, imagined="none", weight_decay=decay, project_weights=kept, critic_lr=1e-3, actor_lr=1e-3)
    sac, mdp, replay = SAC(3, config), world(), random_replay()
    state = sac.init(mdp, key=jr.key(1))
    new, _ = eager(sac, state, mdp, replay, jr.key(2))
    for name in ("actor", "critic"):
        old, moved = getattr(state, name).layers, getattr(new, name).layers
        change = np.asarray(moved[-1].weight - (1 - decay * 1e-3) * old[-1].weight)  # a last layer is never projected
        moving = np.abs(change) > 1e-6
        assert moving.any()
        np.testing.assert_allclose(np.abs(change[moving]), 1e-3, rtol=0.05)
        sizes = [np.sqrt(np.sum(np.square(layers[1].weight), axis=(-2, -1))) for layers in (old, moved)]
        assert np.allclose(*sizes, rtol=1e-6) is kept
    np.testing.assert_allclose(abs(new.log_temperature), 3e-4, rtol=1e-3)  # from 0; never decayed


# All together.


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes", [{}, {"critic": "bronet", "actor": "bro", "first_norm": True, "critics": "two-mean"}]
)
def test_all_of_it_learns_finite_things(changes):
    config = replace(STRONG, critic_expansion=2, actor_expansion=2, project_weights=True, **changes)
    sac, mdp = SAC(3, config), uncertain(limit=1.0)
    state, metrics = eager(sac, sac.init(mdp, key=jr.key(0)), mdp, random_replay(), jr.key(1))
    assert_finite((state, metrics))
    assert any(
        np.any(a != b) for a, b in zip(jax.tree.leaves(state.actor), jax.tree.leaves(state.target_actor), strict=True)
    )


@pytest.mark.optimised
@pytest.mark.parametrize("expansion", [0, 2])
def test_zero_weight_equals_no_bonus(expansion):
    """Bit for bit; with value expansion up to rounding: XLA fuses sums differently where a bonus could enter."""
    config = replace(STRONG, critic_expansion=expansion, actor_expansion=expansion)
    compiled = jax.jit(lambda *args: SAC(3, config).improve(*args[:3], key=args[3]))  # as in a run: optimised

    def learn(mdp):
        state, metrics = SAC(3, config).init(mdp, key=jr.key(0)), {}
        for i in range(3):
            state, metrics = compiled(state, mdp, random_replay(), jr.fold_in(jr.key(1), i))
        return state, metrics

    without, weightless = learn(world()), learn(world(Poison(), weight=0.0))
    assert_finite(without)
    if expansion:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), without, weightless)
    else:
        assert_same(without, weightless)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda: replace(STRONG, actor_hidden=(4, 8)), "--sac.actor simba needs equal widths in --sac.actor-hidden"),
        (lambda: replace(STRONG, batch_size=1), "--sac.mix half needs two rows"),
        (
            lambda: PolicySearch(
                *(3, StoredInitialStates(jnp.zeros((1, 3), jnp.float32)), PolicySearchConfig()),
                replace(MODEL_FREE, critic_expansion=1),
            ),
            "policy search learns from imagined data alone",
        ),
    ],
)
def test_what_cannot_be(bad, said):
    with pytest.raises(SombrlError, match=said):
        bad()
