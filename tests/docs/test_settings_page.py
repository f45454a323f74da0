"""docs/settings.md has every option of `sombrl train`, as the configurations say."""

import importlib.util
import re
from pathlib import Path

from sombrl.algorithms import ALGORITHMS
from sombrl.cli.train import OutputOptions
from sombrl.config.fields import leaves
from sombrl.config.run import RunConfig

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text()


def test_the_page_is_what_the_configurations_say():
    spec = importlib.util.spec_from_file_location("make_settings", ROOT / "tools" / "make_settings.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.source() == PAGE, "run: python tools/make_settings.py"


def test_no_option_is_missing():
    shown = set(re.findall(r"^\| `(--[\w.-]+)` \|", PAGE, flags=re.MULTILINE))
    for algorithm in ALGORITHMS.values():
        for cls in (RunConfig, OutputOptions, algorithm.config):
            assert {field.flag for field in leaves(cls, "") if field.name not in algorithm.lacks} <= shown
