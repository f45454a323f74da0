"""offline-sign and offline-to-online: the data are what they are called, and the whole of it runs at scale smoke."""

import numpy as np
import pytest

from sombrl.paper.experiments import EXPERIMENTS, run_experiment
from sombrl.paper.experiments.offline import DATA, SIGNS, SIZES, datasets
from sombrl.storage.results import read_rows

pytestmark = pytest.mark.thorough


def test_the_data_are_what_they_are_called():
    size = SIZES["smoke"]
    found = datasets("pendulum", size)
    assert set(found) == set(DATA)
    for name in ("random", "medium", "expert"):
        rows = found[name]
        assert rows.number == size.episodes * size.episode_length and rows.ends.sum() == size.episodes
        assert np.abs(rows.action).max() <= 1.0
    again = datasets.__wrapped__("pendulum", size)
    np.testing.assert_array_equal(again["expert"].action, found["expert"].action)
    assert found["mixed"].number % size.every == 0 and found["mixed"].number <= size.behaviour


@pytest.mark.parametrize(
    ("name", "methods"),
    [("offline-sign", {*SIGNS, "data"}), ("offline-to-online", {"continued", "data-alone", "over", "data"})],
)
def test_at_scale_smoke(name, methods, tmp_path, capsys):
    places = {"out": tmp_path / "results", "runs": tmp_path / "runs"}
    path = run_experiment(EXPERIMENTS[name], "smoke", pattern="pendulum/random", partial=True, **places)
    rows = read_rows(path)
    assert {row.method for row in rows} == methods and path.with_suffix(".png").exists()
    assert all(np.isfinite(row.value) for row in rows)
    last = max(row.decisions for row in rows)
    assert {row.seed for row in rows if row.decisions == last} == {0, 1}
    assert "return at the end" in capsys.readouterr().out
