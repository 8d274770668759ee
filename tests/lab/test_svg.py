"""Pictures in SVG lie where their scales say, and say in words what they show, also where there is no SVG."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from course_lib.lab.svg import Scale, as_images, axes, picture

VALUES = st.floats(-1e6, 1e6)


@given(VALUES, VALUES, st.integers(3, 12))
def test_ticks_are_written_where_their_values_lie(low, high, most):
    assume(high - low > 1e-3 * max(abs(low), abs(high), 1e-6))
    scale = Scale(low, high, 400, 10)
    assert scale([low, high]).tolist() == [400, 10]
    ticks = scale.ticks(most)
    assert len(ticks) <= most + 1
    for at, text in ticks:
        value = float(text.replace("−", "-").replace("k", "e3"))
        assert 10 <= at <= 400
        assert at == pytest.approx(
            float(scale(value)), abs=0.1 + 1e-5 * 390 * max(map(abs, (low, high))) / (high - low)
        )


def test_an_image_says_what_the_picture_says():
    x, y = Scale(0, 1, 50, 700), Scale(0, 1, 200, 10)
    drawn = axes(x, y, "<epoch>", x.ticks(), y.ticks())
    html = "<p>before</p>" + picture("Rate", ["From 1", 'to "2"'], 720, 240, drawn) + "<p>after</p>"
    assert 'role="img" aria-label="Rate. From 1 to &#34;2&#34;"' in html
    assert "&lt;epoch&gt;" in html
    image = as_images(html)
    assert 'alt="Rate. From 1 to &#34;2&#34;"' in image
    assert "<svg" not in image
    assert image.startswith("<p>before</p>")
    assert image.endswith("<p>after</p>")
    (source,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', image)
    root = ElementTree.fromstring(base64.b64decode(source))
    assert (root.get("width"), root.get("height")) == ("720", "240")
    assert "<epoch>" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
