"""Bad input is one sentence, and nothing is written."""

import pytest

from sombrl.cli.main import main
from sombrl.storage.results import COLUMNS

HEAD = ",".join(COLUMNS)
GOOD = "rkhs-projection,mean,one-dimension,sub-gaussian,0,f,0,0,1.0"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("experiment gp-episdic", 'did you mean "gp-episodic"'),
        ("experiment nonsense", "sombrl list experiments"),
        ("experiment gp-episodic --scale smal", 'did you mean "small"'),
        ("experiment gp-episodic --scale tiny --redraw", "unknown scale"),
        ("experiment gp-episodic --cells walker/*", "pendulum/optimistic"),
        ("experiment gp-episodic --cells pendulum/*,walker/*", '"walker/*"'),
        ("experiment gp-episodic --redraw", "sombrl experiment gp-episodic --scale small first"),
        ("list experimets", 'did you mean "experiments"'),
    ],
)
def test_refused(argv, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(argv.split())
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert sentence in err and err.startswith("sombrl: ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--out", "--runs"])
def test_results_do_not_go_into_a_file(flag, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        main(["experiment", "rkhs-projection", "--scale", "smoke", flag, "taken"])
    assert stop.value.code == 2
    assert f"taken is a file: choose another {flag}" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "first line"),
        ("a,b,c\n1,2,3\n", "first line"),
        (f"{HEAD}\n", "no rows"),
        (f"{HEAD}\n{GOOD}\n{GOOD[:-4]}\n", "line 3"),
        (f"{HEAD}\n{GOOD}\n{GOOD}x\n", "line 3"),
        (f"{HEAD}\n{GOOD[:-3]}nan\n", "finite"),
        (f"{HEAD}\n{GOOD}", "middle of a line"),
        (f"{HEAD}\n{GOOD.replace('rkhs-projection', 'gp-episodic')}\n", "holds the experiment gp-episodic"),
        (f"{HEAD}\n{GOOD}\n", "make the CSV again"),
        ("\xff\xfe", "not a text file"),
    ],
)
def test_a_damaged_or_foreign_csv_is_not_drawn(text, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "results" / "rkhs-projection" / "smoke.csv"
    table.parent.mkdir(parents=True)
    table.write_bytes(text.encode("latin-1"))
    with pytest.raises(SystemExit) as stop:
        main(["experiment", "rkhs-projection", "--scale", "smoke", "--redraw"])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and sentence in err and err.count("\n") == 1
    assert [path.name for path in table.parent.iterdir()] == ["smoke.csv"]
