"""`sombrl bounds`, recorded predictions, and runs that end by --stop-when-gap."""

import json
import math

import pytest

import sombrl
from sombrl.cli.main import main
from sombrl.storage.run_folder import RunFolder
from tests.small import SMALL_FLAGS, call, reproducible_rows

TRAIN = ["train", "gp-icem", "--env", "pendulum", "--seeds", "2", "--no-tensorboard", *SMALL_FLAGS]
TINY = ["--sac.hidden", "8", "8", "--sac.actor-hidden", "8", "8", "--ensemble.hidden", "8", "8"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("bounds") / "run"
    main([*TRAIN, "--episodes", "3", "--record-bounds", "--out", str(path)])
    return path


def test_the_command_says_what_the_agent_says(run, capsys):
    code, out, _ = call(["bounds", str(run), "--episodes", "2", "--calibrated", "0.8"], capsys)
    found = sombrl.load(run).bounds(episodes=2, calibrated=0.8)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["seed", "J⁻", "J", "J⁺", "Σ‖σ‖", "λ"] in lines
    means = [f"{column.mean(axis=0)[1]:.2f}" for column in (found.low, found.value, found.high)]
    assert ["1", *means, f"{found.uncertainty.mean(axis=0)[1]:.4g}", f"{found.factor[1]:.4g}"] in lines
    assert "calibrated to cover 0.8" in out
    assert f"{found.covered:.0%} of 6 past episodes were inside, each judged by the episodes before it" in out
    assert "with this λ" in call(["bounds", str(run), "--factor", "1"], capsys)[1]
    assert "that of exploration" in call(["bounds", str(run)], capsys)[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--factor", "0"], "factor must be positive"),
        (["--factor", "-1"], "factor must be positive"),
        (["--calibrated", "1.5"], "strictly between 0 and 1"),
        (["--calibrated", "0.9"], "at least 9 past episodes, and there are 6"),
        (["--factor", "1", "--theory"], "give one of them"),
        (["--episodes", "0"], "at least 1 episode"),
        (["--factor", "x"], "--factor"),
    ],
)
def test_bad_input_is_one_sentence(run, options, sentence, capsys):
    code, out, err = call(["bounds", str(run), *options], capsys)
    assert code == 2 and sentence in err and err.count("\n") == 1 and out == ""


@pytest.mark.thorough
def test_a_resumed_run_predicts_the_same(run, tmp_path, capsys):
    other = tmp_path / "run"
    main([*TRAIN, "--episodes", "1", "--record-bounds", "--out", str(other)])
    main(["resume", str(other), "--episodes", "3", "--no-tensorboard"])
    assert reproducible_rows(other) == reproducible_rows(run)
    assert all(math.isfinite(row["bounds/return"]) for row in reproducible_rows(run))
    assert "J⁻" in capsys.readouterr().out  # in the line of progress


@pytest.mark.thorough
def test_a_run_that_has_ended_says_so_and_goes_on_when_told_to(tmp_path, capsys):
    path = tmp_path / "run"
    gap = ["--stop-when-gap", "0.9", "--bonus-weight", "0.001", "--checkpoint-every", "5"]
    code, out, _ = call([*TRAIN, "--episodes", "4", *gap, "--out", str(path)], capsys)
    assert code == 0
    assert out.count("stopped after 1 episodes: J⁺ of the optimistic plan and J⁻ of the greedy one are within 0.9") == 1
    rows = reproducible_rows(path)
    assert len(rows) == 2 and all(row["bounds/gap"] <= 0.9 for row in rows)
    assert sombrl.load(path).iteration == 1  # saved, though no checkpoint was due
    code, _, err = call(["resume", str(path)], capsys)
    assert code == 2 and "is complete: after 1 episodes its bounds were within --stop-when-gap 0.9" in err
    assert call(["resume", str(path), "--episodes", "4", "--no-tensorboard"], capsys)[0] == 0
    assert len(reproducible_rows(path)) == 4


@pytest.mark.thorough
def test_a_run_whose_bounds_are_apart_goes_on(tmp_path, capsys):
    path = tmp_path / "run"
    main([*TRAIN, "--episodes", "2", "--stop-when-gap", "1e-9", "--out", str(path)])
    assert len(RunFolder.open(path).rows()) == 4
    assert "stopped after" not in capsys.readouterr().out


@pytest.mark.thorough
def test_a_learned_policy_predicts_its_evaluations(tmp_path, capsys):
    common = [
        "train",
        "mbpo",
        "--env",
        "pendulum",
        "--episode-length",
        "10",
        "--decisions",
        "40",
        "--report-every",
        "10",
    ]
    common += ["--eval-every", "20", "--eval-episodes", "2", "--no-tensorboard", *TINY]
    main([*common, "--record-bounds", "--out", str(tmp_path / "with")])
    main([*common, "--out", str(tmp_path / "without")])
    rows, plain = reproducible_rows(tmp_path / "with"), reproducible_rows(tmp_path / "without")
    kept = [{name: value for name, value in row.items() if not name.startswith("bounds/")} for row in rows]
    assert kept == plain
    evaluated = [row for row in rows if "eval/ep_rew_mean" in row]
    assert len(evaluated) == 2 and all(row["bounds/realised"] == row["eval/ep_rew_mean"] for row in evaluated)
    assert all(row["bounds/uncertainty"] > 0 for row in evaluated)
    found = sombrl.load(tmp_path / "with").bounds(episodes=1, factor=1.0)
    assert found.past.episodes == 2
    code, _, err = call(["bounds", str(tmp_path / "with")], capsys)
    assert code == 2 and "without a λ in reward per unit of ‖σ‖" in err
    code, _, err = call(["bounds", str(tmp_path / "with"), "--theory"], capsys)
    assert code == 2 and "information gain" in err


def test_settings_of_cells_are_those_from_before_unless_they_are_used():
    from sombrl.algorithms.gp_icem import GPICEMConfig
    from sombrl.config.run import RunConfig
    from sombrl.paper.experiments.base import TrainCell

    config = GPICEMConfig()
    plain, recorded = (TrainCell("a", "b", "c", RunConfig(record_bounds=on), config).settings() for on in (False, True))
    assert "record_bounds" not in plain["run"] and recorded["run"]["record_bounds"]
    assert json.dumps(plain)
