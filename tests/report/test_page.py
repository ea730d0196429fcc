"""The HTML report in a real browser: it runs, asks the network for nothing, zooms, and axe-core finds no serious fault."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.core.timeline import make_charts
from rlhfdoctor.report.html import render

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (apt-get install chromium)"),
]
ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ("lab-pinned-start", "lab-object-store", "easyr1-long-prompts")
SCREENS = [(width, theme) for width in (1280, 390) for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as found:
        running = found.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of three incidents, written once."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name in SAMPLES:
        paths = [str(ROOT / "samples" / name / "run")]
        incident = analyze(paths)
        found[name] = folder / f"{name}.html"
        found[name].write_text(render(incident, make_charts(paths, incident), version="1.2.3"))
    return found


class Visit:
    """A page with everything that it says to the console and asks of the network."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        if self.page.locator("figure.chart").count() and context.get("java_script_enabled", True):
            self.page.wait_for_selector(".drawing svg[data-points]")
        self.asked = [url for url in self.asked if url != path.as_uri()]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(("width", "theme"), SCREENS)
def test_no_error_no_request_no_serious_fault(
    browser: Any, pages: dict[str, Path], name: str, width: int, theme: str
) -> None:
    """At both widths and in both themes; and the page is as wide as the screen."""
    screen = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
    visit = Visit(browser, pages[name], **screen)
    assert (visit.said, visit.asked) == ([], [])
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.context.close()
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    judged = Visit(browser, pages[name], bypass_csp=True, **screen)  # the page's own policy would not let axe in
    found = axe.Axe().run(judged.page).response
    judged.context.close()
    assert len(found["passes"]) > 15
    assert [fault["id"] for fault in found["violations"] if fault["impact"] in ("serious", "critical")] == []


def test_zoom_by_drag_keys_and_buttons(browser: Any, pages: dict[str, Path]) -> None:
    """A drag shows what was dragged over, keys move, and everything comes back."""
    visit = Visit(browser, pages["lab-pinned-start"], viewport={"width": 1280, "height": 900})
    page, said = visit.page, visit.page.locator(".range").first
    svg = page.locator(".drawing svg").first
    whole = svg.inner_html()
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert said.inner_text() == ""
    page.mouse.move(box["x"] + 500, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 100, steps=5)
    page.mouse.up()
    page.wait_for_timeout(200)
    zoomed = said.inner_text()
    assert " to " in zoomed and svg.inner_html() != whole
    svg.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    assert said.inner_text() not in ("", zoomed)
    page.keyboard.press("0")
    page.mouse.move(5, 5)
    page.wait_for_timeout(200)
    assert (said.inner_text(), svg.inner_html()) == ("", whole)
    page.get_by_role("button", name="zoom in").first.click()
    assert " to " in said.inner_text()
    visit.context.close()


def test_legend_readout_and_links(browser: Any, pages: dict[str, Path]) -> None:
    """A name hides its area, the readout tells role and size, and an event leads to its place in the picture."""
    visit = Visit(browser, pages["lab-pinned-start"], viewport={"width": 1280, "height": 900})
    page = visit.page
    panel = page.locator(".panel").first
    assert panel.locator(".area.c0").count() == 1
    panel.get_by_role("button", name="actor").click()
    page.wait_for_timeout(200)
    assert panel.locator(".area.c0").count() == 0
    panel.get_by_role("button", name="actor").click()
    panel.locator("svg[role=img]").scroll_into_view_if_needed()
    box = panel.locator("svg[role=img]").bounding_box()
    page.mouse.move(box["x"] + 900, box["y"] + 120)
    assert "actor" in panel.locator(".readout").inner_text() and "GiB" in panel.locator(".readout").inner_text()
    page.locator(".fatal .show").first.click()
    page.wait_for_timeout(200)
    assert " to " in page.locator(".range").first.inner_text()
    assert (visit.said, visit.asked) == ([], [])
    visit.context.close()


def test_without_javascript(browser: Any, pages: dict[str, Path]) -> None:
    """The picture and every section are there, and no button that does nothing."""
    visit = Visit(
        browser, pages["lab-pinned-start"], viewport={"width": 1280, "height": 900}, java_script_enabled=False
    )
    assert visit.page.locator(".drawing svg polygon").count() >= 5
    assert visit.page.locator("button:visible:enabled").count() == 0
    assert visit.page.locator("h2:visible").count() >= 4
    visit.context.close()


def test_copy_gives_the_diff(browser: Any, pages: dict[str, Path]) -> None:
    """What lands on the clipboard is the patch, ready for `git apply`."""
    visit = Visit(
        browser,
        pages["lab-pinned-start"],
        viewport={"width": 1280, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    )
    visit.page.locator(".diff .copy").first.click()
    visit.page.get_by_role("button", name="copied").first.wait_for()
    incident = analyze([str(ROOT / "samples/lab-pinned-start/run")])
    diff = next(patch.diff for patch in incident.findings[0].patches if patch.diff)
    assert visit.page.evaluate("navigator.clipboard.readText()") == diff
    visit.context.close()


def test_no_mark_where_nothing_happened(browser: Any, pages: dict[str, Path]) -> None:
    """Zoomed to a time before it, the picture shows no death, and no crosshair outside of it."""
    visit = Visit(browser, pages["lab-pinned-start"], viewport={"width": 1280, "height": 900})
    svg = visit.page.locator(".drawing svg").first
    assert svg.locator(".mark.death").count() == 1
    svg.focus()
    for key in ("+", "+", "+", "ArrowLeft"):
        visit.page.keyboard.press(key)
        visit.page.wait_for_timeout(80)
    assert svg.locator(".mark.death").count() == 0
    box = svg.bounding_box()
    visit.page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 100)
    cross = svg.locator(".cross")
    if cross.get_attribute("visibility") == "visible":
        assert 66 <= float(cross.get_attribute("x1")) <= box["width"] - 12
    visit.context.close()
