"""Presets: what they set, what overrides them, and that a run made before they existed is still that run."""

import dataclasses
import json
from typing import Annotated

import pytest

from sombrl.agent.make import make
from sombrl.algorithms import ALGORITHMS
from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.algorithms.settings import configured, fields_of, preset_values
from sombrl.config.check import Configuration
from sombrl.config.fields import value_at
from sombrl.config.json import from_json, to_json
from sombrl.config.kinds import Before
from sombrl.controllers.icem import PRESETS
from sombrl.records import SombrlError
from tests.small import call

ALL = [(name, preset) for name, row in ALGORITHMS.items() for preset in row.presets]


@pytest.mark.parametrize(("algorithm", "preset"), ALL)
def test_every_preset_can_be_had(algorithm, preset):
    """All of its names are fields, all of its values are allowed, and the agent has them."""
    agent = make(algorithm, "Pendulum-v1" if algorithm != "sim-fsvgd" else "rc-car", preset=preset)
    parts = {"run": agent.run_config, "config": agent.config}
    for field, value in preset_values(algorithm, preset).items():
        assert value_at(parts[field.part], field.path) == value, field.name
    assert (agent.run_config.env, agent.run_config.seed_list) == (
        "Pendulum-v1" if algorithm != "sim-fsvgd" else "rc-car",
        [0],
    )


def test_single_settings_override_a_preset():
    agent = make("gp-icem", "pendulum", preset="paper", bonus_weight=3.0, gp={"rank": 16})
    assert (agent.config.explore.bonus_weight, agent.config.explore.bonus_weight_units) == (3.0, "reward")
    assert (agent.config.gp.rank, agent.config.gp.least_action, agent.run_config.random_episodes) == (16, 0.0, 0)


def test_the_command_line_has_them_too(tmp_path, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr("sombrl.sweep.jobs.train", lambda name, config, run, out, **rest: seen.append((run, config)))
    command = ["train", "gp-icem", "--out", str(tmp_path / "run"), "--preset", "paper", "--bonus-weight", "3"]
    assert call(command, capsys)[0] == 0
    fields = fields_of("gp-icem")
    expected = configured("gp-icem", {fields["preset"]: "paper", fields["bonus_weight"]: 3.0})
    assert seen == [expected] and expected[1].explore.bonus_weight == 3.0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("gp-icem --preset paepr", 'did you mean "paper"?'),
        ("gp-icem --preset light --controller mppi", "--controller mppi does not use them"),
        ("sac --preset paper", "--preset must be one of strong, not 'paper'"),
    ],
)
def test_what_there_is_not(words, sentence, capsys):
    code, _, err = call(["train", *words.split()], capsys)
    assert code == 2 and sentence in err


def test_a_configuration_has_its_numbers_already():
    with pytest.raises(SombrlError, match="leave preset= out, or leave config= out"):
        make("gp-icem", "pendulum", preset="paper", config=GPICEMConfig())


def test_they_are_listed(capsys):
    code, out, _ = call(["list", "presets"], capsys)
    assert code == 0
    for algorithm, preset in ALL:
        assert any(line.split()[0] == preset and algorithm in line for line in out.splitlines()), (algorithm, preset)


def test_the_planners_presets_are_icems_numbers():
    for name, numbers in PRESETS.items():
        for algorithm in ("gp-icem", "mbpo"):
            assert configured(algorithm, preset_values(algorithm, name))[1].icem == numbers


@dataclasses.dataclass(frozen=True)
class Grown(Configuration, prefix="grown"):
    """A configuration that got a field."""

    old: int = 1
    """As ever."""
    new: Annotated[str, Before("off")] = "on"
    """Later."""


def test_what_was_stored_before_a_field_existed_keeps_its_meaning():
    assert Grown().new == "on"
    assert from_json(Grown, {"old": 2}) == Grown(old=2, new="off")
    assert from_json(Grown, json.loads(json.dumps(to_json(Grown())))) == Grown()


def test_old_runs_of_gp_icem_are_the_papers():
    """The fields that have come since: without them a stored run is what `--preset paper` gives."""
    _, paper = configured("gp-icem", preset_values("gp-icem", "paper"))
    stored = to_json(paper)
    for name in ("horizon_value", "value", "start_point"):
        del stored[name]
    del stored["gp"]["least_action"], stored["explore"]["bonus_weight_units"]
    assert from_json(GPICEMConfig, stored) == paper
