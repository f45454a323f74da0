"""docs/gallery.md says what its films' records say, and its films are there, and small."""

import importlib.util
import json

import numpy as np
import pytest
from PIL import Image

from tests.docs.test_numbers import RESULTS, ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def made():
    """tools/make_gallery.py as a module."""
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "tools" / "make_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_made_from_the_records(made):
    numbers = json.loads(made.NUMBERS.read_text())
    assert made.PAGE.read_text() == made.page(numbers), "run: python tools/make_gallery.py"
    assert set(numbers) == {shown.name for shown in made.SHOWN}
    assert numbers["parking"] == made.parking()
    assert (
        numbers["parking"]["return"]
        == json.loads((RESULTS / "rccar-parking" / "run.json").read_text())["eval"][-1]["returns"]["0"][0]
    )
    assert numbers["within-budget"]["violations"] == 0 < numbers["without-budget"]["violations"]
    same = [numbers[name]["command"].split(" --safety.budget")[0] for name in ("within-budget", "without-budget")]
    assert same[0] == same[1]  # they differ in the budget alone


def test_films_move_and_are_small(made):
    films = [DOCS / "demo.gif", *(DOCS / shown.path for shown in made.SHOWN)]
    for path in films:
        with Image.open(path) as film:
            assert film.n_frames > 10, path
    assert (DOCS / "demo.gif").stat().st_size < 600_000
    assert sum(path.stat().st_size for path in films) < 4_000_000


def test_smaller_film_is_the_same_film(made, tmp_path):
    """A white square on grey moves to the right, one pixel in four."""
    pictures = []
    for n in range(5):
        picture = np.full((80, 2 * made.WIDTH, 3), 128, np.uint8)
        picture[20:60, 100 * n : 100 * n + 100] = 255
        pictures.append(Image.fromarray(picture))
    pictures[0].save(tmp_path / "large.gif", save_all=True, append_images=pictures[1:], duration=100)
    made.shrink(tmp_path / "large.gif", tmp_path / "small.gif")
    with Image.open(tmp_path / "small.gif") as film:
        assert (film.size, film.n_frames) == ((made.WIDTH, 40), 5)
        for n in range(5):
            film.seek(n)
            bright = np.asarray(film.convert("L"))[20] > 200
            assert abs(np.flatnonzero(bright).mean() - (50 * n + 24.5)) < 2
