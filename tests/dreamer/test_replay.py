"""The sequence replay against plain lists: windows, the queue of fresh ones, the ring, latents, memory and resuming."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sombrl.dreamer import replay as module
from sombrl.dreamer.replay import LatentSpec, SequenceReplay, UpdateRatio, check_memory
from sombrl.envs.layout import Part
from sombrl.errors import SombrlError

LAYOUT = (
    Part(name="image", shape=(2, 2, 3), kind="image"),
    Part(name="action", shape=(3,), kind="vector"),  # a part may be called as a field is
    Part(name="room", shape=(), kind="discrete", size=70_000),
)
LATENT = LatentSpec(deter=5, latents=2, classes=4)
ROWS, LENGTH = 3, 4


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of 8 records, so that small rings have several and windows cross them."""
    monkeypatch.setattr(module, "CHUNK", 8)


def make(ring=21, rows=ROWS, length=LENGTH, seed=0):
    return SequenceReplay(rows, ring * rows + rows - 1, LAYOUT, 2, LATENT, length, seed=seed)


def random_records(rng, rows=ROWS):
    """One record per stream, every entry random; flags often enough to meet all cases."""
    return {
        "obs": {
            "image": rng.integers(0, 256, (rows, 2, 2, 3), dtype=np.uint8),
            "action": rng.normal(size=(rows, 3)).astype(np.float32),
            "room": rng.integers(0, 70_000, rows),
        },
        "action": rng.normal(size=(rows, 2)).astype(np.float32),
        "reward": rng.normal(size=rows),
        "first": rng.random(rows) < 0.2,
        "last": rng.random(rows) < 0.2,
        "terminal": rng.random(rows) < 0.1,
        "deter": rng.uniform(-1, 1, (rows, 5)).astype(np.float32),
        "stoch": rng.integers(0, 4, (rows, 2)),
    }


def fill(replay, number, rng):
    history = [random_records(rng, replay.rows) for _ in range(number)]
    for records in history:
        replay.add(records)
    return history


def drain(replay):
    """Serve all that is queued, so that what follows is uniform."""
    replay.sample(replay.rows * replay.ring)


def assert_slices(batch, history, length=LENGTH):
    """Every window is the slice of `history` that its position names, with abandoned episodes ended."""
    for index, (row, start) in enumerate(batch.positions.tolist()):
        times = range(start, start + length + 1)
        for name in ("image", "action", "room"):
            expected = np.stack([history[t]["obs"][name][row] for t in times])
            np.testing.assert_array_equal(batch.obs[name][index], expected)
        for name in ("action", "first", "terminal"):
            np.testing.assert_array_equal(getattr(batch, name)[index], np.stack([history[t][name][row] for t in times]))
        reward = np.array([history[t]["reward"][row] for t in times])
        np.testing.assert_array_equal(batch.reward[index], reward.astype(np.float32))
        for t in times:
            followed = t + 1 < len(history) and history[t + 1]["first"][row]
            assert batch.last[index, t - start] == (history[t]["last"][row] or followed)
        np.testing.assert_array_equal(batch.deter[index], history[start]["deter"][row].astype(np.float16))
        np.testing.assert_array_equal(batch.stoch[index], history[start]["stoch"][row])


@pytest.mark.parametrize("ring", [21, 16, 8, 5])
def test_windows_are_slices_of_the_streams(ring):
    rng, replay, history = np.random.default_rng(0), make(ring), []
    for _ in range(3 * ring):
        history += fill(replay, 1, rng)
        if replay.count:
            batch = replay.sample(6)
            assert_slices(batch, history)
            starts = batch.positions[:, 1]
            assert starts.min() >= len(history) - ring and starts.max() + LENGTH < len(history)
    assert batch.obs["image"].dtype == np.uint8 and batch.action.dtype == np.float32 and batch.deter.dtype == np.float16
    assert batch.obs["image"].shape == (6, LENGTH + 1, 2, 2, 3) and batch.stoch.dtype == np.uint8


def test_start_positions_are_counted():
    rng, replay = np.random.default_rng(0), make(ring=21)
    for added in range(60):
        assert len(replay) == replay.count == ROWS * max(0, min(added, 21) - LENGTH)
        fill(replay, 1, rng)


def test_learning_starts_when_there_are_as_many_positions_as_a_batch_has_steps():
    rng, replay = np.random.default_rng(0), make(ring=21)
    needed = replay.needed(batch=10)
    assert needed == ROWS * (math.ceil(10 * LENGTH / ROWS) + LENGTH)
    fill(replay, needed // ROWS - 1, rng)
    assert not replay.ready(10)
    fill(replay, 1, rng)
    assert replay.ready(10)
    with pytest.raises(SombrlError, match="--capacity 66 "):
        make(ring=21).needed(batch=13)
    assert make(ring=200, rows=16, length=64).needed(16) == 2048  # the published setting


@pytest.mark.parametrize("added", [18, 47])
def test_sampling_is_uniform_over_all_start_positions(added):
    replay = make(ring=21)
    fill(replay, added, np.random.default_rng(0))
    drain(replay)
    positions = replay.sample(20_000).positions
    per_row = min(added, 21) - LENGTH
    index = positions[:, 0] * per_row + positions[:, 1] - max(0, added - 21)
    counts = np.bincount(index, minlength=replay.count)
    assert counts.shape == (replay.count,)
    assert 0.001 < stats.chisquare(counts).pvalue < 0.999


def test_seeds_draw_differently():
    positions = []
    for seed in (0, 0, 1):
        replay = make(seed=seed)
        fill(replay, 18, np.random.default_rng(0))
        positions.append(replay.sample(50).positions)
    np.testing.assert_array_equal(positions[0], positions[1])
    assert not np.array_equal(positions[0], positions[2])


def test_every_fresh_window_is_served_once_and_first():
    rng, replay = np.random.default_rng(0), make(ring=200)
    waiting, served = [], []
    for added in range(1, 151):
        fill(replay, 1, rng)
        if added % (LENGTH + 1) == 0:
            waiting += [(row, added - LENGTH - 1) for row in range(ROWS)]
        if rng.random() < 0.4 and replay.count:
            batch = int(rng.integers(1, 5))
            fresh, waiting = waiting[:batch], waiting[batch:]
            sample = replay.sample(batch)
            assert [tuple(p) for p in sample.positions[: len(fresh)].tolist()] == fresh
            assert sample.new.tolist() == [i < len(fresh) for i in range(batch)]
            served += fresh
    served += [tuple(p) for p in replay.sample(len(waiting)).positions.tolist()]
    assert sorted(served) == [(row, start) for row in range(ROWS) for start in range(0, 150, LENGTH + 1)]
    # Nothing is left in the queue: by chance, 90 windows would come in this order with a probability of 438⁻⁹⁰.
    assert [tuple(p) for p in replay.sample(len(served)).positions.tolist()] != served


def test_windows_overwritten_in_the_queue_are_not_served():
    replay = make(ring=12)
    history = fill(replay, 30, np.random.default_rng(0))
    batch = replay.sample(9)
    # Records 18 to 29 are left, of the windows at 0, 5, 10, ... those at 20 and 25.
    assert batch.positions[:6].tolist() == [[row, start] for start in (20, 25) for row in range(ROWS)]
    assert_slices(batch, history)


@pytest.mark.parametrize("number", [3, 9, 21, 40, 77])
def test_the_last_episode_is_the_newest_that_is_whole(number):
    """Against the history itself, also where the ring has overwritten its beginning."""
    replay, rng = make(), np.random.default_rng(number)
    history = fill(replay, number, rng)
    ends = [
        t
        for t in range(replay.oldest, number)
        if history[t]["last"][0] or (t + 1 < number and history[t + 1]["first"][0])
    ]
    for longest in (2, 500):
        found = replay.last_episode("image", longest)
        if not ends:
            assert found is None
            continue
        starts = [t for t in range(replay.oldest, ends[-1] + 1) if history[t]["first"][0]] or [replay.oldest]
        begin = max(starts[-1], ends[-1] + 1 - longest)
        expected = np.stack([history[t]["obs"]["image"][0] for t in range(begin, ends[-1] + 1)])
        np.testing.assert_array_equal(found, expected)
    assert make().last_episode("image", 5) is None


def test_an_abandoned_episode_ends():
    replay = make(ring=LENGTH + 1, rows=1)
    for time in range(LENGTH + 2):
        records = random_records(np.random.default_rng(0), rows=1)
        flags = {"first": np.array([time in (0, 3, 5)]), "last": np.array([time == 1]), "terminal": np.zeros(1, bool)}
        replay.add(records | flags)
        if time == LENGTH:
            assert replay.sample(1).last[0].tolist() == [False, True, True, False, False]
    batch = replay.sample(1)  # of records 1 to 5
    assert batch.last[0].tolist() == [True, True, False, True, False]
    assert batch.first[0].tolist() == [False, False, True, False, True]
    assert not batch.terminal.any()


def test_fresh_latents_are_written_back():
    rng, replay = np.random.default_rng(0), make(ring=21)
    history = fill(replay, 50, rng)
    batch = replay.sample(20)  # more than there are places without overlap
    deter = rng.uniform(-1, 1, (20, LENGTH, 5)).astype(np.float32)
    stoch = rng.integers(0, 4, (20, LENGTH, 2))
    replay.write_latents(batch, deter, stoch)
    for index, (row, start) in enumerate(batch.positions.tolist()):
        for step in range(LENGTH):  # the later of two writes stays, the context keeps its own
            history[start + 1 + step]["deter"][row] = deter[index, step]
            history[start + 1 + step]["stoch"][row] = stoch[index, step]
    later = replay.sample(500)
    assert len(np.unique(later.positions, axis=0)) == replay.count
    assert_slices(later, history)


@pytest.mark.parametrize("overwritten", [1, 3, 5, 30])
def test_latents_of_overwritten_records_are_not_written(overwritten):
    rng, replay = np.random.default_rng(0), make(ring=8)
    history = fill(replay, 8, rng)
    drain(replay)
    batch = replay.sample(1)
    while batch.positions[0, 1] != 0:
        batch = replay.sample(1)
    row = int(batch.positions[0, 0])
    history += fill(replay, overwritten, rng)
    deter = np.array([[[step / 8] * 5 for step in range(LENGTH)]], np.float32)
    stoch = np.array([[[step] * 2 for step in range(LENGTH)]], np.int32)
    replay.write_latents(batch, deter, stoch)
    left = range(overwritten, LENGTH + 1)  # of the window, which was written from record 1 on
    state = replay.state()
    held = np.concatenate([state[f"records/{chunk:05d}/deter"][row] for chunk in range(len(replay._chunks))])
    for time in range(overwritten, overwritten + 8):
        expected = [(time - 1) / 8] * 5 if time in left else history[time]["deter"][row].astype(np.float16).tolist()
        assert held[time % 8].tolist() == expected
    for time in left:
        history[time]["deter"][row], history[time]["stoch"][row] = (time - 1) / 8, time - 1
    assert_slices(replay.sample(100), history)


def test_memory_is_predicted():
    replay = make(ring=21)
    assert replay.bytes_per_record == (12 + 12 + 4) + 8 + 4 + 3 + 10 + 2
    assert replay.nbytes_full == 21 * ROWS * 55
    rng = np.random.default_rng(0)
    for added in range(1, 60):
        fill(replay, 1, rng)
        chunks = math.ceil(min(added, 21) / 8)
        assert replay.nbytes == ROWS * 55 * min(8 * chunks, 21)
        assert sum(a.nbytes for name, a in replay.state().items() if "records" in name) == ROWS * 55 * min(added, 21)
    assert replay.nbytes == replay.nbytes_full


def test_memory_of_the_published_setting():
    image = (Part(name="image", shape=(64, 64, 3), kind="image"),)
    replay = SequenceReplay(16, 5_000_000, image, 6, LatentSpec(2048, 32, 16), seed=0)
    assert replay.bytes_per_record == 12_288 + 4 * 6 + 4 + 3 + 2 * 2048 + 32
    assert replay.nbytes_full == 5_000_000 * 16_447 and replay.nbytes == 0
    large = SequenceReplay(1, 100, image, 6, LatentSpec(8, 32, 257), seed=0)
    assert large.bytes_per_record == 12_288 + 4 * 6 + 4 + 3 + 2 * 8 + 2 * 32


def through_a_file(state):
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def use(replay, steps, rng):
    """Add, sample and write back in turns; all that came out."""
    seen = []
    for _ in range(steps):
        fill(replay, int(rng.integers(0, 4)), rng)
        if replay.count:
            batch = replay.sample(int(rng.integers(1, 4)))
            number = len(batch.positions)
            deter = rng.uniform(-1, 1, (number, LENGTH, 5)).astype(np.float32)
            replay.write_latents(batch, deter, rng.integers(0, 4, (number, LENGTH, 2)))
            seen += [*batch.obs.values(), *batch[1:]]
    return seen


@pytest.mark.parametrize("before", [0, 1, 11, 30])
@pytest.mark.parametrize("odd", [0, 1])
def test_resuming_is_exact(before, odd):
    replay = make(ring=21)
    use(replay, before, np.random.default_rng(before))
    fill(replay, 12, np.random.default_rng(0))
    if odd:  # an odd number of draws, so that the generator has half a word left; it empties the queue
        drain(replay)
        if not replay.state()["generator"][4]:
            replay.sample(1)
        assert replay.state()["generator"][4]
    else:
        assert len(replay.state()["queue"]) >= 2 * ROWS
    state = through_a_file(replay.state())
    resumed = make(ring=21, seed=99)
    fill(resumed, 40, np.random.default_rng(99))  # what was there before is gone
    resumed.restore(state)
    expected, actual = (use(r, 40, np.random.default_rng(7)) for r in (replay, resumed))
    assert len(expected) == len(actual) > 100
    for a, b in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(a, b)
    for name, array in replay.state().items():
        np.testing.assert_array_equal(array, resumed.state()[name], err_msg=name)


def test_what_is_restored_shares_no_memory():
    replay, other = make(), make()
    fill(replay, 18, np.random.default_rng(0))
    other.restore(replay.state())
    before = {name: array.copy() for name, array in replay.state().items()}
    use(other, 10, np.random.default_rng(1))
    for name, array in replay.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_another_replay_is_not_restored():
    replay = make(ring=21)
    fill(replay, 18, np.random.default_rng(0))
    with pytest.raises(SombrlError, match=r"\[3, 21, 4\].*\[3, 22, 4\]"):
        make(ring=22).restore(replay.state())
    other = SequenceReplay(ROWS, 21 * ROWS, LAYOUT, 2, LatentSpec(6, 2, 4), LENGTH, seed=0)
    with pytest.raises(SombrlError, match="in deter"):
        other.restore(replay.state())
    assert other.added == 0


def test_what_cannot_work_is_refused():
    with pytest.raises(SombrlError, match="--capacity 15 "):
        SequenceReplay(ROWS, 14, LAYOUT, 2, LATENT, LENGTH, seed=0)
    with pytest.raises(SombrlError, match="at least 1 stream"):
        SequenceReplay(0, 14, LAYOUT, 2, LATENT, LENGTH, seed=0)
    rng, replay = np.random.default_rng(0), make()
    fill(replay, LENGTH, rng)
    with pytest.raises(SombrlError, match="no window of 5 records"):
        replay.sample(1)
    records = random_records(rng)
    obs = records["obs"]
    with pytest.raises(SombrlError, match=r"obs/image .* float32 .* uint8"):
        replay.add(records | {"obs": obs | {"image": obs["image"].astype(np.float32)}})
    with pytest.raises(SombrlError, match=r"reward .* \(3, 1\) .* \(3,\)"):
        replay.add(records | {"reward": records["reward"][:, None]})
    assert replay.added == LENGTH


@pytest.mark.parametrize(("ratio", "rows"), [(1024, 16), (512, 16), (256, 1), (32, 16), (0.3, 7), (4096, 1)])
def test_updates_per_record(ratio, rows):
    """Within one update of 1 + records · ratio / (batch · length) all along, and nothing for the records before."""
    due, total = UpdateRatio(ratio, 16, 64), 0
    for records in range(2048, 102_048 + 1, rows):
        now = due(records)
        assert now == 1 if records == 2048 else now <= math.ceil(rows * ratio / 1024)
        total += now
        exact = 1 + (records - 2048) * round(10 * ratio) / 10_240
        assert exact - 1 < total <= exact


def test_the_update_ratio_resumes():
    for asked in (0, 1, 500):
        ratio = UpdateRatio(100, 16, 64)
        for step in range(asked):
            ratio(2048 + 16 * step)
        resumed = UpdateRatio(100, 16, 64)
        resumed.restore(ratio.state())
        ahead = range(20_000, 30_000, 16)
        assert [ratio(n) for n in ahead] == [resumed(n) for n in ahead]
    with pytest.raises(SombrlError, match="ratio must be positive"):
        UpdateRatio(0, 16, 64)


def test_a_replay_larger_than_memory_is_refused():
    gib = 2**30
    check_memory(10 * gib, available=10 * gib)
    with pytest.raises(SombrlError, match=r"76\.6 GiB .* 16\.0 GiB .* --capacity by 4\.8 "):
        check_memory(5_000_000 * 16_447, available=16 * gib)
    check_memory(1)
    with pytest.raises(SombrlError, match="--capacity"):
        check_memory(2**60)


def test_available_memory_is_that_of_the_machine(monkeypatch):
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total = int(lines["MemTotal"].split()[0]) * 1024
    assert 0.01 * total < module.available_memory() <= total

    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr("builtins.open", missing)
    assert module.available_memory() == pytest.approx(total, rel=0.05)
