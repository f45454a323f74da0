"""Configurations check themselves when they are made, in Python, from JSON and with fields replaced."""

import dataclasses
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, MinLen

from sombrl.algorithms import ALGORITHMS
from sombrl.config.check import Configuration
from sombrl.config.fields import help_of
from sombrl.config.json import from_json, to_json
from sombrl.config.kinds import Advice, kinds_of
from sombrl.config.run import RunConfig
from sombrl.errors import SombrlError
from tests.config.test_suggestions import dataclasses_in


@dataclasses.dataclass(frozen=True)
class Network(Configuration, prefix="net"):
    """A configuration."""

    widths: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] = (8, 8)
    """Of the layers."""
    learning_rate: Annotated[float, Ge(0)] = 0.1
    kind: Literal["plain", "residual"] = "plain"
    repeats: Annotated[int, Ge(1), Advice("leave it out")] | None = None

    def refuse_combinations(self) -> None:
        """Residual layers are equally wide."""
        if self.kind == "residual" and len(set(self.widths)) > 1:
            raise SombrlError("--net.kind residual needs equal widths.")


def made(**values):
    """The sentence, where it cannot be made; past the type checks that only the tests have."""
    config = Network()
    for name, value in values.items():
        object.__setattr__(config, name, value)
    config.__post_init__()
    return config


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"learning_rate": -1.0}, "--net.learning-rate must be a finite number of at least 0, not -1.0."),
        ({"learning_rate": "x"}, "--net.learning-rate must be a finite number of at least 0, not 'x'."),
        ({"kind": "plian"}, "--net.kind must be one of plain, residual, not 'plian': did you mean \"plain\"?"),
        ({"repeats": 0}, "--net.repeats must be at least 1, not 0: leave it out."),
        ({"kind": "residual", "widths": (4, 8)}, "--net.kind residual needs equal widths."),
        ({"widths": ("x" * 100,)}, f"not ('{'x' * 58}…"),
    ],
)
def test_bad_values_get_one_sentence_with_the_flag(values, sentence):
    with pytest.raises(SombrlError) as error:
        made(**values)
    assert sentence in str(error.value)


def test_a_list_is_as_good_as_a_tuple():
    assert made(widths=[4, 8]).widths == (4, 8) and hash(made(widths=[4, 8]))


def test_replacing_checks_too():
    with pytest.raises(SombrlError, match=r"--net\.learning-rate"):
        dataclasses.replace(Network(), learning_rate=-1.0)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"learning_rate": "x"}, "the setting 'learning_rate' must be a finite number of at least 0, not 'x'."),
        ({"widths": [8, "y"]}, "the setting 'widths' must be a list of one or more whole numbers"),
        ({"wdiths": [8]}, "the setting 'wdiths' is not known to this version of sombrl"),
        ({"kind": "residual", "widths": [4, 8]}, "--net.kind residual needs equal widths."),
        ([], "must be a JSON object, not []"),
    ],
)
def test_json_is_checked_alike(data, sentence):
    with pytest.raises(SombrlError) as error:
        from_json(Network, data, "net.")
    assert sentence.replace("'widths'", "'net.widths'").replace("'learning_rate'", "'net.learning_rate'").replace(
        "'wdiths'", "'net.wdiths'"
    ) in str(error.value)


PARTS = {
    type(part): part
    for config in (RunConfig(), *(row.config() for row in ALGORITHMS.values()))
    for part in dataclasses_in(config)
}


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: type(part).__name__)
def test_every_configuration_describes_itself(part):
    """Every field has a type that is understood and a text; every configuration is its own JSON."""
    kinds, texts = kinds_of(type(part)), help_of(type(part))
    assert isinstance(part, Configuration)
    for name, kind in kinds.items():
        assert kind.base is not object, name
        assert dataclasses.is_dataclass(kind.base) or texts[name], name
    assert from_json(type(part), to_json(part)) == part


@pytest.mark.parametrize("name", ALGORITHMS)
def test_prefixes_are_those_of_the_command_line(name):
    config = ALGORITHMS[name].config()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Configuration):
            assert value.prefix == ("" if field.name == "explore" else field.name)
