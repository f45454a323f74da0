"""The documentation is true: its code runs, its links lead somewhere, its names exist.

The convention: the ```python blocks of a page run from top to bottom in one session, in an empty folder. What must not
run is marked ```text or ```bash. Each session is a process of its own, as a reader's would be.
"""

import contextlib
import dataclasses
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from sombrl.agent import make
from sombrl.algorithms import ALGORITHMS
from sombrl.cli import COMMANDS, main
from sombrl.controllers import PRESETS
from sombrl.exploration import STRATEGIES
from sombrl.lab import markdown
from sombrl.results import read_rows
from tests.small import small

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# choosing.md evaluates the run that the README has saved.
SESSIONS = [("README.md", "docs/choosing.md"), ("docs/extending.md",), ("docs/environments.md",)]

FLAG = r"(?<![\w-])--[a-z][a-z.-]*[a-z]"

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def code_spans(text: str) -> list[str]:
    """Inline code, without the fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def shell_lines(text: str) -> list[str]:
    lines = "".join(blocks(text, "bash")).splitlines()
    return [line.partition("#")[0].strip() for line in lines]


def run(arguments, folder) -> str:
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("pages", SESSIONS, ids=lambda pages: pages[0])
def test_code_on_the_pages_runs(pages, tmp_path):
    text = "\n".join((ROOT / page).read_text() for page in pages)
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(blocks(text, "python")))
    assert run([script], tmp_path)


def test_no_other_page_has_code_that_nobody_runs():
    tested = {ROOT / page for pages in SESSIONS for page in pages}
    assert {page for page in PAGES if blocks(page.read_text(), "python")} == tested


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_examples_run(example, tmp_path):
    assert run([example, "--quick"], tmp_path)


@each_page
def test_links_lead_somewhere(page):
    links = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", page.read_text())
    inside = [link for link in links if not link.startswith(("http://", "https://", "#"))]
    missing = [link for link in inside if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


@each_page
def test_files_named_in_code_exist(page):
    pattern = r"(?:src|tests|docs|examples|benchmarks)/[\w./]*"
    named = {name for span in code_spans(page.read_text()) for name in re.findall(rf"^{pattern}$", span)}
    assert not [name for name in named if not (ROOT / name).exists()]


@each_page
def test_make_targets_and_commands_exist(page):
    text = page.read_text()
    code = "\n".join([*code_spans(text), *shell_lines(text)])
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) <= targets
    assert set(re.findall(r"\bsombrl ([a-z][a-z-]*)", code)) <= set(COMMANDS)
    if page.name == "README.md":  # and there it has them all
        assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) == targets
        assert set(re.findall(r"\bsombrl ([a-z][a-z-]*)", code)) == set(COMMANDS)
        assert set(STRATEGIES) <= set(code_spans(text))


@pytest.fixture(scope="module")
def flags():
    """The flags of every command, from its own help."""
    found = {}
    for command in COMMANDS:
        found[command] = {"--help"}
        for algorithm in ALGORITHMS if command == "train" else [None]:
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
                main([command, *([algorithm] if algorithm else []), "--help"])
            found[command] |= set(re.findall(FLAG, out.getvalue()))
    return found


@each_page
def test_flags_exist(page, flags):
    text = page.read_text()
    for line in shell_lines(text):
        if line.startswith("sombrl "):
            assert set(re.findall(FLAG, line)) <= flags[line.split()[1]], line
    known = set().union(*flags.values()) | {"--quick"}  # that one is the examples'
    assert {flag for span in code_spans(text) for flag in re.findall(FLAG, span)} <= known


def test_metrics_are_documented():
    section = (ROOT / "docs" / "notation.md").read_text().partition("## metrics.jsonl")[2]
    documented = re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)
    rows: dict[str, Any] = {}
    for setting in ("discounted", "non-episodic"):
        agent = small(reward="learned", setting=setting, episode_length=6 if setting == "discounted" else None)
        (row,) = agent.rows(next(agent.iterations(1)))
        rows |= row
    nets = {"hidden": (8, 8), "batch_size": 8}
    online = make("mbpo", "pendulum", report_every=2, decisions=4, sac=nets, ensemble=nets)
    rows |= online.rows(next(online.iterations(1)))[0]
    assert sorted(documented) == sorted([*rows, "eval/ep_rew_mean"])


def test_presets_are_documented():
    text = (ROOT / "docs" / "choosing.md").read_text()
    for name, preset in PRESETS.items():
        sizes = (preset.num_samples, preset.num_elites, preset.iterations, preset.horizon)
        assert f"| `{name}` | {' | '.join(map(str, sizes))} |" in text


def test_the_command_line_of_the_readme_starts(capsys, tmp_path, monkeypatch):
    """What answers at once is asked; the training lines are covered by their flags."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # `main` adds the folder
    lines = [line for line in shell_lines((ROOT / "README.md").read_text()) if line.startswith("sombrl ")]
    quick = [line.split()[1:] for line in lines if line.split()[1] in ("list", "check-env", "doctor")]
    for argv in quick:
        if "parking:Parking-v0" in argv:
            source = next(block for block in blocks((ROOT / "README.md").read_text(), "python") if "Parking" in block)
            (tmp_path / "parking.py").write_text("import gymnasium\n" + source.partition("\nagent =")[0])
        main(argv)
        assert capsys.readouterr().out
    assert len(quick) >= 4
    sys.modules.pop("parking")
    gymnasium.registry.pop("Parking-v0")


def test_the_laboratorys_tables_are_those_of_the_results():
    rows = [dataclasses.asdict(row) for row in read_rows(ROOT / "results" / "theory-lab" / "small.csv")]
    assert markdown(rows).strip() in (ROOT / "docs" / "lab.md").read_text()
