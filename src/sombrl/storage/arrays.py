"""The arrays of a checkpoint, arrays.npz: every size is compared with the manifest before anything is allocated.

The file is an uncompressed archive, so it is as large as what is in it; one that says otherwise is refused by its
headers, a few bytes each, whatever program wrote it.
"""

import hashlib
import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax.numpy as jnp
import numpy as np

from sombrl.errors import RunFault

NAME = "arrays.npz"
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""The versions of the format that NumPy writes plain arrays in."""


class BadArrays(Exception):
    """The archive is not what the manifest says; the text says why."""


def check_arrays(folder: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Refuse an archive whose headers are not those of the manifest's entries; no array is read."""
    _reading(folder, lambda file: _check(file, entries))


def read_arrays(folder: Path, entries: Sequence[dict[str, Any]]) -> list[np.ndarray]:
    """The arrays of the entries, in their order, their checksums compared."""

    def read(file: BinaryIO) -> list[np.ndarray]:
        _check(file, entries)
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            return [archive[f"{index:05d}"] for index in range(len(entries))]

    arrays: list[np.ndarray] = _reading(folder, read)
    for array, entry in zip(arrays, entries, strict=True):
        if array_checksum(array) != entry["blake2b"]:
            raise BadArrays("checksum differs")
    return arrays


def array_checksum(array: np.ndarray) -> str:
    """Of the bytes of an array in C order."""
    return hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=32).hexdigest()


def is_plain(dtype: np.dtype) -> bool:
    """Whether the npy format knows a dtype by itself; the bits of others (bfloat16) travel as unsigned integers."""
    return dtype.kind in "biufc"


def _reading(folder: Path, read: Any) -> Any:
    try:
        # Opened here because np.load leaves its own handle open when the archive is bad.
        if not (folder / NAME).is_file() and (folder / NAME).exists():
            raise BadArrays("is not a file")
        with open(folder / NAME, "rb") as file:
            return read(file)
    except BadArrays:
        raise
    except FileNotFoundError:
        raise BadArrays("missing") from None
    except PermissionError as error:
        raise RunFault(f"cannot read checkpoint {folder}: {error.strerror}.") from error
    except zipfile.BadZipFile as error:
        raise BadArrays("checksum differs" if "CRC" in str(error) else "not a whole archive") from None
    except Exception as error:  # zip and npy parsers raise nearly anything when bytes are wrong
        raise BadArrays(f"cannot be read, {type(error).__name__}") from None


def _check(file: BinaryIO, entries: Sequence[dict[str, Any]]) -> None:
    there = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        for index, entry in enumerate(entries):
            info = archive.getinfo(f"{index:05d}.npy")
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise BadArrays("it is compressed, which sombrl never writes")
            there -= info.file_size
            with archive.open(info) as member:
                shape, fortran, dtype = HEADERS[np.lib.format.read_magic(member)](member)
                begins = member.tell()
            wanted = np.dtype(jnp.dtype(entry["dtype"]))
            raw = wanted if is_plain(wanted) else np.dtype(f"u{wanted.itemsize}")
            if list(shape) != entry["shape"] or dtype != raw or fortran:
                raise BadArrays(f"{entry['path']} is {dtype} {shape}, not as the manifest says")
            if info.file_size - begins != math.prod(shape) * raw.itemsize:
                raise BadArrays(f"{entry['path']} has another size than the manifest says")
    if there < 0:  # members that overlap
        raise BadArrays("it says that it holds more than its own size")
