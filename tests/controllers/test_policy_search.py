"""A policy found inside a model whose answers are known."""

import dataclasses
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.controllers.initial_states import AbstractInitialStates, StoredInitialStates, initial_states_of
from sombrl.controllers.policy_search import SEARCH_SAC, PolicySearch, PolicySearchConfig, SearchState
from sombrl.exploration.bonus import EpistemicMean, NoBonus
from sombrl.records import SombrlError
from sombrl.replay import Replay
from tests.controllers.worlds import f32, filled, transitions, uncertain, world

TINY = PolicySearchConfig(
    rounds=4,
    rollouts=8,
    unroll=4,
    updates=4,
    horizon=5,
    capacity=64,
    snapshots=2,
    judged_rollouts=4,
    judged_horizon=3,
)
SAC = replace(SEARCH_SAC, hidden=(8, 8), batch_size=8)
EMPTY = Replay.empty(4, 1, 1)


class At(AbstractInitialStates):
    """Always the same place."""

    x: float = eqx.field(static=True)

    def __call__(self, *, key):
        return jnp.full(1, self.x, jnp.float32)


def search(config=TINY, sac=SAC, start=1.0):
    return PolicySearch(1, At(start), config, sac)


run = jax.jit(
    lambda search, state, mdp, replay, key: search.improve(state, mdp, replay, key=key),
    compiler_options={"xla_backend_optimization_level": 0},
)


search_alone = jax.jit(
    lambda search, sac, mdp, replay, key: search._search(sac, mdp, replay, key=key),
    compiler_options={"xla_backend_optimization_level": 0},
)


def found(controller, mdp, replay=EMPTY, seed=0):
    return run(controller, controller.init(mdp, key=jr.key(seed)), mdp, replay, jr.key(seed + 1))


def row(tree, i=0):
    return jax.tree.map(lambda leaf: leaf[i], tree)


def numbers(state, metrics):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves((state.actor, metrics))])


def still(state):
    """The actor that answers 0 everywhere."""
    return jax.tree.map(jnp.zeros_like, state.actor)


@pytest.mark.thorough
def test_judged_by_the_reward_and_the_bonus():
    """u = 0: r = -¼ and σ = spread, so J = 3 (-¼ + λ spread) over three decisions."""
    controller, mdp = search(), uncertain(weight=2.0, spread=0.3, action_dim=1)
    value = controller._judge(still(controller.init(mdp, key=jr.key(0))), mdp, key=jr.key(1))
    np.testing.assert_allclose(value, 3 * (-0.25 + 2.0 * 0.3), rtol=1e-5)


@pytest.mark.thorough
def test_judging_stops_where_the_task_ends():
    """x = 1, ½, ¼: with the limit at 0.4 the first decision ends it."""
    controller, mdp = search(), world(action_dim=1, limit=0.4)
    value = controller._judge(still(controller.init(mdp, key=jr.key(0))), mdp, key=jr.key(1))
    np.testing.assert_allclose(value, -0.25, rtol=1e-5)


@pytest.mark.thorough
def test_rollouts_move_by_the_model_and_begin_anew():
    controller = search(replace(TINY, unroll=20, capacity=160))
    mdp = uncertain(weight=2.0, spread=0.3, action_dim=1)
    state = controller.init(mdp, key=jr.key(0))
    seen = {}

    class Watched(PolicySearch):
        def _unroll(self, search, mdp, replay, *, key):
            seen["before"] = search
            seen["after"] = super()._unroll(search, mdp, replay, key=key)
            raise StopIteration

    watched = Watched(1, At(1.0), controller.config, SAC)
    with jax.disable_jit(), pytest.raises(StopIteration):
        watched._search(row(state.sac), mdp, EMPTY, key=jr.key(1))
    _, dream = seen["after"]
    rows = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(20, 8, *leaf.shape[1:]), dream.data)
    x, u, after = rows.obs[..., 0], rows.action[..., 0], rows.next_obs[..., 0]
    np.testing.assert_allclose(after, 0.5 * x + 0.25 * u, atol=1e-6)
    paid = TINY.reward_scale * (-((u - 0.5) ** 2) + 2.0 * 0.3 * np.exp(u))
    np.testing.assert_allclose(rows.reward, paid, rtol=1e-4)
    goes_on = np.isclose(x[1:], after[:-1])
    assert np.all(goes_on | (x[1:] == 1.0))  # or begins where episodes begin
    ages = np.asarray(seen["before"].rollouts.age)
    for rollout in range(8):
        anew = np.flatnonzero(~goes_on[:, rollout]) + 1
        np.testing.assert_array_equal(anew, np.arange(TINY.horizon - ages[rollout], 20, TINY.horizon)[: len(anew)])
    assert len(set(ages)) > 1


@pytest.mark.parametrize(("share", "places"), [(1.0, {1.0}), (0.0, {7.0}), (0.5, {1.0, 7.0})])
def test_where_rollouts_begin(share, places):
    controller = search(replace(TINY, start_share=share))
    data = filled(transitions([[7.0]] * 3, [[0.0]] * 3, [0.0] * 3, [[7.0]] * 3))
    begun = controller._begin(data, 32, key=jr.key(0))
    assert set(np.ravel(begun).tolist()) == places
    assert set(np.ravel(controller._begin(EMPTY, 32, key=jr.key(0))).tolist()) == {1.0}  # no data: only starts


@pytest.mark.thorough
def test_without_a_bonus_it_is_greedy_exactly():
    plain = numbers(*found(search(), world(action_dim=1)))
    weightless = numbers(*found(search(), world(EpistemicMean(), weight=0.0, action_dim=1)))
    np.testing.assert_array_equal(plain, weightless)
    assert not np.array_equal(plain, numbers(*found(search(), uncertain(action_dim=1))))


@pytest.mark.thorough
def test_the_best_snapshot_is_driven():
    controller, mdp = search(), world(action_dim=1)
    state, metrics = found(controller, mdp)
    best = metrics["policy/imagined_return"]
    assert best >= metrics["policy/last_imagined_return"]
    # From one place and without noise every episode is the same, whatever the key.
    np.testing.assert_allclose(controller._judge(state.actor, mdp, key=jr.key(9)), best, rtol=1e-4)
    obs = f32([0.3])
    action, _ = controller.act(state, mdp, obs, key=jr.key(3))
    again, _ = controller.act(state, mdp, obs, key=jr.key(4))
    assert np.array_equal(action, again)


@pytest.mark.thorough
@pytest.mark.parametrize("fresh", [True, False])
def test_the_best_try_is_driven(fresh):
    """Three tries, twice: each goes on from its own last one as if alone; the best policy is driven."""
    mdp, controller = uncertain(action_dim=1), search(replace(TINY, fresh=fresh, tries=3))
    state = controller.init(mdp, key=jr.key(0))
    alone = [row(state.sac, i) for i in range(3)]
    for seed in (1, 2):
        state, metrics = run(controller, state, mdp, EMPTY, jr.key(seed))
        keys = jr.split(jr.key(seed), 3)
        tries = [search_alone(controller, alone[i], mdp, EMPTY, keys[i]) for i in range(3)]
        values = [float(metrics["policy/imagined_return"]) for _, _, metrics in tries]
        assert len(set(values)) == 3
        actor, _, expected = tries[int(np.argmax(values))]
        np.testing.assert_allclose(
            numbers(state, metrics), numbers(SearchState(actor, state.sac), expected), rtol=1e-4, atol=1e-5
        )
        alone = [sac for _, sac, _ in tries]


@pytest.mark.thorough
def test_what_diverges_is_forgotten():
    """Beyond x' = 0.4 the reward is not a number there: those rows are not learned from."""

    class Torn(type(world(action_dim=1).task)):
        def reward(self, state, action, next_state):
            return jnp.where(next_state[0] > 0.4, jnp.nan, super().reward(state, action, next_state))

    mdp = world(action_dim=1)
    mdp = eqx.tree_at(lambda m: m.task, mdp, Torn(mdp.task.limit))
    state, metrics = found(search(start=0.5), mdp)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.sac.critic))
    assert not np.isnan(metrics["policy/imagined_return"])


@pytest.mark.slow
def test_finds_the_best_action():
    """-(u - ½)² wherever it is: the return of three decisions tends to 0."""
    config = replace(TINY, rounds=40, updates=50, rollouts=16, capacity=2000, reward_scale=10.0)
    state, metrics = found(search(config, replace(SAC, hidden=(32, 32), batch_size=64)), world(action_dim=1))
    assert metrics["policy/imagined_return"] > -0.02
    action, _ = search(config).act(state, world(action_dim=1), f32([1.0]), key=jr.key(0))
    np.testing.assert_allclose(action, [0.5], atol=0.1)


CHANGED = {
    "rounds": 6,
    "rollouts": 9,
    "unroll": 5,
    "updates": 5,
    "horizon": 2,
    "start_share": 0.0,
    "capacity": 40,
    "reward_scale": 3.0,
    "snapshots": 4,
    "judged_rollouts": None,  # from one place and without noise one is as good as many
    "judged_horizon": 4,
    "fresh": False,
    "tries": 2,
}


@pytest.mark.slow
def test_every_setting_does_something():
    assert set(CHANGED) == {field.name for field in dataclasses.fields(PolicySearchConfig)}
    data = filled(transitions([[7.0]] * 3, [[0.0]] * 3, [0.0] * 3, [[7.0]] * 3))
    mdp = uncertain(action_dim=1)
    before = numbers(*found(search(), mdp, data))
    for name, value in CHANGED.items():
        if value is not None:
            changed = numbers(*found(search(replace(TINY, **{name: value})), mdp, data))
            assert not np.array_equal(before, changed), name


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rounds": 0}, "--search.rounds must be"),
        ({"start_share": 1.5}, "--search.start-share must"),
        ({"reward_scale": 0.0}, "--search.reward-scale must be positive"),
        ({"snapshots": 9, "rounds": 4}, "must not exceed --search.rounds = 4"),
        ({"capacity": 10}, "--search.capacity must hold a round"),
        ({"tries": 0}, "--search.tries must be"),
    ],
)
def test_refuses(settings, says):
    with pytest.raises(SombrlError, match=says):
        replace(TINY, **settings)


def test_refuses_real_data():
    with pytest.raises(SombrlError, match=r"--sac\.imagined none"):
        PolicySearch(1, At(0.0), TINY, replace(SAC, imagined="one-step"))


@pytest.mark.thorough
def test_observations_are_normalised_in_the_model_too():
    """The policy that is driven has the statistics of its snapshot: 2 rounds of 4 updates with 8 rows each."""
    controller = search(sac=replace(SAC, actor="simba", normalise_observations=True))
    state, metrics = found(controller, world(action_dim=1))
    assert state.actor.normaliser.count == 64 * (1 + int(metrics["policy/best_snapshot"]))
    assert -0.5 < state.actor.normaliser.mean[0] < 1.0 and state.actor.normaliser.std[0] < 1.0
    action, _ = controller.act(state, world(action_dim=1), f32([0.4]), key=jr.key(0))
    seen = (0.4 - state.actor.normaliser.mean) / state.actor.normaliser.std
    np.testing.assert_allclose(action, jnp.tanh(state.actor.network(seen)[:1]), rtol=1e-5)


def test_starts_of_a_simulator_are_those_it_was_reset_to():
    from sombrl.envs.registry import make_envs

    starts = initial_states_of(make_envs("Pendulum-v1", [0, 1]))
    assert isinstance(starts, StoredInitialStates) and starts.obs.shape == (64, 3)
    np.testing.assert_allclose(starts.obs[:, 0] ** 2 + starts.obs[:, 1] ** 2, 1.0, rtol=1e-5)
    assert len(np.unique(starts.obs[:, 2])) == 64
    assert any(np.array_equal(starts(key=jr.key(0)), row) for row in starts.obs)


def test_starts_of_a_world_are_its_resets():
    from sombrl.envs.registry import make_envs

    envs = make_envs("pendulum", [0], env_kwargs={"start": "random"})
    world = envs.world
    np.testing.assert_array_equal(initial_states_of(envs)(key=jr.key(3)), world.observe(world.reset(key=jr.key(3))))


def test_sac_is_not_shown_the_bonus_twice():
    alone = search()._task_alone(uncertain(weight=2.0, task_weight=0.5, action_dim=1))
    assert isinstance(alone.bonus, NoBonus)
    assert float(alone.bonus_weight) == 0.0 and float(alone.task_weight) == 1.0
