"""The demo's page in a real browser: nothing is cut off on a phone, and the slider shows the episode it names.

Needs what tests/report/test_browser.py needs: chromium and playwright.
"""

import numpy as np
import pytest

from sombrl.demo import run
from sombrl.demo.page import write_page
from sombrl.demo.story import Outcome, Story
from tests.report.test_browser import browser, open_page, pytestmark

__all__ = ["browser", "open_page", "pytestmark"]
EPISODES = 8


def story(strategy: str, level: float) -> Story:
    """Three seeds that go round in circles."""
    turns = np.linspace(0, 6, 20)
    states = np.stack([0.3 * np.cos(turns) - 0.5, 0.03 * np.sin(turns)], axis=1)
    rows = [
        {"iteration": n, "seed": seed, "rollout/ep_rew_mean": level * n + seed}
        for n in range(EPISODES)
        for seed in range(3)
    ]
    sigma = [np.full((41, 41), 2**0.5 / (n + 1)) for n in range(EPISODES)]
    return Story(strategy, rows, [[states] * 3 for _ in range(EPISODES)], sigma, 1.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    stories = [story("optimistic", 1000.0), story("greedy", 1.0)]
    outcomes = [Outcome.of(told) for told in stories]
    config = run.config_of("optimistic")
    write_page(path, stories, outcomes, ["sombrl", "demo"], run.run_config(3, EPISODES), config)
    return path


@pytest.mark.parametrize("width", [390, 320])
def test_phone_cuts_nothing_off(open_page, width):
    window = open_page(width=width, has_touch=True, is_mobile=True)
    assert window.page.evaluate("document.documentElement.scrollWidth") <= width
    cut = window.page.eval_on_selector_all(
        "th, td, pre, img, svg, p",
        "all => all.filter(n => n.getBoundingClientRect().right > innerWidth + 1).map(n => n.outerHTML.slice(0, 80))",
    )
    assert cut == []


def test_chart_has_a_line_per_strategy_over_whole_episodes(open_page):
    window = open_page()
    assert window.count("#curves .line") == 2
    assert window.count("#curves .seed") == 6
    assert window.page.locator("#curves .tick-x").all_text_contents() == [str(n) for n in range(1, EPISODES + 1)]


def test_slider_shows_the_map_of_its_episode(open_page):
    window = open_page()
    window.page.fill("#episode", "5")
    assert window.page.inner_text("#shown") == "5"
    for strategy in ("optimistic", "greedy"):
        shown = window.page.get_attribute(f"img[data-strategy={strategy}]", "src")
        assert shown == window.page.get_attribute(f"#{strategy}-5", "src")
