"""docs/figures/draw.py draws what the results say, beside what was published."""

import importlib.util

import matplotlib.pyplot as plt
import numpy as np
import pytest

from sombrl.paper.experiments.rccar import PUBLISHED
from tests.docs.pages import ROOT
from tests.docs.test_numbers import series


@pytest.fixture(scope="module")
def draw():
    spec = importlib.util.spec_from_file_location("draw", ROOT / "docs" / "figures" / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    plt.close("all")


def line(axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found.get_data()


def test_mbpo(draw):
    tiles = {axes.get_title(): axes for axes in draw.draw_mbpo().axes}
    assert len(tiles) == 6
    frames, values = line(tiles["CartPole, sparse"], "MBPO-Optimistic")
    wanted = {"env": "dmc:cartpole-swingup_sparse", "metric": "eval/ep_rew_mean", "env_frames": 100_000}
    ours = series("mbpo-state/paper.csv", **wanted, method="optimistic")
    assert values[frames == 100] == pytest.approx(np.median(ours))
    _, published = line(tiles["Walker run"], "TD-MPC2, published")
    assert published == [723.0]
    assert len(line(tiles["Finger spin"], "DreamerV3, published")[0]) == 15


def test_the_defaults_of_mbpo(draw):
    (axes,) = draw.draw_defaults().axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[-1] == "Reacher hard" and len(names) == 7
    at = {"env": "dmc:humanoid-walk", "metric": "eval/ep_rew_mean", "env_frames": 100_000}
    ours = np.median(series("mbpo-strong/paper.csv", **at, method="optimistic"))
    assert any(np.isclose(line.get_xdata(), ours).any() for line in axes.lines)


def test_the_car(draw):
    tiles = draw.draw_car().axes
    for axes, margin in zip(tiles, (20, 5, 2), strict=True):
        env = f"rc-car margin_factor={margin}"
        np.testing.assert_array_equal(line(axes, "SimFSVGD-Optimistic, published")[1], PUBLISHED[env, "optimistic"])
        ours = series("rccar-margins/paper.csv", env=env, method="pets", metric="rollout/ep_rew_mean")
        np.testing.assert_allclose(line(axes, "SimFSVGD")[1], np.median(ours, axis=0))
