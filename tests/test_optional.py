"""Optional packages: missing, broken, and without what they need themselves."""

import sys

import pytest

from sombrl.optional import require
from sombrl.records import SombrlError
from sombrl.runs.plots import drawing
from sombrl.runs.video import can_write, check_video

MISSING = "films need parcel: pip install 'sombrl[video]'."


def package(folder, monkeypatch, text, name="parcel"):
    """Python finds a package that does `text` when it is imported."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text)
    (folder / name / "part.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    for known in [known for known in sys.modules if known.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, known)


@pytest.mark.parametrize("module", ["parcel", "parcel.part"])
@pytest.mark.parametrize(
    "text, told",
    [
        ("raise ImportError('libGL.so.1: cannot open\\nMore.')", "(ImportError: libGL.so.1: cannot open)"),
        ("raise OSError('no library')", "(OSError: no library)"),
        ("import nothing_like_this", "(ModuleNotFoundError: No module named 'nothing_like_this')"),
    ],
)
def test_broken(module, text, told, tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, text)
    with pytest.raises(SombrlError) as error:
        require(module, "parcel", MISSING)
    assert str(error.value).startswith(f"parcel is installed but broken {told}: ") and "\n" not in str(error.value)


@pytest.mark.parametrize("module", ["parcel", "parcel.part"])
def test_missing_or_whole(module, tmp_path, monkeypatch):
    with pytest.raises(SombrlError) as error:
        require(module, "parcel", MISSING)
    assert str(error.value) == MISSING
    package(tmp_path, monkeypatch, "")
    assert require(module, "parcel", MISSING).__name__ == module
    for known in ("parcel.part", "parcel"):
        sys.modules.pop(known, None)


def test_a_broken_writer_of_films(tmp_path, monkeypatch):
    """Refused where a film is asked for; training goes on without."""
    package(tmp_path, monkeypatch, "raise ImportError('_imaging')", "PIL")
    with pytest.raises(SombrlError, match=r"Pillow is installed but broken \(ImportError: _imaging\)"):
        check_video(tmp_path / "film.gif")
    assert not can_write(".gif")


def test_a_broken_matplotlib(tmp_path, monkeypatch):
    package(tmp_path, monkeypatch, "raise ImportError('_path')", "matplotlib")
    with (
        pytest.raises(SombrlError, match=r"matplotlib is installed but broken \(ImportError: _path\)"),
        drawing("this"),
    ):
        pass
