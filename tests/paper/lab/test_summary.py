"""Tables and pictures from hand-made rows, and rows that survive a CSV."""

import csv
import io

import numpy as np
import pytest
from scipy.stats import binomtest

from sombrl.paper.lab import CELLS, PARTS, SCALES, SETTINGS, run
from sombrl.paper.lab.bounds_summary import (
    held_table,
    horizon_table,
    least,
    lyapunov_table,
    simple_regret_table,
    update_table,
)
from sombrl.paper.lab.figures import FIGURES, SIZES
from sombrl.paper.lab.lyapunov import switching
from sombrl.paper.lab.proportion import wilson
from sombrl.paper.lab.rows import KEYS, curves, make_rows
from sombrl.paper.lab.summary import coverage, decay_table, lemma_table, markdown, regret_table
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


def held_rows():
    """Factors 0.001, 0.01 and 0.1: the largest holds on every system, the middle one for π* and πₙ."""
    rows = []
    for factor, failing in ((0.001, 3), (0.01, 1), (0.1, 0)):
        for metric, failures in (("lemma_held", failing), ("lemma_held_regret", max(failing - 1, 0))):
            values = np.array([[float(system >= failures)] for system in range(4)])
            rows += make_rows(f"sombrl x{factor:g}", "trap", "discounted", np.array([40]), {f"lab/{metric}": values})
    return rows


def simple_rows():
    """Two systems, two times; at the scaled weight the second system breaks the bound by a factor 2."""
    rows = []
    for method, bounds in (("sombrl-theory", [[10.0, 20.0], [40.0, 80.0]]), ("sombrl", [[1.0, 2.0], [2.0, 4.0]])):
        regret, bound = np.array([[0.5, 0.25], [4.0, 1.0]]), np.array(bounds)
        shown = {"lab/simple_regret": regret, "lab/simple_regret_bound": bound}
        held = np.all(regret <= bound, axis=1, keepdims=True)
        whole = {
            "lab/simple_regret_held": held,
            "lab/simple_regret_held_before": held,
            "lab/simple_regret_factor_worst": np.array([[1e-3], [2e-3]]),
        }
        rows += make_rows(method, "random-1d", "discounted", np.array([0, 8]), shown)
        rows += make_rows(method, "random-1d", "discounted", np.array([8]), whole)
    return rows


def horizon_rows():
    lengths, rows = np.array([1, 2]), []
    for method, growth in (("sombrl-theory", 9.0), ("hucrl", 4.0)):
        names = ("bound_first", "bound", "growth_first", "growth", "regret", "promised")
        values = {
            f"lab/horizon_{name}": np.array([[i + 1.0, growth], [i + 1.0, growth]]) for i, name in enumerate(names)
        }
        rows += make_rows(method, "random", "sub-gaussian", lengths, values)
    return rows


def lyapunov_rows():
    each = {"drift_constant": 1.3, "drift_constant_exact": 0.6, "energy_bound": 2.6, "energy_largest": 0.9}
    energy = {f"lab/{name}": np.full((2, 1), value) for name, value in (each | {"energy_at_edge": 0.0}).items()}
    rows = make_rows("known", "wide", "non-episodic", np.array([0]), energy)
    rows += make_rows("sombrl", "wide", "non-episodic", 10 * N, {"lab/known_regret": 3 * SEEDS * N**0.5})
    return rows + switching()


def update_rows():
    """Two seeds: one-bit with ever longer chunks, and a fixed rule; R_N grows by 2 a decision under either."""
    rows = []
    for rule, chunks in (("pendulum one-bit", np.arange(1, 13)), ("pendulum every-10", np.full(4, 10))):
        when = np.cumsum(chunks)
        curves = {"rollout/ep_len_mean": np.tile(chunks, (2, 1)), "rollout/regret": np.tile(2.0 * when, (2, 1))}
        rows += make_rows("optimistic", rule, "non-episodic", when, curves)
    return rows


BOUNDS = held_rows() + simple_rows() + horizon_rows() + lyapunov_rows() + update_rows()
ALL = lemma_rows() + regret_rows() + decay_rows() + picture_rows() + BOUNDS


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


def test_the_least_factor():
    (line,) = held_table(ALL)
    assert [share.successes for share in line.shares.values()] == [1, 3, 4]
    assert (line.least, line.least_regret) == (0.1, 0.01)
    shares = {0.1: wilson(3, 4), 0.01: wilson(4, 4)}
    assert least(shares) is None  # it held with the smaller factor by chance: not from there on


def test_simple_regret_table():
    theory, scaled = simple_regret_table(ALL)
    assert (theory.systems.successes, theory.systems.trials, scaled.systems.successes) == (2, 2, 1)
    np.testing.assert_allclose([theory.median, theory.worst, theory.median_bound], [0.75, 4.0, 30.0])
    np.testing.assert_allclose([theory.ratio, scaled.ratio, theory.worst_factor], [0.1, 2.0, 2e-3])


def test_horizon_lyapunov_and_update_tables():
    assert [(t.horizon, t.method, t.bound) for t in horizon_table(ALL)] == [
        (1, "sombrl-theory", 2.0), (1, "hucrl", 2.0), (2, "sombrl-theory", 9.0), (2, "hucrl", 4.0)
    ]  # fmt: skip
    assert ("K, all states, actions and systems", "1.30", "0.60") in lyapunov_table(ALL)
    bit, fixed = update_table(ALL)
    assert (bit.updates, bit.first, bit.last, bit.longest, bit.decisions) == (12, 5.5, 7.5, 12, 78.0)
    assert bit.common == fixed.common == 40
    np.testing.assert_allclose([bit.regret, fixed.regret], [80.0, 80.0])  # between two updates, too


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
    assert "| discounted | trap | 1/4 at 0.001, 3/4 at 0.01, 4/4 at 0.1 | 0.1 | 0.01 |" in text
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
    assert {
        "lemma": "never failed",
        "regret": "0.50",
        "unsupervised": "-0.25",
        "system": "data",
        "bounds": "take turns",
    }[name] in text


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
