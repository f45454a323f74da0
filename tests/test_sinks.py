"""TensorBoard events, read back from the bytes; a sink that fails says so and lets the run go on."""

import errno
import os
import struct
import sys

import pytest

from sombrl.sinks import TensorBoardSink


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
