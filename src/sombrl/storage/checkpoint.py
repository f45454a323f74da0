"""A checkpoint: a pytree of arrays and a JSON dict, complete or invisible, that never runs code when loaded.

A checkpoint is the folder `<number:08d>` with `arrays.npz` (uncompressed) and `manifest.json` (metadata,
versions, and for every array its path, dtype, shape and checksum). It is written aside, fsynced and renamed,
so that a kill at any moment leaves the previous one. There is no pickle in either direction.

A leaf that is not an array or a Python number (None, a function, a string) is not stored: `like` supplies it.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sombrl.records import RunFault, SombrlError
from sombrl.storage.arrays import NAME as ARRAYS
from sombrl.storage.arrays import BadArrays, array_checksum, check_arrays, is_plain, read_arrays
from sombrl.storage.files import read_file, sync_folder, write_synced
from sombrl.storage.joining import joined_array, joined_entry, joined_free
from sombrl.storage.provenance import versions

FORMAT = 1
_NAME = re.compile(r"(\.old-)?\d{8}")
_FREE = "free:"
Accept = Callable[[Path, dict[str, Any]], None]
"""Looks at the metadata of a checkpoint, or of each part of one, and raises where it must not be used."""


@dataclasses.dataclass(frozen=True)
class Later:
    """A tree that is made when it is needed."""

    make: Callable[[], Any]

    @classmethod
    def of(cls, like: Any) -> "Later":
        """A tree that is there, or one to be made."""
        return like if isinstance(like, Later) else cls(lambda: like)


def accept_any(path: Path, meta: dict[str, Any]) -> None:
    """No metadata is refused."""


class Damaged(SombrlError):
    """A checkpoint that is there but cannot be trusted; `reason` says which file and why."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"checkpoint {path.name} is damaged ({reason}); load an older one or delete {path}.")
        self.number, self.reason = path.name.removeprefix(".old-"), reason


def save(
    folder: Path, number: int, tree: Any, meta: dict[str, Any], keep: int = 2, free: dict[str, np.ndarray] | None = None
) -> Path:
    """Commit `tree` and `meta` as checkpoint `number`, then keep only the newest `keep` up to it.

    `free` are arrays whose shapes are not known beforehand (a simulator's state): `load` returns them by name.
    """
    if keep < 1 or not 0 <= number < 10**8:
        raise SombrlError(f"a checkpoint needs keep >= 1 and a number below 10^8, not {keep} and {number}.")
    arrays, entries = _collect(tree, free or {})
    manifest = {
        "format": FORMAT,
        "meta": meta,
        "versions": versions("sombrl", "jax", "numpy"),
        "arrays": entries,
    }
    try:
        text = json.dumps(manifest | {"checksum": _manifest_checksum(manifest)}, indent=1)
    except (TypeError, ValueError) as error:
        raise SombrlError(f"checkpoint metadata must be JSON: {error}.") from error

    folder = Path(folder)
    final, aside = folder / f"{number:08d}", folder / f".tmp-{number}-{os.getpid()}"
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            sync_folder(folder.parent)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        write_synced(aside / ARRAYS, lambda file: np.savez(file, allow_pickle=False, **arrays))
        write_synced(aside / "manifest.json", text.encode())
        sync_folder(aside)
        _publish(aside, final)
    except OSError as error:
        raise RunFault(
            f"cannot write checkpoint {final}: {error.strerror or error}; the earlier checkpoints are intact."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)  # already gone when it was published
    _prune(folder, number, keep)
    return final


def load(path: Path, like: Any) -> tuple[Any, dict[str, Any]]:
    """The tree and metadata of one checkpoint, in the structure of `like` (arrays or `ShapeDtypeStruct`s).

    What was saved as `free` is in the metadata under that name. The arrays are NumPy's where `like` has NumPy's,
    otherwise JAX's, with the dtype they were saved with: float64 stays float64 when x64 is off.
    """
    return _load([Path(path)], Later.of(like))


def load_latest(
    folder: Path, like: Any, *, accept: Accept = accept_any, outline: Any = None
) -> tuple[Any, dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, and a sentence for every newer one that was not.

    `like` may be `Later`, which makes the tree once metadata and the headers of arrays are known to be good: accepted,
    no larger than their file, and of the shapes of `outline`, a tree for which nothing is allocated, if there is one.
    That may be `Later` too: metadata can decide shapes.
    """
    candidates = [(path,) for path in available(folder)]
    return _load_latest(candidates, Later.of(like), functools.partial(_none_valid, folder), accept, outline)


def load_joined(
    run: Path, folders: Sequence[Path], like: Any, *, accept: Accept = accept_any, outline: Any = None
) -> tuple[Any, dict[str, Any], list[str]]:
    """As `load_latest`, for a `run` whose seeds are in several `folders`: the newest checkpoint that all of them have.

    Arrays are joined along their first axis; what has none (a count) must be the same everywhere. Of `free` arrays,
    those with a number in their names (`replay/0/added`) belong to one row and are numbered through.
    """
    by_number = [{_number(path): path for path in reversed(available(folder))} for folder in folders]
    common = sorted(set.intersection(*map(set, by_number)), reverse=True)
    rows = [tuple(paths[number] for paths in by_number) for number in common]

    def none_valid(damaged: list[Damaged]) -> SombrlError:
        if damaged:
            return _none_valid(run, damaged)
        return SombrlError(
            f"the parts of {run} have no checkpoint of the same iteration: wait for the next one if it is being "
            f"trained, or continue it with sombrl resume {run}."
        )

    return _load_latest(rows, Later.of(like), none_valid, accept, outline)


def latest_meta(folder: Path) -> dict[str, Any]:
    """The metadata of the newest checkpoint whose manifest is whole; the arrays are not read."""
    damaged: list[Damaged] = []
    for path in available(folder):
        try:
            meta: dict[str, Any] = _read_manifest(path)["meta"]
            return meta
        except Damaged as error:
            damaged.append(error)
    raise _none_valid(folder, damaged)


def newest(folder: Path) -> int | None:
    """The number of the newest checkpoint, whole or not; None where there is none."""
    paths = available(folder)
    return _number(paths[0]) if paths else None


def available(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, newest first, whole or not."""
    try:
        found = [path for path in Path(folder).iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    # A kill in the middle of a replacement leaves the number only as `.old-`: it counts, after a proper one.
    return sorted(found, key=lambda path: (_number(path), path.name.isdigit()), reverse=True)


def _number(path: Path) -> int:
    return int(path.name[-8:])


def _load_latest(
    candidates: Sequence[Sequence[Path]],
    like: "Later",
    none_valid: Callable[[list[Damaged]], SombrlError],
    accept: Accept,
    outline: Any,
) -> tuple[Any, dict[str, Any], list[str]]:
    """The first candidate that is whole; each is one checkpoint or the parts of one."""
    damaged: list[Damaged] = []
    for paths in candidates:
        try:
            tree, meta = _load(paths, like, accept, outline)
        except Damaged as error:
            damaged.append(error)
            continue
        using = paths[0].name.removeprefix(".old-")
        notes = [f"checkpoint {e.number} is damaged ({e.reason}); using {using}" for e in damaged]
        return tree, meta, notes
    raise none_valid(damaged)


def _load(
    paths: Sequence[Path], later: "Later", accept: Accept = accept_any, outline: Any = None
) -> tuple[Any, dict[str, Any]]:
    """One checkpoint, or several parts of one with their rows joined."""
    for path in paths:
        if not path.is_dir():
            raise SombrlError(f"there is no checkpoint {path}; choose one of the numbered folders beside it.")
    manifests = [_read_manifest(path) for path in paths]
    for path, manifest in zip(paths, manifests, strict=True):
        accept(path, manifest["meta"])
        try:
            check_arrays(path, manifest["arrays"])
        except BadArrays as error:
            raise Damaged(path, f"{ARRAYS}: {error}") from None
    structured = [[e for e in m["arrays"] if not e["path"].startswith(_FREE)] for m in manifests]
    if (shapes := Later.of(outline).make()) is not None:
        _fitting(paths, structured, shapes, shapes_alone=True)
    like = later.make()
    entries, wanted = _fitting(paths, structured, like)
    leaves, treedef = jax.tree_util.tree_flatten(like)
    arrays = [_read_arrays(path, m["arrays"]) for path, m in zip(paths, manifests, strict=True)]  # the free ones last
    rows = [list(parts) for parts in zip(*(own[: len(entries)] for own in arrays), strict=True)]
    joined = (joined_array(entry["path"], parts) for entry, parts in zip(entries, rows, strict=True))
    stored = (_restore(array, entry, leaf) for array, entry, (_, leaf) in zip(joined, entries, wanted, strict=True))
    restored = [next(stored) if _is_stored(leaf) else leaf for leaf in leaves]
    number = len(entries)
    free = joined_free(
        [
            {e["path"].removeprefix(_FREE): a for e, a in zip(m["arrays"][number:], own[number:], strict=True)}
            for m, own in zip(manifests, arrays, strict=True)
        ]
    )
    meta = manifests[0]["meta"] | ({"free": free} if free else {})
    return jax.tree_util.tree_unflatten(treedef, restored), meta


def _fitting(
    paths: Sequence[Path], structured: Sequence[list[dict[str, Any]]], like: Any, *, shapes_alone: bool = False
) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
    """The entries of all parts, joined, and the leaves that they are for; refuses those that do not fit."""
    leaves = jax.tree_util.tree_flatten_with_path(like)[0]
    wanted = [(jax.tree_util.keystr(where), leaf) for where, leaf in leaves if _is_stored(leaf)]
    for path, own in zip(paths, structured, strict=True):
        _check_names(path, own, wanted)
    entries = [joined_entry(parts) for parts in zip(*structured, strict=True)]
    _check_shapes(paths[0], entries, wanted, shapes_alone)
    return entries, wanted


def _none_valid(folder: Path, damaged: list[Damaged]) -> SombrlError:
    if not damaged:
        return SombrlError(
            f"nothing is saved in {folder} yet: wait for the first checkpoint if {folder.parent} is being trained, or "
            f"continue it with sombrl resume {folder.parent}."
        )
    reasons = ", ".join(f"{error.number}: {error.reason}" for error in damaged)
    return SombrlError(f"every checkpoint in {folder} is damaged ({reasons}); start the run again from the beginning.")


def _is_stored(leaf: Any) -> bool:
    return eqx.is_array_like(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _collect(tree: Any, free: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """The arrays by number, and their manifest entries."""
    arrays: dict[str, np.ndarray] = {}
    entries: list[dict[str, Any]] = []
    leaves = [(jax.tree_util.keystr(where), leaf) for where, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    for path, leaf in leaves + [(_FREE + name, np.asarray(array)) for name, array in free.items()]:
        if not eqx.is_array_like(leaf):
            continue
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise SombrlError(f"array {path} is a typed PRNG key; store jax.random.key_data(key) instead.")
        array = np.asarray(leaf)
        if not is_plain(array.dtype) and not jnp.issubdtype(array.dtype, jnp.floating):
            raise SombrlError(f"array {path} has dtype {array.dtype}, which cannot be stored; use numbers or booleans.")
        # npy knows nothing of bfloat16 and its kin: their bits travel as unsigned integers.
        raw = array if is_plain(array.dtype) else array.view(f"u{array.dtype.itemsize}")
        raw = np.asarray(raw, order="C")
        arrays[f"{len(entries):05d}"] = raw
        entries.append(
            {
                "path": path,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                # Weak types decide promotion and retracing, so resuming exactly needs them.
                "weak": bool(getattr(leaf, "weak_type", False)),
                "blake2b": array_checksum(raw),
            }
        )
    return arrays, entries


def _manifest_checksum(manifest: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=32).hexdigest()


def _publish(aside: Path, final: Path) -> None:
    """Rename into place; an earlier one of the same number stays readable as `.old-` until that is done."""
    old = final.with_name(f".old-{final.name}")
    if replaced := final.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(final, old)
    try:
        os.rename(aside, final)
    except OSError:
        if replaced:
            os.rename(old, final)
        raise
    sync_folder(final.parent)


def _prune(folder: Path, number: int, keep: int) -> None:
    """Drop what is old or half-written; failing to tidy is no reason to stop a run."""
    with suppress(OSError):
        for path in folder.glob(".old-*"):
            final = path.with_name(path.name.removeprefix(".old-"))
            if not final.exists():
                os.rename(path, final)  # a kill had interrupted its replacement
            else:
                shutil.rmtree(path, ignore_errors=True)
        older = [path for path in available(folder) if _number(path) < number]
        for path in older[keep - 1 :]:
            os.rename(path, folder / f".tmp-pruned-{path.name}")  # so that no half-deleted one is ever seen
        for path in folder.glob(".tmp-*"):
            shutil.rmtree(path, ignore_errors=True)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(read_file(path / "manifest.json"))
        checksum = manifest.pop("checksum")
        intact = checksum == _manifest_checksum(manifest)
    except FileNotFoundError:
        raise Damaged(path, "manifest.json: missing") from None
    except PermissionError as error:
        raise RunFault(f"cannot read checkpoint {path}: {error.strerror}.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(path, "manifest.json: cannot be read") from None
    if not intact:
        raise Damaged(path, "manifest.json: checksum differs")
    if not _is_manifest(manifest):  # somebody has signed it anew
        raise Damaged(path, "manifest.json: not as sombrl writes it")
    if manifest["format"] != FORMAT:
        raise SombrlError(
            f"checkpoint {path} has format {manifest['format']} and this sombrl reads {FORMAT}; "
            f"use sombrl {manifest['versions']['sombrl']}."
        )
    return manifest


def _is_manifest(manifest: dict[str, Any]) -> bool:
    """Whether everything is there, of its type."""
    if not isinstance(manifest.get("meta"), dict) or not isinstance(manifest.get("arrays"), list):
        return False
    if not isinstance(manifest.get("versions"), dict) or "sombrl" not in manifest["versions"]:
        return False
    return isinstance(manifest.get("format"), int) and all(map(_is_entry, manifest["arrays"]))


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(name), str) for name in ("path", "dtype", "blake2b")
    ):
        return False
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
        return False
    try:
        dtype = jnp.dtype(entry["dtype"])
    except TypeError:
        return False
    return isinstance(entry.get("weak"), bool) and (is_plain(dtype) or jnp.issubdtype(dtype, jnp.floating))


def _check_names(path: Path, entries: list[dict[str, Any]], wanted: list[tuple[str, Any]]) -> None:
    remedy = "load it with the configuration it was saved with."
    saved, needed = [entry["path"] for entry in entries], [where for where, _ in wanted]
    if missing := set(needed) - set(saved):
        raise SombrlError(f"checkpoint {path} has no array {min(missing)}; {remedy}")
    if extra := set(saved) - set(needed):
        raise SombrlError(f"checkpoint {path} has an array {min(extra)} with no place to go; {remedy}")
    if saved != needed:
        raise SombrlError(f"checkpoint {path} has its arrays in another order; {remedy}")


def _check_shapes(path: Path, entries: list[dict[str, Any]], wanted: list[tuple[str, Any]], shapes_alone: bool) -> None:
    for entry, (where, leaf) in zip(entries, wanted, strict=True):
        expected = leaf if hasattr(leaf, "shape") else np.asarray(leaf)
        if tuple(entry["shape"]) != expected.shape or not (shapes_alone or entry["dtype"] == expected.dtype.name):
            raise SombrlError(
                f"array {where} of checkpoint {path} is {entry['dtype']} {tuple(entry['shape'])} where "
                f"{expected.dtype.name} {expected.shape} is expected; load it with the configuration it was saved with."
            )


def _read_arrays(path: Path, entries: list[dict[str, Any]]) -> list[np.ndarray]:
    try:
        return read_arrays(path, entries)
    except BadArrays as error:
        raise Damaged(path, f"{ARRAYS}: {error}") from None


def _restore(array: np.ndarray, entry: dict[str, Any], like: Any) -> Any:
    """The array as the kind of thing `like` is, bit for bit."""
    dtype = jnp.dtype(entry["dtype"])
    if array.dtype != dtype and not is_plain(dtype):
        array = array.view(dtype)
    if isinstance(like, np.ndarray):
        return array
    if isinstance(like, np.generic):
        return array[()]
    if isinstance(like, bool | int | float | complex):
        return type(like)(array.item())
    with jax.enable_x64(True):
        value = jnp.asarray(array)
    return _weaken(value) if entry["weak"] else value


def _weaken(value: jax.Array) -> jax.Array:
    """The same values with JAX's weak type, which only a Python number can give."""
    wide = value.dtype.name in ("float64", "int64", "complex128")
    with jax.enable_x64(wide):
        weak = jnp.broadcast_to(jnp.asarray(value.dtype.type(0).item()), value.shape)
        return weak.at[...].set(value) if weak.dtype == value.dtype else value
