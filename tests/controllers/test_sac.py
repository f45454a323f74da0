"""SAC as a controller: its losses against NumPy, its schedule, its optimism, and what it must never do."""

import dataclasses
import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from sombrl.controllers import MODEL_FREE, SAC, SACConfig
from sombrl.controllers.sac_batches import imagine, role_key
from sombrl.controllers.sac_losses import BonusStatistics
from sombrl.dynamics.ensemble import EnsembleConfig, EnsembleLearner
from sombrl.exploration.bonus import EpistemicMean
from sombrl.exploration.propagation import Hallucinated, Resampled
from sombrl.records import SombrlError
from sombrl.replay import Replay
from tests.controllers.worlds import (
    TRACES,
    Certain,
    Poison,
    f32,
    filled,
    improve,
    random_replay,
    transitions,
    uncertain,
    world,
)

TINY = SACConfig(hidden=(4, 4), critic="plain", batch_size=6, gradient_clip=100.0, soft_reset_every=None)
ONE = replace(TINY, updates_per_call=1, real_every=1, policy_every=1)
FREE = replace(MODEL_FREE, hidden=(4, 4), batch_size=6)
METRICS = {
    f"policy/{name}"
    for name in ("critic_loss", "actor_loss", "entropy", "temperature", "bonus_weight", "bonus", "bonus_gap", "q")
}


def eager(sac, state, mdp, replay, key):
    """An improvement op by op: much faster than compiling a program that runs once."""
    with jax.disable_jit():
        return sac.improve(state, mdp, replay, key=key)


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_finite(tree):
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree))


def count(memory):
    return int(optax.tree_utils.tree_get(memory, "count"))


# The losses of one update, in float64.


def mlp(network, x, member=None):
    for i, layer in enumerate(network.layers):
        weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
        x = x @ (weight if member is None else weight[member]) + (bias if member is None else bias[member])
        x = x if i + 1 == len(network.layers) else np.maximum(x, 0)
    return x


def policy(actor, obs, noise):
    mean, log_std = np.split(mlp(actor, obs), 2, axis=1)
    log_std = np.clip(log_std, -10, 2)
    before = mean + np.exp(log_std) * noise
    log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(before) ** 2)
    return np.tanh(before), log_prob.sum(axis=1)


def twins(critic, obs, action):
    return np.stack([mlp(critic, np.concatenate([obs, action], axis=1), member)[:, 0] for member in range(2)])


def normal(key, role, *shape):
    return np.asarray(jr.normal(role_key(key, role), shape, jnp.float32), np.float64)


@pytest.mark.parametrize(
    ("imagined", "enters", "scale", "discount"),
    [
        pytest.param("none", "target", "z-score", 1.0, marks=pytest.mark.thorough),
        ("one-step", "target", "scale", 0.7),
        ("none", "reward", "z-score", 1.0),
        pytest.param("one-step", "reward", "none", 1.0, marks=pytest.mark.thorough),
    ],
)
def test_one_update_equals_numpy(imagined, enters, scale, discount):
    config = replace(ONE, imagined=imagined, bonus_enters=enters, bonus_scale=scale, actor_lr=0.0, critic_lr=0.0)
    sac, mdp = SAC(3, config), uncertain(weight=0.8, discount=discount, task_weight=0.6, spread=0.3)
    other = sac.init(mdp, key=jr.key(5))
    state = eqx.tree_at(
        lambda s: (s.target_actor, s.target_critic, s.log_temperature, s.log_bonus_factor, s.statistics),
        sac.init(mdp, key=jr.key(1)),
        (
            *(other.actor, other.critic, f32(np.log(0.2)), f32(np.log(1.5))),
            BonusStatistics(f32(0.3), f32(0.5), f32(10.0)),
        ),
    )
    replay, key = random_replay(terminated=0.4, truncated=0.6), jr.key(2)
    new, metrics = eager(sac, state, mdp, replay, key)

    block = jr.fold_in(key, 0)
    rows = jax.tree.map(lambda leaf: np.asarray(leaf), replay.sample(6, key=role_key(block, "batch")))
    assert rows.terminated.any() and (rows.truncated & ~rows.terminated).any()
    weight, temperature = 0.8 * 1.5, 0.2
    mean, std, number = 0.3, 0.5, 10.0

    def scaled(raw):
        return {"z-score": (raw - mean) / std, "scale": raw / std, "none": raw}[scale]

    def raw_bonus(action):
        return 0.3 * np.exp(action[:, 0])

    next_obs, noise = rows.next_obs, normal(block, "next_action", 6, 2) if imagined == "none" else None
    if imagined == "one-step":  # a real step came first: the metrics are of the imagined one
        next_obs, noise = 0.5 * rows.obs + 0.25 * rows.action[:, :1], normal(block, "next_action", 12, 2)[6:]
    next_action, log_prob = policy(state.actor, next_obs, noise)
    soft, reward = -temperature * log_prob, 0.6 * rows.reward
    if enters == "target":
        soft = soft + weight * scaled(raw_bonus(next_action))
    else:
        reward = reward + weight * scaled(raw_bonus(rows.action))
    gamma = 0.99 if discount == 1 else discount
    next_q = twins(state.target_critic, next_obs, next_action).min(axis=0)
    target = reward + gamma * ~rows.terminated * (next_q + soft)
    q = twins(state.critic, rows.obs, rows.action)
    np.testing.assert_allclose(metrics["policy/critic_loss"], ((q - target) ** 2).sum(axis=0).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["policy/q"], q.mean(), rtol=1e-4, atol=1e-5)

    action, log_prob = policy(state.actor, rows.obs, normal(block, "action", 6, 2))
    slow_action, _ = policy(state.target_actor, rows.obs, normal(block, "target_action", 6, 2))
    raw, slow_raw = raw_bonus(action), raw_bonus(slow_action)
    values = np.concatenate([raw, slow_raw])
    new_mean = (number * mean + values.sum()) / (number + 12)
    squares = number * (std**2 + (mean - new_mean) ** 2) + ((values - new_mean) ** 2).sum()
    mean, std = new_mean, np.sqrt(squares / (number + 12))
    np.testing.assert_allclose(new.statistics.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(new.statistics.std, std, rtol=1e-4)
    objective = twins(state.critic, rows.obs, action).min(axis=0) - temperature * log_prob
    if enters == "target":
        objective = objective + weight * scaled(raw)
    np.testing.assert_allclose(metrics["policy/actor_loss"], -objective.mean(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["policy/entropy"], -log_prob.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["policy/bonus"], raw.mean(), rtol=1e-4)
    gap = scaled(raw).mean() - scaled(slow_raw).mean()
    np.testing.assert_allclose(metrics["policy/bonus_gap"], gap, rtol=1e-3, atol=1e-5)
    # Adam's first step has the size of the learning rate, against the sign of the gradient.
    step = 3e-4
    np.testing.assert_allclose(new.log_bonus_factor, np.log(1.5) - step * np.sign(gap), rtol=1e-5)
    excess = -log_prob.mean() + 2
    np.testing.assert_allclose(new.log_temperature, np.log(0.2) - step * np.sign(excess), rtol=1e-5)
    assert set(metrics) == METRICS


# The schedule.


@pytest.mark.parametrize(
    ("changes", "calls", "critic", "polyak", "actor"),
    [
        ({}, 1, 6, 5, 1),
        ({"updates_per_call": 1}, 5, 6, 5, 1),  # the periods are counted over calls
        pytest.param(
            *({"updates_per_call": 6, "real_every": 2, "policy_every": 3}, 1, 9, 6, 2), marks=pytest.mark.thorough
        ),
        ({"updates_per_call": 4, "policy_every": 2, "real_every": 3}, 3, 16, 12, 6),
        ({"mix": "concatenated"}, 1, 5, 5, 1),
        ({"imagined": "none", "updates_per_call": 4, "policy_every": 1}, 1, 4, 4, 4),
        pytest.param({"imagined": "branched", "rollout_length": 4}, 1, 6, 5, 1, marks=pytest.mark.thorough),
        ({"mix": "half", "updates_per_call": 2, "policy_every": 1}, 2, 4, 4, 4),
    ],
)
def test_schedule(changes, calls, critic, polyak, actor):
    sac, mdp, replay = SAC(3, replace(TINY, critic_lr=0.0, actor_lr=0.0, **changes)), world(), random_replay()
    state = sac.init(mdp, key=jr.key(0))
    state = eqx.tree_at(lambda s: s.target_critic, state, jax.tree.map(lambda leaf: leaf + 1.0, state.critic))
    state = eqx.tree_at(lambda s: s.target_actor, state, jax.tree.map(lambda leaf: leaf + 1.0, state.actor))
    for i in range(calls):
        state, _ = improve(sac, state, mdp, replay, jr.fold_in(jr.key(1), i))
    assert (count(state.critic_memory), count(state.actor_memory)) == (critic, actor)
    assert count(state.temperature_memory) == actor
    assert state.updates == calls * sac.config.updates_per_call
    # With the learned ones standing still, the targets' distance of 1 shrinks by 1 - τ each time.
    bias, slow_bias = state.target_critic.layers[0].bias[0, 0], state.target_actor.layers[0].bias[0]
    np.testing.assert_allclose(bias, 0.995**polyak, rtol=1e-5)
    np.testing.assert_allclose(slow_bias, 0.995**actor, rtol=1e-5)


def test_a_second_call_traces_nothing():
    sac, mdp, replay = SAC(3, ONE), uncertain(), random_replay()
    state, _ = improve(sac, sac.init(mdp, key=jr.key(0)), mdp, replay, jr.key(1))
    before = TRACES[0]
    improve(sac, state, uncertain(weight=3.0, spread=0.1, discount=0.9), random_replay(seed=1), jr.key(2))
    assert TRACES[0] == before > 0


def test_model_free_without_a_bonus_never_asks_the_model():
    sac, mdp = SAC(3, FREE), world()
    state, before = sac.init(mdp, key=jr.key(0)), TRACES[0]
    jax.make_jaxpr(sac.improve)(state, mdp, random_replay(), key=jr.key(1))
    assert TRACES[0] == before
    jax.make_jaxpr(sac.improve)(state, uncertain(), random_replay(), key=jr.key(1))
    assert TRACES[0] > before  # MaxInfoSAC does


# Optimism.


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("changes", "bonus"),
    [
        ({}, EpistemicMean()),
        pytest.param({"imagined": "branched", "critic": "bro"}, Poison(), marks=pytest.mark.slow),
    ],
    ids=["one-step", "branched"],
)
def test_no_weight_is_no_bonus_exactly(changes, bonus):
    config = replace(TINY, gradient_clip=0.5, **changes)
    compiled = jax.jit(lambda *args: SAC(3, config).improve(*args[:3], key=args[3]))  # as in a run: optimised

    def learn(mdp):
        state, metrics = SAC(3, config).init(mdp, key=jr.key(0)), {}
        for i in range(3):
            state, metrics = compiled(state, mdp, random_replay(), jr.fold_in(jr.key(1), i))
        return state, metrics

    without = learn(world())
    assert_same(without, learn(world(bonus, weight=0.0)))
    assert_finite(without)


@pytest.mark.thorough
def test_a_weight_makes_a_difference_and_where_it_enters_too():
    """In the actor from the first step on, in the critics either way."""
    updated = {}
    for name, config, weight in (
        ("none", ONE, 0.0),
        ("target", ONE, 1.0),
        ("reward", replace(ONE, bonus_enters="reward"), 1.0),
    ):
        sac, mdp = SAC(3, config), uncertain(weight=weight)
        updated[name], _ = eager(sac, sac.init(mdp, key=jr.key(0)), mdp, random_replay(), jr.key(1))
    moments = {name: state.critic_memory[1][0].mu.layers[0].weight for name, state in updated.items()}
    assert not np.allclose(moments["none"], moments["target"])
    assert not np.allclose(moments["none"], moments["reward"])
    assert not np.allclose(moments["target"], moments["reward"])


def test_a_certain_model_does_not_break_the_actor():
    """‖σ‖ has no gradient at 0."""
    sac, mdp = SAC(3, ONE), world(Certain(), weight=1.0)
    assert_finite(eager(sac, sac.init(mdp, key=jr.key(0)), mdp, random_replay(), jr.key(1)))


def shifted(actor, amount):
    """The same policy with u₀ moved, which the bonus of the tiny world pays for."""
    bias = actor.layers[-1].bias.at[0].add(amount)
    return eqx.tree_at(lambda a: a.layers[-1].bias, actor, bias)


@pytest.mark.parametrize("how", ["z-score", "scale", "none"])
def test_weight_rises_while_the_policy_explores_less_than_its_slow_copy(how):
    sac, mdp, replay = SAC(3, replace(ONE, bonus_scale=how)), uncertain(weight=2.0), random_replay()
    state = sac.init(mdp, key=jr.key(0))
    for amount, sign in ((5.0, 1), (-5.0, -1)):
        tilted = eqx.tree_at(lambda s: s.target_actor, state, shifted(state.actor, amount))
        new, metrics = eager(sac, tilted, mdp, replay, jr.key(1))
        assert np.sign(metrics["policy/bonus_gap"]) == -sign
        np.testing.assert_allclose(metrics["policy/bonus_weight"], 2.0 * np.exp(sign * 3e-4), rtol=1e-5)
        np.testing.assert_allclose(metrics["policy/bonus_weight"], 2.0 * np.exp(new.log_bonus_factor), rtol=1e-6)


# Soft resets.


def test_soft_reset_mixes_and_forgets():
    mdp = uncertain()
    old, _ = eager(SAC(3, ONE), SAC(3, ONE).init(mdp, key=jr.key(0)), mdp, random_replay(), jr.key(1))
    critics, both = (
        SAC(3, replace(ONE, reset_mix=0.25, reset_policy=policy)).renew(old, mdp, key=jr.key(2))
        for policy in (False, True)
    )
    assert count(critics.critic_memory) == 0 and count(critics.actor_memory) == 1
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(critics.critic_memory))
    assert_same(old.actor, critics.actor)
    assert count(both.actor_memory) == 0
    fresh = []
    for name in ("critic", "target_critic"):
        mixed = (getattr(critics, name).layers[1].weight - 0.75 * getattr(old, name).layers[1].weight) / 0.25
        fresh.append(mixed)
        for member in mixed:  # a fresh layer is orthogonal with gain √2
            np.testing.assert_allclose(member.T @ member, 2 * np.eye(4), atol=1e-4)
    assert not np.allclose(fresh[0], fresh[1], atol=0.1)
    actor = (both.actor.layers[1].weight - 0.75 * old.actor.layers[1].weight) / 0.25
    np.testing.assert_allclose(actor.T @ actor, 2 * np.eye(4), atol=1e-4)


@pytest.mark.parametrize(("every", "calls"), [(None, None), (10, 2), (11, 3), (1, 1)])
def test_soft_resets_are_rounded_up_to_whole_improvements(every, calls):
    assert SAC(3, SACConfig(updates_per_call=5, soft_reset_every=every)).renew_every == calls


# What must never happen.


@pytest.mark.parametrize("config", [TINY, replace(TINY, imagined="branched")], ids=["one-step", "branched"])
def test_little_data(config):
    sac, mdp = SAC(3, config), uncertain(limit=0.0)
    state = sac.init(mdp, key=jr.key(0))
    new, metrics = improve(sac, state, mdp, Replay.empty(64, 3, 2), jr.key(1))
    assert_same(new, state)
    assert_finite(metrics)
    one = filled(transitions([[0.1, 0.2, 0.3]], [[0.5, -0.5]], [1.0], [[0.2, 0.3, 0.4]]))
    new, metrics = improve(sac, state, mdp, one, jr.key(1))
    assert_finite((new, metrics))
    assert new.updates == 5


@pytest.mark.thorough
def test_seeds_side_by_side():
    """Vmapped, as on an accelerator; one of them has no data yet and must not move."""
    sac, mdp = SAC(3, ONE), uncertain()
    replays = [random_replay(), Replay.empty(64, 3, 2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *replays)
    state = sac.init(mdp, key=jr.key(0))
    keys = jr.wrap_key_data(jnp.stack([jr.key_data(jr.key(i)) for i in (1, 2)]))
    both, _ = jax.jit(
        jax.vmap(lambda replay, key: sac.improve(state, mdp, replay, key=key)),
        compiler_options={"xla_backend_optimization_level": 0},
    )(stacked, keys)
    alone, _ = improve(sac, state, mdp, replays[0], jr.key(1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-3, atol=1e-5), both, alone)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1], b), both, state)


def test_acting():
    sac, mdp = SAC(3, TINY), world()
    state, obs = sac.init(mdp, key=jr.key(0)), f32([0.3, -0.2, 0.5])
    actions = jnp.stack([sac.act(state, mdp, obs, key=jr.key(i))[0] for i in range(200)])
    assert actions.shape == (200, 2) and np.abs(actions).max() <= 1 and actions.std() > 0.1
    quiet = sac.for_evaluation()
    (first, after), (second, _) = (quiet.act(state, mdp, obs, key=jr.key(i)) for i in range(2))
    mean = mlp(state.actor, np.asarray(obs, np.float64)[None])[0, :2]
    np.testing.assert_allclose(first, np.tanh(mean), rtol=1e-5)
    assert_same(first, second)
    assert_same(after, state)
    assert_same(sac.begin_episode(state, mdp), state)


def test_pets_imagines_noise_and_other_roles_do_not_notice():
    """The noise of the imagined states changes the critics; the first actor step has the same states and noise."""
    sac, results = SAC(3, replace(ONE, critic_lr=0.0)), []
    for mdp in (world(), eqx.tree_at(lambda m: m.propagation, world(), Resampled())):
        results.append(eager(sac, sac.init(mdp, key=jr.key(0)), mdp, random_replay(), jr.key(1)))
    (mean, first), (noisy, second) = results
    assert first["policy/critic_loss"] != second["policy/critic_loss"]
    assert_same(mean.actor, noisy.actor)


@pytest.mark.thorough
def test_pets_draws_a_member_for_every_row():
    """The authors' MBPO-PETS draws one for a whole batch; ours has all members in a batch of one and the same row."""
    learner = EnsembleLearner(3, 2, True, EnsembleConfig(hidden=(4,), members=3))
    dynamics = learner.dynamics(learner.init(key=jr.key(0)))
    mdp = eqx.tree_at(lambda m: (m.dynamics, m.propagation), world(), (dynamics, Resampled()))
    rows = transitions([[0.5, -1.0, 2.0]] * 24, [[0.3, 0.1]] * 24, [0.0] * 24, [[0.0] * 3] * 24)
    actor = SAC(3, ONE).init(mdp, key=jr.key(2)).actor
    found = np.asarray(imagine(ONE, actor, mdp, rows, jr.key(1)).rows.next_obs)
    ensemble, row = dynamics.ensemble, (rows.obs[0], rows.action[0])
    members = np.asarray(jax.vmap(lambda mean: ensemble.next_state(row[0], mean))(ensemble(*row).mean))
    away = np.abs(found[:, None] - members[None]).max(axis=2)
    noise = float(dynamics.predict(*row).aleatoric_std.max())
    assert away.min(axis=1).max() < 6 * noise and set(away.argmin(axis=1)) == {0, 1, 2}


# The knobs.

KNOBS = {
    "hidden": (4,),
    "actor_hidden": (4,),
    "actor": "simba",
    "critic": "bro",
    "first_norm": True,
    "normalise_observations": True,
    "critics": "two-mean",
    "critic_output": "bins",
    "batch_size": 5,
    "updates_per_call": 2,
    "imagined": "none",
    "imagined_action": "policy",
    "imagined_weight": "certainty",
    "rollout_length": 1,
    "rollout_stop": 0.5,
    "mix": "concatenated",
    "real_every": 2,
    "policy_every": 2,
    "critic_expansion": 1,
    "actor_expansion": 1,
    "learning_starts": 41,
    "discount": 0.5,
    "tau": 0.5,
    "actor_lr": 1e-3,
    "critic_lr": 1e-3,
    "temperature_lr": 1e-3,
    "bonus_weight_lr": 0.0,
    "init_temperature": 0.1,
    "target_entropy_factor": 0.5,
    "gradient_clip": 1e-3,
    "weight_decay": 1e-2,
    "project_weights": True,
    "bonus_enters": "reward",
    "bonus_scale": "none",
    "bonus_memory": 7,
    "bonus_floor": 0.25,
    "bonus_rows": 4,
    "soft_reset_every": 1,
    "reset_mix": 0.9,
    "reset_policy": True,
}
NEEDS = {name: {"imagined": "branched"} for name in ("rollout_length", "rollout_stop")}


def test_every_knob_is_known():
    assert list(KNOBS) == [field.name for field in dataclasses.fields(SACConfig)]


RESETS = ("soft_reset_every", "reset_mix", "reset_policy")
"""These have tests above that compare them with a formula."""


@functools.cache
def program(config, again=False) -> str:
    """The start and one improvement as one program: traced, neither lowered nor run."""
    sac, mdp, replay = SAC(3, config), uncertain(weight=0.5), random_replay()

    def everything(key):
        init_key, learn_key = jr.split(key)
        return sac.improve(sac.init(mdp, key=init_key), mdp, replay, key=learn_key)

    return str(jax.make_jaxpr(everything)(jr.key(0)))


def test_the_same_config_gives_the_same_program():
    assert program(ONE) == program(ONE, again=True)


@pytest.mark.parametrize("name", [name for name in KNOBS if name not in RESETS])
def test_every_knob_changes_the_program(name):
    plain = replace(ONE, **NEEDS.get(name, {}))
    assert program(plain) != program(replace(plain, **{name: KNOBS[name]}))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("hidden", (), "--sac.hidden"),
        ("hidden", (4, 0), "--sac.hidden"),
        ("hidden", (4, 8), "--sac.critic bro"),
        ("weight_decay", -1e-2, "--sac.weight-decay"),
        ("batch_size", 0, "--sac.batch-size"),
        ("soft_reset_every", 0, "--sac.soft-reset-every"),
        ("discount", 1.0, "--sac.discount"),
        ("tau", 1.5, "--sac.tau"),
        ("actor_lr", float("nan"), "--sac.actor-lr"),
        ("gradient_clip", 0.0, "--sac.gradient-clip"),
        ("init_temperature", 0.0, "--sac.init-temperature"),
    ],
)
def test_bad_numbers_are_refused_in_a_sentence(name, value, said):
    with pytest.raises(SombrlError, match=said):
        SACConfig(**{name: value})


def test_hallucinated_controls_are_refused():
    mdp = dataclasses.replace(world(), propagation=Hallucinated(1.0), action_dim=5)
    with pytest.raises(SombrlError, match="hucrl"):
        SAC(3, TINY).init(mdp, key=jr.key(0))
