"""The file of a campaign: what it stands for, and what is refused in one sentence before anything is written."""

import tomllib
from pathlib import Path

import pytest

from sombrl.paper.campaign.spec import campaign_of
from sombrl.records import SombrlError
from sombrl.sweep.machine import Room
from tests.small import call

ROOT = Path(__file__).resolve().parents[3]
GOOD = '[[cell]]\nexperiment = "mbpo-state"\nscale = "smoke"\ncells = "pendulum/*"\nminutes = 1\n'


def read(text: str):
    return campaign_of(Path("c.toml"), tomllib.loads(text))


def test_cells_of_a_group_are_one_task():
    one, two = read(GOOD.replace("pendulum/*", "*")).tasks
    assert one.cells == ("pendulum/optimistic", "pendulum/greedy", "pendulum/pets") and len(two.cells) == 3
    assert one.name == "mbpo-state-smoke pendulum/optimistic + 2"


def test_the_most_telling_come_first():
    other = GOOD.replace("mbpo-state", "mbpo-strong")
    assert [task.entry.experiment for task in read(GOOD + other).tasks] == ["mbpo-state", "mbpo-strong"]
    first = read(f"{GOOD}priority = 2\n{other}").tasks[0]
    assert first.entry.experiment == "mbpo-strong"  # 1 unless it says otherwise


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cell = 3", "has no cells: write [[cell]], with two brackets"),
        ("[cell]\nexperiment = 'mbpo-state'", "has no cells: write [[cell]], with two brackets"),
        ("cell = []", "has no cells"),
        (f"nme = 'x'\n{GOOD}", 'unknown key of c.toml "nme": did you mean "name"?'),
        (f"name = 'a/b'\n{GOOD}", "name must be a text that can be a folder"),
        (GOOD.replace("mbpo-state", "mbpo-stat"), '(of [[cell]] 1) "mbpo-stat": did you mean "mbpo-state"?'),
        (GOOD.replace("mbpo-state", "os:system"), 'unknown experiment (of [[cell]] 1) "os:system"'),
        (GOOD.replace("pendulum/*", "nothing/*"), 'no cell of mbpo-state matches "nothing/*"'),
        (GOOD.replace("smoke", "smok"), 'unknown scale (of [[cell]] 1) "smok": did you mean "smoke"?'),
        (GOOD.replace("minutes = 1", "minutes = 0"), "minutes of [[cell]] 1 must be a number of more than 0, not 0."),
        (GOOD.replace("minutes = 1", "minutes = -3"), "minutes of [[cell]] 1 must be a number of more than 0, not -3."),
        (GOOD.replace("minutes = 1", "minutes = inf"), "must be a number of more than 0, not inf."),
        (GOOD.replace("minutes = 1", "minutes = nan"), "must be a number of more than 0, not nan."),
        (GOOD.replace("minutes = 1", "minutes = true"), "must be a number of more than 0, not True."),
        (GOOD.replace("minutes = 1", ""), "[[cell]] 1 has no minutes: write, for example, minutes = 20."),
        ("[[cell]]\nminutes = 1", "[[cell]] 1 has no experiment"),
        (f"{GOOD}priority = -1", "priority of [[cell]] 1 must be a whole number of at least 0, not -1."),
        (f"{GOOD}cores = 0", "cores of [[cell]] 1 must be a whole number of at least 1, not 0."),
        (f"{GOOD}memory_gb = 0", "memory_gb of [[cell]] 1 must be a number of more than 0, not 0."),
        (f"{GOOD}env_workers = 1.5", "env_workers of [[cell]] 1 must be a whole number of at least 0, not 1.5."),
        (f"{GOOD}claim = 3", "claim of [[cell]] 1 must be a text, not 3."),
        (f"{GOOD}backend = 'os:system'", 'unknown key of [[cell]] 1 "backend"'),
        (GOOD + GOOD, "pendulum/optimistic of mbpo-state (scale smoke) is there twice: leave it out of one [[cell]]."),
        (
            "[[cell]]\nexperiment = 'rccar-real-regression'\nminutes = 1",
            "needs files of yours: run it with sombrl experiment --data.",
        ),
        (f"machine = 3\n{GOOD}", "machine must be a table"),
        (f"machine = {{ cores = 0 }}\n{GOOD}", "cores of [machine] must be a whole number of at least 1, not 0."),
        (f"machine = {{ memory = 3 }}\n{GOOD}", 'unknown key of [machine] "memory"'),
    ],
)  # fmt: skip
def test_refused(text, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SombrlError) as error:
        read(text)
    assert sentence in str(error.value) and "\n" not in str(error.value)
    Path("c.toml").write_text(text)
    code, _, err = call(["sweep", "c.toml", "--minutes", "1"], capsys)
    assert code == 2 and sentence in err and len(err.splitlines()) == 1
    assert [path.name for path in Path().iterdir()] == ["c.toml"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--minutes", "0"], "--minutes must be more than 0"),
        (["--minutes", "-2"], "--minutes must be more than 0"),
        (["--dry-run"], "--dry-run needs a time: add --minutes 25."),
        (["seeds=3"], "a campaign takes no FIELD=VALUE"),
        (["--partial"], "a campaign takes no --partial"),
        (["--trust"], "a campaign takes no --trust"),
        (["--backend", "ray"], "a campaign runs on one machine: leave out --backend ray."),
        (["--out", "c.toml"], "c.toml is a file: choose another --out."),
        (["--results", "c.toml"], "c.toml is a file: choose another --results."),
        (["--out", "full"], "full is not empty and no campaign: choose another --out."),
        (["--workers", "0"], "--workers must be at least 1, not 0."),
    ],
)
def test_refused_options(words, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(GOOD)
    Path("full").mkdir()
    Path("full/letter").write_text("dear")
    code, _, err = call(["sweep", "c.toml", *words], capsys)
    assert code == 2 and sentence in err and len(err.splitlines()) == 1
    assert sorted(path.name for path in Path().iterdir()) == ["c.toml", "full"]


def test_one_for_a_gpu_is_refused_where_there_is_none(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Path("c.toml").write_text(f"machine = {{ gpus = 1, name = 'one H200' }}\n{GOOD}")
    code, _, err = call(["sweep", "c.toml", "--minutes", "5"], capsys)
    assert code == 2 and "is for one H200, and there is no GPU here: add --dry-run" in err


@pytest.mark.parametrize("name", ["paper", "tiny"])
def test_committed_campaigns(name):
    path = ROOT / "campaigns" / f"{name}.toml"
    campaign = campaign_of(path, tomllib.loads(path.read_text()))
    assert campaign.machine is not None and all(task.entry.claim for task in campaign.tasks)
    assert all(Room(campaign.machine).ever(task.need) for task in campaign.tasks)


def test_what_the_paper_asks_for():
    """Issue by issue: the cells that must be in the committed campaign."""
    path = ROOT / "campaigns" / "paper.toml"
    tasks = campaign_of(path, tomllib.loads(path.read_text())).tasks
    there = {(task.entry.experiment, name) for task in tasks for name in task.cells}
    for task in ("cartpole-swingup", "finger-spin", "walker-run", "reacher-hard"):
        assert ("dreamer-vision", f"dmc-vision-{task}/optimistic") in there
        assert ("dreamer-proprio", f"dmc-{task}/optimistic") in there
    for protocol in ("atari-venture", "atari-venture-atari200m"):
        assert {("dreamer-atari", f"{protocol}/{method}") for method in ("optimistic", "greedy")} <= there
    for method in ("optimistic", "greedy"):
        assert ("dreamer-action-cost", f"dmc-vision-cartpole-swingup-k0.25/{method}") in there
        assert ("mbpo-state", f"humanoid-walk/{method}") in there and (
            "mbpo-strong",
            f"humanoid-walk/{method}",
        ) in there
    assert {("rccar-margins", f"margin-1/{method}") for method in ("optimistic", "pets")} <= there
    assert len({name for experiment, name in there if experiment == "mbpo-state"}) == 24
    assert len({name for experiment, name in there if experiment == "mbpo-strong"}) == 16
    first = tasks[0].entry
    assert first.experiment.startswith("dreamer") and first.priority <= min(task.entry.priority for task in tasks)
