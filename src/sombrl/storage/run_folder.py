"""A run is a folder: resolved config, manifest, metrics, checkpoints, plots, videos. Nothing else is needed.

`metrics.jsonl` is the source of truth for every curve: strict JSON, one row per line, on disk before `append`
returns. A line counts when its newline is there, so a kill in the middle of a write costs that line only.

Where several processes train some of the seeds each, `group.json` names the parts: runs of their own in subfolders,
which have the checkpoints. The rest of the folder is as one process would have written it.
"""

import contextlib
import errno
import fcntl
import functools
import json
import math
import os
import re
import shutil
import socket
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from sombrl.records import RunFault, SombrlError
from sombrl.storage import checkpoint
from sombrl.storage.files import check_parents, is_locked, read_file, refuse_links, sync_folder, write_synced
from sombrl.storage.provenance import provenance

GROUP = "group.json"
OWN = (
    *("config.json", "manifest.json", "metrics.jsonl", GROUP, "parts", "checkpoints", ".lock"),
    *("plots", "videos", "tensorboard", "wandb", "wandb.json", "logs", "eval.json", ".eval-lock"),
    *("settings.json", "finished.json", "rows.csv", "attempts.jsonl", "evaluations", "run"),  # of a cell
    *("episodes", "policies", "learner", "interventions.jsonl", "heartbeat.json", "log.txt"),  # of a campaign
)
"""What is written in a run's folder, a cell's or a campaign's."""
PART = re.compile(r"parts/[a-z0-9-]+")
KINDS: dict[type, str] = {str: "text", dict: "JSON object", list: "list"}
COUNTS = ("iteration", "seed", "env_frames", "decisions")  # of a row of metrics
MANIFEST: dict[str, type] = {"created": str, "command": list, "versions": dict, "device": dict, "git": dict}


class RunFolder:
    """One run on disk. Make it with `create` or `open`; hold `lock()` while writing."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.metrics_path = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.plots = self.path / "plots"
        self.videos = self.path / "videos"
        self.tensorboard = self.path / "tensorboard"

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], command: list[str], parts: Sequence[str] = ()) -> "RunFolder":
        """A new run with its resolved config and a manifest of where it ran; refuses a folder in use.

        `parts` are the subfolders of its runs, where it is to have some.
        """
        path = Path(path)
        exists = _is_empty_folder(path)
        try:
            texts = {
                "config.json": json.dumps(config, indent=2),
                **({GROUP: json.dumps({"format": 1, "parts": list(parts)}, indent=2)} if parts else {}),
                "manifest.json": json.dumps(provenance(command), indent=2),
            }
        except (TypeError, ValueError) as error:
            raise SombrlError(f"the run's configuration must be JSON: {error}.") from error
        # Inside a folder that is there already (a mount cannot be renamed over), otherwise beside it.
        aside = (path if exists else path.parent) / f".tmp-{path.name}-{os.getpid()}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            for name, text in texts.items():
                write_synced(aside / name, text.encode())
            sync_folder(aside)
            if exists:
                for name in texts:  # the manifest last: without it the folder is not a run
                    os.rename(aside / name, path / name)
                sync_folder(path)
            else:
                os.rename(aside, path)
            sync_folder(path.parent)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process was quicker
                raise _taken(path) from error
            for name in texts if exists else ():
                (path / name).unlink(missing_ok=True)
            raise RunFault(f"cannot create the run {path}: {error.strerror or error}.") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A run that is there already."""
        path = Path(path)
        if not path.is_dir():
            raise SombrlError(f"there is no run {path}; give the folder that `sombrl train --out` wrote.")
        if not (path / "manifest.json").is_file() or not (path / "config.json").is_file():
            raise SombrlError(f"{path} is not a run (no manifest.json and config.json); give a run's folder.")
        return cls(path)

    @functools.cached_property
    def parts(self) -> list["RunFolder"]:
        """The runs that this one is made of, in the order of their seeds; most runs have none."""
        if not (self.path / GROUP).is_file():
            return []
        group = self._read(GROUP)
        self._require(GROUP, group, "", {"parts": list})
        names = group["parts"]
        if not names or not all(isinstance(name, str) and PART.fullmatch(name) for name in names):
            raise SombrlError(f"{self.path / GROUP} is damaged, it names no parts: restore it from a copy.")
        refuse_links(self.path, ["parts", *names])
        return [RunFolder(self.path / name) for name in names]

    def load_latest(
        self, like: Any, *, accept: checkpoint.Accept = checkpoint.accept_any, outline: Any = None
    ) -> tuple[Any, dict[str, Any], list[str]]:
        """The newest whole checkpoint, of all parts where there are some: tree, metadata, and what was damaged."""
        if not self.parts:
            return checkpoint.load_latest(self.checkpoints, like, accept=accept, outline=outline)
        folders = [part.checkpoints for part in self.parts]
        return checkpoint.load_joined(self.path, folders, like, accept=accept, outline=outline)

    @property
    def saved_iteration(self) -> int:
        """The iteration up to which all of it is saved; 0 before the first checkpoint."""
        return min((checkpoint.newest(folder.checkpoints) or 0) for folder in self.parts or [self])

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration the run was started with."""
        return self._read("config.json")

    @property
    def settings(self) -> dict[str, Any]:
        """`config` as an agent writes it, with an algorithm, an environment and the rest; refuses what lacks these."""
        config = self.config
        self._require("config.json", config, "", {"algorithm": str, "config": dict, "run": dict})
        self._require("config.json", {"setting": ""} | config["run"], "run.", {"env": str, "setting": str})
        explore = ({"explore": {}} | config["config"])["explore"]
        self._require("config.json", {"explore": explore}, "config.", {"explore": dict})
        self._require("config.json", {"explore": ""} | explore, "config.explore.", {"explore": str})
        return config

    def _require(self, file: str, data: dict[str, Any], within: str, kinds: dict[str, type]) -> None:
        """Refuse what a file holds without these names, or with something else under them."""
        for name, kind in kinds.items():
            if not isinstance(data.get(name), kind):
                what = f"no {KINDS[kind]} under {within + name!r}"
                raise SombrlError(f"{self.path / file} is damaged, it has {what}: restore it from a copy.")

    @property
    def manifest(self) -> dict[str, Any]:
        """Versions, device, precision, git state and command of the process that created the run."""
        manifest = self._read("manifest.json")
        given = {name: manifest[name] for name in MANIFEST if manifest.get(name) is not None}
        self._require("manifest.json", given, "", {name: MANIFEST[name] for name in given})
        for part, names in {"versions": list(given.get("versions", ())), "git": ["commit"]}.items():
            texts = {name: given.get(part, {}).get(name) for name in names}
            known = {name: text for name, text in texts.items() if text is not None}
            self._require("manifest.json", known, f"{part}.", dict.fromkeys(known, str))
        return manifest

    def refuse_links(self) -> None:
        """Refuse to write in a folder whose own files lie elsewhere."""
        refuse_links(self.path, OWN)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only process that writes this run; the system lets go when the process ends in any way."""
        self.refuse_links()
        try:
            descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise RunFault(f"cannot write in the run {self.path}: {error.strerror}.") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise SombrlError(
                    f"the run {self.path} is in use by another process ({owner or 'unknown'}); "
                    "wait for it to end or choose another --out."
                ) from None
            except OSError as error:  # some network file systems cannot lock: better to run than to refuse
                warnings.warn(f"cannot lock {self.path} ({error.strerror}): run one process on it", stacklevel=3)
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    @property
    def in_use(self) -> bool:
        """Whether another process holds the lock at this moment."""
        return is_locked(self.path / ".lock", fcntl.LOCK_SH)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add rows to the metrics, on disk when this returns; all of them or, when the disk is full, none."""
        text = "".join(_line(row) for row in rows).encode()
        try:
            with open(self.metrics_path, "ab+", buffering=0) as file:
                end = _whole(file)
                file.truncate(end)  # the half line of an earlier kill would swallow our first row
                if end == 0:
                    sync_folder(self.path)
                try:
                    if file.write(text) != len(text):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)
                    raise
        except OSError as error:
            raise RunFault(f"cannot write {self.metrics_path}: {error.strerror or error}.") from error

    def rows(self) -> list[dict[str, Any]]:
        """Every metrics row, oldest first; a half-written last line is left out."""
        return [row for _, row in self._lines()]

    def truncate(self, iteration: int) -> None:
        """Drop the rows of `iteration` and later: what a resumed run will write again."""
        kept = b"".join(line for line, row in self._lines() if row.get("iteration", -1) < iteration)
        if not self.metrics_path.exists() or kept == self.metrics_path.read_bytes():
            return
        aside = self.path / f".tmp-metrics-{os.getpid()}"
        try:
            write_synced(aside, kept)
            os.replace(aside, self.metrics_path)
            sync_folder(self.path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise RunFault(f"cannot write {self.metrics_path}: {error.strerror or error}.") from error

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Each whole line with the row it holds; the bytes are kept so that truncating changes none."""
        if not self.metrics_path.exists():
            return
        try:
            content = read_file(self.metrics_path)
        except OSError as error:
            raise SombrlError(f"cannot read {self.metrics_path} ({error.strerror}): restore it from a copy.") from None
        lines = content.split(b"\n")[:-1]  # after the last newline: nothing, or a half line
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                good = all(isinstance(row.get(name, 0), int) for name in COUNTS)
                if b"\\u" in line and not is_text(row):
                    raise ValueError("no text")
            except (ValueError, AttributeError, RecursionError):
                raise SombrlError(f"line {number} of {self.metrics_path} is not a JSON row; delete the line.") from None
            if not good:
                where = f"line {number} of {self.metrics_path}"
                raise SombrlError(f"{where} needs whole numbers for {', '.join(COUNTS)}; delete the line.")
            yield line + b"\n", row

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads(read_file(self.path / name))
        except (OSError, ValueError, RecursionError) as error:
            raise SombrlError(f"cannot read {self.path / name} ({error}); is this a run's folder?") from error
        if not isinstance(content, dict):
            raise SombrlError(f"{self.path / name} is damaged, it holds no JSON object: restore it from a copy.")
        if not is_text(content):
            raise SombrlError(f"{self.path / name} is damaged, it is not a text file: restore it from a copy.")
        return content


def is_run(path: str | Path) -> bool:
    """Whether there is a run, and not another file or folder."""
    folder = Path(path).expanduser()
    return (folder / "manifest.json").is_file() and (folder / "config.json").is_file()


def is_text(content: Any) -> bool:
    """Whether all that a JSON file holds can be written again: half a character, as "\\ud800", cannot."""
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_empty_folder(path: Path) -> bool:
    """Whether a folder is there, with nothing in it but what a killed `create` left; refuses any other."""
    check_parents(path, "--out")
    try:
        if path.exists() and any(not entry.name.startswith(".tmp-") for entry in path.iterdir()):
            raise _taken(path)
        return path.exists()
    except NotADirectoryError:
        raise SombrlError(f"{path} is a file; choose another --out.") from None
    except OSError as error:
        raise RunFault(f"cannot create the run {path}: {error.strerror or error}.") from error


def _taken(path: Path) -> SombrlError:
    return SombrlError(f"{path} is not empty; run `sombrl resume {path}` to continue it, or choose another --out.")


def _whole(file: IO[bytes]) -> int:
    """Where the last whole line of a file ends."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _line(row: dict[str, Any]) -> str:
    try:
        return json.dumps({name: _strict(value) for name, value in row.items()}, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise SombrlError(f"a metrics row must hold numbers, strings, lists or None: {error}.") from error


def _strict(value: Any) -> Any:
    """A value as strict JSON has it: arrays as lists, NaN and infinities as null."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        value = np.asarray(value).tolist()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    return value
