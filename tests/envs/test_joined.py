"""Lots of environments stepped as one are saved and restored as one."""

import numpy as np
import pytest

from sombrl.envs.joined import JoinedEnvs
from sombrl.envs.registry import make_envs


@pytest.mark.parametrize("env", ["pendulum", "Pendulum-v1"])
def test_a_restored_whole_goes_on_as_its_lots_do(env):
    def lots():
        return [make_envs(env, seeds, episode_length=20) for seeds in ([0, 1], [5])]

    alone, joined = lots(), JoinedEnvs(lots())
    actions, active = np.array([[0.3], [-0.8], [0.9]], np.float32), np.ones(3, bool)
    joined.reset(0)
    for lot in alone:
        lot.reset(0)
    for _ in range(3):
        joined.step(actions, active)
        alone[0].step(actions[:2], active[:2]), alone[1].step(actions[2:], active[2:])
    saved = joined.get_state()
    for name, values in saved.items():
        expected = np.concatenate([lot.get_state()[name] for lot in alone])
        np.testing.assert_array_equal(values, expected, err_msg=name)
    later = joined.step(actions, active).obs
    assert (joined.step(actions, active).obs != later).any()
    fresh = JoinedEnvs(lots())
    fresh.reset(1)
    fresh.set_state(saved)
    np.testing.assert_array_equal(fresh.step(actions, active).obs, later)
