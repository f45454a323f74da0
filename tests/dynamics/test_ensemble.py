"""Ensembles against a hand-written optimiser step, known functions and known noise, and under every strategy."""

import dataclasses
import functools

import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import sombrl
from sombrl.controllers.icem import ICEM, ICEMConfig
from sombrl.dynamics.ensemble import Ensemble, EnsembleConfig, EnsembleDynamics, EnsembleLearner, EnsembleState
from sombrl.exploration import STRATEGIES, EpistemicNorm, Resampled
from sombrl.exploration.bonus import EpistemicMean, MeanInformationGain
from sombrl.exploration.config import ExploreConfig
from sombrl.networks.normaliser import RunningNormaliser
from sombrl.records import SombrlError, Transition
from sombrl.replay import Replay
from sombrl.settings import FiniteHorizon
from sombrl.training.episodic import Compiled
from tests.dynamics.data import replay_of, same, wave

TRAIN, TEST = wave(100), wave(40, seed=1)
TINY = {"members": 3, "hidden": (16, 16), "batch_size": 16, "steps_per_fit": 3}
TRAINED = {"batch_size": 64, "steps_per_fit": 600, "learning_rate": 5e-3}


def learner(learn_task=False, **settings) -> EnsembleLearner:
    return EnsembleLearner(2, 1, learn_task, EnsembleConfig(**(TINY | settings)))


def fast_jit(function):
    """Many small programs, each run a few times: compiling is all that takes time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def prior(learn_task, **shape):
    ours = learner(learn_task, **shape)
    return fast_jit(lambda key: ours.init(key=key))(jr.key(0)).ensemble


def initial(ours):
    """The start from `jr.key(0)`; one compilation for all settings that share it."""
    shape = {name: getattr(ours.config, name) for name in ("members", "hidden", "learn_std", "learn_termination")}
    ensemble = prior(ours.learn_task, **shape)
    ensemble = Ensemble(ensemble.members, ensemble.inputs, ensemble.outputs, ours.heads)
    return EnsembleState(ensemble, ours.optimiser.init(ensemble.members), jnp.zeros((), jnp.int32))


TRACES: list[EnsembleConfig] = []


@functools.cache
def compiled_fit(learn_task, config):
    def step(state, replay, key):
        TRACES.append(config)
        return EnsembleLearner(2, 1, learn_task, config).fit(state, replay, key=key)

    return fast_jit(step)


@functools.cache
def compiled_update(learn_task, config):
    return fast_jit(EnsembleLearner(2, 1, learn_task, config).update)


def fit(ours, replay, state=None, seed=1):
    return compiled_fit(ours.learn_task, ours.config)(initial(ours) if state is None else state, replay, jr.key(seed))


def update(ours, state, rows):
    one_step = jax.tree.map(lambda leaf: leaf[None], rows)
    return compiled_update(ours.learn_task, ours.config)(state, one_step)


@functools.cache
def trained(learn_task=False, **settings):
    ours = learner(learn_task, **(TRAINED | settings))
    return ours, fit(ours, replay_of(TRAIN))[0]


@fast_jit
def predict(dynamics, x, u):
    return jax.vmap(dynamics.predict)(x, u)


@fast_jit
def rewards_of(task, rows):
    return jax.vmap(task.reward)(rows.obs, rows.action, rows.next_obs)


@fast_jit
def endings_of(task, rows):
    return jax.vmap(task.terminated)(rows.obs, rows.action, rows.next_obs)


# ------------------------------------------------------------------------------------------------ the gradient step


def reference_loss(config, unravel):
    """The loss from the definition: a Python loop over members, on a flat vector of parameters."""

    def loss(flat, rows, x, y):
        members, losses = unravel(flat), []
        for k in range(config.members):
            h = x
            for i, layer in enumerate(members.layers):
                h = h @ layer.weight[k] + layer.bias[k][None, :]
                h = h * jax.nn.sigmoid(h) if i < len(members.layers) - 1 else h
            mean = h[:, :3]
            if config.learn_std:
                std = config.noise_floor + jnp.log1p(jnp.exp(h[:, 3:6]))
                error = 0.5 * ((y - mean) / std) ** 2 + jnp.log(std)
            else:
                error = (y - mean) ** 2
            error = error * jnp.array([1.0, 1.0, config.reward_loss_weight], jnp.float32)[None, :]
            probability = jax.nn.sigmoid(h[:, -1])
            entropy = -jnp.where(rows.terminated, jnp.log(probability), jnp.log(1.0 - probability))
            losses.append(jnp.concatenate([error, entropy[:, None]], axis=1))
        return jnp.mean(jnp.stack(losses))

    return loss


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings",
    [
        {"weight_decay": 0.1, "gradient_clip": 0.1, "reward_loss_weight": 2.0},
        {"learn_std": True, "gradient_clip": float("inf")},
    ],
)
def test_gradient_steps_equal_clipped_adamw_on_the_flat_vector(settings):
    ours = learner(True, learn_termination=True, learning_rate=1e-2, **settings)
    config, state = ours.config, initial(ours)
    members, unravel = jax.flatten_util.ravel_pytree(state.ensemble.members)
    slope = fast_jit(jax.value_and_grad(reference_loss(config, unravel)))
    flat, m, v = np.asarray(members, np.float64), 0.0, 0.0
    seen_x, seen_y = [], []
    for t in (1, 2, 3):
        rows = wave(16, seed=t)
        state, metrics = update(ours, state, rows)

        x = np.concatenate([rows.obs, rows.action], axis=1).astype(np.float64)
        y = np.concatenate([rows.next_obs - rows.obs, rows.reward[:, None]], axis=1).astype(np.float64)
        seen_x.append(x)
        seen_y.append(y)
        x = (x - np.concatenate(seen_x).mean(0)) / np.concatenate(seen_x).std(0)
        y = (y - np.concatenate(seen_y).mean(0)) / np.concatenate(seen_y).std(0)
        value, gradient = slope(jnp.asarray(flat, jnp.float32), rows, *(jnp.asarray(z, jnp.float32) for z in (x, y)))
        gradient = np.asarray(gradient, np.float64)
        norm = np.linalg.norm(gradient)
        np.testing.assert_allclose(float(metrics["model/loss"]), float(value), rtol=1e-4)
        np.testing.assert_allclose(float(metrics["model/gradient_norm"]), norm, rtol=1e-3)
        assert np.isinf(config.gradient_clip) or norm > config.gradient_clip  # the clip is at work
        gradient *= min(1.0, config.gradient_clip / norm)
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        flat = flat - 1e-2 * (step + config.weight_decay * flat)
        result = np.asarray(jax.flatten_util.ravel_pytree(state.ensemble.members)[0])
        np.testing.assert_allclose(result, flat, atol=2e-4)
    assert int(state.updates) == 3


def test_own_batches_that_are_the_same_batch_change_nothing():
    ours, rows = learner(True, gradient_clip=None), wave(16)
    together, _ = update(ours, initial(ours), rows)
    copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), rows)
    apart, _ = update(ours, initial(ours), copies)
    for a, b in zip(jax.tree.leaves(together.ensemble.members), jax.tree.leaves(apart.ensemble.members), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-5)


@pytest.mark.thorough
def test_with_own_batches_a_member_learns_from_its_own_alone():
    ours = learner(gradient_clip=None, learning_rate=1e-2, bootstrap=True)
    rows = jax.tree.map(lambda leaf: leaf[0], ours.sample(replay_of(TRAIN), 1, key=jr.key(0)))
    assert rows.obs.shape == (3, 16, 2)
    assert not np.array_equal(rows.obs[0], rows.obs[1])
    swapped = jax.tree.map(lambda leaf: leaf[jnp.array([0, 2, 1])], rows)  # the normalisers see the same rows
    a, _ = update(ours, initial(ours), rows)
    b, _ = update(ours, initial(ours), swapped)
    for x, y in zip(jax.tree.leaves(a.ensemble.members), jax.tree.leaves(b.ensemble.members), strict=True):
        np.testing.assert_allclose(np.asarray(x)[0], np.asarray(y)[0], atol=1e-5)
        assert not np.allclose(np.asarray(x)[1], np.asarray(y)[1], atol=1e-4)


def test_without_data_nothing_happens():
    ours = learner()
    state = initial(ours)
    after, metrics = fit(ours, Replay.empty(128, 2, 1), state)
    assert same(state, after)
    assert all(float(value) == 0.0 for value in metrics.values())


def test_soft_resets_mix_and_forget():
    ours = learner()
    before, _ = fit(ours, replay_of(TRAIN))
    after = fast_jit(lambda state, key: ours.renew(state, key=key))(before, jr.key(5))
    fresh = fast_jit(lambda key: ours.init(key=key))(jr.key(5)).ensemble.members
    for a, b, c in zip(
        *(jax.tree.leaves(t) for t in (before.ensemble.members, fresh, after.ensemble.members)), strict=True
    ):
        np.testing.assert_allclose(np.asarray(c), 0.8 * np.asarray(a) + 0.2 * np.asarray(b), atol=1e-6)
    assert same(before.ensemble.inputs, after.ensemble.inputs) and int(after.updates) == int(before.updates)
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(after.optimiser)) == 0.0


@pytest.mark.parametrize(("every", "fits"), [(None, None), (0, None), (6, 2), (7, 3)])
def test_soft_resets_are_rounded_up_to_whole_fits(every, fits):
    assert learner(steps_per_fit=3, soft_reset_every=every).renew_every == fits


def test_seeds_side_by_side_are_seeds_alone():
    """The path of an accelerator: everything vmapped."""
    ours = learner()
    ahead, _ = fit(ours, replay_of(TRAIN))
    states = [ahead, initial(ours)]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    replay = replay_of(TRAIN)
    keys = jr.split(jr.key(3), 2)
    result, _ = fast_jit(jax.vmap(lambda s, k: ours.fit(s, replay, key=k)))(together, keys)
    for i, state in enumerate(states):
        alone, _ = compiled_fit(False, ours.config)(state, replay, jr.split(jr.key(3), 2)[i])
        for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(a)[i], np.asarray(b), atol=1e-4)


# ---------------------------------------------------------------------------------------------- what is learned


@pytest.mark.parametrize("target", ["delta", "absolute"])
def test_a_linear_system_is_recovered(target):
    rng = np.random.default_rng(0)

    def linear(number):
        obs, action = rng.normal(size=(number, 2)), rng.uniform(-1, 1, (number, 1))
        change = obs @ np.array([[0.1, -0.2], [0.3, 0.05]]) + action @ np.array([[0.5, 0.1]])
        columns = (obs, action, obs[:, 0] - action[:, 0], obs + change)
        no = jnp.zeros(number, bool)
        return Transition(*(jnp.asarray(column.astype(np.float32)) for column in columns), no, no)

    rows, test = linear(120), linear(50)
    ours = learner(True, **(TRAINED | {"target": target}))
    state, _ = fit(ours, replay_of(rows))
    prediction = predict(ours.dynamics(state), test.obs, test.action)
    error = np.asarray(prediction.mean - test.next_obs) / np.asarray(test.next_obs - test.obs).std(0)
    assert np.sqrt(np.mean(error**2)) < 0.15
    rewards = rewards_of(ours.task(state), test)
    assert float(jnp.sqrt(jnp.mean((rewards - test.reward) ** 2))) < 0.15
    targets = rows.next_obs - rows.obs if target == "delta" else rows.next_obs
    np.testing.assert_allclose(np.asarray(prediction.scale[0]), np.asarray(targets).std(0), rtol=0.05)


def test_targets_mean_what_they_say():
    """The same normalised outputs: x + change, or x' itself."""
    delta, absolute = learner(), learner(target="absolute")
    outputs = RunningNormaliser(*(jnp.array(v, jnp.float32) for v in ([0.1, -0.2], [2.0, 3.0], 10.0)))
    first = initial(delta).ensemble
    x, u = TEST.obs, TEST.action
    means = []
    for heads in (delta.heads, absolute.heads):
        prediction = predict(EnsembleDynamics(Ensemble(first.members, first.inputs, outputs, heads)), x, u)
        means.append(np.asarray(prediction.mean))
        np.testing.assert_allclose(np.asarray(prediction.aleatoric_std), [[2e-3, 3e-3]] * 40, rtol=1e-5)
    np.testing.assert_allclose(means[0], means[1] + np.asarray(x), atol=1e-5)
    raw = jax.vmap(lambda net: jax.vmap(net)(jnp.concatenate([x, u], axis=1)))(first.members)
    np.testing.assert_allclose(means[1], np.asarray(raw).mean(0) * [2.0, 3.0] + [0.1, -0.2], atol=1e-5)
    np.testing.assert_allclose(np.asarray(prediction.epistemic_std), np.asarray(raw).std(0) * [2.0, 3.0], rtol=1e-3)


def test_fit_lowers_held_out_error_and_members_disagree_far_away():
    ours, state = trained()

    def rmse(state):
        prediction = predict(ours.dynamics(state), TEST.obs, TEST.action)
        return float(jnp.sqrt(jnp.mean((prediction.mean - TEST.next_obs) ** 2)))

    assert rmse(state) < 0.2 * rmse(initial(ours))
    near = predict(ours.dynamics(state), TRAIN.obs, TRAIN.action).epistemic_std
    far = predict(ours.dynamics(state), TRAIN.obs + 10.0, TRAIN.action).epistemic_std
    assert float(jnp.median(far)) > 5 * float(jnp.median(near))


@pytest.mark.thorough
def test_learned_std_finds_the_noise():
    ours = learner(learn_std=True, **(TRAINED | {"steps_per_fit": 400}))
    state, _ = fit(ours, replay_of(wave(2000, noise=0.1), 2048))
    aleatoric = np.asarray(predict(ours.dynamics(state), TEST.obs, TEST.action).aleatoric_std)
    np.testing.assert_allclose(np.median(aleatoric, axis=0), 0.1, rtol=0.25)


def test_learned_task_predicts_reward_and_termination():
    ours, state = trained(True, learn_termination=True)
    task = ours.task(state)
    rewards = rewards_of(task, TEST)
    assert float(jnp.corrcoef(rewards, TEST.reward)[0, 1]) > 0.98
    ended = endings_of(task, TEST)
    assert float(jnp.mean(ended == TEST.terminated)) > 0.9 and 0 < int(jnp.sum(ended)) < 40
    prediction = predict(ours.dynamics(state), TEST.obs, TEST.action)
    assert prediction.task_std.shape == (40, 2)
    assert np.all(np.asarray(prediction.task_std) > 0)
    assert learner().task(state) is None
    endless, state = learner(True), initial(learner(True))
    assert not np.any(endings_of(endless.task(state), TEST))


def test_the_reward_has_its_own_units():
    """Rewards a million times larger: the same members, and predictions a million times larger."""
    ours = learner(True)
    large = dataclasses.replace(TRAIN, reward=1e6 * TRAIN.reward)
    (a, _), (b, _) = (fit(ours, replay_of(rows)) for rows in (TRAIN, large))
    for x, y in zip(jax.tree.leaves(a.ensemble.members), jax.tree.leaves(b.ensemble.members), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), atol=1e-4)
    small, big = (rewards_of(ours.task(s), TEST) for s in (a, b))
    np.testing.assert_allclose(np.asarray(big), 1e6 * np.asarray(small), rtol=1e-2, atol=1e4)


# ------------------------------------------------------------------------------------------- members and samples


def test_one_member_knows_no_doubt(key):
    ours = learner(True, members=1)
    dynamics = ours.dynamics(initial(ours))
    prediction = predict(dynamics, TEST.obs, TEST.action)
    assert not np.any(prediction.epistemic_std) and not np.any(prediction.task_std)
    drawn = predict(dynamics.draw(key=key), TEST.obs, TEST.action)
    assert np.array_equal(drawn.mean, prediction.mean)
    x, u = TEST.obs[0], TEST.action[0]
    pets = Resampled()(dynamics, x, u, key=jr.key(1))
    assert np.array_equal(pets, dynamics.transition(x, u, key=jr.key(1)))
    assert np.max(np.abs(np.asarray(pets - prediction.mean[0]) / np.asarray(prediction.scale[0]))) < 6e-3


def test_draws_are_members_and_samples_are_theirs():
    ours, state = trained()
    dynamics, x, u = ours.dynamics(state), TEST.obs[0] + 3.0, TEST.action[0]
    ensemble = state.ensemble
    members = np.asarray(jax.vmap(lambda mean: ensemble.next_state(x, mean))(ensemble(x, u).mean))
    draw = fast_jit(lambda key: dynamics.draw(key=key).predict(x, u))
    draws = [draw(jr.key(i)) for i in range(24)]
    nearest = [np.argmin(np.abs(members - np.asarray(d.mean)).sum(1)) for d in draws]
    for d, k in zip(draws, nearest, strict=True):
        np.testing.assert_allclose(np.asarray(d.mean), members[k], rtol=1e-4, atol=1e-5)
        assert not np.any(d.epistemic_std)
    assert set(nearest) == {0, 1, 2}

    samples = fast_jit(jax.vmap(lambda key: Resampled()(dynamics, x, u, key=key)))(jr.split(jr.key(0), 4000))
    prediction = dynamics.predict(x, u)
    np.testing.assert_allclose(np.asarray(prediction.mean), members.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(prediction.epistemic_std), members.std(0), rtol=1e-3, atol=1e-6)
    std = np.hypot(np.asarray(prediction.epistemic_std), np.asarray(prediction.aleatoric_std))
    np.testing.assert_allclose(np.asarray(samples).std(0), std, rtol=0.05)
    distance = np.abs(np.asarray(samples)[:, None] - members[None]).min(1)
    assert np.max(distance / np.asarray(prediction.aleatoric_std)) < 6  # all near a member, none in between


# ------------------------------------------------------------------------------------------------- derivatives


BONUSES = (EpistemicNorm(), EpistemicMean(), MeanInformationGain())


def bonuses(dynamics, x, u):
    prediction = dynamics.predict(x, u)
    return jnp.stack([bonus(prediction) for bonus in BONUSES])


slopes = fast_jit(jax.jacrev(bonuses, argnums=2))


def test_the_bonus_has_the_right_slope_in_the_action():
    ours, state = trained(True, learn_termination=True)
    dynamics, x = ours.dynamics(state), TEST.obs[1] * 1.5
    u, step = jnp.array([0.3], jnp.float32), 1e-2
    slope = np.asarray(slopes(dynamics, x, u))[:, 0]
    value = fast_jit(bonuses)
    difference = np.asarray(value(dynamics, x, u + step) - value(dynamics, x, u - step)) / (2 * step)
    assert np.all(np.abs(slope) > 1e-3)
    np.testing.assert_allclose(slope, difference, rtol=0.03)


def test_members_that_agree_leave_finite_derivatives():
    ours = learner(True, learn_termination=True)
    ensemble = initial(ours).ensemble
    alike = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), ensemble.members)
    for members in (alike, jax.tree.map(lambda leaf: leaf[:1], ensemble.members)):
        dynamics = EnsembleDynamics(Ensemble(members, ensemble.inputs, ensemble.outputs, ensemble.heads))
        assert np.all(np.isfinite(slopes(dynamics, TEST.obs[0], TEST.action[0])))


# --------------------------------------------------------------------------------------------------- contracts


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{}, {"learn_std": True, "bootstrap": True, "target": "absolute"}])
def test_unpleasant_data_give_finite_predictions(settings):
    rows = wave(16)
    scale = jnp.array([1e6, 1e-6], jnp.float32)[None, :]
    unpleasant = {
        "one point": wave(1),
        "the same point": jax.tree.map(lambda leaf: jnp.repeat(leaf, 12, axis=0), wave(1)),
        "constant outputs": dataclasses.replace(rows, next_obs=rows.obs),
        "an overwritten buffer": wave(40),
        "units a million apart": dataclasses.replace(rows, obs=rows.obs * scale, next_obs=rows.next_obs * scale),
    }
    ours = learner(True, learn_termination=True, **settings)
    for data in unpleasant.values():
        state, metrics = fit(ours, replay_of(data, 16))
        assert all(np.isfinite(float(value)) for value in metrics.values())
        prediction = predict(ours.dynamics(state), TEST.obs, TEST.action)
        for value in jax.tree.leaves(prediction):
            assert value.dtype == jnp.float32 and np.all(np.isfinite(value))
        assert np.all(np.asarray(prediction.epistemic_std) >= 0)
        assert np.all(np.asarray(prediction.aleatoric_std) > 0)


def test_nothing_recompiles_as_data_grow():
    ours = learner()
    state, replay = initial(ours), Replay.empty(128, 2, 1)
    for n in range(4):
        state, _ = fit(ours, replay, state, seed=n)
        replay = replay.add(wave(50, seed=n), jnp.ones(50, bool))
    assert TRACES.count(ours.config) <= 2 and int(state.updates) == 9  # `wait` traces once more, for its shapes


def test_vmap_equals_a_loop():
    ours, state = trained()
    dynamics = ours.dynamics(state)
    together = predict(dynamics, TEST.obs, TEST.action)
    for i in range(3):
        alone = dynamics.predict(TEST.obs[i], TEST.action[i])
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.asarray(a)[i], np.asarray(b), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_every_strategy_plans_with_an_ensemble():
    envs, setting = sombrl.make_envs("pendulum", [0], episode_length=5), FiniteHorizon(5)
    ours = EnsembleLearner(3, 1, False, EnsembleConfig(**(TINY | {"members": 2, "hidden": (4,)})))
    planner = ICEM(ICEMConfig(num_samples=8, num_elites=2, iterations=1, horizon=3, particles=2))
    shared = {}  # what does not depend on the strategy is compiled once, and the diagnostics are others' tests
    for name in STRATEGIES:
        strategy = ExploreConfig(explore=name).build(setting, 3)
        compiled = dataclasses.replace(Compiled.of(envs, ours, strategy, planner, setting), **shared)
        shared = {part: getattr(compiled, part) for part in ("init", "fit", "add")} | {"diagnose": lambda *_: {}}
        options = {"seeds": [0], "num_iterations": 2, "capacity": 32, "compiled": compiled}
        reports = list(sombrl.run(envs, ours, strategy, planner, setting, **options))
        assert [int(report.state.learner.updates[0]) for report in reports] == [0, 3]
        actions = reports[-1].chunk.transitions.action
        assert np.all(np.abs(actions) <= 1) and np.ptp(actions) > 0
        assert float(reports[-1].metrics["model/loss"][0]) > 0


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("members", 0),
        ("hidden", ()),
        ("hidden", (8, 0)),
        ("noise_floor", 0.0),
        ("noise_floor", 1e3),
        ("reward_loss_weight", -1.0),
        ("batch_size", 0),
        ("steps_per_fit", 0),
        ("learning_rate", float("nan")),
        ("weight_decay", float("inf")),
        ("gradient_clip", 0.0),
        ("soft_reset_every", -1),
        ("soft_reset_mix", 1.5),
    ],
)
def test_impossible_settings_are_refused_in_a_sentence(setting, value):
    with pytest.raises(SombrlError, match=f"--ensemble.{setting.replace('_', '-')}"):
        EnsembleConfig(**{setting: value})


def test_a_termination_needs_a_learned_task():
    with pytest.raises(SombrlError, match="--reward learned"):
        learner(learn_termination=True)


VISIBLE_BEFORE_DATA = {
    "members": 2,
    "hidden": (5,),
    "learn_std": True,
    "noise_floor": 0.1,
    "target": "absolute",
    "learn_termination": True,
}
VISIBLE_AFTER_A_FIT = {"bootstrap": True, "batch_size": 5, "steps_per_fit": 2}
HELD_TO_A_FORMULA = {
    "reward_loss_weight",
    "learning_rate",
    "weight_decay",
    "gradient_clip",
    "soft_reset_every",
    "soft_reset_mix",
}  # above


def test_every_setting_is_listed():
    listed = {*VISIBLE_BEFORE_DATA, *VISIBLE_AFTER_A_FIT, *HELD_TO_A_FORMULA}
    assert listed == set(EnsembleConfig.__dataclass_fields__)


@pytest.mark.parametrize("setting", list(VISIBLE_BEFORE_DATA))
def test_no_setting_of_the_prior_is_dead(setting):
    def prediction(**settings):
        ours = learner(True, **settings)
        return jax.tree.leaves(predict(ours.dynamics(initial(ours)), TEST.obs, TEST.action))

    plain, changed = prediction(), prediction(**{setting: VISIBLE_BEFORE_DATA[setting]})
    assert not all(np.array_equal(a, b) for a, b in zip(plain, changed, strict=True))


@pytest.mark.parametrize("setting", list(VISIBLE_AFTER_A_FIT))
def test_no_setting_of_the_fit_is_dead(setting):
    plain, changed = learner(), learner(**{setting: VISIBLE_AFTER_A_FIT[setting]})
    a, b = (fit(ours, replay_of(TRAIN))[0].ensemble.members for ours in (plain, changed))
    assert not same(a, b)
