"""A stranger's campaign cannot run code: backends, trainers and environments need the word of who calls."""

import json
import os

import pytest

from sombrl.envs.trust import NO_WORD, Word
from sombrl.hardware.backend import CarBackend
from sombrl.hardware.campaign import Campaign, CampaignConfig
from sombrl.hardware.learner import Heartbeat, serve
from sombrl.hardware.registry import find_trainer, make_backend, require_word
from sombrl.records import SombrlError
from tests.hardware.parts import simulated
from tests.small import call

CAR, HASHING = "tests.hardware.parts:slow_car", "tests.hardware.parts:hashing"


class Marked(CarBackend):
    """Made, it would show."""

    def __init__(self, mark):
        open(mark, "w").close()


def unannotated(**options):
    return simulated(**options)


def mark_file(command):
    open(command, "w").close()


def test_a_campaign_file_runs_no_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    campaign = Campaign.create(tmp_path / "c", CampaignConfig(trainer="random"), ["test"])
    config = json.loads((campaign.path / "config.json").read_text())
    config |= {"backend": "os:system", "backend_options": ["command=id > x"]}
    (campaign.path / "config.json").write_text(json.dumps(config))
    code, _, err = call(["hardware", "run", "c"], capsys)
    assert code == 2 and "its backend os:system is code" in err and "--trust" in err
    # Even when it is trusted: what is not a car is not called.
    code, _, err = call(["hardware", "run", "c", "--trust"], capsys)
    assert code == 2 and "os:system is not a backend" in err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("given", "needs"),
    [
        ({"backend": CAR}, CAR),
        ({"trainer": HASHING}, HASHING),
        ({"trainer": "sim-fsvgd", "trainer_options": ("env=payload:X-v0",)}, "payload:X-v0"),
        ({"trainer": "sim-fsvgd", "trainer_options": ("env=GymV26Environment-v0", "env_kwargs.env_id=a:b")}, None),
    ],
)
def test_what_a_campaign_may_name(given, needs):
    config = CampaignConfig(**given)
    with pytest.raises(SombrlError, match="file's word is not enough"):
        require_word(config, NO_WORD)
    require_word(config, Word(trust=True))
    if needs is not None:
        require_word(config, Word(named=frozenset([needs])))


def test_own_parts_need_no_word():
    for trainer, options in (("random", ("width=3",)), ("sim-fsvgd", ()), ("mbpo", ("env=rc-car",))):
        require_word(CampaignConfig(trainer=trainer, trainer_options=options), NO_WORD)
    require_word(CampaignConfig(backend="replay", backend_options=("log=a/b.npz",)), NO_WORD)


@pytest.mark.parametrize("name", ["os:system", "os:getcwd", f"{__name__}:unannotated", f"{__name__}:mark_file"])
def test_only_what_says_that_it_makes_cars_is_called(name, tmp_path):
    with pytest.raises(SombrlError, match=r"is not a backend: it must be a class of the kind CarBackend"):
        make_backend(name, (f"command={tmp_path / 'mark'}",))
    assert not (tmp_path / "mark").exists()


def test_classes_and_functions_that_say_so_are():
    assert isinstance(make_backend(CAR), CarBackend)
    with pytest.raises(TypeError, match="abstract"):  # it was about to be made
        Marked("x")


@pytest.mark.parametrize("name", ["os:system", "os:getcwd", f"{__name__}:mark_file", "tests.hardware.parts:Inline"])
def test_only_functions_of_a_trainers_arguments_train(name):
    with pytest.raises(SombrlError, match="is not a trainer: it must be a function of"):
        find_trainer(name)
    assert callable(find_trainer(HASHING).train)


def test_the_learner_asks_as_well(tmp_path):
    """Any process may have started it: the folder's word is not enough for it either."""
    campaign = Campaign.create(tmp_path / "c", CampaignConfig(trainer=HASHING, episodes=1), ["test"])
    beat = Heartbeat(campaign, None)
    with pytest.raises(SombrlError, match=f"its trainer {HASHING} is code"):
        serve(campaign, beat)
    assert campaign.missing_policy() == 0


def test_the_flags_of_this_command_line_are_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(os.getcwd())
    path = tmp_path / "c"
    Campaign.create(path, CampaignConfig(backend=CAR, trainer="random", episodes=1, steps=5), ["test"])
    code, _, err = call(["hardware", "run", str(path)], capsys)
    assert code == 2 and f"--backend {CAR}" in err
    code, _, err = call(["hardware", "run", str(path), "--backend", CAR], capsys)
    assert code == 0, err
