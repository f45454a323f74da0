"""Whose word it takes to make an environment: what files may name, and what not."""

import pytest

from sombrl.config.run import RunConfig
from sombrl.envs.trust import NO_WORD, Word, module_of, require_word
from sombrl.records import SombrlError


@pytest.mark.parametrize(
    ("env", "module"),
    [
        ("pendulum", None),
        ("Pendulum-v1", None),
        ("dmc:walker-walk", None),
        ("dmc-vision:walker-walk", None),
        ("atari:Pong", None),
        ("ALE/Pong-v5", None),
        ("my_env:Id-v0", "my_env"),
        ("runs.stranger.payload:X-v0", "runs.stranger.payload"),
        ("a:b:Id-v0", "a:b"),
        ("sombrl.envs.rc_car_gym:RCCar-v0", None),
        ("sombrl_of_a_stranger:Id-v0", "sombrl_of_a_stranger"),
    ],
)
def test_only_module_names_import_something(env, module):
    assert module_of(env) == module


def test_a_module_needs_the_word_for_exactly_its_name():
    run = RunConfig(env="my_env:Id-v0")
    require_word(run, Word(trust=True))
    require_word(run, Word(named=frozenset(["my_env:Id-v0"])))
    for word in (NO_WORD, Word(named=frozenset(["my_env:Other-v0"])), Word(named=frozenset(["my_env"]))):
        with pytest.raises(SombrlError, match=r"code of the module my_env.*--env my_env:Id-v0.*--trust"):
            require_word(run, word)


@pytest.mark.parametrize("value", ["payload:X-v0", "../x.xml", "C:\\x.so", '{"a": 1}'])
def test_an_option_that_may_name_code_or_a_file_needs_trust(value):
    """GymV26Environment-v0, which every Gymnasium knows, would import the module that its env_id names."""
    run = RunConfig(env="GymV26Environment-v0", env_kwargs=(f"env_id={value}",))
    with pytest.raises(SombrlError, match="may name code or a file"):
        require_word(run, Word(named=frozenset(["GymV26Environment-v0"])))
    require_word(run, Word(trust=True))


def test_plain_options_need_no_word():
    require_word(RunConfig(env="Pendulum-v1", env_kwargs=("g=9.81", "mode=easy", "xml_file=ant.xml")), NO_WORD)
    require_word(RunConfig(env="pendulum", env_kwargs=("reward=a:b",)), NO_WORD)  # our world refuses it by itself


def test_a_word_survives_the_way_to_another_process():
    word = Word.of(False, "a:b", None, "c")
    assert word == Word(named=frozenset(["a:b", "c"])) == Word.from_json(word.to_json())
    assert Word.from_json({}) == NO_WORD
