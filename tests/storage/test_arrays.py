"""Sizes that a file claims are compared with the manifest and with the file itself before anything is allocated."""

import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from sombrl.records import SombrlError
from sombrl.storage import checkpoint
from sombrl.storage.arrays import BadArrays, check_arrays, read_arrays

LIKE = {"x": np.zeros(4)}
HUGE = 20 * 2**30 // 8  # numbers of 20 GiB


def save(folder):
    return checkpoint.save(folder, 1, {"x": np.arange(4.0)}, {"iteration": 1})


def sign(path, change):
    """Change a manifest and put the right checksum under it, as anybody can."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["checksum"]
    change(manifest)
    manifest["checksum"] = checkpoint._manifest_checksum(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def member(header_shape, data=b""):
    """An npy file whose header claims a shape."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": header_shape})
    return out.getvalue() + data


def archive(path, content, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path / "arrays.npz", "w", compression) as file:
        file.writestr("00000.npy", content)


def allocated(call):
    """The most bytes that Python and NumPy held in a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(path, reason):
    def load():
        with pytest.raises(SombrlError, match=reason):
            checkpoint.load_latest(path.parent, LIKE)

    assert allocated(load) < 2**20


def test_a_header_that_claims_more_than_the_manifest(tmp_path):
    path = save(tmp_path)
    archive(path, member((HUGE,)))
    refused(path, "not as the manifest says")


def test_a_manifest_and_a_header_that_claim_more_than_the_file(tmp_path):
    path = save(tmp_path)
    archive(path, member((HUGE,)))
    sign(path, lambda manifest: manifest["arrays"][0].update(shape=[HUGE]))
    refused(path, "another size than the manifest says")


def test_a_bomb_that_unpacks_to_more_than_the_file(tmp_path):
    path = save(tmp_path)
    archive(path, member((2**24,), bytes(2**27)), zipfile.ZIP_DEFLATED)
    assert (path / "arrays.npz").stat().st_size < 2**18
    sign(path, lambda manifest: manifest["arrays"][0].update(shape=[2**24]))
    refused(path, "compressed, which sombrl never writes")


def test_an_archive_that_is_not_an_archive(tmp_path):
    """NumPy would read it as an array of its own and allocate that."""
    path = save(tmp_path)
    (path / "arrays.npz").write_bytes(member((HUGE,)))
    refused(path, "not a whole archive")


def test_shapes_are_compared_before_the_agent_allocates_its_own(tmp_path):
    save(tmp_path)

    def like():
        raise AssertionError("it was asked for")

    with pytest.raises(SombrlError, match=r"is float64 \(4,\) where float64 \(1000000000000,\) is expected"):
        outline = {"x": checkpoint.jax.ShapeDtypeStruct((10**12,), np.float64)}
        checkpoint.load_latest(tmp_path, checkpoint.Later(like), outline=outline)
    tree, _, _ = checkpoint.load_latest(tmp_path, checkpoint.Later(lambda: LIKE), outline=LIKE)
    assert tree["x"].tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-4]},
        {"shape": "4"},
        {"shape": [True]},
        {"shape": [4.0]},
        {"dtype": "object"},
        {"dtype": "U8"},
        {"dtype": "no such thing"},
        {"dtype": 3},
        {"path": None},
        {"blake2b": None},
        {"weak": "x"},
    ],
)
def test_entries_of_another_kind_are_damage(tmp_path, change):
    path = save(tmp_path)
    sign(path, lambda manifest: manifest["arrays"][0].update(change))
    refused(path, "not as sombrl writes it")


@pytest.mark.parametrize("change", [{"arrays": {}}, {"arrays": [3]}, {"meta": []}, {"versions": None}, {"format": "x"}])
def test_so_are_manifests(tmp_path, change):
    path = save(tmp_path)
    sign(path, lambda manifest: manifest.update(change))
    refused(path, "not as sombrl writes it")


def test_what_is_whole_is_read(tmp_path):
    path = save(tmp_path)
    entries = json.loads((path / "manifest.json").read_text())["arrays"]
    check_arrays(path, entries)
    (array,) = read_arrays(path, entries)
    assert array.tolist() == [0.0, 1.0, 2.0, 3.0]
    os.remove(path / "arrays.npz")
    with pytest.raises(BadArrays, match="missing"):
        check_arrays(path, entries)
