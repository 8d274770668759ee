"""The small charts show what they are given, in words too, however much it is."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.lab.panel.live_chart import BOTTOM, HEIGHT, LEFT, POINTS, RIGHT, TOP, WIDTH, Line, chart, legend

VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), max_size=400)


def points(html: str) -> list[tuple[float, float]]:
    """The points of all lines of a chart."""
    paths = re.findall(r'<path d="M([^"]*)" stroke="#', html)
    return [tuple(map(float, point.split())) for path in paths for point in path.split("L")]


@given(VALUES)
def test_all_is_drawn_inside_the_axes(values):
    html = chart("Loss", "epochs", [Line("a", np.arange(float(len(values))), np.array(values, float))], "nothing yet")
    drawn = points(html)
    known = int(np.isfinite(values).sum()) if values else 0
    assert len(drawn) == min(known, POINTS)
    for x, y in drawn:
        assert LEFT <= x <= WIDTH - RIGHT
        assert TOP <= y <= HEIGHT - BOTTOM
    assert ("nothing yet" in html) == (known == 0)


def test_the_words_state_first_and_last_figure():
    html = chart("Loss", "epochs", [Line("Run 1", np.array([0.5, 1.0]), np.array([2.3, 0.61]))], "")
    assert 'aria-label="Loss. Run 1: from 2.3 to 0.61 after 1 epochs."' in html


def test_text_is_escaped():
    html = chart("<b>", "epochs", [Line('"><script>', np.array([1.0]), np.array([1.0]))], "") + legend(["<i>", "<u>"])
    assert not re.search("<b>|<script>|<i>|<u>", html)


def test_of_several_lines_a_legend_says_which_is_which():
    assert legend(["alone"]) == ""
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', legend(["a", "b", "c", "d"]))
    assert len(set(dashes)) == 4


def test_thinning_keeps_the_mean():
    values = np.linspace(1, 3, 4 * POINTS)
    html = chart("Loss", "steps", [Line("a", np.arange(4.0 * POINTS), values)], "")
    heights = [y for _, y in points(html)]
    assert np.mean(heights) == pytest.approx(np.mean([heights[0], heights[-1]]), abs=0.2)
