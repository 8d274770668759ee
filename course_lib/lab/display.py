"""Figures as images that say in words what they show."""

from __future__ import annotations

import base64
from io import BytesIO

from matplotlib.figure import Figure
from PIL import Image

from course_lib.lab.pages import IMAGE
from course_lib.lab.style import DPI, alt_text


class DisplayedFigure:
    """A figure as a notebook keeps it: a PNG image, and its words where images are not shown."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def __repr__(self) -> str:
        return alt_text(self.figure)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        image = _encoded(_in_few_colors(png(self.figure)))
        return {"text/html": _html(self.figure, image), "image/png": image, "text/plain": repr(self)}


def display_figure(figure: Figure) -> DisplayedFigure:
    """The figure as the last value of a notebook cell; it stays in the saved notebook, also on the web."""
    return DisplayedFigure(figure)


def png(figure: Figure, scale: float = 1.0) -> bytes:
    """The figure as a PNG file; `scale` gives more pixels to the same drawing."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=scale * DPI)
    return file.getvalue()


def _in_few_colors(content: bytes) -> bytes:
    """A PNG file with a palette of 256 colours: a third of the size, and a notebook keeps each figure twice."""
    image = Image.open(BytesIO(content)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    file = BytesIO()
    image.save(file, format="png", optimize=True)
    return file.getvalue()


def image_html(figure: Figure, scale: float = 1.0) -> str:
    """The figure as an `<img>` element that says in words what it shows and needs no other file."""
    return _html(figure, _encoded(png(figure, scale)))


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _html(figure: Figure, image: str) -> str:
    width, height = (round(DPI * side) for side in figure.get_size_inches())
    return IMAGE.render(alt=alt_text(figure), image=image, width=width, height=height)
