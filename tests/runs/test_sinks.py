"""TensorBoard and W&B, read back from the bytes; a sink that fails says so and lets the run go on."""

import errno
import json
import os
import struct
import subprocess
import sys
import time
import types

import pytest

from sombrl.cli.main import main
from sombrl.runs.sinks import TensorBoardSink, WandbSink
from tests.small import SMALL_FLAGS


def events(folder):
    """Every event of a folder's files, in TensorBoard's order, the checksums of the records verified."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            payload = data[12 : 12 + length]
            assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8])
            assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked_crc32c(payload)
            yield Event.FromString(payload)
            data = data[16 + length :]


def scalars(folder):
    """What TensorBoard shows: a session start at step T hides earlier events from T on."""
    from tensorboardX.proto.event_pb2 import SessionLog

    shown = []
    for event in events(folder):
        if event.HasField("session_log") and event.session_log.status == SessionLog.START:
            shown = [item for item in shown if item[0] < event.step]
        shown += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return shown


def row(seed, frames, value):
    return {
        "iteration": 0,
        "seed": seed,
        "env_frames": frames,
        "rollout/ep_rew_mean": value,
        "explore/λ": 0.5,
    }


def test_scalars_per_seed_at_env_frames(tmp_path):
    pytest.importorskip("tensorboardX")
    sink = TensorBoardSink(tmp_path, [3, 4])
    sink.write([row(3, 200, 1.5), row(4, 200, None), {"seed": 3, "a/b": 1}, {"env_frames": 1, "a/b": 1}])
    on_disk = scalars(tmp_path / "seed_3")  # before close: flushed by write
    assert on_disk == [(200, "rollout/ep_rew_mean", 1.5), (200, "explore/λ", 0.5)]
    sink.close()
    assert scalars(tmp_path / "seed_3") == on_disk
    assert scalars(tmp_path / "seed_4") == [(200, "explore/λ", 0.5)]
    assert sink.notes == [] and sorted(os.listdir(tmp_path)) == ["seed_3", "seed_4"]


def test_resume_shows_every_step_once(tmp_path):
    pytest.importorskip("tensorboardX")
    first = TensorBoardSink(tmp_path, [0])
    first.write([row(0, frames, -1.0) for frames in (200, 400, 600)])  # killed: never closed
    resumed = TensorBoardSink(tmp_path, [0], resume_at=400)
    resumed.write([row(0, frames, 2.0) for frames in (600, 800)])
    resumed.close()
    shown = [(step, value) for step, tag, value in scalars(tmp_path / "seed_0") if tag.startswith("rollout")]
    assert shown == [(200, -1.0), (400, -1.0), (600, 2.0), (800, 2.0)]
    first.close()


def test_missing_package_is_one_note(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    sink = TensorBoardSink(tmp_path / "tb", [0])
    sink.write([row(0, 1, 1.0)])
    sink.close()
    assert sink.notes == ["TensorBoard is off: install it with pip install 'sombrl[tb]'"]
    assert not (tmp_path / "tb").exists()


def test_a_full_disk_turns_it_off(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    sink = TensorBoardSink(tmp_path, [0])

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        sink.write([row(0, 1, 1.0)])
    sink.write([row(0, 2, 1.0)])
    sink.close()
    assert sink.notes == ["TensorBoard is off: No space left on device"]


FLAGS = ["--env", "pendulum", "--seeds", "2", "--episodes", "4", "--checkpoint-every", "2", *SMALL_FLAGS]


def killed_and_resumed(folder, *options):
    """Four episodes: killed when the third is in the metrics, after a checkpoint of two; then resumed."""
    script = f"""
import os, signal
from sombrl.runs import train
from sombrl.cli.main import main
record, done = train._record, []
def dying(*args, **options):
    record(*args, **options)
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
train._record = dying
main(["train", "gp-icem", *{[*FLAGS, *options]!r}, "--out", {str(folder)!r}])
"""
    died = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert died.returncode == -9, died.stderr
    seeds = [json.loads(line)["seed"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(seeds) == 6
    main(["resume", str(folder), *options])
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_tensorboards_own_reader_sees_every_step_once(tmp_path):
    reason = "needs tensorboard itself (pip install tensorboard)"
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=reason)
    pytest.importorskip("tensorboardX", reason="needs sombrl[tb]")
    rows = killed_and_resumed(tmp_path / "run")
    for seed in (0, 1):
        reader = events.EventAccumulator(str(tmp_path / "run" / "tensorboard" / f"seed_{seed}"))
        reader.Reload()
        own = [row for row in rows if row["seed"] == seed]
        assert [row["env_frames"] for row in own] == [6, 12, 18, 24]
        assert set(reader.Tags()["scalars"]) == {name for row in own for name in row if "/" in name}
        for tag in reader.Tags()["scalars"]:
            shown = [(event.step, event.value) for event in reader.Scalars(tag)]
            written = [(row["env_frames"], pytest.approx(row[tag], rel=1e-6)) for row in own if row[tag] is not None]
            assert shown == written, tag


class FakeRun:
    """What W&B's runs do here."""

    step = 0

    def __init__(self, **options):
        self.options, self.logged, self.finished = options, [], False

    def log(self, scalars, step, commit):
        assert commit
        self.logged.append((step, scalars))

    def finish(self):
        self.finished = True


@pytest.fixture
def fake(monkeypatch):
    """A package that keeps what it is given."""
    runs = []

    def init(**options):
        runs.append(FakeRun(**options))
        return runs[-1]

    package = types.SimpleNamespace(init=init, Settings=lambda **options: options)
    monkeypatch.setitem(sys.modules, "wandb", package)
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return runs


def test_wandb_has_a_run_per_seed_and_resumes_it(fake, tmp_path, monkeypatch):
    sink = WandbSink(tmp_path, [3, 4], {"algorithm": "mbpo"})
    sink.write([row(3, 200, 1.5), row(4, 200, None)])
    sink.close()
    first, second = fake
    assert first.logged == [(200, {"rollout/ep_rew_mean": 1.5, "explore/λ": 0.5})]
    assert second.logged == [(200, {"explore/λ": 0.5})] and first.finished and second.finished
    assert first.options["mode"] == "offline" and first.options["project"] == "sombrl"
    assert first.options["config"] == {"algorithm": "mbpo", "seed": 3} and first.options["dir"] == str(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr(FakeRun, "step", 201)  # the first that the server lacks
    again = WandbSink(tmp_path, [3, 4], {}, [row(3, 200, 1.5), row(3, 400, 2.5)])  # the second was lost
    again.write([row(3, 600, 3.5)])
    assert [step for step, _ in fake[2].logged] == [400, 600]
    ids = [run.options["id"] for run in fake]
    assert ids[:2] == ids[2:] and ids[0] != ids[1]
    assert {run.options["resume"] for run in fake} == {"allow"}
    assert [run.options["mode"] for run in fake] == ["offline", "offline", "online", "online"]


def test_whatever_wandb_raises_turns_it_off(fake, tmp_path, monkeypatch):
    sink = WandbSink(tmp_path, [0], {})

    def broken(self, scalars, step, commit):
        raise RuntimeError("the service died\nat line 3")

    monkeypatch.setattr(FakeRun, "log", broken)
    sink.write([row(0, 1, 1.0)])
    sink.write([row(0, 2, 1.0)])
    sink.close()
    assert sink.notes == ["W&B is off: the service died"]


@pytest.mark.parametrize("package", [None, types.SimpleNamespace()])  # not there, or only a folder of that name
def test_wandb_that_is_not_installed_is_refused_before_anything_is_written(package, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", package)
    with pytest.raises(SystemExit) as stop:
        main(["train", "gp-icem", *FLAGS, "--wandb", "--out", str(tmp_path / "run")])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and "pip install 'sombrl[wandb]'" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_outlives_its_sinks(fake, tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboardX")

    def broken(self, *args, **options):
        raise ValueError("no such field")

    monkeypatch.setattr(TensorBoardSink, "_add", broken)
    monkeypatch.setattr(FakeRun, "log", broken)
    main(["train", "gp-icem", *FLAGS, "--wandb", "--out", str(tmp_path / "run")])
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 8
    err = capsys.readouterr().err
    assert err.count("TensorBoard is off: no such field") == err.count("W&B is off: no such field") == 1


def test_wandbs_own_files_have_every_step(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs sombrl[wandb]")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    rows = killed_and_resumed(tmp_path / "run", "--wandb", "--no-tensorboard")
    ids = json.loads((tmp_path / "run" / "wandb.json").read_text())
    for seed in (0, 1):
        files = sorted((tmp_path / "run" / "wandb").glob(f"offline-run-*-{ids[str(seed)]}/*.wandb"))
        assert len(files) == 2  # of before and after the kill, with one id
        own = [(row["env_frames"], row["rollout/ep_rew_mean"]) for row in rows if row["seed"] == seed]
        assert [step for step, _ in own] == [6, 12, 18, 24]
        deadline = time.monotonic() + 30
        while wandb_history(files[1]) != own and time.monotonic() < deadline:
            time.sleep(0.1)  # W&B's service writes on for a moment after `finish`
        assert wandb_history(files[1]) == own
        assert set(wandb_history(files[0])) <= set(own)  # as much as the kill has left


def wandb_history(path):
    """(step, return) of every whole history record: LevelDB's log format, after seven bytes of W&B's own."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no room for a header: the block is padded
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        if kind == 0 or at + 7 + length > len(data):
            break
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            record, whole = wandb_internal_pb2.Record.FromString(whole), b""
            if record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                found.append((record.history.step.num, json.loads(items["rollout/ep_rew_mean"])))
    return found
