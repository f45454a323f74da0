"""`sombrl demo`: its table is the metrics, its page stands alone, and it replaces nothing but itself."""

import base64
import dataclasses
import html.parser
import io
import json
import re
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sombrl.agent.make import load
from sombrl.config.run import RunConfig
from sombrl.controllers.icem import ICEMConfig
from sombrl.demo import run as module
from sombrl.demo.film import END, HILL, LEFT, LONG, MAP, MOMENT, SIZE, write_film
from sombrl.demo.page import write_page
from sombrl.demo.picture import draw_picture
from sombrl.demo.run import demo
from sombrl.demo.states import SIGMA_MAP, SIGMA_MAX, draw_dots, draw_sigma
from sombrl.demo.story import Outcome, Story, sigma_map, text_table
from sombrl.dynamics.gp import GPConfig
from sombrl.errors import SombrlError
from sombrl.runs.colors import ON_WHITE, places
from sombrl.storage.run_folder import RunFolder

TINY = dataclasses.replace(
    module.CONFIG,
    gp=GPConfig(capacity=64, rank=8, fit_steps=2, fit_points=16),
    icem=ICEMConfig(num_samples=8, num_elites=2, iterations=1, horizon=3),
)


def tiny_run(seeds, episodes):
    return RunConfig(env="mountain-car", action_repeat=5, episode_length=5, episodes=episodes, seeds=seeds)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole demo, small: (folder, what it printed, its stories)."""
    out = tmp_path_factory.mktemp("demo") / "out"
    stories, printed = [], io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CONFIG", TINY)
        patch.setattr(module, "run_config", tiny_run)
        train = module.train_strategies
        patch.setattr(module, "train_strategies", lambda *told: stories.extend(train(*told)) or stories)
        patch.setattr("sys.stdout", printed)
        demo(out, seeds=2, episodes=2, jobs=1)
    return out, printed.getvalue(), stories


class Links(html.parser.HTMLParser):
    """Collects what a page refers to."""

    def __init__(self, page):
        super().__init__()
        self.links = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]


def story(strategy, returns, seconds=1.0):
    rows = [
        {"iteration": n, "seed": seed, "rollout/ep_rew_mean": value}
        for n, line in enumerate(returns)
        for seed, value in enumerate(line)
    ]
    return Story(strategy, rows, seconds=seconds)


def test_runs_are_ordinary_runs(finished):
    out, _, stories = finished
    for told in stories:
        rows = RunFolder.open(out / told.strategy).rows()
        assert len(rows) == 4 and rows == told.rows
        agent = load(out / told.strategy)
        assert agent.iteration == 2 and agent.config.explore.explore == told.strategy
        assert [[states.shape for states in episode] for episode in told.visited] == [[(5, 2)] * 2] * 2
        assert len(told.sigma) == 2 and all(sigma.shape == (41, 41) for sigma in told.sigma)


@pytest.mark.thorough
def test_strategies_side_by_side_tell_the_same(finished, tmp_path, capsys):
    _, _, stories = finished
    configs = [load(finished[0] / told.strategy).config for told in stories]
    again = module.train_strategies(tmp_path, configs, tiny_run(2, 2), ["sombrl", "demo"], 2)
    assert "mountain-car · optimistic and greedy" in capsys.readouterr().out
    for ours, theirs in zip(again, stories, strict=True):
        assert (ours.returns == theirs.returns).all() and np.array_equal(ours.sigma, theirs.sigma)
        for one, other in zip(ours.visited, theirs.visited, strict=True):
            assert all(map(np.array_equal, one, other))


def test_sigma_is_that_of_the_posterior_before_the_episode(finished):
    _, _, stories = finished
    for told in stories:
        np.testing.assert_allclose(told.sigma[0], np.sqrt(2.0), rtol=1e-5)  # the prior knows nothing
        assert told.sigma[1].min() < 1.3 and told.sigma[1].max() <= np.sqrt(2.0) + 1e-4
        # Rows are velocities, columns positions: least is where the first episode was.
        velocity, position = np.unravel_index(told.sigma[1].argmin(), (41, 41))
        start = told.visited[0][0]
        assert abs(np.linspace(-1.2, 0.6, 41)[position] - start[:, 0].mean()) < 0.2
        assert abs(np.linspace(-0.07, 0.07, 41)[velocity] - start[:, 1].mean()) < 0.02


@pytest.mark.thorough
def test_sigma_map_is_the_bonus_of_the_dynamics(finished):
    out, _, _ = finished
    agent = load(out / "optimistic")
    mdp = agent.trainer.policy("explore", rows=(0,))._for(1).mdp
    arrays, static = eqx.partition(mdp.dynamics, eqx.is_array)
    dynamics = eqx.combine(jax.tree.map(lambda leaf: leaf[0], arrays), static)
    got = sigma_map(dynamics)
    prediction = dynamics.predict(jnp.array([0.6, -0.07]), jnp.zeros(1))  # last position, first velocity
    expected = np.linalg.norm(prediction.epistemic_std / prediction.scale)
    np.testing.assert_allclose(got[0, -1], expected, rtol=1e-4)


def test_outcome_counts_seeds_that_found_the_reward_and_takes_medians():
    outcome = Outcome.of(story("optimistic", [[0, 0, -1], [5, 0, -1], [-1, 7, -1], [9, 8, -1]], 12.0))
    assert (outcome.found, outcome.seeds, outcome.first) == (2, 3, 2.5)
    assert (outcome.median, outcome.worst, outcome.best) == (5.0, -1.0, 7.0)  # per seed over the last three
    told = dataclasses.replace(story("optimistic", [[0, 0, 0]]), evaluated=np.array([[1.0, 9.0, 5.0], [3.0, 7.0, 5.0]]))
    assert Outcome.of(told).evaluated == (5.0, 2.0, 8.0)  # per seed over the episodes
    never = Outcome.of(story("greedy", [[0.0], [-0.1]]))
    assert never.found == 0 and never.first is None


def test_printed_table_agrees_with_the_metrics(finished):
    out, printed, stories = finished
    assert text_table([Outcome.of(told) for told in stories]) in printed
    for told in stories:
        values = [row["rollout/ep_rew_mean"] for row in RunFolder.open(out / told.strategy).rows()]
        found = sum(max(values[seed::2]) > 0 for seed in (0, 1))
        line = next(line for line in printed.splitlines() if re.match(rf"{told.strategy}  .*seeds", line))
        assert f"{found}/2 seeds" in line
        median = np.median([np.median(values[seed::2]) for seed in (0, 1)])
        shown = float(re.search(r"([−\d.,e]+) \[", line)[1].replace("−", "-").replace(",", ""))
        assert shown == pytest.approx(median, rel=0.06)
    assert str(out / "index.html") in printed and str(out / "demo.png") in printed


def test_page_refers_to_no_other_file(finished):
    out, _, stories = finished
    page = (out / "index.html").read_text()
    parsed = Links(page)
    assert parsed.links and all(link.startswith("data:") for link in parsed.links)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", page)
    assert "$" not in page.split("<script")[0]  # every placeholder was filled
    for told in stories:
        assert f'<th scope="col">{told.strategy}</th>' in page
        for n in (1, 2):
            assert page.count(f'id="{told.strategy}-{n}"') == 1
    assert "prefers-color-scheme: dark" in page and 'name="viewport"' in page and "@media print" in page
    for command in ("sombrl demo", "sombrl plot", "sombrl eval", "sombrl resume"):
        assert command in page


def test_curves_of_the_page_are_the_returns(finished):
    out, _, stories = finished
    data = json.loads(re.search(r'id="data">(.*?)</script>', (out / "index.html").read_text())[1])
    for told, drawn in zip(stories, data, strict=True):
        assert (drawn["name"], drawn["x"], drawn["n"]) == (told.strategy, [1, 2], 2)
        np.testing.assert_allclose(drawn["y"], np.median(told.returns, axis=1), rtol=1e-3)
        np.testing.assert_allclose(np.transpose(drawn["seeds"]), told.returns, rtol=1e-3)


def test_pictures_can_be_read(finished):
    from PIL import Image

    out, _, _ = finished
    parsed = Links((out / "index.html").read_text())
    pictures = [link.split(",", 1)[1] for link in parsed.links if link.startswith("data:image")]
    assert len(pictures) == 6  # of two strategies: the states visited, and σ before two episodes
    for data in pictures:
        with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
            assert picture.size == (480, 360)
            picture.load()
    with Image.open(out / "demo.png") as picture:
        assert picture.size == (1600, 900)


def test_film_shows_every_episode_in_the_colours_of_the_strategies(finished):
    from PIL import Image, ImageColor

    out, _, stories = finished
    with Image.open(out / "demo.gif") as film:
        times, last = [], None
        for n in range(film.n_frames):
            film.seek(n)
            times.append(film.info["duration"])
            last = np.asarray(film.convert("RGB")).astype(int)
        # Decisions 0, 2 and 4 of two episodes; Pillow joins pictures that are the same, and their times.
        assert film.n_frames <= 6
        assert sum(times) == 4 * MOMENT + LONG + END and times[-1] >= END
        assert film.size == SIZE
    for strategy, middle in (("greedy", slice(0, SIZE[0] // 2)), ("optimistic", slice(SIZE[0] // 2, None))):
        color = ImageColor.getrgb(ON_WHITE[places([strategy])[0]])
        name = last[: HILL[0] - 10, middle]
        assert (np.abs(name - color).max(axis=-1) < 10).sum() > 30  # the name, in its colour, in its half
    below = {told.strategy: told.sigma[-1][::-1] for told in stories}
    centre = last[MAP[0] + 1, LEFT + 2]  # the corner: slowest position, highest velocity
    expected = 255 * np.asarray(SIGMA_MAP(below["greedy"][0, 0] / SIGMA_MAX))[:3]
    assert np.abs(centre - expected).max() < 12


def test_film_is_quick_and_small(finished, tmp_path):
    """Eight episodes of forty decisions, as the demo has them, with maps that all differ."""
    told = finished[2][0]
    draw = np.random.default_rng(0)
    noise = [np.clip(one + draw.uniform(-0.1, 0.1, (41, 41)), 0, SIGMA_MAX) for one in told.sigma * 4]
    visited = [[np.tile(seed, (8, 1)) for seed in episode] for episode in told.visited * 4]
    stories = [Story(name, told.rows, visited, noise) for name in ("optimistic", "greedy")]
    rows = [row | {"iteration": row["iteration"] + 2 * n} for n in range(4) for row in told.rows]
    stories = [dataclasses.replace(one, rows=rows) for one in stories]
    start = time.process_time()
    write_film(tmp_path / "demo.gif", stories)
    assert time.process_time() - start < 10
    assert (tmp_path / "demo.gif").stat().st_size < 1_500_000


def test_black_dots_have_a_white_rim_on_a_dark_map():
    figure = Figure(figsize=(4, 3), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    dark = Story("optimistic", sigma=[np.zeros((41, 41))])  # σ = 0 is the darkest violet
    states = np.stack([np.linspace(-1.0, 0.2, 10), np.zeros(10)], axis=1)  # left of the goal's white line
    draw_sigma(axes, dark, 0)
    draw_dots(axes, [[states]], "black", 10.0, "white")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    left = np.asarray(canvas.buffer_rgba())[:, :320, :3]
    assert (left.min(axis=-1) > 200).sum() > 100


def test_one_seed_and_one_episode_can_be_drawn(finished, tmp_path):
    stories = [Story(told.strategy, told.rows[:1], [told.visited[0][:1]], told.sigma[:1], 1.0) for told in finished[2]]
    outcomes = [Outcome.of(told) for told in stories]
    draw_picture(tmp_path / "demo.png", stories, outcomes)
    write_page(tmp_path / "index.html", stories, outcomes, ["sombrl", "demo"], tiny_run(1, 1), TINY)
    page = (tmp_path / "index.html").read_text()
    assert "1/1 seeds" in page or "0/1 seeds" in page
    assert 'max="1"' in page and "nan" not in page and (tmp_path / "demo.png").stat().st_size > 0


def test_old_demo_is_replaced_and_nothing_else(tmp_path):
    out = tmp_path / "old"
    (out / "mine").mkdir(parents=True)
    with pytest.raises(SombrlError, match="not empty and not an old demo"):
        module._make_room(out)
    (out / module.MARKER).touch()
    RunFolder.create(out / "greedy", {}, ["test"])
    (out / "index.html").touch()
    module._make_room(out)
    assert sorted(path.name for path in out.iterdir()) == [module.MARKER, "mine"]
    RunFolder.create(out / "greedy", {}, ["test"])
    with RunFolder(out / "greedy").lock(), pytest.raises(SombrlError, match="in use"):
        module._make_room(out)
    assert (out / "greedy").is_dir()


def test_refusals_touch_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SombrlError, match="is a file"):
        demo(tmp_path / "file", seeds=1, episodes=1)
    with pytest.raises(SombrlError, match="seeds must be at least 1"):
        demo(tmp_path / "d", seeds=0, episodes=1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SombrlError, match=r"needs matplotlib: pip install 'sombrl\[report\]'"):
        demo(tmp_path / "d", seeds=1, episodes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.slow
def test_optimistic_finds_the_reward_that_greedy_misses(tmp_path):
    """The demo's claim, on seeds it does not show."""
    from sombrl.exploration.config import ExploreConfig
    from sombrl.runs.train import train

    run = dataclasses.replace(module.run_config(3, 4), seed=100)
    found = {}
    for strategy in module.STRATEGIES:
        config = dataclasses.replace(module.CONFIG, explore=ExploreConfig(explore=strategy))
        train("gp-icem", config, run, tmp_path / strategy, tensorboard=False)
        told = Story(strategy, RunFolder.open(tmp_path / strategy).rows())
        found[strategy] = int((told.returns > 0).any(axis=0).sum())
    assert found["optimistic"] >= 2 and found["greedy"] <= 1
