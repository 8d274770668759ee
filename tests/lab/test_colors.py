"""Colours can be told from what they are drawn on, as WCAG 2.2 measures it (1.4.3 and 1.4.11)."""

from __future__ import annotations

import pytest

from course_lib.lab.live import COLORS
from course_lib.lab.panel.live_chart import STYLES
from course_lib.lab.style import GREY, PALETTE

WHITE, DARK = "#FFFFFF", "#111111"  # the ground of figures and of Lab's light theme, and that of its dark theme
LINE, TEXT = 3.0, 4.5


def contrast(color: str, ground: str) -> float:
    """Between 1, the same, and 21, black on white."""
    lighter, darker = sorted((luminance(color), luminance(ground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    shares = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_measure_is_that_of_wcag():
    assert contrast("#000000", WHITE) == pytest.approx(21)
    assert contrast("#777777", WHITE) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("color", PALETTE)
def test_lines_of_figures_are_seen_on_white(color):
    assert contrast(color, WHITE) >= LINE


@pytest.mark.parametrize("color", [*(color for color, _ in STYLES), *COLORS.values()])
@pytest.mark.parametrize("ground", [WHITE, DARK])
def test_live_lines_and_bars_are_seen_in_both_themes(color, ground):
    assert contrast(color, ground) >= LINE


def test_grey_text_of_figures_is_read_on_white():
    assert contrast(GREY, WHITE) >= TEXT
