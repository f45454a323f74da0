"""What the page claims follows from the numbers, and says when they are too few, unequal or not comparable."""

import re

import numpy as np
import pytest
import scipy.stats

from sombrl.paper.experiments.dreamer import DREAMER_LOOKS
from sombrl.paper.experiments.figures import LOOKS
from sombrl.paper.experiments.mbpo import MBPO_LOOKS
from sombrl.report.aggregate import aggregate
from sombrl.report.claims import claims
from sombrl.report.comparison import compare
from sombrl.report.curves import curve as over_seeds
from sombrl.report.efficiency import frames_to_reach
from sombrl.report.loading import Record, find
from sombrl.report.provenance import caveats
from sombrl.report.sections import clearly_best
from sombrl.report.wording import interval_text, number
from sombrl.runs.colors import COLORS, places
from tests.report.examples import VERSIONS, curve, write_run, write_table


def comparison_of(path):
    (comparison,) = compare(find([path]).sources)
    return comparison


def test_claim_counts_tasks_and_has_the_interval(tmp_path):
    comparison = comparison_of(write_table(tmp_path / "small.csv", tasks=4))
    (claim,), warning = claims(comparison)
    assert warning is None
    assert (claim.verdict, claim.tasks, claim.seeds) == ("better", 4, (5, 5))
    found = re.fullmatch(r"optimistic > greedy on 3 of 4 tasks, IQM difference (\S+) \[(\S+), (\S+)\]", claim.sentence)
    assert found
    middle, low, high = map(float, found.groups())
    assert low < middle < high
    # By hand: the last two episodes of twelve lie in the last tenth of the frames; scores are min-max per task.
    ours, theirs = [], []
    for task in range(4):
        levels = (1.5 if task < 3 else 0.9, 1.0)
        a, b = ([curve(level, seed, 12)[-2:].mean() for seed in range(5)] for level in levels)
        worst, best = min(a + b), max(a + b)
        ours += [(x - worst) / (best - worst) for x in a]
        theirs += [(x - worst) / (best - worst) for x in b]
    expected = scipy.stats.trim_mean(ours, 0.25) - scipy.stats.trim_mean(theirs, 0.25)
    assert claim.difference[0] == pytest.approx(expected)
    assert claim.improvement[0] == pytest.approx(0.75)


def test_equal_methods_have_no_difference_within_the_interval(tmp_path):
    comparison = comparison_of(write_table(tmp_path / "small.csv", tasks=1, better=0.0))
    (claim,), _ = claims(comparison)
    assert claim.verdict == "level"
    assert "no difference within the interval" in claim.sentence


def test_two_seeds_are_too_few_for_an_interval(tmp_path):
    comparison = comparison_of(write_table(tmp_path / "small.csv", tasks=2, seeds=2))
    (claim,), _ = claims(comparison)
    assert claim.sentence.startswith("2 seeds: too few for an interval")
    assert claim.difference is None
    estimate = aggregate(comparison).statistics["greedy"]["IQM"]
    assert estimate[1:] == (None, None)
    assert "il" not in over_seeds(comparison.tasks[0].records["greedy"])


def test_best_of_several_comes_with_a_warning(tmp_path):
    for n in range(3):
        write_run(tmp_path / str(n), bonus_weight=float(n), level=1.0 + n)
    found, warning = claims(comparison_of(tmp_path))
    assert len(found) == 2
    assert warning.startswith("gp-icem/optimistic bonus_weight=2.0 is named first because it scores highest")


def test_seeds_of_one_configuration_are_pooled(tmp_path):
    write_run(tmp_path / "a", seeds=(0, 1))
    write_run(tmp_path / "b", seeds=(2, 3))
    comparison = comparison_of(tmp_path)
    assert comparison.methods == ["gp-icem/optimistic"]
    assert len(comparison.tasks[0].finals["gp-icem/optimistic"]) == 4


@pytest.mark.parametrize("inside", ["", "cells/optimistic"])
def test_same_seeds_twice_are_not_pooled(tmp_path, inside):
    """Cells of two sweeps have one name: the sweeps' names tell them apart."""
    write_run(tmp_path / "a" / inside, seeds=(0, 1))
    write_run(tmp_path / "b" / inside, seeds=(0, 1))
    comparison = comparison_of(tmp_path)
    assert comparison.methods == ["gp-icem/optimistic", "gp-icem/optimistic (b)"]
    assert any("same settings and seeds" in note for note in comparison.notes)


def test_caveats_name_different_versions_seeds_lengths_rates_and_settings(tmp_path):
    write_run(tmp_path / "a", "optimistic")
    write_run(
        *(tmp_path / "b", "greedy", 0.5),
        seeds=(0, 1, 2),
        episodes=8,
        repeat=4,
        versions=VERSIONS | {"sombrl": "0.2.0"},
        rank=16,
    )
    notes = " ".join(caveats(comparison_of(tmp_path)))
    assert "different versions of sombrl are compared here: 0.1.0 and 0.2.0" in notes
    assert "gp-icem/greedy has 3 of 5 seeds" in notes
    assert "frames per decision differ" in notes
    assert "differ in more than their exploration (gp.rank)" in notes
    assert "scores are compared at 200 env frames" in notes
    assert "gp-icem/greedy went on to 320" in notes


def test_scores_are_taken_at_frames_that_all_methods_reach(tmp_path):
    write_run(tmp_path / "a", "optimistic", episodes=10)
    write_run(tmp_path / "b", "greedy", episodes=6)
    (task,) = comparison_of(tmp_path).tasks
    assert task.end == 120
    np.testing.assert_allclose(task.finals["gp-icem/optimistic"], [curve(1.0, seed, 10)[5] for seed in range(5)])


def test_run_that_has_just_begun_is_not_scored(tmp_path):
    write_run(tmp_path / "a", "optimistic", episodes=10)
    write_run(tmp_path / "b", "greedy", episodes=2)
    comparison = comparison_of(tmp_path)
    (task,) = comparison.tasks
    assert task.end == 200
    assert set(task.finals) == {"gp-icem/optimistic"}
    assert any("gp-icem/greedy ended at 40 of 200 env frames" in note for note in comparison.notes)


def test_frames_and_iterations_are_not_put_on_one_axis(tmp_path):
    write_run(tmp_path / "a", "optimistic")
    write_run(tmp_path / "b", "greedy", counted=False)
    comparison = comparison_of(tmp_path)
    assert comparison.methods == ["gp-icem/optimistic"]
    assert any("axes cannot be compared" in note for note in comparison.notes)


def test_method_on_both_axes_alone_leaves_nothing_to_compare(tmp_path):
    write_run(tmp_path / "a", seeds=(0, 1))
    write_run(tmp_path / "b", seeds=(2, 3), counted=False)
    comparison = comparison_of(tmp_path)
    assert comparison.tasks == []
    assert any("axes cannot be compared" in note for note in comparison.notes)


def test_frames_to_reach_a_share_of_the_best(tmp_path):
    write_run(tmp_path / "a", "optimistic", level=1.0, seeds=(0, 1, 2))
    write_run(tmp_path / "b", "greedy", level=0.6, seeds=(0, 1, 2))
    (task,) = comparison_of(tmp_path).tasks
    thresholds, reached = frames_to_reach(task)
    # From 0.305, where greedy starts, to 1.009, where optimistic ends (seed 1 is the middle one).
    low, high = 0.61 / 2, 1.01 * (1 - 0.5**10)
    np.testing.assert_allclose(thresholds, [low + share * (high - low) for share in (0.5, 0.75, 0.9)], rtol=1e-3)
    assert [one.frames for one in reached["gp-icem/optimistic"]] == [40, 60, 80]
    assert [one.frames for one in reached["gp-icem/greedy"]] == [None, None, None]


def test_curve_holds_the_last_value_and_counts_the_seeds():
    frames = np.array([10.0, 20.0, 30.0])
    seeds = {0: Record(frames, frames / 2, frames), 1: Record(frames[:2], frames[:2] / 2, 3 * frames[:2])}
    found = over_seeds(seeds, lines=True)
    assert found["x"] == [10, 20, 30]
    assert found["r"] == 2.0
    assert found["q"] == [20, 40, 30]
    assert found["n"] == [2, 2, 1]
    assert found["s"] == [[10, 20, 30], [30, 60, None]]


@pytest.mark.parametrize(
    ("value", "text"), [(0.214, "0.21"), (-0.0032, "−0.0032"), (11588.2, "11,588"), (81.72, "81.7"), (0.0, "0.00")]
)
def test_numbers_have_about_three_digits(value, text):
    assert number(value) == text


def test_ends_of_an_interval_have_the_decimals_of_the_largest():
    assert interval_text(0.024, 0.0056, 0.08) == "0.024 [0.006, 0.080]"
    assert interval_text(81.7, -886.0, 182.0) == "82 [−886, 182]"


@pytest.mark.parametrize(
    ("found", "higher", "best"),
    [
        ({"a": (3, 2.5, 3.5), "b": (2, 1.5, 2.4)}, True, "a"),
        ({"a": (3, 2.5, 3.5), "b": (2, 1.5, 2.6)}, True, None),
        ({"a": (3, 2.5, 3.5), "b": (2, 1.5, 2.4)}, False, "b"),
        ({"a": (3, 2.5, 3.5), "b": (2, None, None)}, True, None),
        ({"a": (3, 2.5, 3.5)}, True, None),
    ],
)
def test_best_is_marked_only_where_no_other_interval_overlaps(found, higher, best):
    assert clearly_best(found, higher) == best


def test_methods_have_the_colours_of_the_figures():
    looks = [LOOKS, MBPO_LOOKS, DREAMER_LOOKS]
    for name in ("optimistic", "hucrl", "pets", "greedy", "random"):
        for look in (one[name] for one in looks if name in one):
            assert look.color == COLORS[places([f"mbpo/{name}"])[0]]
    assert places(["mine", "greedy", "optimistic"]) == [1, 3, 0]  # what is unknown takes what is free
