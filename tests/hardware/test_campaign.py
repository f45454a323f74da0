"""A campaign on disk: what comes next follows from what is there; bad input is one sentence and changes nothing."""

import dataclasses
import json
import shutil
import subprocess

import numpy as np
import pytest

from sombrl.envs.trust import Word
from sombrl.hardware.campaign import Campaign, CampaignConfig
from sombrl.hardware.controller import Controller, Stopped
from sombrl.hardware.episode import Episode
from sombrl.hardware.files import EventLog
from sombrl.hardware.learner import LearnerClient, Lost
from sombrl.hardware.policy import Actor
from sombrl.records import RunFault, SombrlError
from tests.hardware.parts import Inline, hashing, random_actor, simulated
from tests.small import call

HASHING = "tests.hardware.parts:hashing"


def begin(path, **options) -> Campaign:
    config = CampaignConfig(**({"trainer": HASHING, "steps": 20, "episodes": 3} | options))
    return Campaign.create(path, config, ["test"])


def drive(campaign, backend=None, learner=None, **options):
    controller = Controller(campaign, backend or simulated(), learner or Inline(campaign), tell=lambda text: None)
    dataclasses.replace(controller, **options).run()


def contents(campaign):
    """Everything that must be the same after an interruption."""
    episodes = [(e.obs, e.action, e.reward, e.valid) for e in campaign.episodes(campaign.committed())]
    policies = [campaign.policy(n)[0].weights for n in range(campaign.committed())]
    rows = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in campaign.folder.rows()]
    return episodes, policies, rows


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Campaign:
    campaign = begin(tmp_path_factory.mktemp("campaigns") / "c")
    drive(campaign)
    return campaign


def test_a_campaign_is_a_folder_of_plain_files(finished):
    names = {str(path.relative_to(finished.path)) for path in finished.path.rglob("*") if path.is_file()}
    assert names == {"config.json", "manifest.json", "metrics.jsonl", "interventions.jsonl"} | {
        f"{kind}/{n:03d}.npz" for kind in ("episodes", "policies") for n in range(3)
    }
    for n in range(3):
        for path in (finished.episode_path(n), finished.policy_path(n)):
            with np.load(path, allow_pickle=False) as archive:
                assert all(archive[name].dtype != object for name in archive.files)
    rows = finished.folder.rows()
    assert [row["iteration"] for row in rows] == [0, 1, 2] and rows[1]["learner/loss"] == 0.5
    episode = finished.episodes(3)[1]
    assert rows[1]["rollout/ep_rew_mean"] == pytest.approx(float(episode.reward.sum()))
    assert rows[1]["rollout/valid"] == episode.valid.sum() == 20
    events = [(row["event"], row["episode"]) for row in EventLog.read(finished.events_path)]
    assert events == [(kind, n) for n in range(3) for kind in ("begin", "end")]
    assert not list(finished.path.rglob(".tmp*"))


def test_episodes_are_loaded_as_they_were_saved(tmp_path, finished):
    episode = finished.episodes(1)[0]
    episode.save(tmp_path / "e.npz")
    again = Episode.load(tmp_path / "e.npz")
    for field in dataclasses.fields(Episode):
        a, b = getattr(episode, field.name), getattr(again, field.name)
        assert a == b if field.name == "meta" else (np.array_equal(a, b) and a.dtype == b.dtype)


@pytest.mark.parametrize("lost", ["episode 1 on", "policy 2 and episode 2", "episode 2", "metrics of 2"])
def test_missing_files_are_made_again_bit_exactly(lost, finished, tmp_path):
    """Whatever a kill leaves out, the campaign ends as one that was never disturbed."""
    campaign = Campaign(shutil.copytree(finished.path, tmp_path / "c"))
    gone = {
        "episode 1 on": [campaign.episode_path(1), campaign.episode_path(2), campaign.policy_path(2)],
        "policy 2 and episode 2": [campaign.policy_path(2), campaign.episode_path(2)],
        "episode 2": [campaign.episode_path(2)],
        "metrics of 2": [campaign.episode_path(2)],
    }
    for path in gone[lost]:
        path.unlink()
    if lost == "metrics of 2":
        text = campaign.folder.metrics_path.read_bytes().splitlines(keepends=True)
        campaign.folder.metrics_path.write_bytes(b"".join(text[:2]) + text[2][:20])  # half a line
    drive(campaign)
    assert same(contents(campaign), contents(finished))


def test_an_episode_without_its_end_is_noticed(tmp_path):
    """A controller killed in an episode leaves a beginning in the log and nothing else."""
    campaign = begin(tmp_path / "c", episodes=1)
    log = EventLog(campaign.events_path)
    log.add("begin", episode=0)
    log.close()
    told = []
    Controller(campaign, simulated(), Inline(campaign), tell=told.append).run()
    events = [row["event"] for row in EventLog.read(campaign.events_path)]
    assert events == ["begin", "discarded", "begin", "end"] and "driven again" in told[0]


def test_an_abort_counts_and_its_transitions_are_learned_from(tmp_path):
    """The policy drives out of the field: the episode is kept, shorter, and the next policy sees it."""

    def straight(episodes, config, number, seed, scratch):
        seen.append([len(e.action) for e in episodes])
        actor = random_actor(0)
        weights = (actor.weights[0] * 0, actor.weights[1] * 0)
        return Actor.mlp(weights, (actor.biases[0], np.array([0, 3, 0, 0], np.float32))), {}

    seen: list = []
    campaign = begin(tmp_path / "c", steps=100, episodes=2)
    drive(campaign, learner=Inline(campaign, straight))
    first, second = campaign.episodes(2)
    assert first.end == second.end == "geofence" and first.length < 100 and first.valid.all()
    assert seen == [[], [first.length]]
    rows = campaign.folder.rows()
    assert rows[0]["rollout/end"] == "geofence" and rows[0]["safety/interventions"] == 1


def test_an_episode_of_which_nothing_is_certain_is_not_counted(tmp_path):
    campaign = begin(tmp_path / "c", steps=5)
    with pytest.raises(RunFault, match="3 attempts at episode 0"):
        drive(campaign, simulated(frame_loss=0.999))
    assert campaign.committed() == 0 and campaign.missing_policy() is None


def test_the_car_is_parked_while_a_policy_is_trained(tmp_path):
    """Neutral commands all the while, and nothing else."""
    backend, waited = simulated(), []
    backend.reset("teleport")

    class Slow(Inline):
        def check(self):
            waited.append(1)
            if len(waited) > 10:
                super().check()

    campaign = begin(tmp_path / "c", episodes=1)
    pipes = []
    park = backend.stop
    backend.stop = lambda: (park(), pipes.append(len(waited)))
    drive(campaign, backend, Slow(campaign))
    assert pipes[:10] == list(range(10))  # one neutral command per look at the learner


def test_a_stop_while_waiting_or_driving(tmp_path):
    campaign = begin(tmp_path / "c")

    class Stopping(Inline):
        def check(self):
            self.campaign.stop_path.touch()

    with pytest.raises(Stopped, match="before episode 0"):
        drive(campaign, learner=Stopping(campaign))
    assert campaign.committed() == 0
    backend = simulated()
    observe = backend.observe

    def stop_then_observe():
        if backend.clock.now() > 0.4:
            campaign.stop_path.touch()
        return observe()

    backend.observe = stop_then_observe
    with pytest.raises(Stopped, match="in episode 0"):
        drive(campaign, backend)
    (episode,) = campaign.episodes(campaign.committed())
    assert episode.end == "operator" and 10 <= episode.length <= 13 and episode.valid.all()
    drive(campaign)  # and on with the next; the file is for one stop only
    assert campaign.committed() == 3


class Killed(Inline):
    """A learner whose process is killed whenever it is looked at, `times` in all."""

    def __init__(self, campaign, times):
        super().__init__(campaign)
        self.times = times

    def check(self):
        if self.times:
            self.times -= 1
            self._process = subprocess.Popen(["sleep", "60"])
            self._process.kill()
            self._process.wait()
            LearnerClient.check(self)
        super().check()


def test_a_killed_learner_is_started_again_and_the_car_stands(finished, tmp_path):
    campaign, told = begin(tmp_path / "c"), []
    Controller(campaign, simulated(), Killed(campaign, 1), tell=told.append).run()
    assert same(contents(campaign), contents(finished)) and "killed by signal 9" in told[0]
    assert "Starting it again" in told[0]


def test_a_learner_that_is_killed_too_often_ends_the_campaign(tmp_path):
    campaign, car = begin(tmp_path / "c"), simulated()
    with pytest.raises(Lost, match="killed by signal 9"):
        drive(campaign, car, Killed(campaign, 2))
    rows = [row for row in EventLog.read(campaign.events_path) if row["event"] == "learner-lost"]
    assert [(row["episode"], row["car"], row["lost"]) for row in rows] == [(0, "stopped", 1), (0, "stopped", 2)]
    assert campaign.missing_policy() == 0 and car.throttle() == 0.0
    with pytest.raises(Lost):
        drive(campaign, car, Killed(campaign, 1), restarts=0)


def test_a_learner_that_is_silent_or_fails_is_told_apart(tmp_path):
    campaign = begin(tmp_path / "c", trainer_options=("fail_at=0",))
    with pytest.raises(Lost, match=r"no learner has been heard of.*python -m sombrl\.hardware\.learner"):
        drive(campaign, learner=LearnerClient(campaign, external=True, patience=0.2))
    (row,) = [row for row in EventLog.read(campaign.events_path) if row["event"] == "learner-lost"]
    assert row["car"] == "stopped" and row["episode"] == 0
    with pytest.raises(RunFault, match="the trainer failed with ValueError: no gradient today"):
        drive(campaign, learner=LearnerClient(campaign, word=Word(trust=True)))
    assert campaign.committed() == 0 and not list((campaign.path / "policies").iterdir())


def test_only_one_controller(finished):
    with finished.lock(), pytest.raises(SombrlError, match="another process is driving"), finished.lock():
        pass
    (finished.path / ".lock").unlink()


def test_only_the_number_of_episodes_may_change(finished):
    config = finished.config
    finished.require_same(dataclasses.replace(config, episodes=5))
    with pytest.raises(SombrlError, match="already has 3 episodes"):
        finished.require_same(dataclasses.replace(config, episodes=2))
    other = {"backend": "replay", "steps": 7, "rate": 20.0, "seed": 9, "margin_factor": 2.0, "reset": "manual"}
    for name, value in other.items():
        flag = "--" + name.replace("_", "-")
        with pytest.raises(SombrlError, match=f"begun with {flag}"):
            finished.require_same(dataclasses.replace(config, **{name: value}))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("rum c", 'did you mean "run"'),
        ("run c --backend smi", 'did you mean "sim"'),
        ("run c --backend nowhere:Car", "cannot import nowhere"),
        ("run c --backend math:car", "math has no car"),
        ("run c --backend math:pi", "cannot be called"),
        ("run c --backend builtins:dict", "must be a class of the kind CarBackend"),
        ("run c --trainer random --backend-options dealy=0.1", 'did you mean "delay"'),
        ("run c --trainer random --backend-options delay=-1", "delay' must be a finite number of at least 0"),
        ("run c --trainer random --backend-options noise=loud", "noise' must be a finite number of at least 0"),
        ("run c --backend replay --backend-options lag=1 --trainer random", 'did you mean "log"'),
        ("run c --trainer random --backend-options noise", "takes name=value"),
        ("run c --backend replay --trainer random", "--backend-options"),
        ("run c --backend replay --backend-options log=nothing.npz --trainer random", "there is no file nothing.npz"),
        ("run c --backend remote --backend-options address=./nobody --trainer random", "no car answers"),
        ("run c --backend remote --backend-options address=lab:5001 --trainer random", "make an SSH tunnel"),
        ("run c --trainer randmo", 'did you mean "random"'),
        ("run c --trainer random --trainer-options wdith=3", 'did you mean "width"'),
        ("run c --trainer gp-icem", "plans instead of learning"),
        ("run c --trainer mbpo --trainer-options env=pendulum", "3 observations and 1 actions"),
        ("run c --trainer mbpo --trainer-options capcity=3", 'did you mean "capacity"'),
        ("run c --trainer random --episodes 0", "--episodes must be at least 1"),
        ("run c --trainer random --rate 0", "--rate must be between"),
        ("run c --trainer random --reset auto", "--reset-policy"),
        ("run c --trainer random --supervisor.speed-cap 0", "--supervisor.speed-cap must be positive and finite"),
        ("status c", "there is no campaign c"),
        ("check c.npz", "there is no file c.npz"),
    ],
)
def test_bad_input(argv, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(["hardware", *argv.split()], capsys)
    assert code == 2
    assert sentence in err and err.startswith("sombrl: ") and err.count("\n") == 1 and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_a_campaign_is_left_alone(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for command in ("run", "status"):
        code, _, err = call(["hardware", command, str(tmp_path)], capsys)
        assert code == 2 and "not a campaign" in err
    code, _, err = call(["hardware", "run", str(tmp_path / "notes.txt"), "--trainer", "random"], capsys)
    assert code == 2 and "is a file" in err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_another_configuration_is_refused_on_the_command_line(capsys, finished):
    before = sorted((path, path.stat().st_mtime_ns) for path in finished.path.rglob("*.npz"))
    code, _, err = call(["hardware", "run", str(finished.path), "--steps", "7"], capsys)
    assert code == 2 and "begun with --steps 20, not 7" in err
    code, _, err = call(["hardware", "run", str(finished.path), "--supervisor.speed-cap", "1"], capsys)
    assert code == 2 and "--supervisor" in err
    code, _, err = call(["hardware", "run", str(finished.path), "--trust"], capsys)
    assert code == 2 and "is complete" in err
    (finished.path / ".lock").unlink()
    assert sorted((path, path.stat().st_mtime_ns) for path in finished.path.rglob("*.npz")) == before


@pytest.mark.parametrize("kind", ["episodes", "policies"])
def test_a_damaged_file_is_named(kind, capsys, finished, tmp_path):
    campaign = Campaign(shutil.copytree(finished.path, tmp_path / "c"))
    campaign.episode_path(2).unlink()
    path = campaign.path / kind / f"00{1 if kind == 'episodes' else 2}.npz"
    path.write_bytes(path.read_bytes()[:-200])
    code, _, err = call(["hardware", "run", str(campaign.path), "--trust", "--backend-options"], capsys)
    assert code == 2 and f"{kind}/{path.name} is damaged" in err and err.count("\n") == 1
    assert campaign.committed() == 2


def test_a_missing_episode_is_named(finished, tmp_path):
    campaign = Campaign(shutil.copytree(finished.path, tmp_path / "c"))
    campaign.episode_path(1).unlink()
    with pytest.raises(SombrlError, match=r"001\.npz is missing though later ones"):
        campaign.committed()


def test_status_and_check_print_what_is_there(capsys, finished):
    code, out, _ = call(["hardware", "status", str(finished.path)], capsys)
    assert code == 0 and "3 of 3 episodes" in out and "complete" in out and out.count("completed") == 3
    code, out, _ = call(["hardware", "check", str(finished.episode_path(0))], capsys)
    assert code == 0 and "oldest first" in out
    code, out, _ = call(["hardware", "--help"], capsys)
    assert code == 0 and "--supervisor.speed-cap" in out and "status CAMPAIGN" in out


def test_the_trainer_of_the_tests_depends_on_every_bit(finished):
    """Or the comparisons above would compare nothing."""
    config, episodes = finished.config, finished.episodes(2)
    first, _ = hashing(episodes, config, 2, 0, finished.learner)
    bent = dataclasses.replace(episodes[1], obs=episodes[1].obs + np.float32(1e-6))
    second, _ = hashing([episodes[0], bent], config, 2, 0, finished.learner)
    assert not np.array_equal(first.weights[0], second.weights[0])


def test_config_is_json_and_back(finished):
    stored = json.loads((finished.path / "config.json").read_text())
    assert stored["steps"] == 20 and stored["supervisor"]["field_x"] == [-1.4, 2.8]
    assert finished.config == CampaignConfig(trainer=HASHING, steps=20, episodes=3)
