"""The ten lines of the README learn what they say, in about the time they say."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import blocks

README = Path(__file__).resolve().parents[2] / "README.md"
MOST = 180
"""Seconds, of about thirty: the machine may be busy."""


@pytest.mark.slow
def test_the_lines_of_the_readme_learn(tmp_path):
    (code,) = [block.code for block in blocks(README) if block.language == "python"]
    (tmp_path / "lines.py").write_text(code)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "lines.py"], cwd=tmp_path, capture_output=True, text=True, timeout=2 * MOST)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.strip().splitlines()[-1]) > 90
    assert time.monotonic() - began < MOST
    assert (tmp_path / "runs" / "mountain-car" / "checkpoints").is_dir()
