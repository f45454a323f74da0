"""Names, options, and the sentences for wrong ones."""

import numpy as np
import pytest

from sombrl.envs.adapters.gymnasium import GymnasiumEnvs
from sombrl.envs.guards import check_choice, check_cost, check_count
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.registry import list_envs, make_envs
from sombrl.records import SombrlError


def test_names_find_their_kind():
    assert isinstance(make_envs("pendulum", [0]), JaxEnvs)
    assert isinstance(make_envs("Pendulum-v1", [0]), GymnasiumEnvs)
    assert make_envs(MountainCar(), range(2), episode_length=5).spec.episode_length == 5
    assert make_envs("mountain-car", [0], env_kwargs={"terminates": True}).spec.episode_length == 999
    assert make_envs("mountain-car", [0]).spec.episode_length == 200


def test_options_may_be_text():
    kwargs = {"reward": "sparse", "action_cost": "0.2"}
    world = make_envs("pendulum", [0], env_kwargs=kwargs).world
    assert (world.reward, world.action_cost, world.start) == ("sparse", 0.2, "hanging")
    for text in ("True", "true"):
        assert make_envs("mountain-car", [0], env_kwargs={"terminates": text}).world.terminates


def test_every_listed_name_but_the_placeholder_works():
    rows = list_envs()
    assert all(description for _, description in rows)
    names = [name for name, _ in rows if "<" not in name]
    assert {"pendulum", "mountain-car", "Pendulum-v1"} <= set(names)
    for name in names:
        make_envs(name, [0]).close()


@pytest.mark.parametrize(
    "name, options, told",
    [
        ("pendlum", {}, 'did you mean "pendulum"'),
        ("Pendulum", {}, 'did you mean "pendulum"'),
        ("MountainCarContinuos-v0", {}, 'did you mean "MountainCarContinuous-v0"'),
        ("qqqq", {}, 'unknown environment "qqqq"'),
        ("pendulum", {"env_kwargs": {"gravity": 3}}, "start='hanging', reward='dense', action_cost=None"),
        ("pendulum", {"env_kwargs": {"start": "up"}}, "'hanging' or 'random'"),
        ("pendulum", {"env_kwargs": {"action_cost": -1.0}}, "action_cost"),
        (MountainCar(), {"env_kwargs": {"action_cost": 1.0}}, "ready world"),
        ("pendulum", {"action_repeat": 0}, "action_repeat must be an integer ≥ 1, not 0"),
        ("Pendulum-v1", {"action_cost": -0.1}, "action_cost must be a finite number ≥ 0"),
        ("Pendulum-v1", {"action_cost": float("inf")}, "action_cost must be a finite number ≥ 0"),
        ("pendulum", {"episode_length": 0}, "episode_length must be an integer ≥ 1"),
        ("pendulum", {"seeds": []}, "seeds is empty"),
        ("pendulum", {"workers": 2}, "Worlds in JAX are stepped by JAX"),
        ("Pendulum-v1", {"workers": -1}, "env_workers must be an integer ≥ 1, not -1"),
        ("pendulum", {"seeds": [-1]}, "from 0 to"),
        ("pendulum", {"seeds": [2**31]}, "from 0 to"),
    ],
    ids=str,
)
def test_refusals(name, options, told):
    seeds = options.get("seeds", [0])
    rest = {key: value for key, value in options.items() if key != "seeds"}
    with pytest.raises(SombrlError, match=told) as error:
        make_envs(name, seeds, **rest)
    assert "\n" not in str(error.value)


def test_guards_take_what_they_should():
    assert check_cost(np.float32(0.5)) == 0.5 and check_cost(0) == 0.0 and check_count(np.int64(3), "n") == 3
    for check in (
        lambda: check_cost("abc"),
        lambda: check_cost(True),
        lambda: check_count(1.5, "n"),
        lambda: check_count(True, "n"),
        lambda: check_choice(3, "word", ("a", "b")),
    ):
        with pytest.raises(SombrlError):
            check()
