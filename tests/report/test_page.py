"""The page is one file with everything in it, and refuses to be about nothing or over something."""

import html.parser
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sombrl.cli.main import main
from sombrl.report import media
from sombrl.report.page import LIVE_MARK
from tests.report.examples import GIF, VERSIONS, write_run, write_table
from tests.small import heed_ctrl_c
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta", "link", "input", "img", "br"}


class Elements(html.parser.HTMLParser):
    """Checks that elements close in order; keeps addresses, captions and header cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.tables, self.faults = [], [], [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "table":
            self.tables.append({"headers": 0})
        if tag == "th":
            self.tables[-1]["headers"] += 1
            assert attributes["scope"] in ("row", "col", "rowgroup")
        if tag not in VOID and tag != "path":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "path":
            assert self.open.pop() == tag


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def report(*arguments):
    main(["report", *map(str, arguments)])


def refused(capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as stopped:
        report(*arguments)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    write_table(path / "results" / "toy" / "small.csv")
    write_run(path / "runs" / "a", "optimistic", films=True)
    write_run(path / "runs" / "b", "greedy", 0.4, versions=VERSIONS | {"sombrl": "0.2.0"})
    (write_run(path / "runs" / "broken") / "manifest.json").unlink()
    return path


@pytest.fixture(scope="module")
def text(folder):
    report(folder, "--out", folder / "report.html", "--axis", "decisions", "--title", "A & B <compared>")
    return (folder / "report.html").read_text()


def test_page_is_valid_html_and_refers_to_no_other_file(text):
    elements = Elements(text)
    assert len(elements.tables) > 8
    assert all(table["headers"] for table in elements.tables)
    assert all(address.startswith(("#", "data:")) for address in elements.addresses)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_page_has_every_part(text):
    for heading in (
        *("What the numbers say", "Learning curves", "All tasks together", "Performance profiles"),
        *("Probability of improvement", "Regret and average reward", "Exploration and calibration"),
        *("Sample efficiency", "Compute", "Hyperparameters", "Films and pictures", "Provenance", "Read with care"),
    ):
        assert f">{heading}</h" in text, heading
    assert "A &amp; B &lt;compared&gt;" in text
    assert "optimistic &gt; greedy on 2 of 3 tasks, IQM difference" in text
    assert "different versions of sombrl are compared here: 0.1.0 and 0.2.0" in text
    assert "runs/broken: is not a run" in text


def test_data_of_the_charts(text):
    data = data_of(text)
    assert data["axis"] == "decisions"
    toy, runs = data["comparisons"]
    assert (toy["methods"], len(toy["tasks"])) == (["optimistic", "greedy"], 3)
    assert data["first"] == 0  # it has 30 runs, the other 10
    assert toy["looks"] == [0, 3]  # the colours of the project's other figures
    (task,) = runs["tasks"]
    assert [panel["title"] for panel in task["regret"]] == ["reward per decision so far"]
    titles = [panel["title"] for panel in task["explore"]]
    assert titles == [
        *("λ, weight of the bonus", "bonus share of the objective", "mean ‖σ‖ on visited states"),
        "calibration: coverage of ±2σ",
    ]
    assert task["curves"][0]["r"] == 2.0
    assert len(task["curves"][0]["s"]) == 5


def test_same_files_give_the_same_page(text, folder, tmp_path):
    report(folder, "--out", tmp_path / "again.html", "--axis", "decisions", "--title", "A & B <compared>")
    again = (tmp_path / "again.html").read_text()
    assert [a for a in again.splitlines() if "written " not in a] == [
        a for a in text.splitlines() if "written " not in a
    ]


def test_films_up_to_a_size_are_in_the_page(text, folder, tmp_path, monkeypatch):
    assert text.count("data:image/gif;base64,") == 1
    large, small = tmp_path / "large.gif", tmp_path / "small.gif"
    large.write_bytes(GIF * 100)
    small.write_bytes(GIF)
    monkeypatch.setattr(media, "ONE_FILE", 50 * len(GIF))
    monkeypatch.setattr(media, "ALL_FILES", len(GIF))
    found = media.embed([large, small, small])
    assert [one.data is not None for one in found] == [False, True, False]
    assert "more than" in found[0].reason
    assert "full" in found[2].reason


def test_text_from_files_is_escaped(tmp_path):
    write_run(tmp_path / "run", env="</script><script>alert(1)</script>")
    report(tmp_path, "--out", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    Elements(text)
    assert "<script>alert" not in text
    assert data_of(text)["comparisons"][0]["tasks"][0]["name"].startswith("</script>")


def test_bad_input_is_one_sentence(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    run = write_run(tmp_path / "run")
    taken = tmp_path / "taken.html"
    taken.write_text("mine")
    out = tmp_path / "r.html"
    assert "nothing to report" in refused(capsys, "--out", out)
    assert "there is no" in refused(capsys, tmp_path / "nowhere", "--out", out)
    assert "no runs and no tables" in refused(capsys, tmp_path / "empty", "--out", out)
    assert "no manifest.json" in refused(capsys, tmp_path / "broken", "--out", out)
    assert "there already" in refused(capsys, run, "--out", taken)
    assert "there already" in refused(capsys, run, "--out", taken, "--live")
    assert "an .html file" in refused(capsys, run, "--out", tmp_path / "r.pdf")
    assert taken.read_text() == "mine"
    assert not out.exists()


def test_live_page_follows_the_run_and_ends_cleanly(tmp_path):
    run, out = write_run(tmp_path / "run", episodes=2), tmp_path / "r.html"
    out.write_text(f"<html>{LIVE_MARK}")  # of a watch that was killed: ours to overwrite
    code = (
        "import sys; from pathlib import Path; from sombrl.report import watch; "
        "watch([Path(sys.argv[1])], Path(sys.argv[2]), every=0.2)"
    )
    command = [sys.executable, "-c", code, str(run), str(out)]
    process = subprocess.Popen(command, preexec_fn=heed_ctrl_c, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: points(out) == 2)
        text = out.read_text()
        assert LIVE_MARK in text
        assert 'data-reload="1"' in text
        lines = (write_run(tmp_path / "longer", episodes=3) / "metrics.jsonl").read_text()
        (run / "metrics.jsonl").write_text(lines)
        wait_for(lambda: points(out) == 3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, b"")
    text = out.read_text()
    assert LIVE_MARK not in text
    assert 'data-reload="0"' in text
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".tmp")]


def points(out) -> int | None:
    text = out.read_text()
    return len(data_of(text)["comparisons"][0]["tasks"][0]["curves"][0]["x"]) if 'id="data"' in text else None


@pytest.mark.slow
def test_all_committed_results_fit_into_a_page(tmp_path):
    start, out = time.monotonic(), tmp_path / "r.html"
    report(ROOT / "results", "--out", out)
    assert out.stat().st_size < 5_000_000
    assert time.monotonic() - start < 60
    text = out.read_text()
    Elements(text)
    names = [comparison["name"] for comparison in data_of(text)["comparisons"]]
    assert {"gp-episodic · paper", "mbpo-state · paper", "theory-lab · small"} <= set(names)
