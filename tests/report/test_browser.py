"""The page in a real browser: no errors, and every control does what it says, by mouse, by keyboard and on a phone.

Needs Debian's `chromium` (or another Chromium in CHROMIUM) and the Python package `playwright`, without its browsers.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from sombrl.report import write_report
from sombrl.report.loading import find
from sombrl.report.page import page
from tests.report.examples import VERSIONS, write_run, write_table

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SHOTS = os.environ.get("REPORT_SHOTS")
"""A folder for screenshots, for people to look at."""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
VISIBLE = ".comparison:not([hidden])"
LINES = f"{VISIBLE} [data-chart=curves] .line"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_table(folder / "results" / "toy" / "small.csv", tasks=4)
    write_run(folder / "runs" / "a", "optimistic", films=True)
    write_run(folder / "runs" / "b", "greedy", 0.4, seeds=(0, 1), versions=VERSIONS | {"sombrl": "0.2.0"})
    write_run(folder / "runs" / "c", "hucrl", 0.8, env="mountain-car")
    (write_run(folder / "runs" / "broken") / "manifest.json").unlink()
    return write_report([folder / "results", folder / "runs"], folder / "report.html")


class Window:
    """A page that has been opened, and everything it complained about."""

    def __init__(self, browser, path: Path, width=1280, anchor="", **options):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        self.page, self.complaints = self.context.new_page(), []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(request.url))
        self.page.goto(f"{path.as_uri()}{anchor}")

    def count(self, selector):
        return self.page.locator(selector).count()

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()

    def style(self, selector, name):
        return self.page.eval_on_selector(selector, f"node => getComputedStyle(node)['{name}']")


@pytest.fixture
def open_page(browser, path, request):
    windows = []

    def opened(**options):
        windows.append(Window(browser, options.pop("path", path), **options))
        return windows[-1]

    yield opened
    for window in windows:
        if SHOTS:
            width = window.page.viewport_size["width"]
            window.page.screenshot(path=Path(SHOTS) / f"{request.node.name}-{width}.png", full_page=True)
        window.context.close()
        assert window.complaints == []


def test_first_comparison_is_shown_with_all_its_charts(open_page):
    window = open_page()
    assert window.texts(f"{VISIBLE} > h2") == ["toy · small"]
    assert window.count(f"{VISIBLE} [data-chart=curves] figure") == 4
    assert window.count(LINES) == 8
    assert window.count(f"{VISIBLE} [data-chart=curves] .band") == 8
    assert window.count(f"{VISIBLE} [data-chart=profile] .line") == 2
    assert window.count(f"{VISIBLE} [data-chart=aggregate] figure") == 4
    assert window.count(f"{VISIBLE} [data-chart=regret] figure") == 4
    dashes = window.page.eval_on_selector_all(
        LINES, "nodes => nodes.map(node => node.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 2  # methods differ without their colours


def test_charts_draw_the_numbers(open_page):
    """The first curve ends as high as the data say, on the axis that is drawn."""
    window = open_page(anchor="#t=0")
    place = window.page.evaluate(
        """() => {
          const svg = document.querySelector(".comparison:not([hidden]) [data-chart=curves] svg");
          const labels = [...svg.querySelectorAll("text[text-anchor=end]")];
          const ticks = labels.map(t => [+t.textContent, +t.getAttribute("y") - 4]);
          const [[a, ya], [b, yb]] = [ticks[0], ticks.at(-1)];
          const last = svg.querySelector(".line").getAttribute("d").split("L").at(-1).split(" ")[1];
          return a + (last - ya) / (yb - ya) * (b - a);
        }"""
    )
    data = json.loads(window.page.text_content("#data"))
    assert place == pytest.approx(data["comparisons"][0]["tasks"][0]["curves"][0]["i"][-1], abs=0.01)


def test_charts_come_before_the_verdicts(open_page):
    window = open_page()
    assert not window.page.is_visible("#verdicts table")
    chart = window.page.locator(f"{VISIBLE} [data-chart=curves] svg").first.bounding_box()
    assert chart["y"] < 600  # on the first screen
    assert window.page.locator(f"{VISIBLE} .verdicts").bounding_box()["y"] > chart["y"]


def test_largest_comparison_is_first_and_verdicts_are_of_one_scale(open_page, tmp_path):
    write_table(tmp_path / "a" / "small.csv", tasks=1, experiment="a")
    write_table(tmp_path / "b" / "paper.csv", tasks=2, experiment="b", better=0.0)
    window = open_page(path=write_report([tmp_path], tmp_path / "r.html"))
    assert window.texts(f"{VISIBLE} > h2") == ["b · paper"]
    window.page.click("#verdicts summary")
    assert "optimistic < greedy" in window.page.inner_text("#verdicts .verdicts")
    assert "optimistic > greedy" not in window.page.inner_text("#verdicts .verdicts")
    window.page.select_option("#scale", "small")
    assert "optimistic > greedy" in window.page.inner_text("#verdicts .verdicts")
    window.page.set_viewport_size({"width": 390, "height": 900})
    assert "optimistic < greedy" not in window.page.inner_text("#verdicts .verdicts")
    window.page.reload()
    assert window.page.input_value("#scale") == "small"
    assert window.page.is_visible("#verdicts table")


def test_difference_has_a_zero_and_ticks(open_page):
    """The interval of the difference lies to the right of zero, on a scale from −1 to 1."""
    window = open_page()
    bar = f"{VISIBLE} tr.better .forest"
    middle, zero = (
        window.page.get_attribute(f"{bar} .{part}", "d").lstrip("M").partition(" ")[0] for part in ("middle", "zero")
    )
    assert float(zero) == 50 < float(middle)
    assert window.page.get_attribute(f"{bar} .scale", "d").count("V") == 4
    assert window.style(f"{bar} .zero", "stroke") == window.style("thead th", "color")
    assert window.texts(f"{VISIBLE} .ticks i") == ["−1", "0", "1"]


def test_axis_has_one_unit(open_page, tmp_path):
    """Ticks of 12,000 and of 8,000 are both in thousands."""
    run, out = write_run(tmp_path / "run", repeat=120), tmp_path / "r.html"
    out.write_text(page(find([run])))
    window = open_page(path=out)
    ticks = window.page.locator(f"{VISIBLE} [data-chart=curves] .tick-x").all_text_contents()
    assert "12k" in ticks
    assert all(tick == "0" or tick.endswith("k") for tick in ticks)


def test_task_selector_chooses_the_curves(open_page):
    window = open_page()
    window.page.select_option(f"{VISIBLE} .task", label="world-2")
    assert window.texts(f"{VISIBLE} [data-chart=curves] figcaption")[0].startswith("world-2")
    assert window.count(f"{VISIBLE} [data-chart=curves] figure") == 1
    window.page.select_option(f"{VISIBLE} .task", "all")
    assert window.count(f"{VISIBLE} [data-chart=curves] figure") == 4


def test_methods_can_be_switched_off_and_on(open_page):
    window = open_page(anchor="#t=0")
    button = window.page.locator(f"{VISIBLE} .methods button", has_text="greedy")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert window.page.eval_on_selector_all(LINES, "n => n.map(x => x.dataset.method)") == ["optimistic"]
    assert window.count(f"{VISIBLE} [data-chart=profile] .line") == 1
    button.click()
    assert window.count(LINES) == 2
    for button in window.page.locator(f"{VISIBLE} .methods button").all():
        button.click()
    assert "no curve is switched on" in window.page.inner_text(f"{VISIBLE} [data-chart=curves]")


def test_controls_change_axis_scale_line_and_seeds(open_page):
    window = open_page(anchor="#t=0")
    label = f"{VISIBLE} [data-chart=curves] .x-label"
    ticks = f"{VISIBLE} [data-chart=curves] .tick-x"
    assert window.page.text_content(label) == "env frames"
    assert window.page.locator(ticks).last.text_content() == "1,200"
    window.page.check("input[name=axis][value=decisions]")
    assert window.page.text_content(label) == "decisions"
    assert window.page.locator(ticks).last.text_content() == "600"
    line = window.page.get_attribute(LINES, "d")
    window.page.check("#log")
    assert window.page.text_content(label) == "decisions, log scale"
    assert window.page.locator(ticks).first.text_content() in ("50", "100")
    assert window.page.get_attribute(LINES, "d") != line
    assert window.count(f"{VISIBLE} .seed") == 0
    window.page.check("#seeds")
    assert window.count(f"{VISIBLE} [data-chart=curves] .seed") == 10
    window.page.check("input[name=line][value=q]")
    assert "y=q" in window.page.url


def test_other_comparison_can_be_chosen_and_has_its_notes(open_page):
    window = open_page()
    window.page.select_option("#comparison", label="Runs")
    assert window.texts(f"{VISIBLE} > h2") == ["Runs"]
    notes = window.page.inner_text(VISIBLE)
    assert "different versions of sombrl" in notes
    assert "gp-icem/greedy has 2 of 5 seeds" in notes
    assert "broken" in window.page.text_content("#skipped")
    window.page.click("#verdicts summary")
    window.page.click("[data-open='0']")
    assert window.texts(f"{VISIBLE} > h2") == ["toy · small"]
    assert window.page.evaluate("document.activeElement.id") == "figures"


def test_state_survives_a_reload(open_page):
    window = open_page()
    window.page.select_option(f"{VISIBLE} .task", label="world-1")
    window.page.check("#log")
    window.page.locator(f"{VISIBLE} .methods button").first.click()
    window.page.reload()
    assert window.page.is_checked("#log")
    assert window.page.locator(f"{VISIBLE} .task").input_value() == "1"
    assert window.page.eval_on_selector_all(LINES, "n => n.map(x => x.dataset.method)") == ["greedy"]


def test_pointing_at_a_chart_shows_values(open_page):
    window = open_page(anchor="#t=0")
    chart = window.page.locator(f"{VISIBLE} [data-chart=curves] svg")
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] - 15, "y": box["height"] / 2})
    tip = window.page.inner_text(".tip")
    assert tip.startswith("1,200 env frames")
    # Five seeds end at 1.50 to 1.54 and 1.00 to 1.04.
    assert "optimistic 1.52 [1.5" in tip
    assert "greedy 1.02 [1.0" in tip
    assert tip.count("5 seeds") == 2
    window.page.mouse.move(0, 0)
    assert window.count(".tip") == 0


def test_keyboard_alone_is_enough(open_page):
    window = open_page(anchor="#t=0")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.className") == "skip"
    assert window.style(".skip", "outlineStyle") != "none"
    window.page.locator(f"{VISIBLE} .methods button").nth(1).focus()
    window.page.keyboard.press("Space")
    assert window.count(LINES) == 1
    assert window.page.evaluate("document.activeElement.dataset.method") == "greedy"  # the focus stays where it was
    window.page.keyboard.press("Space")
    window.page.keyboard.press("Tab")
    assert window.page.evaluate("document.activeElement.tagName") == "svg"
    window.page.keyboard.press("End")
    assert window.page.inner_text(".tip").startswith("1,200 env frames")
    window.page.keyboard.press("ArrowLeft")
    assert window.page.text_content("#said").startswith("1,100 env frames: optimistic")
    window.page.keyboard.press("Escape")
    assert window.count(".tip") == 0


def test_every_control_and_picture_has_an_accessible_name(open_page):
    window = open_page()
    unnamed = window.page.eval_on_selector_all(
        "button, select, input, svg[role=img], [role=region], [role=group], video, img",
        """nodes => nodes.filter(n => !(n.getAttribute("aria-label") || n.getAttribute("aria-labelledby")
             || n.textContent.trim() || n.alt || n.closest("label"))).map(n => n.outerHTML.slice(0, 80))""",
    )
    assert unnamed == []
    assert window.count("th:not([scope])") == 0


def test_dark_colours_by_system_and_by_button(open_page):
    dark, light = "rgb(22, 24, 27)", "rgb(255, 255, 255)"
    assert open_page(color_scheme="dark").style("body", "backgroundColor") == dark
    window = open_page(color_scheme="light")
    assert window.style("body", "backgroundColor") == light
    window.page.click("#theme")
    assert window.style("body", "backgroundColor") == dark
    window.page.click("#theme")
    assert window.style("body", "backgroundColor") == light
    assert window.page.inner_text("#theme") == "Colours: light"


def test_print_is_black_on_white_without_controls_and_crops_no_manifest(open_page):
    window = open_page(color_scheme="dark")
    window.page.emulate_media(media="print")
    assert window.style("body", "backgroundColor") == "rgb(255, 255, 255)"
    assert window.style("body", "color") == "rgb(0, 0, 0)"
    for hidden in (".bar", ".page-tools"):
        assert window.style(hidden, "display") == "none"
    assert window.page.is_visible(f"{VISIBLE} table.verdicts")
    assert not window.page.is_visible("#verdicts")  # printed as it is on the screen, folded
    assert window.style("details pre", "maxHeight") == "none"
    assert window.page.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("width", [390, 320])
def test_phone_does_not_scroll_sideways(open_page, width):
    window = open_page(width=width, has_touch=True, is_mobile=True)
    for comparison in ("0", "1"):
        window.page.select_option("#comparison", comparison)
        assert window.page.evaluate("document.documentElement.scrollWidth") <= width
        wide = window.page.eval_on_selector_all(
            f"{VISIBLE} svg, {VISIBLE} select, .bar",
            "nodes => nodes.filter(n => n.getBoundingClientRect().right > innerWidth + 1).length",
        )
        assert wide == 0


def test_charts_follow_the_width_of_the_window(open_page):
    window = open_page(anchor="#t=0")
    before = window.page.get_attribute(f"{VISIBLE} [data-chart=curves] svg", "width")
    window.page.set_viewport_size({"width": 700, "height": 900})
    window.page.wait_for_function(
        f"document.querySelector('{VISIBLE} [data-chart=curves] svg').getAttribute('width') !== '{before}'"
    )
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 700


def test_tables_are_there_without_javascript(open_page):
    window = open_page(java_script_enabled=False)
    assert "IQM difference" in window.texts(".comparison .verdicts")[0]
    assert window.page.locator(".comparison").count() == 2
    assert all(section.is_visible() for section in window.page.locator(".comparison").all())


def test_live_page_reloads_and_keeps_its_state(open_page, tmp_path):
    run, out = write_run(tmp_path / "run", episodes=2), tmp_path / "live.html"
    out.write_text(page(find([run]), reload_s=1))
    window = open_page(path=out, anchor="#log=1")
    assert window.page.is_visible("#pause")
    (run / "metrics.jsonl").write_text((write_run(tmp_path / "more", episodes=6) / "metrics.jsonl").read_text())
    out.write_text(page(find([run])))
    window.page.wait_for_function(
        "document.querySelectorAll('[data-chart=curves] circle').length === 6", timeout=10_000
    )
    assert window.page.is_checked("#log")
    assert not window.page.is_visible("#pause")  # the last page reloads no more
