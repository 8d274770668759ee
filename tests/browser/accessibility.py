"""What axe-core finds wrong in a part of a page, and what sticks out of it."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
THEMES = ("JupyterLab Light", "JupyterLab Dark")
TALL = 5000  # pixels: all of a notebook is in sight
ZOOMED = {"width": 640, "height": 400}  # what is left of 1280x800 at 200 %


def violations(page: Page, part: str) -> list[str]:
    """Where the part that a CSS selector names breaks a rule of WCAG 2.2, A or AA."""
    # Lab's body is 0 high and hides what overflows, so axe would take all text in it for hidden, and not look at it.
    page.add_style_tag(content="body { min-height: 100vh }")
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": size["width"], "height": TALL})  # axe sees no colours of what something covers
    page.wait_for_timeout(500)
    found = Axe().run(page, context=part, options={"runOnly": [*RULES]}).response
    page.set_viewport_size(size)
    contrasts = [node["html"] for rule in found["passes"] if rule["id"] == "color-contrast" for node in rule["nodes"]]
    assert any(not html.startswith(("<input", "<select")) for html in contrasts), "no text was looked at"
    return [f"{rule['help']}: {node['html']}" for rule in found["violations"] for node in rule["nodes"]]


def sticks_out(part: Locator) -> bool:
    """Whether something is wider than the part itself, so that one would have to scroll sideways."""
    return part.evaluate("element => element.scrollWidth > element.clientWidth + 1")


def change_theme(page: Page, theme: str) -> None:
    """Settings > Theme."""
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    page.evaluate("document.fonts.ready")
