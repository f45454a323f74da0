"""Names that do not exist get a sentence, in Python as on the command line."""

import dataclasses
import typing

import pytest

from sombrl.algorithms import ALGORITHMS
from sombrl.config.run import RunConfig
from sombrl.dreamer.config import DreamerConfig, DreamerExplore
from sombrl.errors import SombrlError


def dataclasses_in(config):
    """A configuration and those inside of it."""
    yield config
    for field in dataclasses.fields(config):
        if dataclasses.is_dataclass(value := getattr(config, field.name)):
            yield from dataclasses_in(value)


def literals(hint):
    """The names that a type lists."""
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [name for option in typing.get_args(hint) for name in literals(option)]


def choices():
    """Every field with names to choose from, of every configuration."""
    found = {}
    for config in [RunConfig(), *(algorithm.config() for algorithm in ALGORITHMS.values())]:
        for part in dataclasses_in(config):
            hints = typing.get_type_hints(type(part))
            found |= {(type(part), name): part for name, hint in hints.items() if literals(hint)}
    return [pytest.param(part, name, id=f"{kind.__name__}.{name}") for (kind, name), part in found.items()]


def refused(config, name, wrong):
    """The sentence for a name that was given in Python."""
    config = dataclasses.replace(config)
    object.__setattr__(config, name, wrong)  # the tests' own type check would be first
    with pytest.raises(SombrlError) as error:
        config.__post_init__()
    return str(error.value)


@pytest.mark.parametrize(("config", "name"), choices())
@pytest.mark.parametrize("wrong", ["nonsense", 3, None])
def test_every_choice_is_checked_in_python_too(config, name, wrong):
    if (name, wrong) == ("cnn", None):
        return  # the protocol's
    sentence = refused(config, name, wrong)
    assert "\n" not in sentence and str(wrong) in sentence
    assert name.replace("_", "-") in sentence.replace("_", "-")


def test_what_was_meant():
    assert refused(DreamerConfig(), "protocol", "papr") == (
        "--protocol must be one of paper, head, not 'papr': did you mean \"paper\"?"
    )
    wanted = "--schedule must be one of constant, auto, not 'sometimes'."
    assert refused(DreamerExplore(), "schedule", "sometimes") == wanted
    assert refused(RunConfig(), "setting", "discount") == (
        "--setting must be one of finite-horizon, discounted, non-episodic, unsupervised, not 'discount': "
        'did you mean "discounted"?'
    )
