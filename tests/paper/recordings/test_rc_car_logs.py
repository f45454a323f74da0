"""The loader of recordings: each of their traps, and one sentence for what is not a recording."""

import numpy as np
import pytest

from sombrl.errors import SombrlError
from sombrl.paper.recordings.rc_car_logs import CarLog, joined, read_recording, replay_of
from tests.paper.recordings.recordings import drive, save, spiked

ROWS = 80


@pytest.fixture(scope="module")
def run():
    return drive(ROWS)


def test_the_steer_that_was_sent_is_half_of_the_recorded(run, tmp_path):
    log = read_recording(save(tmp_path / "a.npz", run)).log(idle=0)
    np.testing.assert_allclose(log.action, run["action"] * [0.5, 1.0], atol=1e-7)
    honest = drive(ROWS, steer_scale=1.0)
    log = read_recording(save(tmp_path / "b.npz", honest)).log(idle=0)
    np.testing.assert_allclose(log.action, honest["action"], atol=1e-7)


def test_yaw_rates_that_leap_are_left_out_with_the_rows_on_both_sides(run, tmp_path):
    log = read_recording(save(tmp_path / "a.npz", spiked(run, 50))).log()
    assert set(range(30, ROWS)) - set(log.row) == {49, 50}
    assert np.abs(log.obs[:, 6]).max() < 15 and np.abs(log.next_obs[:, 6]).max() < 15


def test_the_idle_start_is_left_out(run, tmp_path):
    recording = read_recording(save(tmp_path / "a.npz", run))
    assert recording.log().row[0] == 30 and recording.log(idle=7).row[0] == 7
    assert len(recording.log(idle=0)) == recording.rows == ROWS


@pytest.mark.parametrize("past", [0, 2, 3, 6])
def test_memories_of_any_length_are_rebuilt_oldest_first(past, run, tmp_path):
    """Also across a gap: the actions before row 50 were sent, though its neighbours cannot be used."""
    log = read_recording(save(tmp_path / "a.npz", spiked(run, 50))).log(past, idle=0)
    sent = run["action"] * [0.5, 1.0]
    for i, t in enumerate(log.row):
        wanted = [sent[t - k] if t >= k else (0.0, 0.0) for k in range(past, 0, -1)]
        np.testing.assert_allclose(log.obs[i, 7:], np.reshape(wanted, -1), atol=1e-7)
    after = np.concatenate([log.obs[:, 9:], log.action], axis=1) if past else log.obs[:, 7:]
    np.testing.assert_array_equal(log.next_obs[:, 7:], after)
    if past == 3:
        np.testing.assert_allclose(log.obs[:, 7:], run["observation"][log.row, 6:], atol=1e-7)


def test_states_are_encoded(run, tmp_path):
    log = read_recording(save(tmp_path / "a.npz", run)).log()
    raw = run["observation"][log.row]
    np.testing.assert_allclose(log.obs[:, [0, 1, 4, 5, 6]], raw[:, [0, 1, 3, 4, 5]], rtol=1e-6)
    np.testing.assert_allclose(np.arctan2(log.obs[:, 2], log.obs[:, 3]), raw[:, 2], atol=1e-6)
    assert log.obs.dtype == log.next_obs.dtype == log.action.dtype == np.float32


def test_windows_have_no_gap(run, tmp_path):
    log = read_recording(save(tmp_path / "a.npz", spiked(run, 50))).log()
    windows = log.windows(10)
    # Rows 30 to 48 and 51 to 79: 10 and 20 stretches of ten.
    assert len(windows) == 30
    assert set(np.diff(log.row[windows], axis=1).ravel()) == {1}
    assert len(joined([log, log]).windows(10)) == 60  # and none from one recording into the next


def test_the_latest_rows_are_held_out(run, tmp_path):
    log = read_recording(save(tmp_path / "a.npz", run)).log()
    early, late = log.split(0.2)
    assert (len(early), len(late)) == (40, 10) and early.row.max() < late.row.min()


def test_as_replay(run, tmp_path):
    log = read_recording(save(tmp_path / "a.npz", run)).log()
    replay = replay_of(log.transitions(), 100)
    assert (int(replay.count), replay.capacity) == (50, 100)
    np.testing.assert_array_equal(replay.data.next_obs[:50], log.next_obs)
    with pytest.raises(SombrlError, match="50 rows do not fit"):
        replay_of(log.transitions(), 49)
    assert isinstance(log, CarLog)


def without(name):
    return lambda run: {key: value for key, value in run.items() if key != name}


def changed(name, change):
    return lambda run: run | {name: change(run[name].copy())}


def put(array, place, value):
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (without("action"), "has no array action"),
        (without("next_observation"), "has no array next_observation"),
        (changed("observation", lambda a: a[:, :11]), r"observation in .* has shape \(80, 11\)"),
        (changed("action", lambda a: a[:-1]), r"must be \(rows, 12\)"),
        (changed("action", lambda a: np.float64(0)), "has shape"),
        (changed("action", lambda a: a.astype(int)), "floating-point"),
        (changed("observation", lambda a: put(a, (5, 3), np.nan)), "row 5 of observation in .* is not finite"),
        (changed("next_observation", lambda a: put(a, (4, 0), 9.0)), "next_observation of row 4"),
        (changed("action", lambda a: a[:, ::-1]), "newest action"),
    ],
)
def test_what_is_not_a_recording_is_refused(spoil, sentence, run, tmp_path):
    path = save(tmp_path / "a.npz", spoil(run))
    with pytest.raises(SombrlError, match=sentence):
        read_recording(path)


def test_actions_newest_first_are_refused(run, tmp_path):
    turned = {name: array.copy() for name, array in run.items()}
    for name in ("observation", "next_observation"):
        turned[name][:, 6:10] = run[name][:, [8, 9, 6, 7]]  # the newest stays where it is looked for
    with pytest.raises(SombrlError, match="oldest first"):
        read_recording(save(tmp_path / "a.npz", turned))


def test_what_cannot_be_read_is_refused(run, tmp_path):
    with pytest.raises(SombrlError, match="there is no recording"):
        read_recording(tmp_path / "nothing.npz")
    with pytest.raises(SombrlError, match="is a folder"):
        read_recording(tmp_path)
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(SombrlError, match="cannot be read"):
        read_recording(tmp_path / "text.npz")
    np.savez(tmp_path / "objects.npz", **(run | {"action": np.array([None, 1], object)}))
    with pytest.raises(SombrlError, match="cannot be read"):
        read_recording(tmp_path / "objects.npz")
    recording = read_recording(save(tmp_path / "a.npz", run))
    with pytest.raises(SombrlError, match="is left without the first 80"):
        recording.log(idle=ROWS)
    with pytest.raises(SombrlError, match="at least 0"):
        recording.log(past=-1)
