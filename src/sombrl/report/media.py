"""Films and pictures of runs inside the page, as far as there is room; the others are listed."""

import base64
import dataclasses
from collections.abc import Iterable
from pathlib import Path

from sombrl.report.loading import MEDIA

ONE_FILE = 4_000_000
"""Bytes of the largest film that is put into a page."""
ALL_FILES = 16_000_000
"""Bytes of all of them: beyond this a page opens slowly on a phone."""


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
            size = path.stat().st_size
            if size > ONE_FILE:
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
