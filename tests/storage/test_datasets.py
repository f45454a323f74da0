"""Data that anyone may have written: what is read is what was written, and what is wrong is one sentence."""

import os
import zipfile

import numpy as np
import pytest

from sombrl.errors import SombrlError
from sombrl.storage.datasets import Wanted, place_of, read_dataset
from tests.recorded import columns, write_minari, write_npz

PENDULUM = Wanted("pendulum", 3, 1, 100)


def same(rows, given):
    for name, column in given.items():
        np.testing.assert_array_equal(getattr(rows, name), column)


def test_an_npz_is_read_as_it_is(tmp_path):
    same(read_dataset(write_npz(tmp_path / "a.npz"), PENDULUM), columns())
    without = read_dataset(write_npz(tmp_path / "b.npz", truncated=None), PENDULUM)
    assert not without.truncated.any() and without.ends[7::8].all(), "episodes end where the next row is elsewhere"
    np.savez_compressed(tmp_path / "c.npz", **columns())
    same(read_dataset(tmp_path / "c.npz", PENDULUM), columns())


class Cursed:
    def __reduce__(self):
        return os.system, ("touch cursed",)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"action": None}, "has no action: transitions need obs, action, reward"),
        ({"obs": np.zeros((40, 4), np.float32)}, "has 4 numbers per obs, and pendulum has 3"),
        ({"action": np.zeros((40, 2), np.float32)}, "has 2 numbers per action, and pendulum has 1"),
        ({"reward": np.full(40, np.nan)}, "has a reward that is not a finite number .row 0"),
        ({"next_obs": np.full((40, 3), np.inf)}, "has a next_obs that is not a finite number .row 0"),
        ({"reward": np.zeros(39)}, "are not equally long .*39 of reward"),
        ({name: column[:0] for name, column in columns().items()}, "has no transitions"),
        ({"obs": np.array([Cursed()] * 40)}, "obs is of object, and transitions are plain numbers"),
        ({"obs": np.array(["a"] * 40)}, "obs is of <U1"),
    ],
)
def test_what_is_no_data_is_one_sentence(changes, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SombrlError, match=sentence):
        read_dataset(write_npz(tmp_path / "a.npz", **changes), PENDULUM)
    assert not (tmp_path / "cursed").exists()


def test_sizes_are_compared_before_memory_is_taken(tmp_path, monkeypatch):
    """A header that promises a petabyte, more rows than fit, and files that are none."""
    path = write_npz(tmp_path / "a.npz")
    with pytest.raises(SombrlError, match="has 40 transitions, more than the 39 there is room for"):
        read_dataset(path, Wanted("pendulum", 3, 1, 39))
    content = {info.filename: zipfile.ZipFile(path).read(info) for info in zipfile.ZipFile(path).infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data.replace(b"(40,", b"(10,") if name == "reward.npy" else data)
    with pytest.raises(SombrlError, match="reward has another size than its header says"):
        read_dataset(path, PENDULUM)
    (tmp_path / "text.npz").write_text("obs")
    with pytest.raises(SombrlError, match="cannot be read as transitions"):
        read_dataset(tmp_path / "text.npz", PENDULUM)
    with pytest.raises(SombrlError, match="neither a run nor a Minari dataset"):
        read_dataset(tmp_path, PENDULUM)
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(SombrlError, match="is not a file"):
        read_dataset(tmp_path / "pipe.npz", PENDULUM)
    with pytest.raises(SombrlError, match="there are no data at"):
        read_dataset(place_of("none/such-v0"), PENDULUM)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    (tmp_path / "some" / "such-v0").mkdir(parents=True)
    assert place_of("some/such-v0") == (tmp_path / "some" / "such-v0").resolve()


def test_a_minari_dataset_of_another_program(tmp_path):
    h5py = pytest.importorskip("h5py", reason="needs sombrl[minari]")
    same(read_dataset(write_minari(tmp_path / "whole", columns()), PENDULUM), columns())
    with pytest.raises(SombrlError, match="has 3 numbers per obs, and cup has 8"):
        read_dataset(tmp_path / "whole", Wanted("cup", 8, 1, 100))

    def broken(name, change):
        folder = write_minari(tmp_path / name, columns())
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            change(file)
        return folder

    def linked(file):
        del file["episode_1/rewards"]
        file["episode_1/rewards"] = h5py.ExternalLink("/etc/passwd", "/")

    def outside(file):
        del file["episode_2/actions"]
        file["episode_2"].create_dataset("actions", (8, 1), "u1", external=[("/etc/passwd", 0, 8)])

    def huge(file):
        del file["episode_0/observations"]
        file["episode_0"].create_dataset("observations", (10**13, 3), "f4", chunks=(1000, 3), compression="gzip")

    def without(file):
        del file["episode_0/actions"]

    def empty(file):
        for name in list(file):
            del file[name]

    for name, change, sentence in (
        ("linked", linked, "rewards is a link, and links are not followed"),
        ("outside", outside, "actions does not hold its numbers itself"),
        ("huge", huge, "needs one observation more than rewards"),
        ("without", without, "has no actions"),
        ("empty", empty, "has no transitions"),
    ):
        with pytest.raises(SombrlError, match=sentence):
            read_dataset(broken(name, change), PENDULUM)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "data").symlink_to(tmp_path / "whole" / "data")
    with pytest.raises(SombrlError, match="is a link"):
        read_dataset(tmp_path / "folder", PENDULUM)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari's advice on authors and environments
def test_one_that_minari_has_written(tmp_path, monkeypatch):
    pytest.importorskip("h5py", reason="needs sombrl[minari]")
    pytest.importorskip("minari.data_collector", reason="needs sombrl[minari]")
    import minari
    from gymnasium.spaces import Box

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    given, buffers = columns(), []
    for number in range(5):
        cut = slice(8 * number, 8 * number + 8)
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                id=number,
                observations=np.concatenate([given["obs"][cut], given["next_obs"][cut][-1:]]),
                actions=given["action"][cut],
                rewards=given["reward"][cut],
                terminations=given["terminated"][cut],
                truncations=given["truncated"][cut],
            )
        )
    minari.create_dataset_from_buffers(
        "pendulum/made-v0",
        buffers,
        observation_space=Box(-np.inf, np.inf, (3,), np.float32),
        action_space=Box(-2, 2, (1,), np.float32),
        algorithm_name="another",
        author="nobody",
        author_email="nobody@example.org",
        code_permalink="none",
        description="made up",
    )
    same(read_dataset(place_of("pendulum/made-v0"), PENDULUM), given)
