"""What `sombrl list envs --installed` lists can be made."""

import importlib.util

import gymnasium
import pytest

from sombrl.envs.adapters import atari, dmc, playground
from sombrl.envs.installed import _gymnasium, installed
from sombrl.envs.registry import WORLDS, make_envs
from tests.small import call

from .tiny import Tiny  # registers it


def test_every_suite_is_there(capsys):
    code, out, err = call(["list", "envs", "--installed"], capsys)
    rows = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert code == 0 and err == "" and rows == dict(installed())
    control = {name for name in dmc.task_names() if "lqr" not in name}
    assert set(WORLDS) | control | set(playground.task_names()) | set(atari.game_names()) <= set(rows)
    assert rows["Pendulum-v1"] == "Gymnasium, classic control" and rows["pendulum"] == "sombrl"
    assert ("HalfCheetah-v5" in rows) == bool(dmc.task_names())  # both come with MuJoCo
    assert rows["sombrl-tests/Tiny-v0"] == f"Gymnasium, {Tiny.__module__.split('.')[0]}"
    # Older versions, others' emulators, spaces that are refused, packages that are not there.
    assert not {
        "CartPole-v0",
        "HalfCheetah-v4",
        "HalfCheetah-v3",
        "ALE/Pong-v5",
        "Blackjack-v1",
        "dmc:lqr-lqr_2_1",
    } & set(rows)
    assert len(rows) == len(out.splitlines())


def test_one_that_needs_a_missing_package_is_not_listed(monkeypatch):
    name = "LunarLanderContinuous-v3"
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None if package == "Box2D" else True)
    assert name in gymnasium.registry and name not in dict(_gymnasium())
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: True)
    assert dict(_gymnasium())[name] == "Gymnasium, Box2D"


@pytest.mark.thorough
def test_gymnasiums_can_be_made():
    names = [name for name, suite in installed() if suite.startswith("Gymnasium")]
    assert len(names) > 5
    for name in names:
        make_envs(name, [0], episode_length=5).close()
