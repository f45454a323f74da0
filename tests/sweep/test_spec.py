"""What a spec stands for, and what it refuses: before anything starts, in one sentence with the nearest names."""

import itertools
import json
import os
from pathlib import Path

import pytest

from sombrl.algorithms import ALGORITHMS
from sombrl.algorithms.settings import fields_of
from sombrl.cli.main import main
from sombrl.records import SombrlError
from sombrl.sweep.spec import cell_from_json, cell_to_json, read_spec
from tests.small import call
from tests.sweep.tiny import SPEC, write

GRID = """
name = "both"
algorithm = ["gp-icem", "mbpo"]
env = ["pendulum", "mountain-car"]
explore = ["optimistic", "greedy"]
seeds = 5

[set]
action_repeat = 2
gp-icem.episodes = 20
mbpo.decisions = 1000
"mbpo.sac.hidden" = [64, 64]

[grid]
bonus_weight = [1, 2.5]
mbpo.utd = [1, 5, 20]

[evaluation]
episodes = 2
every = 10
"""


@pytest.fixture
def asked(tmp_path):
    def ask(text=SPEC, *overrides):
        return read_spec(write(tmp_path, text), overrides).cells()

    return ask


def test_a_grid_is_every_combination(asked):
    found = asked(GRID)
    assert len(found) == 2 * 3 * (1 + 3)  # env × (λ = 1, 2.5, greedy) × (gp-icem, and mbpo at three numbers of updates)
    mbpo = [cell for cell in found if cell.algorithm == "mbpo"]
    seen = [
        (c.run.env, c.config.explore.explore, c.config.explore.bonus_weight, c.config.sac.updates_per_call)
        for c in mbpo
    ]
    explored = (("optimistic", 1.0), ("optimistic", 2.5), ("greedy", 1.0))  # greedy at the default, once
    assert seen == [
        (env, *explore, updates)
        for env, explore, updates in itertools.product(("pendulum", "mountain-car"), explored, (1, 5, 20))
    ]
    assert {(c.config.sac.hidden, c.run.decisions, c.run.episodes, c.run.action_repeat) for c in mbpo} == {
        ((64, 64), 1000, 10, 2)
    }
    gp = [cell for cell in found if cell.algorithm == "gp-icem"]
    assert {(cell.run.episodes, cell.run.decisions, cell.run.seeds) for cell in gp} == {(20, None, 5)}
    assert len({cell.name for cell in found}) == len(found)
    assert mbpo[0].name == "pendulum/mbpo/optimistic-bonus-weight=1-sac.updates-per-call=1"
    assert mbpo[0].method == "mbpo/optimistic bonus_weight=1 sac.updates_per_call=1"
    assert mbpo[0].evaluation is not None and (mbpo[0].evaluation.episodes, mbpo[0].evaluation.every) == (2, 10)


def test_what_is_not_named_is_as_on_the_command_line(asked, tmp_path, monkeypatch):
    """The cell of a spec with nothing in it is the run of `sombrl train` without flags."""
    monkeypatch.chdir(tmp_path)
    seen = {}

    def train(name, config, run_config, out, **rest):
        seen[name] = (config, run_config)

    monkeypatch.setattr("sombrl.runs.train.train", train)
    for algorithm in ("gp-icem", "mbpo", "sac", "maxinfo-sac", "dreamer", "sim-fsvgd"):
        main(["train", algorithm, "--preset", "pendulum"] if algorithm == "gp-icem" else ["train", algorithm])
        preset = 'preset = "pendulum"' if algorithm == "gp-icem" else ""
        (cell,) = asked(f'algorithm = "{algorithm}"\n{preset}')
        assert (cell.config, cell.run) == seen[algorithm]


def test_every_flag_of_the_command_line_is_a_field(capsys):
    for algorithm in ("gp-icem", "dreamer"):
        main(["train", algorithm, "--help-all"])
        text = capsys.readouterr().out
        for name in set(fields_of(algorithm)) - set(ALGORITHMS[algorithm].lacks):
            assert f"--{name.replace('_', '-')}" in text or f"--no-{name.replace('_', '-')}" in text, name


def test_overrides_replace_and_expand(asked):
    found = asked(SPEC, "gp.rank=4,16", "explore=pets", "seed=0", "icem.horizon=7", "gp.fit-steps=5")
    assert [(c.config.gp.rank, c.config.icem.horizon, c.config.gp.fit_steps) for c in found] == [(4, 7, 5), (16, 7, 5)]
    assert [cell.name for cell in found] == [f"pendulum/gp-icem/pets-gp.rank={rank}" for rank in (4, 16)]
    (net,) = asked('algorithm = "mbpo"', "sac.hidden=8 8", "sac.gradient_clip=none", "sac.reset_policy=true")
    assert (net.config.sac.hidden, net.config.sac.gradient_clip, net.config.sac.reset_policy) == ((8, 8), None, True)


def test_fields_that_are_possible_only_together(asked):
    (cell,) = asked('algorithm = "gp-icem"', "schedule=linear", "bonus_weight_end=1")
    assert (cell.config.explore.schedule, cell.config.explore.bonus_weight_end) == ("linear", 1.0)


def test_seeds_in_several_cells_are_one_method(asked):
    found = asked()
    assert [cell.run.seed_list for cell in found] == [[0, 1], [2, 3]]
    assert {cell.method for cell in found} == {"gp-icem/optimistic"}


def test_fields_that_a_strategy_does_not_look_at_make_no_cells(asked):
    found = asked(
        'algorithm = "gp-icem"', "explore=greedy,optimistic,hucrl", "bonus_weight=1,10", "beta=1,2", "episodes=3,4"
    )
    names = [cell.name.removeprefix("pendulum-v1/gp-icem/") for cell in found]
    assert names == [
        *(f"greedy-episodes={n}" for n in (3, 4)),
        *(f"optimistic-bonus-weight={weight}-episodes={n}" for weight in (1, 10) for n in (3, 4)),
        *(f"hucrl-beta={beta}-episodes={n}" for beta in (1, 2) for n in (3, 4)),
    ]
    assert [cell.config.explore.bonus_weight for cell in found[2:6]] == [1, 1, 10, 10]


def test_json_and_back(asked):
    for cell in asked(GRID):
        assert cell_from_json(json.loads(json.dumps(cell_to_json(cell)))) == cell


REFUSED = [
    ("gp.rnak=3", "no field is called gp.rnak: did you mean gp.rank"),
    ("gp.horizon=3", "icem.horizon"),
    ("mbpo.utd=1,5", "mbpo.utd is for mbpo, which is not among the algorithms (gp-icem)"),
    ("gp-icem.sac.tau=1", "no field is called gp-icem.sac.tau"),
    ("gp.rank=many", "gp.rank must be a whole number of at least 1, not 'many'"),
    ("gp.rank=1.5", "gp.rank must be a whole number"),
    ("gp.kernel=rfb", "gp.kernel must be one of rbf, matern52, linear"),
    ("growing_horizon=perhaps", "must be true or false"),
    ("gp.rank=", "gp.rank has no values"),
    ("gp.rank", "an override is field=value"),
    ("gp.rank=8,8", "twice"),
    ("seed=0,1", "twice (seed 1)"),
    ("explore=optimistic,greedy,greedy", "twice"),
    ("algorithm=gp-icem,gp-icem", "one twice"),
    ("algorithm=gp-cem", 'did you mean "gp-icem"'),
    ("algorithm=", "needs an algorithm"),
    ("algorithm=gp-icem,mbpo", "write gp-icem.model"),
    ("explore=optimstic", 'did you mean "optimistic"'),
    ("env=pendulmu", 'did you mean "pendulum"'),
    ("seeds=0", "--seeds must be at least 1"),
    ("decisions=100", "give --episodes, not --decisions"),
    ("env=pendulum,Pendulum", "share the folder"),
]


@pytest.mark.parametrize(("override", "sentence"), REFUSED, ids=[override for override, _ in REFUSED])
def test_bad_overrides(override, sentence, capsys, tmp_path):
    spec = write(tmp_path)
    code, _, err = call(["sweep", str(spec), override, "--out", str(tmp_path / "sweep")], capsys)
    assert code == 2 and sentence in err and err.startswith("sombrl: ") and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


BROKEN = [
    ('algorithm = "gp-icem"\nenv = pendulum\n', "line 2"),
    ('algorithm = "gp-icem"\nenvs = "pendulum"\n', 'did you mean "env"'),
    ('algorithm = "gp-icem"\nset = 3\n', "must be a table"),
    ('algorithm = "gp-icem"\n[grid]\ngp.rank = 8\n', "must be a list"),
    ('algorithm = "gp-icem"\n[grid]\ngp.rank = []\n', "gp.rank has no values"),
    ('algorithm = "gp-icem"\n[set]\nepisodes = 2.5\n', "episodes must be a whole number of at least 1, not 2.5"),
    ('algorithm = "gp-icem"\ncheckpoint_every = 0\n', "checkpoint_every must be"),
    ('algorithm = "gp-icem"\n[evaluation]\nevery = 3\n', "[evaluation] needs the number of episodes"),
    ('algorithm = "gp-icem"\nmetrics = "model/rmse"\n', "metrics must be a list"),
    ('env = "pendulum"\n', "needs an algorithm"),
    ('algorithm = "gp-icem"\n[search]\ngp.rank = { low = 1, high = 2 }\n', "sombrl tune"),
]


@pytest.mark.parametrize(("text", "sentence"), BROKEN, ids=[sentence for _, sentence in BROKEN])
def test_broken_specs(text, sentence, capsys, tmp_path):
    spec = write(tmp_path, text)
    code, _, err = call(["sweep", str(spec), "--out", str(tmp_path / "sweep")], capsys)
    assert code == 2 and sentence in err and err.count("\n") == 1, err
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.toml"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--workers 0", "--workers must be at least 1"),
        ("--retries -1", "must be 0 or more"),
        ("--address 127.0.0.1:1", "--address is for --backend ray"),
        ("--slurm-local", "--slurm-local is for --backend slurm"),
        ("--backend ray --partition gpu", "--partition is for --backend slurm"),
    ],
)
def test_options_of_other_backends(flags, sentence, capsys, tmp_path):
    code, _, err = call(["sweep", str(write(tmp_path)), "--out", str(tmp_path / "sweep"), *flags.split()], capsys)
    assert code == 2 and sentence in err and err.count("\n") == 1
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(("module", "flags"), [("ray", "--backend ray"), ("submitit", "--backend slurm --slurm-local")])
def test_packages_that_are_not_installed(module, flags, capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    code, _, err = call(["sweep", str(write(tmp_path)), "--out", str(tmp_path / "sweep"), *flags.split()], capsys)
    assert code == 2 and "is not installed: pip install 'sombrl[" in err and err.count("\n") == 1
    assert not (tmp_path / "sweep").exists()


def test_a_spec_that_is_not_there(capsys, tmp_path):
    code, _, err = call(["sweep", str(tmp_path / "x.toml")], capsys)
    assert code == 2 and "No such file" in err
    with pytest.raises(SombrlError, match="not a text file"):
        (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
        read_spec(tmp_path / "x.toml")


def test_a_spec_that_is_a_pipe_does_not_block(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(SystemExit):
        main(["sweep", str(tmp_path / "pipe.toml")])
    assert "is not a file: a sweep is a TOML file" in capsys.readouterr().err


def test_the_examples_are_sweeps():
    folder = Path(__file__).resolve().parents[2] / "examples" / "sweeps"
    assert len(read_spec(folder / "pendulum.toml").cells()) == 6
    assert len(read_spec(folder / "tune.toml").search) == 3
