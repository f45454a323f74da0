"""The figures of the experiments: their panels, medians and axes, from made-up rows."""

import numpy as np
import pytest

from sombrl.paper.experiments import EXPERIMENTS
from sombrl.paper.experiments.figures import Panel, curves, draw_tiles
from sombrl.paper.experiments.mbpo import MBPO_LOOKS
from sombrl.runs.plots import drawing
from sombrl.storage.results import Row
from tests.paper.experiments.toy import TOY


def synthetic(name: str, scale: str) -> list[Row]:
    """Rows as the cells of a trained experiment would have them, with made-up numbers."""
    random = np.random.default_rng(0)
    rows = []
    for cell in EXPERIMENTS[name].cells_at(scale):
        extra = ["rollout/at_goal"] if cell.extra else []
        tasks = [f"eval/{task}" for task in cell.evaluation.tasks or ("ep_rew_mean",)] if cell.evaluation else []
        tasks += ["eval/max_uncertainty"] if cell.evaluation and cell.evaluation.uncertainty else []
        for n in range(5):
            for seed in cell.run.seed_list:
                for metric in [*cell.metrics, *extra, *tasks]:
                    where = (name, cell.method, cell.env, cell.run.setting, seed, metric)
                    rows.append(Row(*where, 50 * (n + 1), 10 * (n + 1), float(n + random.normal())))
    derive = EXPERIMENTS[name].derive
    return rows + (derive(rows) if derive else [])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("gp-episodic", 4),
        ("gp-nonepisodic", 12),
        ("gp-discounted", 4),
        ("gp-unsupervised", 8),
        ("found-kept", 8),
        ("safe-exploration", 6),
        ("drift", 4),
        ("lambda-strategies", 2),
        ("mbpo-state", 8),
        ("mbpo-vs-model-free", 3),
        ("mbpo-action-cost", 6),
        ("mbpo-bonus-ablation", 3),
        ("mbpo-lambda-strategies", 4),
        ("mbpo-dmc-trap", 4),
        ("mbpo-updates", 2),
        ("rccar-margins", 4),
        ("rccar-ablation", 1),
    ],
)
def test_figures(name, panels):
    with drawing("a test"):
        figure = EXPERIMENTS[name].draw(synthetic(name, "paper"))
        figure.draw_without_rendering()
    assert len(figure.axes) == panels
    assert len(figure.legends[0].get_texts()) >= 2
    assert "standard deviation" in figure.get_suptitle()
    for axes in figure.axes:
        assert axes.lines or not axes.axison


def test_band_and_median_are_those_of_the_seeds():
    rows = [Row("toy", "greedy", "e", "s", seed, "rollout/ep_rew_mean", 1, 1, float(seed)) for seed in (0, 1, 5)]
    with drawing("a test"):
        (axes,) = TOY.draw(rows).axes
    assert axes.lines[0].get_ydata() == [1.0]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((1 - np.std([0, 1, 5]), 1 + np.std([0, 1, 5])))


def test_tiles_have_frames_on_their_axis():
    where = ("mbpo-state", "sac")
    rows = [
        Row(*where, env, "s", seed, "eval/ep_rew_mean", 2 * n, n, 0.0)
        for env in ("Pendulum-v1", "dmc:walker-run", "dmc:hopper-hop")
        for seed in (0, 1)
        for n in (1000, 2000)
    ]
    frames, _ = curves(rows[:4], "env_frames")
    assert frames.tolist() == [[2000, 2000], [4000, 4000]]
    with drawing("a test"):
        panel = Panel("eval/ep_rew_mean", "return", x="env_frames")
        figure = draw_tiles(rows, panel, MBPO_LOOKS, title="A test", xlabel="frames", columns=2)
        figure.draw_without_rendering()
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert titles == ["Pendulum", "Walker run", "Hopper hop"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == [2000, 4000]
    assert any(label.get_text().endswith("k") for label in figure.axes[0].get_xticklabels())
