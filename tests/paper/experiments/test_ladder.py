"""The ladder: scores, IQM and probabilities of improvement against numbers worked out by hand, and its verdicts."""

import pytest

from sombrl.paper.experiments import EXPERIMENTS, ladder
from sombrl.paper.experiments.runner import against_release
from sombrl.runs.plots import drawing
from sombrl.storage.results import Row, rows_text

CHAIN, CUP = ladder.LADDER["deceptive-chain"].env, ladder.LADDER["ball-in-cup"].env


def curves(finals: dict[str, dict[str, list[float]]], frames: int = 100) -> list[Row]:
    """Three evaluations per seed, whose mean is the number given for it."""
    rows = []
    for env, methods in finals.items():
        for method, seeds in methods.items():
            for seed, final in enumerate(seeds):
                where = ("ladder", method, env, "finite-horizon", seed, "eval/ep_rew_mean")
                values = [-1e3, final - 1.0, final + 3.0, final - 2.0]  # the first is before the last three
                rows += [Row(*where, frames * n, frames * n, value) for n, value in enumerate(values, 1)]
    return rows


def test_scores_are_shares_of_what_an_episode_could_pay():
    rows = curves({CHAIN: {"optimistic": [100, 150, 50, -40]}, CUP: {"optimistic": [500, 1000, 0, 250]}})
    rows += curves({CHAIN: {"greedy": [20, 20, 20, 20]}, CUP: {"greedy": [500, 1000, 0, 250]}})
    found = ladder.standings(rows)
    assert found is not None and [task.name for task in found.tasks] == [CHAIN, CUP]
    # Shares 0.5 0.75 0.25 0 and 0.5 1 0 0.25: of eight runs the middle four are 0.25 0.25 0.5 0.5.
    assert found.statistics["optimistic"]["IQM"][0] == pytest.approx(0.375)
    # Chain: three of four runs beat every one of greedy's. Cup: the same runs on both sides, one half.
    assert found.improvement["optimistic", "greedy"][0] == pytest.approx((0.75 + 0.5) / 2)


def test_a_task_that_a_method_lacks_is_left_out():
    rows = curves({CHAIN: {"optimistic": [100] * 3, "greedy": [20] * 3}, CUP: {"optimistic": [100] * 3}})
    found = ladder.standings(rows)
    assert found is not None and found.left_out == [CUP]
    assert CUP in ladder.report(rows)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ([100, 110, 120], "optimistic is better than in the last release"),
        ([10, 11, 12], "optimistic is worse than in the last release"),
        ([50, 51, 52], "no difference from the last release is shown for optimistic"),
    ],
)
def test_verdict_on_the_last_release(now, verdict):
    released = curves({CHAIN: {"optimistic": [50, 51, 52]}})
    text = ladder.against_release(curves({CHAIN: {"optimistic": now}}), released)
    assert text.splitlines()[-1] == f"Verdict: {verdict}, on 1 task."


def test_two_seeds_are_too_few():
    released = curves({CHAIN: {"optimistic": [50, 51]}})
    assert "too few seeds" in ladder.against_release(curves({CHAIN: {"optimistic": [100, 110]}}), released)


def test_runs_of_another_length_are_not_compared():
    released = curves({CHAIN: {"optimistic": [50, 51, 52]}}, frames=200)
    text = ladder.against_release(curves({CHAIN: {"optimistic": [100, 110, 120]}}), released)
    assert text == "The table of the last release has no task of the same length with the same method."


def test_cells_of_small_are_cells_of_paper():
    small, paper = ({cell.name: cell for cell in ladder.ladder_cells(scale)} for scale in ("small", "paper"))
    assert small.items() <= paper.items()
    assert {cell.method for cell in paper.values()} - {cell.method for cell in small.values()} == {"paper"}
    assert 5 <= len({cell.env for cell in small.values()}) <= 8
    assert all(cell.run.seeds == 5 for cell in paper.values())


def test_figure_has_a_panel_per_task_and_one_for_all():
    rows = curves({CHAIN: {"optimistic": [100] * 3, "greedy": [20] * 3}, CUP: {"optimistic": [9] * 3}})
    with drawing("a test"):
        figure = EXPERIMENTS["ladder"].draw(rows)
        figure.draw_without_rendering()
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.axison][1:] == ["Deceptive chain", "Ball in cup"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["strong, optimistic", "strong, greedy"]


def test_the_last_release_is_looked_for_beside_the_results(tmp_path):
    rows = curves({CHAIN: {"optimistic": [100, 110, 120], "greedy": [20, 20, 20]}})
    table = tmp_path / "small.csv"
    assert against_release(EXPERIMENTS["ladder"], rows, table) is None
    (tmp_path / "release.csv").write_text(rows_text(curves({CHAIN: {"optimistic": [50, 51, 52]}})))
    said = against_release(EXPERIMENTS["ladder"], rows, table)
    assert said is not None and "Verdict: optimistic is better than in the last release" in said
    assert against_release(EXPERIMENTS["mbpo-state"], rows, table) is None
