"""The loop: seeds that do not touch each other, exact resume, no compile after the first episode, clean borders."""

import gymnasium
import jax
import numpy as np
import pytest

from sombrl.agent.make import load
from sombrl.records import RunFault
from tests.small import small


def leaves(agent):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent.state)]


class Corridor(gymnasium.Env):
    """Terminates when |x| > 1; breaks on request. Written as a user would, knowing nothing of sombrl."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float32)

    def __init__(self, nan_at: int | None = None):
        self.nan_at, self.steps = nan_at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-0.9, 0.9, 1).astype(np.float32)
        return self.x.copy(), {}

    def step(self, action):
        self.steps += 1
        self.x = (self.x + 0.1 * action + 0.05 * self.np_random.normal()).astype(np.float32)
        reward = float("nan") if self.steps == self.nan_at else float(self.x[0])
        return self.x.copy(), reward, bool(abs(self.x[0]) > 1), False, {}


@pytest.mark.optimised
def test_a_seed_does_not_depend_on_its_neighbours():
    together = small(seeds=3, explore="thompson").learn(12)
    alone = small(seed=2, explore="thompson").learn(12)
    for ours, theirs in zip(leaves(together), leaves(alone), strict=True):
        assert np.array_equal(ours[2:], theirs)
    actions = np.asarray(together.state.replay.data.action)
    assert not np.array_equal(actions[0], actions[1])


@pytest.mark.parametrize("env", ["pendulum", pytest.param("Pendulum-v1", marks=pytest.mark.thorough)])
def test_resume_is_exact(env, tmp_path):
    whole = small(env, seeds=2).learn(18)
    half = small(env, seeds=2).learn(12)
    half.save(tmp_path / "run")
    resumed = load(tmp_path / "run").learn(6)
    assert resumed.iteration == whole.iteration == 3
    for ours, theirs in zip(leaves(resumed), leaves(whole), strict=True):
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def test_nothing_compiles_after_the_first_episode():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    counts = []
    small(explore="optimistic", schedule="linear", bonus_weight_end=1.0).learn(
        30, callback=lambda agent, report: counts.append(len(compiled))
    )
    assert counts[0] > 0
    assert counts[1:] == [counts[1]] * 4  # the second episode compiles the metrics of a non-empty replay, if anything
    assert counts[1] - counts[0] <= 2


def test_episodes_end_where_they_end():
    agent = small(Corridor, seeds=2, explore="unsupervised", episode_length=8, reward="learned")
    chunks = []
    agent.learn(24, callback=lambda agent, report: chunks.append(report.chunk))
    for chunk in chunks:
        obs, next_obs = (np.asarray(x) for x in (chunk.transitions.obs, chunk.transitions.next_obs))
        for row in range(2):
            length = chunk.valid[row].sum()
            assert np.array_equal(chunk.valid[row], np.arange(8) < length)  # once over, it stays over
            assert np.array_equal(obs[row, 1:length], next_obs[row, : length - 1])
            ended = np.asarray(chunk.transitions.terminated)[row, :length]
            truncated = np.asarray(chunk.transitions.truncated)[row, :length]
            assert not ended[:-1].any() and not truncated[:-1].any()
            assert ended[-1] or truncated[-1]
            assert ended[-1] == (abs(next_obs[row, length - 1, 0]) > 1)
    stored = np.asarray(agent.state.replay.added)
    assert np.array_equal(stored, sum(chunk.valid.sum(axis=1) for chunk in chunks))
    assert stored.min() < 24  # some episode did end early


def test_nan_stops_the_run_naming_the_place():
    agent = small(lambda: Corridor(nan_at=9), explore="greedy", reward="learned", episode_length=6)
    with pytest.raises(RunFault, match=r"Corridor \(seed 0, episode \d+, step \d+\): reward is nan"):
        agent.learn(30)
    assert agent.iteration >= 1  # what was finished is there to be saved


def test_a_full_replay_goes_on():
    agent = small(gp={"capacity": 8, "rank": 8, "fit_steps": 1, "fit_points": 8}, explore="optimistic").learn(24)
    assert int(agent.state.replay.added[0]) == 24
    assert np.all(np.isfinite(np.concatenate([leaf.ravel().astype(float) for leaf in leaves(agent)])))


@pytest.mark.parametrize("controller", ["cem", "mppi"])
def test_every_planner_takes_the_same_seat(controller):
    agent = small(controller=controller, explore="hucrl").learn(6)
    actions = np.asarray(agent.state.replay.data.action)[0, :6]
    assert np.all(np.abs(actions) <= 1) and np.ptp(actions) > 0
