"""The RC car's exported policy: SimFSVGD's, with the pending actions in the observation or kept in the state."""

import numpy as np
import pytest

from sombrl.envs.registry import make_envs
from sombrl.export import export_policy, policy
from tests.export.agents import NETS, with_data
from tests.export.comparing import CLOSE, largest


def keeps_its_actions(pilot, **settings):
    """From measurements alone it acts as from whole observations, whose actions the car itself has stacked."""
    car = make_envs("rc-car", [3], **settings)
    obs, state = car.reset(0)[0], None
    for _ in range(8):
        whole, _ = pilot.act(obs)
        action, state = pilot.act(obs[:7], state)
        np.testing.assert_array_equal(action, whole)
        assert np.abs(action).max() > 1e-3  # or a stack of zeros would do
        obs = car.step(action[None], np.ones(1, bool)).obs[0]


@pytest.mark.thorough
def test_sim_fsvgd_acts_as_the_agent_does(tmp_path):
    agent = with_data("sim-fsvgd", "rc-car")
    pilot = policy.load(export_policy(agent, tmp_path / "pilot"))
    assert pilot.info["observation"]["stack"] == {"measured": 7, "delay": 3, "action_dim": 2, "remembered": 3}
    assert largest(agent, pilot) < CLOSE
    keeps_its_actions(pilot)


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"env_kwargs": {"stack": "legacy"}}, {"action_repeat": 2}], ids=str)
def test_actions_shown_late_and_actions_repeated(settings, tmp_path):
    agent = with_data("sac", "rc-car", sac=NETS, **settings)
    keeps_its_actions(policy.load(export_policy(agent, tmp_path / "pilot")), **settings)
