"""`sombrl report --live`: the page is written again whenever its files have grown, until Ctrl-C."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from sombrl.report.loading import find
from sombrl.report.page import Axis, check_request, page, require_numbers
from sombrl.storage.files import write_whole

EVERY = 5
"""Seconds between two looks at the files, and between two reloads of the page."""


def watch(
    paths: Sequence[Path], out: Path, *, axis: Axis = "frames", title: str | None = None, every: float = EVERY
) -> Path:
    """Keep the page up to date. A page left by a killed watch is taken over; Ctrl-C leaves one that does not reload."""
    check_request(paths, out, live=True)
    found = find(paths)
    if not found.skipped:  # a run without metrics is worth waiting for, a folder without runs is not
        require_numbers(found, paths)
    print(f"watching {', '.join(map(str, paths))}: open {out} in a browser; Ctrl-C ends it", flush=True)
    seen = None
    try:
        while True:
            now = _state(paths)
            if now != seen:
                found = find(paths) if seen is not None else found
                write_whole(out, page(found, axis=axis, title=title, reload_s=max(1, round(every))))
                seen = now
            time.sleep(every)
    except KeyboardInterrupt:
        write_whole(out, page(find(paths), axis=axis, title=title))
    return out


def _state(paths: Sequence[Path]) -> list[tuple[str, int, int]]:
    """Names, sizes and times of everything that could be read, checkpoints left out."""
    found = []
    for path in paths:
        if path.is_file():
            found.append((str(path), path.stat().st_size, path.stat().st_mtime_ns))
        for folder, inside, files in os.walk(path):
            inside[:] = sorted(name for name in inside if name != "checkpoints" and not name.startswith("."))
            for name in sorted(files):
                try:
                    about = os.stat(os.path.join(folder, name))
                except OSError:  # renamed or deleted meanwhile
                    continue
                if not name.startswith("."):
                    found.append((os.path.join(folder, name), about.st_size, about.st_mtime_ns))
    return found
