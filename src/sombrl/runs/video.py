"""Frames to a file: .gif with Pillow, .mp4 with imageio-ffmpeg. What cannot work is refused at once."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.optional import require
from sombrl.records import RunFault, SombrlError
from sombrl.storage.files import check_new

WRITERS = {".gif": ("PIL.Image", "Pillow"), ".mp4": ("imageio_ffmpeg", "imageio-ffmpeg")}
"""Suffix → the module that writes it and the name it is installed by."""


def can_write(suffix: str) -> bool:
    """Whether what writes such files is installed, and works."""
    try:
        _writer(suffix)
    except SombrlError:
        return False
    return True


def film_rate(action_repeat: int) -> float:
    """Pictures a second: 30 frames of the world, and not so few pictures that a film becomes a slide show."""
    return max(10.0, 30.0 / action_repeat)


def check_video(path: Path) -> None:
    """Refuse what `write_video` cannot write, before minutes are spent on the frames."""
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise SombrlError(f"a video is a {' or '.join(WRITERS)} file, not {path.name!r}: choose another --video.")
    check_new(path, "--video")
    _writer(suffix)


def write_video(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    """Write pictures (uint8 [height, width, 3], all of one size) as a film; it is whole or not there."""
    path = Path(path)
    check_video(path)
    if not frames:
        raise SombrlError(f"there are no frames to write to {path}: film at least one step.")
    # Written aside: the suffix stays, because the writers choose the format by it.
    aside = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        (_write_gif if path.suffix.lower() == ".gif" else _write_mp4)(aside, frames, fps)
        os.replace(aside, path)
    except OSError as error:
        raise RunFault(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        aside.unlink(missing_ok=True)


def _writer(suffix: str) -> Any:
    module, package = WRITERS[suffix]
    return require(module, package, f"a {suffix} video needs {package}: pip install 'sombrl[video]'.")


def _write_gif(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    image = _writer(".gif")
    pictures = [image.fromarray(frame) for frame in frames]
    # A GIF counts time in hundredths of a second, and viewers slow down what is faster than 50 a second.
    duration = max(20, 10 * round(100 / fps))
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=duration, loop=0)


def _write_mp4(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    # Or it forks to run Python code in the child, which beside JAX's threads may hang.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    imageio_ffmpeg = _writer(".mp4")
    # H.264 in the pixel format that every player knows halves the colour planes: the sides must be even.
    height, width = frames[0].shape[:2]
    pad = ((0, height % 2), (0, width % 2), (0, 0))
    size = (width + width % 2, height + height % 2)
    writer = imageio_ffmpeg.write_frames(str(path), size, fps=fps, macro_block_size=1, quality=8)
    writer.send(None)
    try:
        for frame in frames:
            writer.send(np.ascontiguousarray(np.pad(frame, pad, mode="edge")))
    finally:
        writer.close()
