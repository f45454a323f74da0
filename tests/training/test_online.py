"""Algorithms that learn at every decision: exact reductions, borders of episodes, resume in the middle of one."""

import functools

import gymnasium
import jax
import numpy as np
import pytest

from sombrl.agent.make import load, make
from sombrl.algorithms.mbpo import STRONG as MBPO_STRONG
from sombrl.algorithms.settings import configured, fields_of
from sombrl.config.fields import value_at
from sombrl.controllers.sac_config import STRONG_NETWORKS
from sombrl.controllers.sac_losses import gaussian
from sombrl.records import RunFault, SombrlError
from sombrl.runs.train import Run, resume, run_training, train
from sombrl.storage.run_folder import RunFolder
from sombrl.training.report import reward_warning
from tests.envs.tiny import Tiny
from tests.training.test_episodic import leaves

TINY = {"hidden": (8, 8), "batch_size": 8}
SETTINGS = {"report_every": 20, "decisions": 60, "episode_length": 15}


def agent(algorithm="mbpo", env="Pendulum-v1", **settings):
    nets = {"sac": TINY} if algorithm == "sac" else {"sac": TINY, "ensemble": TINY}
    nets = {name: nets[name] | settings.pop(name, {}) for name in nets}
    return make(algorithm, env, **SETTINGS | nets | settings)


def same(ours, theirs, parts=("controller", "replay", "obs")):
    for part in parts:
        for a, b in zip(
            jax.tree.leaves(getattr(ours.state, part)), jax.tree.leaves(getattr(theirs.state, part)), strict=True
        ):
            assert np.array_equal(a, b), part


@pytest.mark.optimised
def test_no_bonus_weight_is_mbpo_mean():
    optimistic = agent(explore="optimistic", bonus_weight=0.0, schedule="constant").learn(60)
    greedy = agent(explore="greedy").learn(60)
    assert np.array_equal(optimistic.state.replay.data.action, greedy.state.replay.data.action)
    assert np.asarray(greedy.state.replay.data.action).std() > 0.1


@pytest.mark.thorough
def test_one_member_is_its_own_mean():
    one = {"members": 1, "noise_floor": 1e-12}
    pets, mean = (agent(explore=explore, ensemble=one).learn(40) for explore in ("pets", "greedy"))
    np.testing.assert_allclose(pets.state.replay.data.action, mean.state.replay.data.action, atol=2e-4)


@pytest.mark.optimised
def test_real_data_alone_are_sac():
    schedule = {"imagined": "none"}
    mbpo = agent(explore="greedy", preset="paper", sac=schedule).learn(60)
    sac = agent("sac", sac=schedule | {f: getattr(mbpo.config.sac, f) for f in _OTHERS}).learn(60)
    same(mbpo, sac)


STRONG = {
    "sac": {
        **{"actor": "simba", "critic": "simba", "critics": "one", "normalise_observations": True, "weight_decay": 1e-2},
        **{"mix": "half", "imagined_action": "policy", "imagined_weight": "certainty", "updates_per_call": 2},
        **{"policy_every": 1, "gradient_clip": None, "soft_reset_every": None},
    },
    "ensemble": {"steps_per_fit": 1},
}
"""As `algorithms.mbpo.STRONG`, but small."""
IMAGINED = ("mix", "imagined_action", "imagined_weight")
"""Of these, what `sac` refuses, which imagines nothing."""


def strong(algorithm="mbpo", **settings):
    nets = {name: values | settings.pop(name, {}) for name, values in STRONG.items()}
    if algorithm == "sac":
        nets = {"sac": {name: value for name, value in nets["sac"].items() if name not in IMAGINED}}
    return agent(algorithm, **nets | settings)


def test_the_strong_options_are_fields_with_other_values():
    for name, options in (("mbpo", MBPO_STRONG), ("sac", STRONG_NETWORKS), ("maxinfo-sac", STRONG_NETWORKS)):
        fields = fields_of(name)
        _, config = configured(name, {fields[option]: value for option, value in options.items()})
        assert all(value_at(config, fields[option].path) == value for option, value in options.items())
        assert make(name, "pendulum", config=config).config == config


@pytest.mark.optimised
def test_strong_without_bonus_weight_is_strong_mbpo_mean():
    optimistic = strong(explore="optimistic", bonus_weight=0.0, schedule="constant").learn(60)
    greedy = strong(explore="greedy").learn(60)
    assert np.array_equal(optimistic.state.replay.data.action, greedy.state.replay.data.action)
    assert np.asarray(greedy.state.replay.data.action).std() > 0.1


@pytest.mark.thorough
def test_one_strong_member_is_its_own_mean():
    one = {"members": 1, "noise_floor": 1e-12}
    sac = {"critic_expansion": 2, "actor_expansion": 2}
    pets, mean = (strong(explore=explore, ensemble=one, sac=sac).learn(40) for explore in ("pets", "greedy"))
    assert np.asarray(mean.state.replay.data.action).std() > 0.1
    ours, theirs = (np.asarray(trained.state.replay.data.action)[0, :24] for trained in (pets, mean))
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


@pytest.mark.optimised
def test_strong_with_real_data_alone_is_strong_sac():
    schedule = {"imagined": "none"}
    same(strong(explore="greedy", sac=schedule).learn(60), strong("sac", preset="strong", sac=schedule).learn(60))


@pytest.mark.thorough
def test_a_strong_agent_resumes_bit_for_bit(tmp_path):
    sac = {"critic_expansion": 1, "project_weights": True}
    whole = strong(seeds=2, sac=sac).learn(60)
    half = strong(seeds=2, sac=sac).learn(40)
    half.save(tmp_path / "run")
    for resumed in (load(tmp_path / "run").learn(20), half.learn(20)):
        for ours, theirs in zip(leaves(resumed), leaves(whole), strict=True):
            assert np.array_equal(ours, theirs)


_OTHERS = ("critic", "updates_per_call", "policy_every", "gradient_clip", "soft_reset_every")


@pytest.mark.optimised
def test_a_seed_does_not_depend_on_its_neighbours():
    both, alone = agent(seeds=2).learn(60), agent(seed=1).learn(60)
    for ours, theirs in zip(leaves(both), leaves(alone), strict=True):
        assert np.array_equal(ours[1:], theirs)


@pytest.mark.parametrize(
    "env", [pytest.param("Pendulum-v1", marks=pytest.mark.thorough), pytest.param("pendulum", marks=pytest.mark.slow)]
)
def test_resume_in_the_middle_of_an_episode(env, tmp_path):
    whole = agent(env=env, seeds=2).learn(60)
    half = agent(env=env, seeds=2).learn(40)  # 2 episodes of 15, and 10 decisions of the third
    half.save(tmp_path / "run")
    for resumed in (load(tmp_path / "run").learn(20), half.learn(20)):
        for ours, theirs in zip(leaves(resumed), leaves(whole), strict=True):
            assert np.array_equal(ours, theirs)


def test_no_transition_crosses_the_border_of_an_episode():
    trained = agent(env="pendulum", seeds=2).learn(60)
    rows = trained.state.replay.data
    truncated = np.asarray(rows.truncated)
    assert truncated.sum(axis=1).tolist() == [4, 4] and truncated[:, 14::15].all()
    goes_on = ~truncated[:, :-1]
    assert np.array_equal(np.asarray(rows.obs)[:, 1:][goes_on], np.asarray(rows.next_obs)[:, :-1][goes_on])
    hanging = np.array([-1.0, 0.0, 0.0])
    np.testing.assert_allclose(np.asarray(rows.obs)[:, 1:][~goes_on], np.tile(hanging, (6, 1)), atol=1e-6)


@pytest.mark.thorough
def test_reports_count_episodes_and_decisions():
    rows = []
    agent(seeds=2).learn(60, callback=lambda agent, report: rows.extend(agent.rows(report)))
    assert [row["decisions"] for row in rows[::2]] == [20, 40, 60]
    assert np.isfinite(rows[0]["rollout/ep_rew_mean"]) and "rollout/ep_len_mean" not in rows[0]
    assert all(np.isfinite(row["policy/bonus_weight"]) for row in rows)


@pytest.mark.thorough
@pytest.mark.parametrize("give", [str, gymnasium.make], ids=["name", "ready"])
def test_evaluation_does_not_disturb_training(give):
    watched, alone = (agent(env=give("Pendulum-v1")) for _ in range(2))
    watched.learn(60, callback=lambda agent, report: agent.evaluate(1) is not None)
    alone.learn(60)
    for ours, theirs in zip(leaves(watched), leaves(alone), strict=True):
        assert np.array_equal(ours, theirs)
    first, again = watched.evaluate(2), watched.evaluate(2)
    assert np.array_equal(first, again)  # the policy's mode, on the same starts


@pytest.mark.thorough
def test_a_ready_environment_that_cannot_be_put_back_stops_training():
    env = Tiny(fault="random steps")
    with pytest.raises(SombrlError, match=r"did not replay .*; evaluate has moved it, so give a function"):
        agent("sac", env).learn(60, callback=lambda agent, report: agent.evaluate(1) is not None)
    table = env.reset(seed=0)[0]
    alone, batch = (agent("sac", env).predict(seen)[0] for seen in (table, np.stack([table] * 3)))
    assert alone.shape == (2,) and batch.shape == (3, 2)


@pytest.mark.thorough
def test_workers_evaluate_too_and_stay_for_the_next_time():
    apart, beside = agent(env_workers=2), agent()
    first, evaluators = apart.evaluate(1), apart.trainer._evaluators
    assert np.array_equal(first, beside.evaluate(1))
    assert np.array_equal(first, apart.evaluate(1)) and apart.trainer._evaluators is evaluators
    assert len(evaluators._workers) == min(2, len(apart.seeds))


@pytest.mark.thorough
def test_what_is_evaluated_is_the_trained_policy():
    untrained, trained = agent("sac", seeds=2), agent("sac", seeds=2).learn(60)
    assert not np.any(untrained.evaluate(1) == trained.evaluate(1))
    observations = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -3.0], [-1.0, 0.0, 5.0]], np.float32)
    actor = jax.tree.map(lambda leaf: leaf[0], trained.state.controller.actor)
    mode = np.stack([np.tanh(gaussian(actor, obs)[0]) for obs in jax.numpy.asarray(observations)])
    actions, _ = trained.predict(observations)
    np.testing.assert_allclose(actions, trained.envs.physical(mode), rtol=1e-5)
    action, _ = trained.predict(observations[1])
    np.testing.assert_allclose(action, actions[1], rtol=1e-5)


@pytest.mark.parametrize("algorithm", [pytest.param("sac", marks=pytest.mark.thorough), "maxinfo-sac"])
def test_the_model_free_ones_run(algorithm):
    trained = agent(algorithm).learn(40)
    action, _ = trained.predict(np.zeros(3, np.float32))
    assert action.shape == (1,) and abs(action[0]) <= 2.0


@pytest.mark.thorough
def test_the_ensemble_is_planned_with_too():
    icem = {"num_samples": 12, "num_elites": 3, "iterations": 2, "horizon": 4, "particles": 2}
    planned = make(
        *("mbpo", "pendulum"),
        **{"controller": "icem", "schedule": "constant", "explore": "pets", "ensemble": TINY, "icem": icem},
        **{"episode_length": 6, "capacity": 100},
    ).learn(12)
    assert int(planned.state.replay.added[0]) == 12


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda: agent("sac", explore="optimistic"), "sac has no model to be uncertain about"),
        (lambda: agent("sac", sac={"imagined": "one-step"}), "sac is model-free"),
        (lambda: agent("maxinfo-sac", sac={"actor_expansion": 1}), "leave --sac.critic-expansion and --sac.actor"),
        (lambda: agent(controller="icem"), "--schedule auto tunes λ against a policy"),
        (lambda: agent(explore="hucrl").learn(20), "use --controller icem"),
        (lambda: make("gp-icem", "pendulum", decisions=50).planned_iterations, "give --episodes, not --decisions"),
        (lambda: make("gp-icem", "pendulum", schedule="auto"), "a planner has none"),
        (lambda: agent(capacity=0), "--capacity"),
        (lambda: agent(decisions=0), "--decisions"),
    ],
)
def test_what_cannot_be(bad, sentence):
    with pytest.raises(SombrlError, match=sentence):
        bad()


class Paid(gymnasium.Env):
    """Every decision is paid the same."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, amount):
        self.amount = amount

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.amount, False, False, {}


@pytest.mark.thorough
@pytest.mark.parametrize(("amount", "warned"), [(1e5, True), (-1.0, False)])
def test_rewards_too_large_to_learn_from(amount, warned):
    """A sentence with the numbers in it."""
    env = functools.partial(Paid, amount)
    sentences = []
    agent("sac", env).learn(
        20, callback=lambda agent, report: sentences.append(reward_warning(report, agent.envs.spec))
    )
    assert (sentences[0] is not None) is warned
    assert not warned or f"{amount:.3g}" in sentences[0]


def test_out_of_memory_names_the_flags(tmp_path, monkeypatch):
    trained = agent("sac")
    whole = trained.trainer.propose

    def exhausted(on_decision):
        if trained.iteration == 0:
            return whole(on_decision)
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 TiB.")

    monkeypatch.setattr(trained.trainer, "propose", exhausted)
    folder = RunFolder.create(tmp_path / "run", trained.to_json(), ["test"])
    with pytest.raises(RunFault, match=r"fewer --seeds, or a smaller --capacity.*1 of 3 .*sombrl resume"):
        run_training([Run(trained, folder, False)], 3, 2, tensorboard=False)
    assert load(tmp_path / "run").iteration == 1


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["sac", "mbpo"])
def test_learning_for_longer_than_planned_forgets_nothing(algorithm, tmp_path):
    """`learn` knows no total beforehand: the replay grows with every call."""
    trained = agent(algorithm, decisions=None, episodes=1)
    trained.learn(40)
    trained.learn(60)
    replay = trained.state.replay
    assert int(replay.added[0]) == 100 and replay.data.reward.shape == (1, 100)
    assert np.abs(np.asarray(replay.data.obs)).sum(axis=-1).all(), "every row is a transition"
    trained.save(tmp_path / "run")
    assert load(tmp_path / "run").state.replay.data.reward.shape == (1, 100)


def test_a_run_that_is_still_written_is_not_read_for_going_on(tmp_path):
    trained = agent("sac")
    folder = RunFolder.create(tmp_path / "run", trained.to_json(), ["test"])
    with folder.lock(), pytest.raises(SombrlError, match="is in use by another process"):
        resume(folder.path)


def test_a_refused_option_leaves_no_folder(tmp_path):
    template = agent("sac")
    with pytest.raises(SombrlError, match="--checkpoint-every must be at least 1, not 0"):
        train("sac", template.config, template.run_config, tmp_path / "run", checkpoint_every=0)
    assert not (tmp_path / "run").exists()


class Bends(gymnasium.Env):
    """Its observations have another shape from the thirtieth step on."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2 if self.steps < 30 else 3, np.float32), 0.0, False, False, {}


@pytest.mark.thorough
def test_an_environment_that_breaks_its_promise_costs_one_iteration(tmp_path):
    trained = agent("sac", env=Bends)
    folder = RunFolder.create(tmp_path / "run", trained.to_json(), ["test"])
    with pytest.raises(SombrlError, match=r"its space says \(2,\); 1 of 3 iterations are saved; continue with"):
        run_training([Run(trained, folder, False)], 3, 10, tensorboard=False)
    assert load(folder.path, env=Bends).iteration == 1
