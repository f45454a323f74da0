"""Arrays and a JSON dictionary in one npz file: complete or not there, checked when read, and never any pickle."""

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import RunFault, SombrlError

META = "meta.json"
FORMAT = 1


class Damaged(SombrlError):
    """A file that is there but cannot be trusted."""

    def __init__(self, path: Path, reason: str):
        super().__init__(
            f"{path} is damaged ({reason}): put it back from a copy, or delete it and all later ones to do them again."
        )


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Write aside, wait for the disk, rename: a kill at any moment leaves what was there before."""
    from sombrl.storage.results import write_whole  # brings JAX along, which reading and driving do without

    try:
        text = json.dumps({"format": FORMAT, "digest": digest(arrays), **meta}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SombrlError(f"the metadata of {path} must be strict JSON: {error}.") from error
    write_whole(path, _packed({**arrays, META: np.frombuffer(text.encode(), np.uint8)}))


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What was written, or a sentence that names the file."""
    try:
        # Opened here because np.load leaves its own handle open when the archive is bad.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            meta = json.loads(arrays.pop(META).tobytes())
    except (FileNotFoundError, IsADirectoryError):
        raise SombrlError(f"there is no file {path}.") from None
    except PermissionError as error:
        raise RunFault(f"cannot read {path}: {error.strerror}.") from error
    except zipfile.BadZipFile:
        raise Damaged(path, "not a whole archive") from None
    except Exception as error:  # zip, npy and JSON parsers raise nearly anything when bytes are wrong
        raise Damaged(path, f"cannot be read, {type(error).__name__}") from None
    if meta.get("digest") != digest(arrays):
        raise Damaged(path, "checksum differs")
    return arrays, meta


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A checksum of names, shapes, types and contents."""
    checksum = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        checksum.update(f"{name} {array.dtype.str} {arrays[name].shape};".encode())
        checksum.update(array.tobytes())
    return checksum.hexdigest()


def write_quickly(path: Path, content: Mapping[str, Any]) -> None:
    """A small JSON file for other processes: whole or as before, but a power cut may lose it."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    with suppress(OSError):  # a heartbeat that cannot be written is a heartbeat that stops
        aside.write_text(json.dumps(content))
        os.replace(aside, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a small JSON file, None where there is none or it is none."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    import io

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
