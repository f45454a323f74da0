"""Dreamer as an agent: seeds do not meet, a resumed run is the same run, and bad input gets a sentence."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import sombrl
from sombrl.dreamer.config import DreamerExplore
from sombrl.dreamer.loop import DreamerPrograms
from sombrl.errors import RunFault, SombrlError
from sombrl.training.base import EVALUATION_EPISODES

pytestmark = pytest.mark.thorough

SETTINGS = {
    "size": "tiny",
    "envs": 2,
    "batch_size": 2,
    "batch_length": 4,
    "horizon": 2,
    "ratio": 8.0,
    "capacity": 200,
    "report_every": 24,
    "episode_length": 7,
    "hidden": [8],  # a list is as good as a tuple
    "members": 2,
}


def agent(**settings):
    return sombrl.make("dreamer", "Pendulum-v1", **(SETTINGS | settings))


def reports(trained, until: int):
    return [trained.rows(report) for report in trained.iterations(until)]


def without_time(rows):
    return [[{k: v for k, v in row.items() if not k.startswith("time/")} for row in report] for report in rows]


@pytest.fixture(scope="module")
def pair():
    trained = agent(seeds=2)
    return trained, reports(trained, 4)


def test_a_seed_alone_is_that_seed_among_others(pair):
    _, together = pair
    alone = reports(agent(seed=1), 4)
    np.testing.assert_equal(without_time(alone), [[report[1]] for report in without_time(together)])


@pytest.mark.thorough
def test_seeds_in_one_program_as_on_an_accelerator(pair, monkeypatch):
    """Rounding apart, they are what they are one by one; actions, returns and losses."""
    monkeypatch.setattr("sombrl.dreamer.loop.shards_of", lambda rows, apart: [slice(0, rows)])
    (together,) = without_time(reports(agent(seeds=2), 1))
    for ours, theirs in zip(together, without_time(pair[1][:1])[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4, nan_ok=True)


@pytest.mark.thorough
def test_what_is_saved_does_not_depend_on_the_precision_of_a_machine():
    """An accelerator computes in bfloat16; its runs are evaluated and exported on laptops."""
    half = agent(precision="bfloat16")
    next(iter(half.iterations(1)))
    for ours, theirs in zip(jax.tree.leaves(half.state), jax.tree.leaves(agent().state), strict=True):
        assert np.shape(ours) == np.shape(theirs) and np.asarray(ours).dtype == np.asarray(theirs).dtype


def test_what_a_run_reports(pair):
    trained, rows = pair
    last = rows[-1][0]
    # 12 records of each of 2 environments per report; every eighth begins an episode.
    assert last["decisions"] == 2 * sum(1 for t in range(48) if t % 8)
    assert last["rollout/ep_len_mean"] == 7
    assert np.isfinite(last["rollout/ep_rew_mean"])
    assert last["explore/bonus_weight"] == pytest.approx(2.0, rel=1e-2)
    assert not [name for name in last if name.startswith(("sum/", "count/"))]
    assert last["loss/ensemble_new"] > 0 and last["loss/ensemble_old"] > 0
    # 8 replayed records per record, in batches of 8; learning starts with 8 start positions.
    starts = trained.trainer.loop.starts_at
    assert sum(report[0]["time/updates"] for report in rows) == 1 + (96 - starts)


def test_a_resumed_run_is_the_same_run(pair, tmp_path):
    trained, rows = pair
    first = agent(seeds=2)
    reports(first, 2)
    first.save(tmp_path / "run")
    second = sombrl.load(tmp_path / "run")
    assert second.iteration == 2
    np.testing.assert_equal(without_time(reports(second, 4)), without_time(rows[2:]))
    for ours, theirs in zip(jax.tree.leaves(second.state), jax.tree.leaves(trained.state), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    ours, theirs = second.trainer.loop.replay_state(), trained.trainer.loop.replay_state()
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_predict_and_evaluate_leave_training_alone(pair):
    trained, _ = pair
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(trained.state)]
    returns = trained.evaluate(2)
    assert returns.shape == (2, 2)
    np.testing.assert_array_equal(returns, trained.evaluate(2))
    obs = np.array([1.0, 0.0, 0.0], np.float32)
    action, memory = trained.predict(obs)
    again, _ = trained.predict(obs)
    np.testing.assert_array_equal(action, again)
    remembered, _ = trained.predict(obs, memory)
    assert (remembered != action).any()  # it knows that it has been here before
    restarted, _ = trained.predict(obs, memory, episode_start=np.array([True]))
    assert action.shape == restarted.shape == (1,)
    for old, new in zip(before, jax.tree.leaves(trained.state), strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))
    with pytest.raises(SombrlError, match="3 numbers"):
        trained.predict(np.zeros(4, np.float32))


class Corridor(gymnasium.Env):
    """Rooms 2 to 5 in a row; `show` says how they are seen."""

    action_space = Box(-1.0, 1.0, (1,))
    room, door = Discrete(4, start=2), Box(-9.0, 9.0, (2, 2))
    spaces = {"dict": Dict(room=room, door=door), "room": room, "door": door}  # noqa: RUF012

    def __init__(self, show):
        self.show, self.observation_space = show, self.spaces[show]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(2, 6))
        return self.see(), {}

    def step(self, action):
        self.at = int(np.clip(self.at + np.sign(action[0]), 2, 5))
        return self.see(), float(self.at), False, False, {}

    def see(self):
        seen = {"room": self.at, "door": np.arange(4.0).reshape(2, 2) - self.at}
        return seen if self.show == "dict" else seen[self.show]


@pytest.mark.parametrize("show", Corridor.spaces)
def test_predict_sees_what_training_sees(show):
    untrained = sombrl.make("dreamer", lambda: Corridor(show), **(SETTINGS | {"envs": 1}))
    trained_on = untrained.envs.reset(0)
    seen, networks = untrained.envs.envs[0].see(), untrained.state.learned.networks
    programs = DreamerPrograms.of(untrained.trainer.dreamer, sample=False)
    nothing = untrained.trainer.dreamer.initial_latents(1), np.zeros((1, 1), np.float32)
    given = *nothing, untrained.trainer.layout.split(trained_on), np.ones(1, bool)
    wanted, *_ = programs.choose([networks], [0], EVALUATION_EPISODES, given)
    alone, _ = untrained.predict(seen)
    np.testing.assert_array_equal(alone, np.clip(wanted[0], -1, 1))
    batch = {name: np.stack([value] * 2) for name, value in seen.items()} if show == "dict" else np.stack([seen] * 2)
    assert untrained.predict(batch)[0].shape == (2, 1)
    with pytest.raises(SombrlError, match=r"an observation is|the observation 'room' is"):
        untrained.predict({"room": 1, "door": np.zeros((2, 2))} if show == "dict" else np.full((3, 3), 7.5))


class Hourglass(gymnasium.Env):
    """It shows how often it was moved: in this episode, or ever, which no seed brings back."""

    observation_space, action_space = Box(0.0, np.inf, (1,)), Box(-1.0, 1.0, (1,))

    def __init__(self, turned):
        self.turned, self.moved = turned, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.moved = 0 if self.turned else self.moved
        return np.array([self.moved], np.float32), {}

    def step(self, action):
        self.moved += 1
        return np.array([self.moved], np.float32), 1.0, False, False, {}


def learn_on(env, look=lambda trained: None):
    """Twelve records at a time of episodes that have eight, so between reports the environment is inside of one."""
    trained, rows = sombrl.make("dreamer", env, **(SETTINGS | {"envs": 1, "report_every": 12})), []

    def note(trained, report):
        rows.append(trained.rows(report))
        look(trained)

    return trained.learn(36, callback=note), rows


@pytest.mark.thorough
def test_evaluation_on_a_ready_environment_leaves_training_where_it_was():
    watched, seen = learn_on(Hourglass(turned=True), lambda trained: trained.evaluate(1))
    alone, unseen = learn_on(Hourglass(turned=True))
    np.testing.assert_equal(without_time(seen), without_time(unseen))
    theirs = alone.trainer.loop.replay_state()
    for name, value in watched.trainer.loop.replay_state().items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.thorough
@pytest.mark.parametrize("give", [lambda env: env, lambda env: lambda: env], ids=["ready", "always the same"])
def test_an_episode_that_cannot_be_put_back_is_abandoned(give, capsys):
    """Never does it go on somewhere else."""
    trained, rows = learn_on(give(Hourglass(turned=False)), lambda trained: trained.evaluate(1))
    replay = trained.trainer.loop.replays[0]
    moved, first, last, terminal = (replay._stream(n, 0, 36) for n in ("obs/obs", "first", "last", "terminal"))
    assert np.all(np.diff(moved[:, 0])[~first[1:]] == 1)
    assert np.flatnonzero(first).tolist() == [0, 8, 12, 20, 24, 32]
    np.testing.assert_array_equal(np.flatnonzero(last), np.flatnonzero(first)[1:] - 1)
    assert not terminal.any() and rows[-1][0]["rollout/ep_len_mean"] == 7
    assert capsys.readouterr().err.count("cannot be put back, so its episode is abandoned") == 2


def test_what_takes_a_planner_is_refused(pair):
    with pytest.raises(SombrlError, match="dreamer does not plan: train with --explore unsupervised"):
        pair[0].max_uncertainty(1)


def test_bad_settings_get_a_sentence():
    with pytest.raises(SombrlError, match="episodes"):
        agent(setting="non-episodic")
    with pytest.raises(SombrlError, match="--explore unsupervised"):
        agent(setting="unsupervised")
    with pytest.raises(SombrlError, match="--capacity"):
        agent(capacity=11, batch_length=4)
    with pytest.raises(SombrlError, match="GiB"):
        agent(capacity=10**12, decisions=10**12)
    assert DreamerExplore().curious


@pytest.mark.thorough
def test_learning_for_longer_than_planned_forgets_nothing(tmp_path):
    """`learn` knows no total beforehand: the replay grows with every call."""
    trained = sombrl.make(
        "dreamer", "Pendulum-v1", **(SETTINGS | {"capacity": 300, "episode_length": 5, "episodes": 2})
    )
    replay = trained.trainer.loop.replays[0]
    assert replay.rows * replay.ring < 96
    trained.learn(96)
    assert (replay.oldest, replay.rows * replay.added) == (0, 96)
    trained.learn(48)
    assert (replay.oldest, replay.rows * replay.added) == (0, 144)
    trained.save(tmp_path / "run")
    again = sombrl.load(tmp_path / "run").trainer.loop.replays[0]
    np.testing.assert_array_equal(again._stream("reward", 0, again.added), replay._stream("reward", 0, replay.added))
    trained.learn(240)
    assert replay.rows * replay.ring == 300, "what was asked for, and no more"


def test_every_episode_has_noise_of_its_own(pair):
    trained, _ = pair
    obs, actions = np.array([1.0, 0.0, 0.0], np.float32), []
    for _ in range(2):  # a new state each time
        action, _ = trained.predict(obs, deterministic=False)
        actions.append(action)
    assert actions[0] != actions[1]
    first, again, second = (_first_actions(trained, episode) for episode in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)


def _first_actions(trained, episode):
    policy = trained.trainer.policy("explore")
    return policy.act(policy.begin(stream=episode), np.zeros((2, 3), np.float32), np.ones(2, bool))[0]


def test_downstream_tasks_are_refused_before_training():
    settings = SETTINGS | {"setting": "unsupervised", "explore": "unsupervised", "downstream": ("spin",)}
    with pytest.raises(SombrlError, match="train for each with --start-from RUN"):
        sombrl.make("dreamer", "pendulum", **settings)


@pytest.mark.parametrize(("protocol", "ratio"), [("atari100k", 256), ("atari200m", 32)])
def test_ratios_published_for_atari(protocol, ratio):
    pytest.importorskip("ale_py", reason="ale_py is not installed: pip install 'sombrl[atari]'")
    settings = {"env_kwargs": {"protocol": protocol}, "size": "tiny", "envs": 1}
    assert sombrl.make("dreamer", "atari:Venture", **settings).config.ratio == ratio
    assert sombrl.make("dreamer", "atari:Venture", ratio=8.0, **settings).config.ratio == 8


def test_the_share_of_the_uniform_distribution_is_a_choice():
    peaked = [
        sombrl.make("dreamer", "CartPole-v1", size="tiny", unimix=share).state.learned.networks.policy.unimix
        for share in (0.0, 0.01)
    ]
    assert peaked == [0.0, 0.01]


def test_what_is_saved_in_the_middle_of_an_iteration_is_the_end_of_the_last_one(tmp_path):
    """A second Ctrl-C, or a fault: records and updates of the iteration that did not end are forgotten."""
    trained, whole = agent(decisions=96), agent(decisions=96)
    for _ in trained.iterations(2):
        pass
    at_the_end = {name: np.copy(value) for name, value in trained.trainer.loop.replay_state().items()}

    def interrupt(tick, ticks):
        if tick == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(iter(trained.iterations(3, on_decision=interrupt)))
    assert trained.trainer.loop.replays[0].added > at_the_end["replay/0/added"]
    trained.save(tmp_path / "run")
    saved = sombrl.load(tmp_path / "run").trainer.loop.replay_state()
    assert saved.keys() == at_the_end.keys()
    for name, value in at_the_end.items():
        if not name.endswith(("/deter", "/stoch")):  # fresher ones are as good
            np.testing.assert_array_equal(saved[name], value, err_msg=name)
    # Going on counts every record once.
    rows = reports(trained, 4)[-1]
    assert rows[0]["decisions"] == reports(whole, 4)[-1][0]["decisions"]
    assert trained.trainer.loop.replays[0].added == whole.trainer.loop.replays[0].added


def test_records_that_were_overwritten_stay_lost_after_a_way_back():
    replay = agent(capacity=40, decisions=96).trainer.loop.replays[0]
    fields = {name: np.zeros((2, *field.shape), field.dtype) for name, field in replay.fields.items()}
    record = fields | {"obs": {"obs": np.zeros((2, 3), np.float32)}}
    for _ in range(replay.ring):
        replay.add(record)
    way_back = replay.mark()
    for _ in range(3):
        replay.add(record)
    way_back()
    assert (replay.added, replay.oldest) == (replay.ring, 3)
    replay.add(record)
    assert replay.oldest == 3


def test_numbers_that_are_none_are_saved_at_the_end_of_the_last_iteration_too(monkeypatch):
    """They are found when the report is made: by then all its records are there."""
    trained = agent(decisions=96)
    next(iter(trained.iterations(1)))
    added = trained.trainer.loop.replays[0].added

    def find(metrics, seeds, iteration):
        raise RunFault("model/loss is not finite")

    monkeypatch.setattr("sombrl.dreamer.loop.refuse_nan", find)
    with pytest.raises(RunFault):
        next(iter(trained.iterations(2)))
    trained.trainer.rewind()  # as saving does
    assert trained.trainer.loop.replays[0].added == added


def test_a_signal_between_a_report_and_its_agent_leaves_no_replay_that_is_ahead(monkeypatch):
    trained = agent(decisions=96)
    next(iter(trained.iterations(1)))
    added, state = trained.trainer.loop.replays[0].added, trained.state

    def interrupt():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trained.envs, "get_state", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iter(trained.iterations(2)))
    assert trained.iteration == 1 and trained.state is state and trained.trainer.loop.replays[0].added > added
    trained.trainer.rewind()  # as saving does
    assert trained.trainer.loop.replays[0].added == added
    next(iter(trained.iterations(2)))
    trained.trainer.rewind()  # what the agent has taken over stays
    assert trained.iteration == 2 and trained.trainer.loop.replays[0].added == 2 * added
