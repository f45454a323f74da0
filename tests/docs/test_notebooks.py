"""The notebooks run from top to bottom, and were committed with what they print and draw."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_of(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@each
def test_is_committed_with_output(path):
    assert path.stat().st_size < 300_000
    cells = code_of(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= 3
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]


@pytest.mark.thorough
@each
def test_runs(path, tmp_path):
    """Its last cell asserts that it has learned."""
    assert "assert " in "".join(code_of(path)[-1]["source"])
    copy = Path(shutil.copy(path, tmp_path))
    command = [sys.executable, str(ROOT / "tools" / "run_notebooks.py"), str(copy)]
    environment = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [len(cell["outputs"]) for cell in code_of(copy)] == [len(cell["outputs"]) for cell in code_of(path)]
