"""`sombrl demo`: optimistic against greedy on sparse MountainCar; a table, a picture, a film and a page."""

import dataclasses
import shutil
from pathlib import Path

from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.config.run import RunConfig
from sombrl.controllers.icem import ICEMConfig
from sombrl.demo.story import Outcome, text_table
from sombrl.demo.training import TRAINING, train_strategies
from sombrl.dynamics.gp import GPConfig
from sombrl.errors import RunFault, SombrlError
from sombrl.runs.plots import drawing
from sombrl.storage.run_folder import RunFolder
from sombrl.sweep.side_by_side import processes

STRATEGIES = ("optimistic", "greedy")
MARKER = ".sombrl-demo"
CONFIG = GPICEMConfig(
    # Less than the defaults where that is enough for two coordinates and a few hundred transitions.
    gp=GPConfig(capacity=1024, fit_points=128, fit_steps=40),
    # 30 decisions are 150 frames; the way up takes about 100, so 20 decisions now and then just miss it.
    icem=ICEMConfig(horizon=30),
)


def demo(out: Path, *, seeds: int, episodes: int, jobs: int | None = None) -> None:
    """Train both strategies in `out`, print the comparison and write demo.png, demo.gif and index.html there."""
    out = Path(out)
    settings = run_config(seeds, episodes)  # refuses impossible numbers before anything is touched
    at_once = processes(jobs, len(STRATEGIES))
    with drawing("the demo"):
        pass  # without matplotlib it would fail after the training
    from sombrl.demo.film import write_film  # here, because all three need matplotlib
    from sombrl.demo.page import write_page
    from sombrl.demo.picture import draw_picture

    _make_room(out)
    command = _command(out, seeds, episodes)
    stories = train_strategies(out, [config_of(name) for name in STRATEGIES], settings, command, at_once)
    outcomes = [Outcome.of(story) for story in stories]
    print(text_table(outcomes))
    picture, film, page = out / "demo.png", out / "demo.gif", out / "index.html"
    try:
        draw_picture(picture, stories, outcomes)
        write_film(film, stories)
        write_page(page, stories, outcomes, command, settings, config_of(STRATEGIES[0]))
    except OSError as error:
        raise RunFault(f"cannot write in {out}: {error.strerror or error}.") from error
    print(f"\npicture  {picture.resolve()}\nfilm     {film.resolve()}\npage     {page.resolve()}")


def config_of(strategy: str) -> GPICEMConfig:
    """The same model and planner for every strategy."""
    return dataclasses.replace(CONFIG, explore=dataclasses.replace(CONFIG.explore, explore=strategy))


def run_config(seeds: int, episodes: int) -> RunConfig:
    """Sparse MountainCar: 40 decisions of 5 frames, +100 a frame at the goal, otherwise only costs."""
    return RunConfig(env="mountain-car", action_repeat=5, episode_length=40, episodes=episodes, seeds=seeds)


def _command(out: Path, seeds: int, episodes: int) -> list[str]:
    return ["sombrl", "demo", "--out", str(out), "--seeds", str(seeds), "--episodes", str(episodes)]


def _make_room(out: Path) -> None:
    """Delete the runs and files of an old demo, and nothing else that lies in its folder."""
    try:
        if out.exists() and not out.is_dir():
            raise SombrlError(f"{out} is a file: choose another --out.")
        if out.exists() and any(out.iterdir()) and not (out / MARKER).is_file():
            raise SombrlError(f"{out} is not empty and not an old demo: choose another --out.")
        out.mkdir(parents=True, exist_ok=True)
        (out / MARKER).write_text("Made by `sombrl demo`, which may replace what it wrote here.\n")
        for strategy in STRATEGIES:
            if (out / strategy / "manifest.json").is_file():
                with RunFolder.open(out / strategy).lock():  # refuses while another process trains in it
                    shutil.rmtree(out / strategy)
        if (out / TRAINING).is_dir():
            shutil.rmtree(out / TRAINING)
        for name in ("demo.png", "demo.gif", "index.html"):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise RunFault(f"cannot use {out}: {error.strerror or error}.") from error
