"""The contract of trainers: a table of them, and what must hold for each."""

import gymnasium
import numpy as np
import pytest
from examples.own_trainer import EvolutionTrainer

import sombrl
from sombrl.algorithms import ALGORITHMS
from sombrl.errors import SombrlError
from sombrl.training.base import EVALUATION_EPISODES, Committed, Report
from sombrl.training.play import play
from tests.small import small

EVOLUTION = ALGORITHMS.pop("evolution")  # other tests see the algorithms of sombrl alone
NETS = {"hidden": (8, 8)}
TRAINERS = {
    "episodic": lambda: small("Pendulum-v1", seeds=2),
    "non-episodic": lambda: small("Pendulum-v1", seeds=2, setting="non-episodic", update_every=4),
    "online": lambda: sombrl.make(
        *("sac", "Pendulum-v1"),
        **{"seeds": 2, "sac": NETS | {"batch_size": 8}, "report_every": 10, "decisions": 40, "episode_length": 7},
    ),
    "dreamer": lambda: sombrl.make(
        *("dreamer", "Pendulum-v1"),
        **{"seeds": 2, "size": "tiny", "envs": 1, "batch_size": 2, "batch_length": 4, "horizon": 2, "ratio": 8.0},
        **{"capacity": 200, "report_every": 12, "episode_length": 7, "hidden": [8], "members": 2, "decisions": 48},
    ),
    "own": lambda: sombrl.make("evolution", "Pendulum-v1", seeds=2, episode_length=7),
}
"""One row per trainer; the last one is the example's."""


@pytest.fixture(autouse=True)
def evolution(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "evolution", EVOLUTION)


SEVERAL = [
    pytest.param(name, marks=pytest.mark.thorough if name in ("non-episodic", "dreamer") else ()) for name in TRAINERS
]


@pytest.fixture(params=SEVERAL)
def make(request):
    return TRAINERS[request.param]


def numbers(agent, report: Report) -> list[dict]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in agent.rows(report)]


def test_an_abandoned_iteration_is_done_again(make):
    """An exception at any decision leaves the trainer at the end of its last iteration."""
    whole, stopped = make(), make()
    rows = [numbers(whole, whole.trainer.iterate()) for _ in range(2)]
    again = [numbers(stopped, stopped.trainer.iterate())]

    def stop(t: int, length: int) -> None:
        if t == 2:
            raise KeyboardInterrupt

    before = stopped.trainer._now
    with pytest.raises(KeyboardInterrupt):
        stopped.trainer.iterate(stop)
    assert stopped.trainer._now is before and stopped.iteration == 1
    again.append(numbers(stopped, stopped.trainer.iterate()))
    if stopped.trainer.exact_rewind:
        np.testing.assert_equal(again, rows)
    assert [row["decisions"] for row in again[1]] == [row["decisions"] for row in rows[1]]


def test_a_snapshot_is_all_that_is_needed(make):
    whole, other = make(), make()
    whole.trainer.iterate()
    snapshot = whole.trainer.snapshot()
    free = {name: value.copy() for name, value in (snapshot.free or {}).items()}
    following = numbers(whole, whole.trainer.iterate())
    other.trainer.restore(lambda like: (snapshot.tree, snapshot.meta | ({"free": free} if free else {})))
    assert other.iteration == 1
    np.testing.assert_equal(numbers(other, other.trainer.iterate()), following)


def test_evaluation_changes_nothing(make):
    watched, alone = make(), make()
    watched.trainer.iterate(), alone.trainer.iterate()
    first = watched.evaluate(1)
    np.testing.assert_array_equal(first, watched.evaluate(1))
    np.testing.assert_equal(*(numbers(agent, agent.trainer.iterate()) for agent in (watched, alone)))


def test_a_policy_for_one_seed_is_that_row_of_the_policy_for_all(make):
    agent = make()
    agent.trainer.iterate()
    both, second = agent.trainer.policy("task"), agent.trainer.policy("task", rows=[1])
    rng, obs = np.random.default_rng(0), np.zeros((2, 3), np.float32)
    memories, first = [both.begin(stream=0), second.begin(stream=0)], np.ones(2, bool)
    for _ in range(3):
        actions, memories[0] = both.act(memories[0], obs, first)
        alone, memories[1] = second.act(memories[1], obs[1:], first[1:])
        np.testing.assert_allclose(alone, actions[1:], atol=1e-5)
        assert np.all(np.abs(actions) <= 1)
        obs, first = rng.normal(size=(2, 3)).astype(np.float32), np.zeros(2, bool)


def test_rows_that_are_first_forget_what_was_before(make):
    agent = make()
    agent.trainer.iterate()
    policy, obs = agent.trainer.policy("task"), np.full((2, 3), 0.5, np.float32)
    pasts = [policy.act(policy.begin(stream=0), seen, np.ones(2, bool))[1] for seen in (-obs, 2 * obs)]
    one, other = (policy.act(memory, obs, np.array([True, False]))[0] for memory in pasts)
    np.testing.assert_allclose(one[0], other[0], atol=1e-5)


def test_play_pays_what_the_environments_pay():
    """Returns are the sums of the rewards until an episode ends, whatever the others do."""

    class Counting(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-9.0, 9.0, (1,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.left = int(self.np_random.integers(2, 9))
            return np.array([self.left], np.float32), {}

        def step(self, action):
            self.left -= 1
            return np.array([self.left], np.float32), float(self.left), self.left == 0, False, {}

    agent = sombrl.make("evolution", Counting, seeds=3, episode_length=10)
    assert isinstance(agent.trainer, EvolutionTrainer)
    envs = agent.trainer.maker.make([0, 1, 2])
    starts = envs.reset(EVALUATION_EPISODES)[:, 0]
    (played,) = play(agent.trainer.policy(), envs, first_episode=EVALUATION_EPISODES, episodes=1, record=True)
    np.testing.assert_array_equal(played.valid.sum(axis=1), starts)
    np.testing.assert_array_equal(played.rewards.sum(axis=1), starts * (starts - 1) / 2)
    np.testing.assert_array_equal(np.asarray(played.rows.obs)[:, 0, 0], starts)
    assert np.asarray(played.rows.terminated).sum() >= 3
    np.testing.assert_array_equal(agent.evaluate(1)[0], starts * (starts - 1) / 2)


def test_an_environment_that_cannot_be_put_back_is_refused_with_the_remedy():
    agent = TRAINERS["own"]()
    agent.trainer._now, agent.trainer._placed, agent.trainer._moved = Committed(1, agent.state, {}), False, True

    def refuse(state: dict) -> None:
        raise SombrlError("it did not replay.")

    agent.envs.set_state = refuse
    with pytest.raises(SombrlError, match="did not replay; evaluate has moved it, so give a function"):
        agent.trainer.iterate()
