"""Run folders: created whole or not at all, metrics that survive kills, one writer at a time; and names."""

import errno
import json
import os
import resource
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sombrl.config.suggestions import nearest
from sombrl.records import RunFault, SombrlError
from sombrl.storage.run_folder import RunFolder


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", {"lr": 1e-3}, ["sombrl", "train"])


def rows(first, last):
    return [{"iteration": n, "seed": s, "rollout/ep_rew_mean": n / 3} for n in range(first, last) for s in (0, 1)]


def test_create_writes_config_and_manifest(run):
    assert sorted(os.listdir(run.path)) == ["config.json", "manifest.json"]
    assert os.listdir(run.path.parent) == ["run"]
    opened = RunFolder.open(run.path)
    assert opened.config == {"lr": 1e-3}
    manifest = opened.manifest
    assert manifest["command"] == ["sombrl", "train"]
    assert manifest["versions"]["numpy"] == np.__version__ and manifest["created"].endswith("+00:00")
    assert {"sombrl", "jax", "jaxlib", "equinox", "gymnasium"} <= set(manifest["versions"])
    assert manifest["precision"]["jax_enable_x64"] is bool(jax.config.jax_enable_x64)
    assert manifest["device"]["platform"] == "cpu"
    assert run.checkpoints == run.path / "checkpoints" and run.videos.name == "videos"


def test_git_is_recorded_and_never_needed(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.chdir(repository)
    assert RunFolder.create(tmp_path / "a", {}, []).manifest["git"] == {"commit": None, "dirty": None}
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@e"]
    (repository / "file").write_text("1")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-qm", "m"]):
        subprocess.run(git + command, check=True)
    clean = RunFolder.create(tmp_path / "b", {}, []).manifest["git"]
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    (repository / "file").write_text("2")
    assert RunFolder.create(tmp_path / "c", {}, []).manifest["git"] == clean | {"dirty": True}
    monkeypatch.setenv("PATH", "")
    assert RunFolder.create(tmp_path / "d", {}, []).manifest["git"] == {"commit": None, "dirty": None}


def test_create_refuses_what_is_there(run, tmp_path):
    with pytest.raises(SombrlError, match=r"is not empty; run `sombrl resume .*run` .* another --out"):
        RunFolder.create(run.path, {}, [])
    (tmp_path / "file").write_text("")
    with pytest.raises(SombrlError, match="is a file"):
        RunFolder.create(tmp_path / "file", {}, [])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".tmp-empty-1").mkdir()  # what a killed create leaves
    assert RunFolder.create(tmp_path / "empty", {"a": 1}, []).config == {"a": 1}


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("fault", ["fsync", "rename"])
def test_a_failed_create_leaves_nothing(tmp_path, monkeypatch, exists, fault):
    path, calls = tmp_path / "run", []
    if exists:
        path.mkdir()
    real = getattr(os, fault)

    def full(*arguments):
        calls.append(arguments)
        if len(calls) == (2 if exists else 1):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, fault, full)
        with pytest.raises(RunFault, match="No space left"):
            RunFolder.create(path, {}, [])
    assert list(tmp_path.iterdir()) == ([path] if exists else [])
    assert not exists or os.listdir(path) == []


def test_a_config_that_is_not_json_leaves_nothing(tmp_path):
    with pytest.raises(SombrlError, match="must be JSON"):
        RunFolder.create(tmp_path / "run", {"a": object()}, [])
    assert os.listdir(tmp_path) == []


def test_open_refuses_what_is_not_a_run(tmp_path):
    with pytest.raises(SombrlError, match="there is no run"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(SombrlError, match="is not a run"):
        RunFolder.open(tmp_path)


def test_rows_are_strict_json_and_exact(run):
    value = 0.1 + 0.2
    row = {"iteration": np.int64(1), "a": float("nan"), "b": [1.0, np.inf], "c": value, "d": None, "e": "λ"}
    run.append([row | {"f": jnp.float32(0.1), "g": np.array([True]), "h": {"i": -np.inf}}])
    text = run.metrics_path.read_text()

    def refuse(name):
        raise AssertionError(name)

    read = json.loads(text, parse_constant=refuse)
    assert read == {"iteration": 1, "a": None, "b": [1.0, None], "c": value, "d": None, "e": "λ"} | {
        "f": float(np.float32(0.1)),
        "g": [True],
        "h": {"i": None},
    }
    assert run.rows() == [read]
    with pytest.raises(SombrlError, match="a metrics row must hold"):
        run.append([{"x": object()}])


def test_a_half_written_line_is_forgotten(run):
    assert run.rows() == []
    run.append(rows(0, 2))
    whole = run.metrics_path.read_bytes()
    run.metrics_path.write_bytes(whole + b'{"iteration": 2, "se')
    assert run.rows() == rows(0, 2)
    run.append(rows(2, 3))
    assert run.rows() == rows(0, 3)
    run.metrics_path.write_bytes(b"x" * 200_000)  # longer than a block, and no newline at all
    run.append(rows(0, 1))
    assert run.rows() == rows(0, 1)


def test_a_damaged_line_is_named(run):
    run.append(rows(0, 1))
    run.metrics_path.write_bytes(b"[1]\n" + run.metrics_path.read_bytes())
    with pytest.raises(SombrlError, match=r"line 1 of .*metrics.jsonl"):
        run.rows()


def test_truncate_then_append_equals_never_interrupted(run, tmp_path):
    other = RunFolder.create(tmp_path / "other", {}, [])
    other.append(rows(0, 5))
    run.append(rows(0, 4))
    with open(run.metrics_path, "ab") as file:
        file.write(b'{"half')
    run.truncate(3)
    run.append(rows(3, 5))
    assert run.metrics_path.read_bytes() == other.metrics_path.read_bytes()
    run.truncate(0)
    assert run.rows() == [] and sorted(os.listdir(run.path)) == [
        "config.json",
        "manifest.json",
        "metrics.jsonl",
    ]


def test_a_full_disk_keeps_the_rows_that_were_there(run):
    run.append(rows(0, 2))
    before = run.metrics_path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5000, hard))
    try:
        with pytest.raises(RunFault, match=r"cannot write .*metrics.jsonl"):
            run.append(rows(2, 2000))  # the kernel takes a part of it
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert run.metrics_path.read_bytes() == before


def test_one_writer_at_a_time(run):
    holder = (
        "import fcntl, os, sys; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT);"
        "fcntl.flock(f, fcntl.LOCK_EX);"
        "os.write(f, b'process 1 on h'); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(run.path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(SombrlError, match=r"in use by another process \(process 1 on h\)"), run.lock():
            pass
        process.kill()
    with run.lock():  # the kill let go of it
        with pytest.raises(SombrlError, match=f"process {os.getpid()} on"), RunFolder.open(run.path).lock():
            pass
        run.append(rows(0, 1))
    with run.lock():
        pass


def test_nearest_name():
    envs = ["Pendulum-v1", "MountainCar-v0", *(f"Other-v{n}" for n in range(9))]
    sentence = 'unknown environment "Pendulum-v2": did you mean "Pendulum-v1"? (see: sombrl list envs)'
    assert str(nearest("Pendulum-v2", envs, "environment")) == sentence
    assert '"MountainCar-v0"' in str(nearest("mountaincar", envs, "environment"))
    assert str(nearest("zzz", envs, "environment")) == 'unknown environment "zzz" (see: sombrl list envs)'
    assert str(nearest("q", ["gp", "ensemble"], "kernel")) == 'unknown kernel "q": choose one of gp, ensemble'
    assert str(nearest("x", [], "metric", see="sombrl show")) == 'unknown metric "x" (see: sombrl show)'
