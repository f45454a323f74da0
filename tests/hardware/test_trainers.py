"""The learner's iteration n is bit-exactly that of the episodic loop; a killed one is done again to the same policy."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from sombrl.agent.make import make
from sombrl.hardware import trainers
from sombrl.hardware.campaign import CampaignConfig
from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.episode import Episode
from sombrl.hardware.supervisor import Supervisor
from sombrl.hardware.trainers import actor_of, train_agent
from sombrl.records import SombrlError
from sombrl.training.episodic import run
from tests.hardware.parts import simulated

pytestmark = pytest.mark.thorough

LENGTH, ITERATIONS, SEED = 6, 3, 5
SETTINGS = {
    "capacity": 64,
    "episode_length": LENGTH,
    "sac": {"hidden": (8, 8), "batch_size": 8, "soft_reset_every": 10},
    "ensemble": {"hidden": (8, 8), "batch_size": 8, "soft_reset_every": 2, "steps_per_fit": 2},
}
OPTIONS = (
    *("env=pendulum", "capacity=64", "sac.hidden=[8,8]", "sac.batch_size=8", "sac.soft_reset_every=10"),
    *("ensemble.hidden=[8,8]", "ensemble.batch_size=8", "ensemble.soft_reset_every=2", "ensemble.steps_per_fit=2"),
    "rewards=recorded",
)
CONFIG = CampaignConfig(trainer="mbpo", trainer_options=OPTIONS, steps=LENGTH, seed=SEED)


def episode_of(report) -> Episode:
    """What a controller would have recorded."""
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[0], report.chunk.transitions)
    t = len(rows.reward)
    zeros = np.zeros(t + 1)
    return Episode(
        stamp=zeros,
        pose=np.zeros((t + 1, 3)),
        twist=np.zeros((t + 1, 3)),
        frame_id=zeros,
        seen=zeros == 0,
        obs=np.concatenate([rows.obs, rows.next_obs[-1:]]),
        proposed=rows.action,
        action=rows.action,
        reason=np.zeros(t, np.int8),
        reward=np.asarray(rows.reward, np.float64),
        valid=np.asarray(report.chunk.valid[0]),
        slot=np.arange(t + 1),
        woke=zeros,
        work=np.zeros(t),
        meta={"digest": f"{report.iteration}"},
    )


@pytest.fixture(scope="module")
def reports():
    """The episodic loop itself, on the pendulum, with the parts of mbpo."""
    trainer = make("mbpo", "pendulum", seed=SEED, **SETTINGS).trainer
    parts = (trainer.parts.learner, trainer.parts.exploration, trainer.parts.controller)
    options = {"seeds": [SEED], "num_iterations": ITERATIONS, "capacity": 64}
    return list(run(trainer.envs, *parts, trainer.setting, **options))


def weights(actor):
    return [*actor.weights, *actor.biases]


@pytest.mark.thorough
def test_every_policy_is_that_of_the_loop(reports, tmp_path, monkeypatch):
    episodes = [episode_of(report) for report in reports]
    policies = []
    for n in range(ITERATIONS):
        actor, metrics = train_agent("mbpo", episodes[:n], CONFIG, n, SEED, tmp_path)
        expected = actor_of(trainers._untrained("mbpo", CONFIG, SEED), reports[n].state.controller)
        for ours, theirs in zip(weights(actor), weights(expected), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert metrics["policy/temperature"] == pytest.approx(float(reports[n].metrics["policy/temperature"][0]))
        policies.append(actor)
    assert not np.array_equal(policies[0].weights[0], policies[2].weights[0])  # it does learn

    # Killed before the policy was written, with the checkpoint of this iteration there or not, or damaged, or of
    # another history: the same policy, from a process that remembers nothing.
    calls = []
    iterate = trainers._iterate
    monkeypatch.setattr(trainers, "_iterate", lambda *args: calls.append(args[3]) or iterate(*args))

    def again(folder):
        calls.clear()
        actor, _ = train_agent("mbpo", episodes[:2], CONFIG, 2, SEED, folder)
        for ours, theirs in zip(weights(actor), weights(policies[2]), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        return list(calls)

    assert again(tmp_path) == [2]  # from the checkpoint of iteration 1
    damaged = shutil.copytree(tmp_path, tmp_path / "damaged")
    newest = damaged / "checkpoints" / "00000002" / "arrays.npz"
    newest.write_bytes(newest.read_bytes()[:100])
    assert again(damaged) == [0, 1, 2]
    assert again(tmp_path / "nothing there") == [0, 1, 2]
    other = shutil.copytree(tmp_path / "nothing there", tmp_path / "other")
    renamed = [dataclasses.replace(episodes[0], meta={"digest": "another"}), episodes[1]]
    calls.clear()
    train_agent("mbpo", renamed, CONFIG, 2, SEED, other)
    assert calls == [0, 1, 2]


def test_transitions_that_are_not_certain_are_not_learned_from(reports, tmp_path):
    """An episode with doubtful rows is the episode without them, whatever they hold; aborts may be shorter."""
    whole = episode_of(reports[0])
    doubtful = dataclasses.replace(
        whole,
        obs=np.concatenate([whole.obs[:4], np.full((1, 3), 7.0, np.float32), whole.obs[4:]]),
        action=np.concatenate([whole.action[:3], np.full((2, 1), 0.5, np.float32), whole.action[4:]]),
        reward=np.concatenate([whole.reward[:3], [1e3, 1e3], whole.reward[4:]]),
        valid=np.array([1, 1, 1, 0, 0, 1, 1], bool),
    )
    shorter = [
        dataclasses.replace(
            whole,
            obs=whole.obs[a : b + 1],
            action=whole.action[a:b],
            reward=whole.reward[a:b],
            valid=whole.valid[a:b],
        )
        for a, b in ((0, 3), (4, 6))
    ]
    trainer = trainers._untrained("mbpo", CONFIG, SEED)
    one = trainers._replays(trainer, [doubtful], "recorded")[-1]
    two = trainers._replays(trainer, shorter, "recorded")[-1]
    assert int(one.added[0]) == int(two.added[0]) == 5
    for name in ("obs", "action", "reward", "next_obs"):
        np.testing.assert_array_equal(getattr(one.data, name)[0, :5], getattr(two.data, name)[0, :5])


def test_rewards_are_the_tasks_where_it_is_known(reports):
    """Recorded rewards, of a campaign with another margin say, do not matter then."""
    trainer = trainers._untrained("mbpo", CONFIG, SEED)
    episode = episode_of(reports[0])
    bent = dataclasses.replace(episode, reward=episode.reward + 100.0)
    paid = np.asarray(trainers._replays(trainer, [bent], "task")[-1].data.reward[0, :LENGTH])
    theta = np.arctan2(episode.obs[:-1, 1], episode.obs[:-1, 0])
    expected = -(theta**2 + 0.1 * episode.obs[:-1, 2] ** 2 + 0.001 * (2.0 * episode.action[:, 0]) ** 2)
    np.testing.assert_allclose(paid, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "sentence"), [("gp-icem", "plans instead of"), ("dreamer", "learns from sequences")]
)
def test_algorithms_that_cannot_drive_a_car_are_refused(algorithm, sentence):
    with pytest.raises(SombrlError, match=f"{algorithm} .*{sentence}.*--trainer sim-fsvgd"):
        trainers.check_agent(algorithm, CampaignConfig())


def test_the_margin_of_the_campaign_is_the_margin_of_the_car():
    settings, rewards = trainers._options(CampaignConfig(margin_factor=2.0, steps=70))
    assert settings == {"env": "rc-car", "episode_length": 70, "env_kwargs": {"margin_factor": 2.0}}
    assert rewards == "task"
    trainers.check_agent("mbpo", CampaignConfig(margin_factor=2.0, steps=70))
    with pytest.raises(SombrlError, match="rewards=mine"):
        trainers._options(CampaignConfig(trainer_options=("rewards=mine",)))


@pytest.mark.slow
def test_sim_fsvgd_on_the_car_is_a_function_of_the_episodes(tmp_path):
    """Two policies of the smallest search; the second again without its checkpoint, and driven."""
    options = ("model.steps=20", "model.functions=16", "model.particles=3", "search.rounds=2", "search.snapshots=2")
    options += ("search.rollouts=8", "search.capacity=200", "search.judged_rollouts=4", "search.judged_horizon=5")
    config = CampaignConfig(trainer_options=(*options, "search.updates=4"), steps=40)
    backend = simulated()
    episodes = []
    for n in range(2):
        actor, metrics = train_agent("sim-fsvgd", episodes, config, n, 0, tmp_path)
        assert (actor.obs_dim, actor.action_dim) == (13, 2) and np.isfinite(list(metrics.values())).all()
        backend.reset("teleport", episode=n)
        episodes.append(run_episode(backend, actor, Supervisor(backend), steps=40))
        episodes[-1].meta["digest"] = str(n)
    again, _ = train_agent("sim-fsvgd", episodes[:1], config, 1, 0, tmp_path / "elsewhere")
    for ours, theirs in zip(weights(again), weights(actor), strict=True):
        np.testing.assert_array_equal(ours, theirs)
