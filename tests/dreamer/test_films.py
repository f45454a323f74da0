"""Training on images can be watched: films of what was seen and of what the model expects, beside the checkpoints."""

import gymnasium
import numpy as np
import pytest
from PIL import Image

import sombrl
from sombrl.errors import SombrlError
from sombrl.report.loading import find
from sombrl.runs.train import Run, run_training
from sombrl.storage.run_folder import RunFolder

pytestmark = pytest.mark.thorough

LENGTH = 6


class Blink(gymnasium.Env):
    """An image whose brightness says which step of the episode it is."""

    observation_space = gymnasium.spaces.Box(0, 255, (48, 48, 1), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.see(), {}

    def step(self, action):
        self.steps += 1
        return self.see(), 0.0, False, False, {}

    def see(self):
        return np.full((48, 48, 1), 40 * self.steps, np.uint8)


def agent(**settings):
    small = {"size": "tiny", "batch_size": 2, "batch_length": 8, "horizon": 3, "ratio": 2.0, "envs": 1}
    return sombrl.make(
        "dreamer", Blink, explore="greedy", episode_length=LENGTH, report_every=16, decisions=48, **(small | settings)
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three reports, a checkpoint with each."""
    folder, trained = tmp_path_factory.mktemp("run") / "r", agent()
    where = RunFolder.create(folder, trained.to_json(), ["test"])
    run_training([Run(trained, where, False)], trained.planned_iterations, 1, tensorboard=False)
    return trained, folder


@pytest.mark.thorough
def test_weights_of_the_network_that_pooled_are_refused(run, monkeypatch):
    """It had the same shapes, so nothing else would tell."""
    _, folder = run
    assert sombrl.load(folder, env=Blink).iteration == 3
    monkeypatch.setattr("sombrl.dreamer.trainer.NETWORK", 3)
    with pytest.raises(SombrlError, match="pools images where --cnn paper has strides"):
        sombrl.load(folder, env=Blink)


def test_films_lie_beside_the_checkpoints(run):
    _, folder = run
    names = sorted(path.name for path in (folder / "videos").iterdir())
    assert names == [f"{n:08d}-{what}.gif" for n in (1, 2, 3) for what in ("episode", "foresight")]
    with Image.open(folder / "videos" / "00000003-episode.gif") as film:
        shades = []
        for frame in range(film.n_frames):
            film.seek(frame)
            shades.append(int(np.asarray(film.convert("L"))[8, 8]))
    assert shades == [40 * t for t in range(LENGTH + 1)]


def test_the_report_shows_them(run):
    _, folder = run
    (source,) = find([folder]).sources
    assert {path.name for path in source.media} >= {"00000003-episode.gif", "00000003-foresight.gif"}


def test_films_leave_training_alone(run):
    trained, folder = run
    silent = agent()
    where = RunFolder.create(folder.parent / "silent", silent.to_json(), ["test"])
    run_training([Run(silent, where, False, films=False)], silent.planned_iterations, 1, tensorboard=False)
    assert not (where.path / "videos").exists()
    ours, theirs = trained.trainer.loop.replay_state(), silent.trainer.loop.replay_state()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def test_without_images_there_is_nothing_to_film():
    assert sombrl.make("dreamer", "Pendulum-v1", size="tiny", decisions=100).trainer.films() == {}


def test_one_picture_is_one_observation(run):
    trained, _ = run
    picture = np.zeros((48, 48, 1), np.uint8)
    alone, _ = trained.predict(picture)
    batch, _ = trained.predict(picture[None])
    assert alone.shape == (1,) and batch.shape == (1, 1)
    np.testing.assert_array_equal(alone, batch[0])


def test_films_show_windows_within_an_episode_where_there_are_some():
    replay = agent(batch_length=4).trainer.loop.replays[0]
    state = {"action": np.zeros((1, 1)), "deter": np.zeros((1, 64)), "stoch": np.zeros((1, 4), np.uint8)}
    for t in range(25):  # windows of five records: an episode begins inside the last one
        record = {"obs": {"image": np.zeros((1, 48, 48, 1), np.uint8)}, "reward": np.zeros(1), **state}
        replay.add(
            record | {"first": np.array([t in (0, 23)]), "last": np.array([t == 22]), "terminal": np.zeros(1, bool)}
        )
    sizes, read = [], replay._windows
    replay._windows = lambda positions, new: (sizes.append(len(positions)), read(positions, new))[1]
    assert replay.latest(2, 1).positions[:, 1].tolist() == [15, 10]
    assert sizes == [2], "pictures that are not shown are not read"
    assert replay.latest(5, 1).positions[:, 1].tolist() == [15, 10, 5, 0, 20]
