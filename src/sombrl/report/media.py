"""Films and pictures of runs inside the page, as far as there is room; the others are listed.

What a file is called says nothing: only what begins as a film or picture does is shown, and no link is followed.
"""

import base64
import dataclasses
from collections.abc import Iterable
from pathlib import Path

from sombrl.report.loading import MEDIA

ONE_FILE = 4_000_000
"""Bytes of the largest film that is put into a page."""
ALL_FILES = 16_000_000
"""Bytes of all of them: beyond this a page opens slowly on a phone."""


BEGINS = {".gif": (0, (b"GIF87a", b"GIF89a")), ".png": (0, (b"\x89PNG\r\n\x1a\n",)), ".mp4": (4, (b"ftyp",))}
"""Where the mark of each format is, and what it may be."""


@dataclasses.dataclass(frozen=True)
class Medium:
    """A film or picture; `data` is None where it was left out, and `reason` says why."""

    path: Path
    kind: str
    data: str | None
    reason: str = ""


def embed(paths: Iterable[Path]) -> list[Medium]:
    """The files as data URIs, in their order, until the page is full."""
    found, room = [], ALL_FILES
    for path in paths:
        kind = MEDIA[path.suffix.lower()]
        try:
            if path.is_symlink():
                found.append(Medium(path, kind, None, "a link, which is not followed"))
                continue
            size = path.stat().st_size
            if not _is_of_its_kind(path):
                found.append(Medium(path, kind, None, f"not a {path.suffix.lower()[1:]} file"))
            elif size > ONE_FILE:
                found.append(Medium(path, kind, None, f"{size / 1e6:.1f} MB, more than {ONE_FILE / 1e6:.0f}"))
            elif size > room:
                found.append(Medium(path, kind, None, f"{size / 1e6:.1f} MB, and the page is full"))
            else:
                content = base64.b64encode(path.read_bytes()).decode()
                found.append(Medium(path, kind, f"data:{kind};base64,{content}"))
                room -= size
        except OSError as error:
            found.append(Medium(path, kind, None, f"cannot be read: {error.strerror or error}"))
    return found


def _is_of_its_kind(path: Path) -> bool:
    """Whether a file begins as its name says."""
    at, marks = BEGINS[path.suffix.lower()]
    with open(path, "rb") as file:
        return file.read(at + 8)[at:].startswith(marks)
