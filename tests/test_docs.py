"""The documentation is true: its code runs, its commands parse, its links lead somewhere, its names exist.

The convention: the ```python blocks of a page run from top to bottom in one session, in an empty folder. Every line of
a ```bash block is a command of a known kind, and `sombrl` lines are read by the command's own parser. What must not run
has a comment on the line above its fence that says why: <!-- not run: it needs a car -->. Blocks marked text are prose.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import tyro

from sombrl.agent.make import make
from sombrl.algorithms import ALGORITHMS
from sombrl.cli.app import COMMANDS, main
from sombrl.controllers import PRESETS
from sombrl.exploration import STRATEGIES
from sombrl.paper.experiments import EXPERIMENTS
from sombrl.paper.lab import markdown
from sombrl.storage.results import read_rows
from tests.docs.pages import EXAMPLES, PAGES, ROOT, blocks, code_spans, commands, name_of, prose, to_run
from tests.small import small

SESSIONS = [name_of(page) for page in PAGES if to_run(page, "python")]
# A page's session does what the first one does; the other draws a picture and is not about an interface.
SLOW = ("train_pendulum", "fsvgd_vs_gp")
LANGUAGES = {"python", "bash", "text", "json", "toml", "yaml"}
FLAG = r"(?<![\w-])--[a-z][a-z.-]*[a-z]"
LOOKS_LIKE_CODE = re.compile(r"^(import |from \w[\w.]* import |sombrl [a-z]|pip install |make [a-z])", re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@pytest.fixture(scope="module")
def ends(request, tmp_path_factory):
    """How every session and every example that is asked for ended."""
    asked = {item.callspec.params["name"] for item in request.session.items if item.originalname == "test_code_runs"}
    jobs = []
    for name in SESSIONS:
        folder = tmp_path_factory.mktemp("session")
        (folder / "page.py").write_text("\n\n".join(to_run(ROOT / name, "python")))
        jobs.append({"name": name, "script": str(folder / "page.py"), "folder": str(folder)})
    for example in EXAMPLES:
        folder = tmp_path_factory.mktemp(example.stem)
        jobs.append({"name": example.stem, "script": str(example), "folder": str(folder), "arguments": ["--quick"]})
    work = tmp_path_factory.mktemp("jobs")
    (work / "jobs.json").write_text(json.dumps([job for job in jobs if job["name"] in asked]))
    command = [sys.executable, "-m", "tests.docs.scripts", str(work / "jobs.json"), str(work / "ends.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((work / "ends.json").read_text())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in [*SESSIONS, *(e.stem for e in EXAMPLES)]
    ],
)
def test_code_runs(name, ends):
    assert not ends[name]["error"], ends[name]["error"][-3000:]
    assert ends[name]["printed"]


@each_page
def test_nothing_claims_to_run_unseen(page):
    """A block has a known language; one that looks like code is python or bash, or says why it is not run."""
    for block in blocks(page):
        assert block.language in LANGUAGES, f"what is this, {block.language!r}? {block.code[:200]}"
        if block.language == "text" and block.reason is None:
            assert not LOOKS_LIKE_CODE.search(block.code), f"mark it python or bash, or say why not: {block.code}"
        if block.reason is not None:
            assert len(block.reason.split()) >= 3
    for code in to_run(page, "toml"):
        tomllib.loads(code)
    for code in to_run(page, "json"):
        json.loads(code)
    fences = len(re.findall(r"^```", page.read_text(), flags=re.MULTILINE))
    assert fences == 2 * len(blocks(page)), "a fence that is not closed, or not at the margin"


class Parsed(BaseException):
    """The parser has taken a command line; no Exception, so that the command line does not report it."""


@pytest.fixture
def only_parse(monkeypatch):
    """`main` up to where a command would begin its work."""
    real = tyro.cli

    def cli(target: Any, **settings: Any) -> None:
        if inspect.isfunction(target):

            @functools.wraps(target)
            def nothing(*args: Any, **kwargs: Any) -> None: ...

            del nothing.__wrapped__  # or tyro would call that
            nothing.__signature__ = inspect.signature(target)
            real(nothing, **settings)
        else:
            real(target, **settings)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", cli)
    monkeypatch.setattr(sys, "path", list(sys.path))  # `main` adds the folder


def parse(argv: list[str]) -> None:
    """Refuses a command line that sombrl would refuse."""
    if argv[:2] in (["hardware", "status"], ["hardware", "check"]):
        assert len(argv) == 3  # they read a folder at once
        return
    if argv[0] == "experiment":
        assert argv[1] in EXPERIMENTS
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Parsed):
        main(argv)  # what has no options answers: list, doctor


@each_page
def test_command_lines_are_accepted(page, only_parse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for argv in commands(page):
        match argv:
            case ["sombrl", *rest]:
                parse(rest)
            case ["make", *targets]:
                assert targets  # that they exist is tested below
            case ["pip", "install", *packages]:
                named = {
                    extra for text in packages for found in re.findall(r"\[(.*)\]", text) for extra in found.split(",")
                }
                assert named <= set(extras), argv
            case ["python", "-m", "pytest", *_] | ["python", "-c", *_]:
                pass
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module), module
            case ["python", script, *_]:
                assert (ROOT / script).exists(), script
            case ["source", ".venv/bin/activate"] | ["export", _] | ["cd", _]:
                pass
            case _:
                pytest.fail(f"nothing checks this line of {page.name}: {argv}")


def test_a_wrong_command_line_is_not_accepted(only_parse, capsys):
    """The test above can fail."""
    for wrong in ("train gp-icem --no-such-flag 3", "train gp-icem --explore sombrel", "eval", "plot x --out"):
        with pytest.raises(SystemExit) as stop:
            parse(wrong.split())
        assert stop.value.code == 2
    capsys.readouterr()


@pytest.mark.thorough
def test_the_quickstart_works(tmp_path, monkeypatch, capsys):
    """Its commands, one after the other, on a run of the size that its Python block has, so that little is compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    quick = (
        "--seeds 1 --episodes 1 --episode-length 10 --gp.capacity 64 --gp.rank 16 --gp.fit-steps 5 --gp.fit-points 32"
    )
    quick += " --icem.num-samples 20 --icem.num-elites 4 --icem.iterations 2 --icem.horizon 5"
    lines = [argv[1:] for argv in commands(ROOT / "docs" / "quickstart.md") if argv[0] == "sombrl"]
    assert [argv[0] for argv in lines] == ["doctor", "train", "eval", "plot", "export", "resume"]
    for argv in lines:
        if argv[0] == "train":
            argv = [*argv, *quick.split()]  # the last of a flag counts
        if argv[0] == "resume":
            argv = [*argv, "--episodes", "2"]
        main(argv)
        assert capsys.readouterr().out
    run = tmp_path / "runs" / "first"
    page = (ROOT / "docs" / "quickstart.md").read_text()
    there = {path.name for path in run.iterdir() if not path.name.startswith(".")}  # without locks
    assert there == set(re.findall(r"`([\w.]+)/?`", _table(page, "| `config.json`")))


def _table(text: str, start: str) -> str:
    """The names in the table whose first row begins so."""
    rows = (start + text.partition(start)[2]).partition("\n\n")[0].splitlines()
    return "\n".join(row.split("|")[1] for row in rows)


@each_page
def test_links_lead_somewhere(page):
    for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", page.read_text()):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@functools.cache
def anchors(page: Path) -> set[str]:
    """Those of the headings, as code hosts and the site make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_files_named_in_code_exist(page):
    pattern = r"(?:src|tests|docs|examples|benchmarks)/[\w./]*"
    named = {name for span in code_spans(page) for name in re.findall(rf"^{pattern}$", span)}
    assert not [name for name in named if not (ROOT / name).exists()]


@each_page
def test_make_targets_and_commands_exist(page):
    code = "\n".join([*code_spans(page), *map(" ".join, commands(page))])
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) <= targets
    assert set(re.findall(r"\bsombrl ([a-z][a-z-]*)", code)) <= set(COMMANDS)
    if page == ROOT / "docs" / "commands.md":  # and there it has them all
        assert set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) == targets
        assert set(re.findall(r"\bsombrl ([a-z][a-z-]*)", code)) == set(COMMANDS)
    if page == ROOT / "docs" / "choosing.md":
        assert set(STRATEGIES) <= set(code_spans(page))


@pytest.fixture(scope="module")
def flags():
    """The flags of all commands together, from their own help."""
    found = {"--help", "--help-all", "--quick", "--version"}  # the third is the examples'
    for script in (*(ROOT / "tools").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")):
        found |= set(re.findall(rf'"({FLAG})"', script.read_text()))
    for command in COMMANDS:
        for algorithm in ALGORITHMS if command == "train" else [None]:
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
                main([command, algorithm, "--help-all"] if algorithm else [command, "--help"])
            found |= set(re.findall(FLAG, out.getvalue()))
    return found


@each_page
def test_flags_in_the_text_exist(page, flags):
    assert {flag for span in code_spans(page) for flag in re.findall(FLAG, span)} <= flags


@pytest.mark.thorough
def test_metrics_are_documented():
    section = (ROOT / "docs" / "notation.md").read_text().partition("## metrics.jsonl")[2]
    documented = re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)
    rows: dict[str, Any] = {}
    for setting in ("discounted", "non-episodic"):
        recorded = {"record_bounds": True, "stop_when_gap": 0.1, "episode_length": 6} if setting == "discounted" else {}
        agent = small(reward="learned", explore="optimistic", setting=setting, **({"episode_length": None} | recorded))
        (row,) = agent.rows(next(agent.iterations(1)))
        rows |= row
    nets = {"hidden": (8, 8), "batch_size": 8}
    costs = {"env_kwargs": {"speed_limit": 6}, "safety": {"budget": 0.9}}
    online = make("mbpo", "pendulum", report_every=2, decisions=4, sac=nets, ensemble=nets, **costs)
    rows |= online.rows(next(online.iterations(1)))[0]
    assert sorted(documented) == sorted([*rows, "eval/ep_rew_mean"])


def test_presets_are_documented():
    text = (ROOT / "docs" / "algorithms" / "gp-icem.md").read_text()
    for name, preset in PRESETS.items():
        sizes = (preset.num_samples, preset.num_elites, preset.iterations, preset.horizon)
        assert f"| `{name}` | {' | '.join(map(str, sizes))} |" in text


def test_every_command_has_a_row():
    text = (ROOT / "docs" / "commands.md").read_text()
    assert re.findall(r"^\| `sombrl ([\w-]+)` \|", text, flags=re.MULTILINE) == sorted(
        COMMANDS, key=lambda name: text.index(f"`sombrl {name}`")
    )


def test_every_page_has_its_place_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages == {name for name in re.findall(r"[\w./-]+\.md", navigation) if not name.startswith("repository/")}


def test_the_own_environment_of_the_page_is_found_from_its_folder(capsys, tmp_path, monkeypatch):
    """What answers at once is asked: the lines that list, examine and check."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    page = ROOT / "docs" / "extending.md"
    quick = [argv[1:] for argv in commands(page) if argv[:2] == ["sombrl", "check-env"]]
    source = next(code for code in to_run(page, "python") if "class Parking(gymnasium.Env)" in code)
    (tmp_path / "parking.py").write_text(source.partition("\nagent =")[0])
    for argv in quick:
        main(argv)
        assert capsys.readouterr().out
    assert ["check-env", "parking:Parking-v0"] in quick
    sys.modules.pop("parking")
    gymnasium.registry.pop("Parking-v0")


@pytest.mark.thorough
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_the_laboratorys_tables_are_those_of_the_results(scale):
    rows = [dataclasses.asdict(row) for row in read_rows(ROOT / "results" / "theory-lab" / f"{scale}.csv")]
    assert rows and markdown(rows).strip() in (ROOT / "docs" / "lab.md").read_text()
