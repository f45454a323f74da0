"""docs/recipes.md by the letter: an environment for each suite, in which sombrl trains, evaluates and films."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import FENCE, ROOT

PAGE = ROOT / "docs" / "recipes.md"
SUITES = ("Meta-World", "Gymnasium-Robotics", "MyoSuite")
SHORT = "--decisions 300 --report-every 100 --sac.hidden 32 32 --sac.batch-size 32 --ensemble.hidden 32 32"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def commands_of(suite: str, wheel: Path, folder: Path) -> list[str]:
    """The section's commands, on a run of a few hundred decisions."""
    section = PAGE.read_text().partition(f"\n## {suite}\n")[2].partition("\n## ")[0]
    lines = []
    for block in FENCE.finditer(section):
        if block["language"] == "python":
            (folder / "meta_world.py").write_text(block["code"])
            continue
        for line in block["code"].splitlines():
            words = shlex.split(line)
            if words[:2] == ["pip", "install"]:
                assert words[2] == "sombrl[video]"
                line = shlex.join(["pip", "install", "--quiet", f"{wheel}[video]", *words[3:]])
            lines.append(f"{line} {SHORT}" if words[:2] == ["sombrl", "train"] else line)
    return lines


@pytest.mark.recipes
@pytest.mark.parametrize("suite", SUITES)
def test_recipe(suite, wheel, tmp_path):
    lines = commands_of(suite, wheel, tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MUJOCO_GL", "DISPLAY")}
    script = "\n".join(["set -eu", *lines])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "The same seed and actions give the same trajectory." in done.stdout
    assert "Algorithms that fit: gp-icem, mbpo, sac, maxinfo-sac, dreamer." in done.stdout
    (film,) = tmp_path.glob("*.gif")
    assert film.stat().st_size > 10_000
