"""Checkpoints: what goes in comes out, and no kill, full disk or damaged byte loses the last good one."""

import errno
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.records import RunFault, SombrlError
from sombrl.storage import checkpoint


class Inner(eqx.Module):
    weight: jax.Array
    bias: jax.Array | None
    activation: object = eqx.field(static=True)


class Outer(eqx.Module):
    inner: Inner
    stack: list
    steps: int
    rate: float
    name: str = eqx.field(static=True)
    call: object = jax.nn.relu  # a leaf that is not an array


def outer(seed: int, steps: int) -> Outer:
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        double = jnp.asarray(rng.normal(size=(3, 2)))
    inner = Inner(double, None, jnp.tanh)
    stack = [
        jnp.asarray(rng.normal(size=5), jnp.float32),
        {"b": rng.integers(0, 9, size=(2, 0, 3), dtype=np.int32), "a": rng.random(4) < 0.5},
        (jax.random.PRNGKey(seed), jnp.asarray(rng.normal(size=3), jnp.bfloat16)),
        np.asfortranarray(rng.normal(size=(4, 3))),
        np.float64(rng.normal()),
    ]
    return Outer(inner, stack, steps, 0.1 * seed, name="n")


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert type(a) is type(b)
        if eqx.is_array_like(a):
            assert np.asarray(a).dtype == np.asarray(b).dtype
            assert np.asarray(a).shape == np.asarray(b).shape
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def vector(value: float, n: int = 300):
    return {"x": np.full(n, float(value)), "key": np.arange(2, dtype=np.uint32)}


def test_round_trip_is_exact_with_x64_off(tmp_path):
    with jax.enable_x64(False):
        tree = outer(3, 17)
        path = checkpoint.save(tmp_path / "c", 4, tree, {"iteration": 4, "worst": float("-inf")})
        loaded, meta = checkpoint.load(path, outer(0, 0))
    assert path == tmp_path / "c" / "00000004"
    assert_same(loaded, tree)
    assert loaded.inner.weight.dtype == jnp.float64 and loaded.steps == 17 and type(loaded.steps) is int
    assert meta == {"iteration": 4, "worst": float("-inf")}
    assert checkpoint.latest_meta(tmp_path / "c") == meta


def test_special_values_and_weak_types_survive(tmp_path):
    special = jnp.asarray([np.nan, -0.0, np.inf, 1e-45], jnp.float32)
    tree = {"special": special, "weak": jnp.asarray(1.5), "weak_many": jnp.broadcast_to(jnp.asarray(2), (3,))}
    assert tree["weak"].weak_type and tree["weak_many"].weak_type
    checkpoint.save(tmp_path, 0, tree, {})
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    loaded, _ = checkpoint.load(tmp_path / "00000000", like)
    assert_same(loaded, tree)
    assert [x.weak_type for x in jax.tree.leaves(loaded)] == [x.weak_type for x in jax.tree.leaves(tree)]


def test_it_is_plain_files_with_versions_and_no_pickle(tmp_path):
    path = checkpoint.save(tmp_path, 1, outer(1, 1), {"a": 1})
    assert sorted(p.name for p in path.iterdir()) == ["arrays.npz", "manifest.json"]
    with np.load(path / "arrays.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["versions"]["jax"] == jax.__version__
    assert {"path", "dtype", "shape"} <= set(manifest["arrays"][0])
    assert manifest["arrays"][0]["path"] == ".inner.weight"


@pytest.mark.parametrize(
    "leaf", [np.array([{}], object), np.array(["a"]), jax.random.key(0)], ids=["object", "text", "key"]
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_written(tmp_path, leaf):
    with pytest.raises(SombrlError, match=r"array \['bad'\]"):
        checkpoint.save(tmp_path / "c", 1, {"bad": leaf}, {})
    assert not (tmp_path / "c").exists()


def test_metadata_must_be_json(tmp_path):
    with pytest.raises(SombrlError, match="metadata must be JSON"):
        checkpoint.save(tmp_path, 1, vector(1.0), {"a": object()})


@pytest.mark.parametrize(
    ("like", "sentence"),
    [
        (
            {"x": np.zeros(4), "key": np.zeros(2, np.uint32)},
            r"\['x'\].*float64 \(300,\) where float64 \(4,\)",
        ),
        ({"x": np.zeros(300, np.float32), "key": np.zeros(2, np.uint32)}, "where float32"),
        ({"x": np.zeros(300)}, r"has an array \['key'\]"),
        (vector(0.0) | {"y": np.zeros(1)}, r"has no array \['y'\]"),
    ],
)
def test_another_structure_is_refused_by_name(tmp_path, like, sentence):
    checkpoint.save(tmp_path, 1, vector(1.0), {})
    with pytest.raises(SombrlError, match=sentence):
        checkpoint.load_latest(tmp_path, like)


def test_retention_and_stale_folders(tmp_path):
    (tmp_path / ".tmp-3-1").mkdir()
    for number in range(5):
        checkpoint.save(tmp_path, number, vector(number), {}, keep=3)
    assert sorted(os.listdir(tmp_path)) == ["00000002", "00000003", "00000004"]
    checkpoint.save(tmp_path, 3, vector(33.0), {}, keep=2)  # again: replaced, and newer ones stay
    assert sorted(os.listdir(tmp_path)) == ["00000002", "00000003", "00000004"]
    assert checkpoint.load(tmp_path / "00000003", vector(0.0))[0]["x"][0] == 33.0


def test_a_replacement_interrupted_half_way_is_found(tmp_path):
    path = checkpoint.save(tmp_path, 7, vector(7.0), {"n": 7})
    path.rename(tmp_path / ".old-00000007")  # the state between the two renames
    tree, meta, notes = checkpoint.load_latest(tmp_path, vector(0.0))
    assert (tree["x"][0], meta, notes) == (7.0, {"n": 7}, [])
    checkpoint.save(tmp_path, 8, vector(8.0), {})
    assert sorted(os.listdir(tmp_path)) == ["00000007", "00000008"]


def damage_truncate(path):
    os.truncate(path / "arrays.npz", 1000)


def damage_flip(path):
    data = bytearray((path / "arrays.npz").read_bytes())
    data[1500] ^= 1
    (path / "arrays.npz").write_bytes(data)


def damage_meta(path):
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"n": 12', '"n": 13'))


def damage_swap(path):
    """Another tree's archive, whole in itself: only our checksums can tell."""
    np.savez(path / "arrays.npz", **{"00000": np.arange(2, dtype=np.uint32), "00001": np.zeros(300)})


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_truncate, "arrays.npz: not a whole archive"),
        (damage_flip, "arrays.npz: checksum differs"),
        (damage_swap, "arrays.npz: checksum differs"),
        (damage_meta, "manifest.json: checksum differs"),
        (lambda path: (path / "arrays.npz").unlink(), "arrays.npz: missing"),
        (lambda path: (path / "manifest.json").unlink(), "manifest.json: missing"),
        (lambda path: (path / "manifest.json").write_bytes(b"\0" * 50), "manifest.json: cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_a_note(tmp_path, damage, reason):
    for number in (10, 12):
        checkpoint.save(tmp_path, number, vector(number), {"n": number})
    damage(tmp_path / "00000012")
    tree, meta, notes = checkpoint.load_latest(tmp_path, vector(0.0))
    assert tree["x"][0] == 10.0 and meta == {"n": 10}
    assert notes == [f"checkpoint 00000012 is damaged ({reason}); using 00000010"]
    with pytest.raises(SombrlError, match="00000012 is damaged"):
        checkpoint.load(tmp_path / "00000012", vector(0.0))
    shutil.rmtree(tmp_path / "00000010")
    with pytest.raises(SombrlError, match="every checkpoint"):
        checkpoint.load_latest(tmp_path, vector(0.0))


def test_any_flipped_byte_is_noticed_or_harmless(tmp_path):
    path = checkpoint.save(tmp_path, 1, vector(1.0, n=20), {"n": 1})
    rng = random.Random(0)
    for name in ("arrays.npz", "manifest.json"):
        good = (path / name).read_bytes()
        for _ in range(150):
            bad = bytearray(good)
            bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
            (path / name).write_bytes(bad)
            try:
                tree, meta = checkpoint.load(path, vector(0.0, n=20))
            except checkpoint.Damaged:
                continue
            assert_same(tree, vector(1.0, n=20))
            assert meta == {"n": 1}
        (path / name).write_bytes(good)


def test_nothing_to_load_is_one_sentence(tmp_path):
    for call in (checkpoint.latest_meta, lambda folder: checkpoint.load_latest(folder, {})):
        with pytest.raises(SombrlError, match=r"nothing is saved in .*none yet: wait .* sombrl resume"):
            call(tmp_path / "none")
    with pytest.raises(SombrlError, match="there is no checkpoint"):
        checkpoint.load(tmp_path / "00000001", {})


@pytest.mark.parametrize("number", [1, 2], ids=["same number", "next number"])
@pytest.mark.parametrize("fault", ["fsync", "savez"])
def test_a_full_disk_leaves_the_old_one(tmp_path, monkeypatch, fault, number):
    checkpoint.save(tmp_path, 1, vector(1.0), {})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os if fault == "fsync" else np, fault, full)
        with pytest.raises(RunFault, match="No space left on device"):
            checkpoint.save(tmp_path, number, vector(2.0), {})
    assert os.listdir(tmp_path) == ["00000001"]
    assert checkpoint.load_latest(tmp_path, vector(0.0))[0]["x"][0] == 1.0


def test_a_write_the_kernel_cuts_short_leaves_the_old_one(tmp_path):
    """The same through real writes: numpy and zipfile meet the error in the middle of an array."""
    checkpoint.save(tmp_path, 1, vector(1.0), {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(RunFault, match="File too large"):
            checkpoint.save(tmp_path, 2, vector(2.0, n=1 << 20), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["00000001"]


def test_a_failed_rename_puts_the_old_one_back(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, vector(1.0), {})
    rename = os.rename

    def refuse(source, target):
        if ".tmp-" in str(source):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(RunFault, match="Input/output error"):
        checkpoint.save(tmp_path, 1, vector(2.0), {})
    assert os.listdir(tmp_path) == ["00000001"]
    assert checkpoint.load_latest(tmp_path, vector(0.0))[0]["x"][0] == 1.0


# One interpreter imports JAX and forks the victims: starting JAX for each would take longer than the kills.
KILLER = """
    import os, random, signal, sys, time
    from pathlib import Path
    import numpy as np
    from sombrl.storage import checkpoint

    folder, rng, last, kills = Path(sys.argv[1]), random.Random(0), -1, 0
    like = {"x": np.zeros(2000), "n": np.zeros((), np.int64)}
    stop = time.monotonic() + 4
    while kills < 60 and time.monotonic() < stop:
        child = os.fork()
        if child == 0:
            number = max(last, 0)  # the first save replaces the newest, as a resumed run may
            while True:
                tree = {"x": np.full(2000, float(number)), "n": np.array(number)}
                checkpoint.save(folder, number, tree, {"n": number})
                number += 1
        time.sleep(rng.uniform(0.002, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        if last < 0 and not checkpoint.available(folder):
            continue
        tree, meta, notes = checkpoint.load_latest(folder, like)
        assert notes == [], notes
        assert meta["n"] == tree["n"] and (tree["x"] == meta["n"]).all() and meta["n"] >= last
        numbers = sorted({int(path.name[-8:]) for path in checkpoint.available(folder)})
        assert numbers == list(range(numbers[0], meta["n"] + 1)), numbers
        last = meta["n"]
    checkpoint.save(folder, last + 1, like, {})
    assert sorted(os.listdir(folder)) == [f"{n:08d}" for n in (last, last + 1)], os.listdir(folder)
    print(kills, last)
"""


def test_kill_minus_nine_never_loses_a_checkpoint(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(KILLER), str(tmp_path / "c")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    kills, last = map(int, answer.stdout.split())
    assert kills >= 5 and last >= 2


def test_free_arrays_need_no_template(tmp_path):
    free = {"actions": np.arange(6.0).reshape(3, 2), "episode": np.array(4)}
    checkpoint.save(tmp_path, 1, vector(1.0), {"iteration": 1}, free=free)
    tree, meta = checkpoint.load(tmp_path / "00000001", vector(0.0))
    assert np.array_equal(tree["x"], vector(1.0)["x"]) and meta["iteration"] == 1
    assert set(meta["free"]) == set(free)
    assert all(np.array_equal(meta["free"][name], free[name]) for name in free)


def halves(tree, rows):
    """The first `rows` rows of every array, and the others; counts are in both."""
    first = jax.tree.map(lambda leaf: leaf[:rows] if np.ndim(leaf) else leaf, tree)
    return first, jax.tree.map(lambda leaf: leaf[rows:] if np.ndim(leaf) else leaf, tree)


def seeds(n):
    with jax.enable_x64(True):
        wide = jnp.asarray(np.random.default_rng(n).normal(size=(n, 3)))
    return {"wide": wide, "weak": jnp.broadcast_to(jnp.asarray(2), (n,)), "host": np.arange(2 * n), "ticks": 7}


def test_parts_of_a_run_are_loaded_as_one(tmp_path):
    """Two environments per seed in "host"; the free arrays are named as those of Dreamer's replay and simulators."""
    whole = seeds(3)
    folders = [tmp_path / "parts" / name / "checkpoints" for name in ("a", "b")]
    pair, rest = halves({"wide": whole["wide"], "weak": whole["weak"]}, 2)
    host = {0: whole["host"][:4], 1: whole["host"][4:]}
    ratio = {"ratio": np.array([1, 2])}
    free = [
        ratio | {"replay/0/added": np.array(5), "replay/1/added": np.array(6), "at": np.ones((2, 3))},
        ratio | {"replay/0/added": np.array(7), "at": np.ones((1, 2))},
    ]
    for i, (folder, part) in enumerate(zip(folders, (pair, rest), strict=True)):
        for number in (3, 4) if i == 0 else (2, 3):
            tree = part | {"host": host[i], "ticks": 7}
            checkpoint.save(folder, number, tree, {"iteration": number}, free=free[i])
    like = jax.tree.map(lambda leaf: leaf, seeds(3))
    loaded, meta, notes = checkpoint.load_joined(tmp_path, folders, like)
    assert_same(loaded, whole)
    assert loaded["weak"].weak_type and loaded["wide"].dtype == jnp.float64 and notes == []
    assert meta["iteration"] == 3  # the newest that both have
    joined = meta["free"]
    assert [int(joined[f"replay/{i}/added"]) for i in range(3)] == [5, 6, 7]
    assert joined["ratio"].tolist() == [1, 2]
    assert joined["at"].tolist() == [[1, 1, 1], [1, 1, 1], [1, 1, 0]]  # a shorter history is padded

    (folders[1] / "00000003" / "arrays.npz").write_bytes(b"x")
    with pytest.raises(SombrlError, match=r"every checkpoint in .* is damaged"):
        checkpoint.load_joined(tmp_path, folders, like)
    shutil.rmtree(folders[1] / "00000003")
    with pytest.raises(SombrlError, match="no checkpoint of the same iteration"):
        checkpoint.load_joined(tmp_path, folders, like)


def test_parts_that_do_not_fit_together_are_refused(tmp_path):
    for name, rows, ticks in (("a", 2, 7), ("b", 1, 8), ("c", 2, 7)):
        checkpoint.save(tmp_path / name, 1, {"x": np.ones((rows, 3)), "ticks": ticks}, {})
    like = {"x": np.ones((3, 3)), "ticks": 0}
    with pytest.raises(SombrlError, match=r"ticks.* differs"):
        checkpoint.load_joined(tmp_path, [tmp_path / "a", tmp_path / "b"], like)
    with pytest.raises(SombrlError, match=r"\(4, 3\) where float64 \(3, 3\) is expected"):
        checkpoint.load_joined(tmp_path, [tmp_path / "a", tmp_path / "c"], like)
