"""Tables and pictures from hand-made rows, and rows that survive a CSV."""

import csv
import io

import numpy as np
import pytest
from scipy.stats import binomtest

from sombrl.paper.lab import CELLS, PARTS, SCALES, SETTINGS, run
from sombrl.paper.lab.figures import FIGURES, SIZES
from sombrl.paper.lab.rows import KEYS, curves, make_rows
from sombrl.paper.lab.summary import coverage, decay_table, lemma_table, markdown, regret_table, wilson
from sombrl.records import SombrlError
from sombrl.runs.plots import drawing

N = np.arange(1, 41)
SEEDS = np.array([0.8, 1.0, 1.2, 1.0])[:, None]


def lemma_rows():
    """Four systems, two times; the third system fails once, for half of its policies."""
    holds = np.ones((4, 2))
    holds[2, 1] = 0.5
    metrics = {
        "lab/lemma_holds": holds,
        "lab/lemma_holds_planned": np.ones((4, 2)),
        "lab/lemma_both_sides": holds,
        "lab/required_factor": np.full((4, 2), 0.2) * np.array([[1], [1], [8], [1]]),
        "lab/lemma_holds_without_bonus": np.full((4, 2), 0.25),
        "lab/calibrated": np.ones((4, 2)),
        "lab/required_beta": np.full((4, 2), 0.4),
    }
    always = {
        f"{metric}_always": metrics[metric].min(axis=1, keepdims=True) == 1.0
        for metric in ("lab/lemma_holds", "lab/lemma_holds_planned", "lab/lemma_both_sides", "lab/calibrated")
    }
    always |= {
        f"{m}_worst": metrics[m].max(axis=1, keepdims=True) for m in ("lab/required_factor", "lab/required_beta")
    }
    rows = make_rows("sombrl", "random-1d", "discounted", np.array([0, 8]), metrics)
    return rows + make_rows("sombrl", "random-1d", "discounted", np.array([8]), always)


def regret_rows():
    rows = make_rows("sombrl", "trap", "discounted", 10 * N, {"lab/regret": 3 * SEEDS * N**0.5})
    rows += make_rows("greedy", "trap", "discounted", 10 * N, {"lab/regret": SEEDS * N})
    return rows + make_rows("sombrl x0.1", "trap", "discounted", np.array([40]), {"lab/scan_regret": 7 * SEEDS})


def decay_rows():
    rows = make_rows("sombrl", "random", "finite-horizon", 10 * N, {"lab/max_uncertainty": 2 * SEEDS / N})
    rows += make_rows("random", "random", "finite-horizon", 10 * N, {"lab/max_uncertainty": 2 * SEEDS / N**0.25})
    return rows + make_rows("theory", "random", "finite-horizon", 10 * N, {"lab/rate": 9 / N[None] ** 0.5})


def picture_rows():
    rows, line = [], np.arange(5.0)[None]
    for name in ("truth", "mean", "band-low", "band-high", "projection", "data"):
        rows += make_rows(name, "picture", "sub-gaussian", np.arange(5), {"lab/x": line, "lab/y": line})
    return rows


ALL = lemma_rows() + regret_rows() + decay_rows() + picture_rows()


@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (3, 7), (40, 40), (99, 100)])
def test_wilson_equals_scipy(successes, trials):
    ours = wilson(successes, trials)
    theirs = binomtest(successes, trials).proportion_ci(method="wilson")
    np.testing.assert_allclose([ours.low, ours.high], [theirs.low, theirs.high], atol=1e-12)
    with pytest.raises(SombrlError, match="not a proportion"):
        wilson(trials + 1, trials)


def test_lemma_table():
    (line,) = lemma_table(ALL)
    assert (line.setting, line.env) == ("discounted", "random-1d")
    np.testing.assert_allclose(line.pairs, 7.5 / 8)
    assert (line.systems.successes, line.systems.trials) == (3, 4)
    assert line.both_sides.successes == 3 and line.calibrated.successes == 4
    np.testing.assert_allclose([line.without_bonus, line.median_factor], [0.25, 0.2])
    np.testing.assert_allclose([line.worst_factor, line.worst_beta], [1.6, 0.4])
    assert coverage(ALL) == {("discounted", "random-1d", 0): 1.0, ("discounted", "random-1d", 8): 0.875}


def test_regret_table_finds_the_exponents():
    table = {line.method: line for line in regret_table(ALL)}
    np.testing.assert_allclose(table["sombrl"].slope.value, 0.5, atol=1e-9)
    np.testing.assert_allclose(table["greedy"].slope.value, 1.0, atol=1e-9)
    np.testing.assert_allclose([table["greedy"].final, table["greedy"].worst], [40.0, 48.0])
    assert {line.method: round(line.slope.value, 6) for line in decay_table(ALL)} == {
        "sombrl": -1.0,
        "random": -0.25,
        "theory": -0.5,
    }


def test_markdown_from_a_csv_is_the_same():
    file = io.StringIO()
    writer = csv.DictWriter(file, KEYS)
    writer.writeheader()
    writer.writerows(ALL)
    file.seek(0)
    text = markdown(list(csv.DictReader(file)))
    assert text == markdown(ALL)
    assert "| discounted | random-1d | 93.8% | 25.0% | 3/4 (0.30 to 0.95) |" in text
    assert "| discounted | trap | greedy | 40.0 | 48.0 | 1.00 | 1.00 to 1.00 |" in text
    assert "| discounted | trap | 7.0 |" in text
    assert markdown([]) == ""


def test_missing_rows_are_noticed():
    with pytest.raises(SombrlError, match="missing or duplicated"):
        curves(regret_rows()[1:40] + regret_rows()[40:80])


@pytest.mark.parametrize("name", FIGURES)
def test_figures(name, tmp_path):
    with drawing("this test"):
        from matplotlib.figure import Figure

        figure = FIGURES[name](ALL, Figure(figsize=SIZES[name], layout="constrained"))
        figure.savefig(tmp_path / "figure.svg")
        with pytest.raises(SombrlError, match="there are no rows"):
            FIGURES[name]([], Figure())
    text = (tmp_path / "figure.svg").read_text()
    assert {"lemma": "never failed", "regret": "0.50", "unsupervised": "-0.25", "system": "data"}[name] in text


def test_cells_have_a_part_and_a_bad_name_is_refused():
    assert {cell.split("-")[0] for cell in CELLS} == set(PARTS)
    assert {f"trap-{setting}" for setting in SETTINGS} <= set(CELLS)
    assert set(SCALES) == {"smoke", "small", "paper"}
    with pytest.raises(SombrlError, match="no part 'alchemy'"):
        run("alchemy", "smoke")
    for part in ("picture", "trap-discounted", "optimism"):
        with pytest.raises(SombrlError, match="no scale 'huge'"):
            run(part, "huge")


def test_the_picture_shows_a_projection_that_binds():
    rows = run("picture", "smoke")
    assert {row["method"] for row in rows} == {"truth", "mean", "band-low", "band-high", "projection", "data"}
    assert rows == run("picture", "smoke")
    up = {
        m: curves([r for r in rows if r["method"] == m and r["metric"] == "lab/y"])[1][0]
        for m in ("mean", "projection")
    }
    assert np.abs(up["mean"] - up["projection"]).max() > 0.02
