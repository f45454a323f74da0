"""Words of CONTRIBUTING.md that must not come back (tools/check_words.py)."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check_words", ROOT / "tools" / "check_words.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_none_of_them_is_there(check):
    assert not [(path.name, *hit) for path in check.files() if path.exists() for hit in check.found(path.read_text())]


@pytest.mark.parametrize(
    "text", ["mend it", "a dear plan", "equal to the bit", "it is no model", "the luckiest world", "weights from a hat"]
)
def test_they_would_be_found(check, text):
    ((line, _, _),) = check.found(f"Fine.\n{text}.")
    assert line == 2


@pytest.mark.parametrize(
    "text", ["there is no model", "it is no longer there", "a dearth of data", "to the bitter end"]
)
def test_other_words_are_left_alone(check, text):
    assert not check.found(text)


def test_no_page_has_the_marks_of_a_merge(check):
    for path in check.files():
        assert not [line for line in path.read_text().splitlines() if line.startswith(("<<<<<<< ", ">>>>>>> "))], path
