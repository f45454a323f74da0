"""`sombrl eval`: the numbers it prints are the returns, the record grows, and a film is a film."""

import copy
import errno
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest

from sombrl.agent.make import load, make
from sombrl.records import RunFault, SombrlError
from sombrl.runs.evaluate import bootstrap, evaluate_run, table
from sombrl.runs.video import check_video, write_video

TINY = {
    "gp": {"capacity": 64, "rank": 8, "fit_steps": 2},
    "icem": {"num_samples": 8, "num_elites": 2, "iterations": 1, "horizon": 3},
    "seeds": 2,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two seeds after two episodes of five decisions."""
    agent = make("gp-icem", "mountain-car", action_repeat=5, episode_length=5, episodes=2, **TINY)
    agent.learn(10)
    path = tmp_path_factory.mktemp("runs") / "car"
    agent.save(path)
    return path


@pytest.fixture(scope="module")
def agent(trained):
    return load(trained)


@pytest.fixture
def run(trained, agent, monkeypatch):
    """The run without evaluations; loaded once for all tests, because every agent compiles anew."""
    (trained / "eval.json").unlink(missing_ok=True)
    monkeypatch.setattr("sombrl.runs.evaluate.load_with", lambda word, path: agent)
    return trained


def frames(count=4, shape=(21, 33)):
    """Pictures that differ, of odd sides."""
    return [np.full((*shape, 3), 40 * i, np.uint8) for i in range(count)]


def test_table_and_record_hold_the_returns(run, agent, capsys):
    evaluate_run(run, episodes=3, explore=False, video=None)
    text = capsys.readouterr().out
    returns = agent.evaluate(3)  # evaluation leaves the agent as it was, so it repeats
    (record,) = json.loads((run / "eval.json").read_text())
    assert record["returns"] == {"0": returns[:, 0].tolist(), "1": returns[:, 1].tolist()}
    assert record["settings"]["episodes"] == 3 and not record["settings"]["explore"]
    for seed, column in enumerate(returns.T):
        line = next(line for line in text.splitlines() if re.match(rf"\s*{seed} ", line))
        numbers = [float(x) for x in re.findall(r"-?\d+\.\d+", line)]
        np.testing.assert_allclose(numbers, [np.median(column), column.min(), column.max()], atol=0.005)
    assert "for the task alone, by the mean model" in text and "3 episodes per seed" in text
    assert f"median of all 6 episodes  {np.median(returns):.2f}" in text


def test_record_is_extended(run, capsys):
    evaluate_run(run, episodes=1, explore=False, video=None)
    first = json.loads((run / "eval.json").read_text())
    evaluate_run(run, episodes=1, explore=True, video=None)
    both = json.loads((run / "eval.json").read_text())
    assert both[:1] == first and both[1]["settings"]["explore"] and len(both) == 2
    assert "with the optimistic strategy" in capsys.readouterr().out
    assert not list(run.glob(".tmp-*"))


def test_a_damaged_record_is_refused_before_the_episodes(run, monkeypatch):
    (run / "eval.json").write_text("{")
    monkeypatch.setattr("sombrl.agent.Agent.evaluate", lambda *a, **k: pytest.fail("evaluated"))
    with pytest.raises(SombrlError, match="move it away"):
        evaluate_run(run, episodes=1, explore=False, video=None)
    assert (run / "eval.json").read_text() == "{"


def test_bootstrap_of_seeds():
    same = np.tile([[1.0], [3.0]], 4)  # seeds agree: no spread over seeds, whatever that over episodes
    assert bootstrap(same) == (2.0, 2.0)
    means = np.array([[0.0, 10.0]])
    assert bootstrap(means) == (0.0, 10.0)  # two seeds: a quarter of the draws takes either one twice
    many = np.random.default_rng(1).normal(5.0, 2.0, (1, 400))
    low, high = bootstrap(many)
    half = 1.96 * many.std() / 20  # the normal approximation
    np.testing.assert_allclose([low, high], [many.mean() - half, many.mean() + half], rtol=0.02)


def test_one_seed_claims_no_spread(agent):
    single = copy.copy(agent)
    single.trainer = copy.copy(agent.trainer)
    single.trainer.seeds = [0]
    text = table(single, np.array([[1.0], [2.0]]), "somehow")
    assert "one seed" in text and "bootstrap" not in text


def test_film_of_the_first_episode(run, tmp_path, capsys):
    from PIL import Image

    film = tmp_path / "new" / "car.gif"
    evaluate_run(run, episodes=2, explore=False, video=film)
    with Image.open(film) as picture:
        assert picture.size == (480, 320)
        assert 1 < picture.n_frames <= 5  # Pillow joins pictures that do not differ
    assert "5 frames" in capsys.readouterr().out


@pytest.mark.thorough
def test_film_of_a_gymnasium_world(tmp_path):
    agent = make("gp-icem", "Pendulum-v1", episode_length=3, **TINY | {"seeds": 1})
    agent.learn(3)
    agent.save(tmp_path / "p")
    evaluate_run(tmp_path / "p", episodes=1, explore=False, video=tmp_path / "p.gif")
    assert (tmp_path / "p.gif").stat().st_size > 0


# imageio-ffmpeg leaves its pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_films_have_their_frames(tmp_path, suffix):
    path = tmp_path / f"film{suffix}"
    write_video(path, frames(), fps=10.0)
    if suffix == ".gif":
        from PIL import Image, ImageSequence

        with Image.open(path) as film:
            greys = [np.asarray(f.convert("RGB")).mean() for f in ImageSequence.Iterator(film)]
            assert film.info["duration"] == 100
        np.testing.assert_allclose(greys, [0, 40, 80, 120], atol=2)
    else:
        import imageio_ffmpeg

        reader = imageio_ffmpeg.read_frames(str(path))
        meta = next(reader)
        assert meta["size"] == (34, 22) and len(list(reader)) == 4
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["film.avi", "film"])
def test_unknown_suffix_is_refused_before_the_episodes(run, tmp_path, name, monkeypatch):
    monkeypatch.setattr("sombrl.agent.Agent.evaluate", lambda *a, **k: pytest.fail("evaluated"))
    with pytest.raises(SombrlError, match=r"\.gif or \.mp4"):
        evaluate_run(run, episodes=1, explore=False, video=tmp_path / name)


def test_an_existing_film_is_kept(run, tmp_path):
    film = tmp_path / "film.gif"
    film.write_text("mine")
    with pytest.raises(SombrlError, match="there already"):
        evaluate_run(run, episodes=1, explore=False, video=film)
    assert film.read_text() == "mine"


def test_a_film_of_foresight_in_the_way_is_refused_before_the_episodes(trained, tmp_path, monkeypatch):
    (tmp_path / "film-foresight.gif").write_text("mine")
    monkeypatch.setattr("sombrl.training.base.Trainer.foresight", lambda self: [np.zeros((4, 4, 3), np.uint8)])
    monkeypatch.setattr("sombrl.agent.Agent.evaluate", lambda *a, **k: pytest.fail("evaluated"))
    with pytest.raises(SombrlError, match=r"film-foresight\.gif is there already"):
        evaluate_run(trained, episodes=1, video=tmp_path / "film.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["film-foresight.gif"]


def test_missing_writer_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(SombrlError, match=r"needs imageio-ffmpeg: pip install 'sombrl\[video\]'"):
        check_video(tmp_path / "film.mp4")


def test_missing_pygame_is_one_sentence_before_the_episodes(tmp_path, monkeypatch):
    agent = make("gp-icem", "Pendulum-v1", episode_length=3, **TINY | {"seeds": 1})
    agent.save(tmp_path / "p")
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setattr("sombrl.agent.Agent.evaluate", lambda *a, **k: pytest.fail("evaluated"))
    with pytest.raises(SombrlError, match=r"pip install 'sombrl\[video\]'"):
        evaluate_run(tmp_path / "p", episodes=1, explore=False, video=tmp_path / "p.gif")


def test_no_run_and_no_episodes(trained, tmp_path):
    with pytest.raises(SombrlError, match="there is no run"):
        evaluate_run(tmp_path / "none", episodes=1, explore=False, video=None)
    with pytest.raises(SombrlError, match="at least 1"):
        evaluate_run(trained, episodes=0, explore=False, video=None)


def test_a_disk_that_cannot_be_written_is_one_sentence_after_the_returns(trained, tmp_path, monkeypatch, capsys):
    """Read-only, it refuses the record, and to remove what was not written as well."""
    run = tmp_path / "p"
    shutil.copytree(trained, run)

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("sombrl.runs.evaluate.write_synced", refuse)
    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(RunFault, match=r"cannot write .*eval.json: Read-only file system"):
        evaluate_run(run, episodes=1)
    assert "median of all" in capsys.readouterr().out
