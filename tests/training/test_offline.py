"""Learning from data alone: exact reductions, λ of a known model, no environment stepped, offline to online."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.agent.make import load, make
from sombrl.controllers.sac_batches import _sigma, imagine
from sombrl.controllers.sac_config import SACConfig
from sombrl.errors import SombrlError
from sombrl.exploration.bonus import EpistemicNorm, Penalty
from sombrl.records import Prediction, Transition
from sombrl.replay import Replay
from sombrl.storage.datasets import Rows
from sombrl.training.calibration import DECISIONS, calibrated_weight
from sombrl.training.origin import hold_out, replay_with
from tests.oracles.toy import LinearDynamics, QuadraticTask, f32
from tests.recorded import columns, write_npz
from tests.small import SMALL, call, small

NETS = {"hidden": (8, 8), "actor_hidden": (8, 8), "batch_size": 8}
TINY = {"sac": NETS, "ensemble": {"hidden": (8, 8), "batch_size": 8}}
SETTINGS = TINY | {"episode_length": 8, "report_every": 20, "decisions": 40}


def mbpo(**settings):
    return make("mbpo", "pendulum", **SETTINGS | settings)


def arrays(agent, part="controller"):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(getattr(agent.state, part))]


def same(ours, theirs):
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(write_npz(tmp_path_factory.mktemp("data") / "data.npz"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path, agent = tmp_path_factory.mktemp("run") / "run", mbpo(seeds=2)
    agent.learn(40)
    agent.save(path)
    return str(path), agent


@pytest.mark.optimised
@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_replayed_in_its_order_is_that_run(run, seed):
    """The same rows before the same updates: model and policy are those of the run, bit for bit."""
    path, agent = run
    replayed = mbpo(seed=seed, offline=path, offline_seed=seed, offline_order="recorded").learn(40)
    for part in ("learner", "controller", "replay"):
        same(arrays(replayed, part), [leaf[seed : seed + 1] for leaf in arrays(agent, part)])


@pytest.mark.optimised
def test_so_is_a_planners(tmp_path):
    """The model that its last decisions would be planned with is the same; the replay has the same shape here."""
    settings = {"gp": SMALL["gp"] | {"capacity": 18}, "explore": "greedy", "episodes": 3}
    agent = small(**settings).learn(18)
    agent.save(tmp_path / "run")
    replayed = small(**settings, offline=str(tmp_path / "run"), offline_order="recorded").learn(18)
    ours, theirs = (jax.tree.leaves(one.trainer._fitted()) for one in (replayed, agent))
    same(ours, theirs)


@pytest.mark.optimised
def test_pessimism_without_weight_is_greedy(data):
    greedy = mbpo(offline=data, explore="greedy").learn(40)
    nothing = mbpo(offline=data, explore="pessimistic", schedule="constant", bonus_weight=0.0).learn(40)
    ours, theirs = (one.trainer.parts.controller.actor(one.state.controller) for one in (nothing, greedy))
    same(jax.tree.leaves(ours), jax.tree.leaves(theirs))
    untrained = mbpo(explore="greedy")
    before = jax.tree.leaves(untrained.trainer.parts.controller.actor(untrained.state.controller))
    assert not all(np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(theirs), strict=True))


def test_pessimism_is_optimism_with_the_other_sign():
    prediction = Prediction(f32([1.0, 2.0]), f32([0.3, 0.4]), f32([0.1, 0.2]), f32([0.1, 0.2]))
    assert float(Penalty(EpistemicNorm())(prediction)) == -float(EpistemicNorm()(prediction))
    agent = small(explore="pessimistic", bonus_weight=2.0, bonus_weight_units="reward")
    mdp = agent.trainer.compiled("explore").imagine(agent.state.learner, jnp.zeros(1, jnp.int32), jr.key(0)[None], None)
    mdp = jax.tree.map(lambda leaf: leaf[0], mdp)
    state, action = f32([1.0, 0.0, 0.5]), f32([0.3])
    sigma = EpistemicNorm()(mdp.dynamics.predict(state, action))
    paid = mdp.task.reward(state, action, state) - 2.0 * sigma
    np.testing.assert_allclose(float(mdp.reward(state, action, state)), float(paid), rtol=1e-6)


# ------------------------------------------------------------------------------------------------ λ


class Wrong(LinearDynamics):
    """Off by a constant in every step, and says that it is unsure by another."""

    error: float
    sigma: float

    def predict(self, state, action):
        right = LinearDynamics.predict(self, state, action)
        std = jnp.full_like(right.mean, self.sigma)
        return Prediction(right.mean + self.error, std, right.aleatoric_std, right.scale)


class Position(QuadraticTask):
    """Pays x'."""

    def reward(self, state, action, next_state):
        return next_state[0]


def walked(episodes, length):
    """x' = x + u, paid x'."""
    action = np.random.default_rng(0).uniform(-1, 1, (episodes, length, 1)).astype(np.float32)
    obs = np.concatenate([np.zeros((episodes, 1, 1), np.float32), np.cumsum(action, axis=1)], axis=1)
    flat = [one.reshape(-1, 1) for one in (obs[:, :-1], action, obs[:, 1:])]
    never, last = np.zeros(episodes * length, bool), np.tile(np.arange(length) == length - 1, episodes)
    return Rows(flat[0], flat[1], flat[2][:, 0], flat[2], never, last)


@pytest.mark.parametrize("length", [5, 30])
def test_lambda_is_how_wrong_the_model_was_per_sigma(length):
    """An error of e in every step adds up to e (1 + 2 + … + h) in the return of h steps, and σ to h σ."""
    rows, held_out = hold_out(walked(10, length), 0.3)
    replay = jax.tree.map(lambda leaf: leaf[0], replay_with([rows], rows.number, [rows.number - held_out]))
    model = Wrong(f32([[1.0]]), f32([[1.0]]), f32(0.0), error=0.01, sigma=0.5)
    task = Position(f32([[0.0]]), f32([[0.0]]), f32([0.0]), f32(1e9))
    found = float(jax.jit(calibrated_weight)(model, task, Penalty(EpistemicNorm()), replay))
    starts = np.array([i * (held_out - 1) // 255 for i in range(256)]) % length
    steps = np.minimum(length - starts, DECISIONS)
    ratios = np.sort(0.01 * steps * (steps + 1) / 2 / (0.5 * steps))
    np.testing.assert_allclose(found, ratios[int(np.ceil(0.9 * 256)) - 1], rtol=1e-3)
    sure = Wrong(f32([[1.0]]), f32([[1.0]]), f32(0.0), error=0.01, sigma=0.0)
    assert float(calibrated_weight(sure, task, EpistemicNorm(), replay)) == np.inf
    right = Wrong(f32([[1.0]]), f32([[1.0]]), f32(0.0), error=0.0, sigma=0.5)
    assert float(calibrated_weight(right, task, EpistemicNorm(), replay)) < 1e-5


def test_whole_episodes_are_held_out():
    rows = walked(20, 7)
    kept, number = hold_out(rows, 0.1)
    assert number == 14 and kept.ends.sum() == 20
    chosen = {tuple(row) for row in kept.obs[-14:].reshape(2, 7)}
    assert chosen == {tuple(rows.obs[7 * i : 7 * i + 7, 0]) for i in (5, 15)}
    assert hold_out(rows, 0.0)[1] == 0
    assert hold_out(walked(1, 30), 0.1)[1] == 3, "of a single trajectory the last decisions"


@pytest.mark.thorough
def test_lambda_is_calibrated_once_the_model_has_learned(data):
    agent = mbpo(offline=data, explore="pessimistic", decisions=60)
    weights = [float(report.metrics["explore/bonus_weight"][0]) for report in agent.iterations(3)]
    assert weights[0] == 0.0 and all(weight > 0 for weight in weights[1:])
    replay = jax.tree.map(lambda leaf: leaf[0], agent.state.replay)
    assert (int(replay.added), replay.capacity) == (32, 40)
    learner = jax.tree.map(lambda leaf: leaf[0], agent.state.learner)
    parts = agent.trainer.parts
    expected = calibrated_weight(
        parts.learner.dynamics(learner), parts.learner.task(learner), parts.exploration.bonus, replay
    )
    after = agent.trainer.explorations().bonus_weight.value
    np.testing.assert_allclose(float(after[0]), float(expected), rtol=1e-4)
    with pytest.raises(SombrlError, match="λ is calibrated on held-out episodes, and there are none"):
        mbpo(offline=data, explore="pessimistic", held_out=0.0).learn(20)
    with pytest.raises(SombrlError, match="needs data that are held out: add --offline"):
        mbpo(explore="pessimistic", schedule="calibrated")


@pytest.mark.thorough
def test_a_model_that_is_always_sure_has_no_lambda(data):
    alone = mbpo(offline=data, explore="pessimistic", ensemble=TINY["ensemble"] | {"members": 1})
    with pytest.raises(SombrlError, match=r"λ cannot be calibrated: .* raise --ensemble\.members"):
        alone.learn(40)
    assert alone.iteration == 1


# ------------------------------------------------------------------------------------ what it must not do


@pytest.mark.parametrize("algorithm", ["mbpo", "gp-icem"])
def test_no_environment_is_stepped(algorithm, data, monkeypatch):
    settings = SETTINGS if algorithm == "mbpo" else SMALL
    agent = make(algorithm, "pendulum", **settings | {"offline": data, "explore": "greedy"})

    def refuse(*args):
        raise AssertionError("stepped")

    for name in ("step", "reset", "reset_rows"):
        monkeypatch.setattr(agent.envs, name, refuse)
    reports = list(agent.iterations(2))
    assert [int(report.decisions[0]) for report in reports] == [agent.window, 2 * agent.window]
    assert all(np.isnan(report.returns).all() for report in reports)
    assert int(agent.state.replay.added[0]) == 32, "8 of 40 rows are held out"
    assert agent.evaluate(1).shape == (1, 1)


def test_what_is_stored_is_what_was_recorded(data):
    agent = make("mbpo", "Pendulum-v1", **SETTINGS | {"offline": data, "held_out": 0.0})
    agent.prepare()
    stored, given = agent.state.replay.data, columns()
    np.testing.assert_allclose(stored.action[0], given["action"] / 2, atol=1e-6)  # its torques are within ±2
    for name in ("obs", "reward", "next_obs", "terminated", "truncated"):
        np.testing.assert_array_equal(np.asarray(getattr(stored, name)[0]), given[name])


@pytest.mark.thorough
def test_rollouts_end_where_the_model_is_unsure():
    """With the median as a limit about half of the first steps count, and none of them is beyond it."""
    agent = mbpo(explore="greedy")
    agent.learn(20)
    state = jax.tree.map(lambda leaf: leaf[0], (agent.state.learner, agent.state.replay))
    mdp = agent.trainer.compiled("explore").imagine(agent.state.learner, jnp.zeros(1, jnp.int32), jr.key(0)[None], None)
    mdp = jax.tree.map(lambda leaf: leaf[0], mdp)
    sac, policy = agent.trainer.parts.controller, jax.tree.map(lambda leaf: leaf[0], agent.state.controller)
    real: Transition = state[1].sample(200, key=jr.key(1))
    options = {"imagined": "branched", "rollout_length": 1, "batch_size": 200}
    plain = imagine(SACConfig(**options), sac.actor(policy), mdp, real, jr.key(2))
    some = imagine(SACConfig(**options, rollout_stop=0.5), sac.actor(policy), mdp, real, jr.key(2))
    same(jax.tree.leaves(plain.rows), jax.tree.leaves(some.rows))
    assert plain.weight is None
    limit = float(jnp.quantile(_sigma(mdp, real.obs, real.action), 0.5))
    expected = np.asarray(_sigma(mdp, some.rows.obs, some.rows.action)) <= limit
    np.testing.assert_array_equal(np.asarray(some.weight) > 0, expected)
    assert 0 < expected.sum() < 200
    with pytest.raises(SombrlError, match=r"add --sac\.imagined branched"):
        SACConfig(rollout_stop=0.5)


# ------------------------------------------------------------------------------------------ offline to online


@pytest.mark.thorough
def test_a_run_goes_on_with_what_another_has_learned(run, data, tmp_path):
    path, _ = run
    offline = mbpo(offline=path, explore="pessimistic", seeds=2)
    offline.learn(40)
    offline.save(tmp_path / "offline")
    online = mbpo(start_from=str(tmp_path / "offline"), explore="optimistic", seeds=2)
    online.prepare()
    ours, theirs = (jax.tree.leaves(one.state.learner) for one in (online, offline))
    same(ours, theirs)
    actor = lambda agent: jax.tree.leaves(agent.state.controller.actor)  # noqa: E731
    same(actor(online), actor(offline))
    assert float(online.state.controller.statistics.count[0]) == 0.0, "the scale of the bonus begins anew"
    assert online.state.replay.added.tolist() == [80, 80], "also the episodes that were held out"
    assert online.state.replay.data.reward.shape == (2, 120)
    (report,) = online.iterations(1)
    assert report.decisions.tolist() == [20, 20], "those of this run"
    online.save(tmp_path / "online")
    again = load(tmp_path / "online")
    assert again.trainer.origin == online.trainer.origin and again.to_json() == online.to_json()
    same(arrays(again, "replay"), arrays(online, "replay"))

    other = small(start_from=path, explore="optimistic", gp=SMALL["gp"] | {"capacity": 100})
    (first,) = other.iterations(1)
    assert (int(first.decisions[0]), int(other.state.replay.added[0])) == (6, 46), "data of another algorithm"
    fresh = mbpo(start_from=data)
    fresh.prepare()
    assert int(fresh.state.replay.added[0]) == 40
    same(arrays(fresh), arrays(mbpo(decisions=40)))


@pytest.mark.thorough
def test_a_planner_goes_on_as_well(tmp_path):
    before = small(explore="greedy").learn(12)
    before.save(tmp_path / "run")
    after = small(explore="optimistic", start_from=str(tmp_path / "run"), preset=None, horizon_value="none")
    after.prepare()
    ours, theirs = arrays(after, "learner"), arrays(before, "learner")
    same(ours, theirs)
    assert [one.dtype for one in ours] == [one.dtype for one in theirs], "the GP's are float64"
    assert after.trainer.parts.random_episodes == 0, "it has something to start from"
    (report,) = after.iterations(1)
    assert (int(report.decisions[0]), int(after.state.replay.added[0])) == (6, 18)


def test_what_does_not_fit_is_refused(run, data, tmp_path):
    path, _ = run
    for settings, sentence in (
        ({"offline": path, "offline_seed": 7}, "has no seed 7: it has 0, 1"),
        ({"offline": data, "offline_seed": 0}, "is for the data of a run"),
        ({"offline": path, "action_cost": 0.1}, "was trained with --action-cost none: give the same"),
        ({"start_from": path, "seeds": 3}, "has 2 seeds, too few for --seeds 3"),
        ({"start_from": path, "ensemble": {"hidden": (16, 16)}}, "does not fit the settings of this run"),
        ({"start_from": path, "capacity": 10}, "has 40 transitions, more than the 10"),
        ({"offline": path, "start_from": path}, "leave out --start-from"),
        ({"offline": str(tmp_path / "none")}, "there are no data at"),
    ):
        with pytest.raises(SombrlError, match=sentence):
            mbpo(**settings).prepare()
    with pytest.raises(SombrlError, match="numbers in an observation"):
        make("mbpo", "mountain-car", **SETTINGS | {"offline": path}).prepare()


def test_held_out_rows_are_never_sampled():
    """What counts as added is what is learned from."""
    rows = walked(4, 5)
    replay = jax.tree.map(lambda leaf: leaf[0], replay_with([rows], 20, [15]))
    assert isinstance(replay, Replay)
    drawn = {float(x) for x in replay.sample(500, key=jr.key(0)).obs[:, 0]}
    assert drawn <= {float(x) for x in rows.obs[:15, 0]}
    assert eqx.tree_equal(replay_with([rows], 20, [15]), replay_with([rows], 20, [15]))


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"action": None}, "", "has no action: transitions need obs, action, reward"),
        ({"action": None}, "--seeds 2 --jobs 2", "has no action: transitions need obs, action, reward"),
        ({"reward": np.full(40, np.nan)}, "", "has a reward that is not a finite number"),
        ({"obs": np.zeros((40, 4))}, "", "has 4 numbers per obs, and pendulum has 3"),
        ({name: column[:0] for name, column in columns().items()}, "", "has no transitions"),
        ({"action": np.full((40, 1), 1.1)}, "", "has actions beyond the bounds of pendulum"),
        ({"obs": np.full((40, 3), 1e300)}, "", "has numbers too large for a float of 32 bits"),
        ({}, "--capacity 39", "has 40 transitions, more than the 39 there is room for"),
        ({}, "--held-out 1.0", "--held-out must be at least 0 and below 1"),
        ({}, "--setting non-episodic", "--offline learns a task from episodes"),
        ({}, "--offline-seed 1", "--offline-seed is for the data of a run"),
    ],
)
def test_bad_data_is_one_sentence_and_nothing_is_written(changes, options, sentence, tmp_path, capsys):
    data = write_npz(tmp_path / "data.npz", **changes)
    argv = ["train", "mbpo", "--env", "pendulum", "--offline", str(data), *options.split()]
    code, _, err = call([*argv, "--out", str(tmp_path / "run")], capsys)
    assert code == 2 and sentence in err and err.count("\n") == 1, err
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("sac --offline DATA", "is for algorithms with a model"),
        ("dreamer --offline DATA", "is for algorithms with a model"),
        ("maxinfo-sac --explore pessimistic", "is for learning from data in a model"),
        ("mbpo --offline DATA/none", "there are no data at"),
        ("mbpo --offline-order recorded", "are about the data of --offline"),
        ("mbpo --schedule calibrated", "needs data that are held out"),
    ],
)
def test_where_it_means_nothing_it_is_refused(argv, sentence, tmp_path, capsys):
    data = str(write_npz(tmp_path / "data.npz"))
    code, _, err = call(["train", *argv.replace("DATA", data).split(), "--out", str(tmp_path / "run")], capsys)
    assert code == 2 and sentence in err, err
    assert not (tmp_path / "run").exists()
