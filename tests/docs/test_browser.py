"""docs/assets/optimism.html in a real browser: from a file, without a network, by keyboard alone, on a phone.

Needs what tests/report/test_browser.py needs: chromium and playwright.
"""

import re

import pytest

from tests.docs.test_interactive import ASSETS
from tests.report.test_browser import browser, pytestmark

__all__ = ["browser", "pytestmark"]
ORDER = ["lambda", "lengthscale", "one", "ten", "all", "again", "compare", "truth"]


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark", offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((ASSETS / "optimism.html").as_uri())
    yield page
    assert not faults
    context.close()


def place(page) -> float:
    return float(re.search(r"is at ([\d.]+)", page.inner_text("#said"))[1])


def test_by_keyboard_alone_on_a_phone(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ORDER:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == name
        if name == "lambda":
            page.keyboard.press("Home")
            assert page.inner_text("#lambda-shown") == "0 (greedy)"
        elif name == "all":
            page.keyboard.press("Enter")
            assert place(page) == pytest.approx(2, abs=0.1)
            assert page.locator("#one").is_disabled()
        elif name == "again":
            page.keyboard.press("Enter")
            assert place(page) == 3
            assert page.inner_text("#runs td >> nth=1") == "60"
        elif name == "compare":
            page.keyboard.press("Enter")
            optimistic, greedy = (row.split()[2] for row in page.locator("#runs tr").all_inner_texts()[:2])
            assert float(optimistic) > 1.5 * float(greedy)
        elif name == "truth":
            page.keyboard.press("Space")
            assert page.locator("#truth-key").is_visible()
