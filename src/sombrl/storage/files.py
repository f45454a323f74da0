"""Files that are there complete, or not at all: written aside, synced to the disk, then renamed."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sombrl.errors import RunFault, SombrlError


def write_synced(path: Path, content: bytes | Callable[[BinaryIO], Any]) -> None:
    """Write one file and wait until the disk has it."""
    with open(path, "wb") as file:
        content(file) if callable(content) else file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's entries: without it a rename can be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_new(path: Path, flag: str) -> None:
    """Refuse a file that is there already, or that cannot be because a folder on its way is a file."""
    check_parents(path, flag)
    if os.path.lexists(path):
        raise SombrlError(f"{path} is there already: delete it or choose another {flag}.")


def check_parents(path: Path, flag: str) -> None:
    """Refuse a path through a file."""
    there = next((parent for parent in Path(path).parents if os.path.lexists(parent)), Path())
    if not there.is_dir():
        raise SombrlError(f"{there} is not a folder, so that {path} cannot be in it: choose another {flag}.")


def read_file(path: Path) -> bytes:
    """The content of a file. Anything else raises OSError: a pipe without a writer would block forever."""
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a file", str(path))
        return file.read()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder with links among its own files: a stranger's would have us write, or show, something else."""
    for name in names:
        if (folder / name).is_symlink():
            raise SombrlError(
                f"{folder / name} is a link, and what belongs to {folder} must lie in it: put the file itself there, "
                "or link the folder as a whole."
            )


@contextmanager
def new_folder(path: Path, what: str) -> Iterator[Path]:
    """Where to write the files of the new folder `path`: it has its name when all of them are on the disk, or never."""
    aside = path.parent / f".tmp-{path.name}-{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        yield aside
        sync_folder(aside)
        os.rename(aside, path)  # also over an empty folder
        sync_folder(path.parent)
    except OSError as error:
        raise RunFault(f"cannot {what} {path}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file aside and rename it: it is there complete, as it was, or not at all."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(aside, content.encode(errors="backslashreplace") if isinstance(content, str) else content)
        os.replace(aside, path)
        sync_folder(path.parent)
    except OSError as error:
        raise RunFault(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):  # it was renamed, or is not a folder
            aside.unlink()


def is_locked(path: Path, against: int) -> bool:
    """Whether a process holds a lock on a file that excludes one `against` it (LOCK_SH or LOCK_EX); none is kept."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, against | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system that cannot lock
        return False
    finally:
        os.close(descriptor)
    return False
