"""The formats that grades can be handed on in, by name."""

from __future__ import annotations

from pathlib import Path

from course_lib.errors import ConfigError
from course_lib.grading.exports import canvas, gradescope, junit, lti, moodle, nbgrader
from course_lib.grading.exports.exported import Exported
from course_lib.grading.gradebook import Gradebook

WITH_ROSTER = {"canvas": canvas.export, "moodle": moodle.export}
ALONE = {"nbgrader": nbgrader.export, "gradescope": gradescope.export, "lti": lti.export, "junit": junit.export}
FORMATS = ("nbgrader", "canvas", "moodle", "gradescope", "lti", "junit")


def check(name: str, roster: Path | None) -> None:
    """Refuse what cannot be exported, before anything is graded.

    Raises:
        ConfigError: no such format, or a roster is missing, or of no use to it.
        FolderError: the roster cannot be read, or does not say who is who.
    """
    if name not in FORMATS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, not {name!r}.", "format")
    if name in WITH_ROSTER and roster is None:
        raise ConfigError(
            f"Grades for {name.title()} go into your own export of its gradebook. Give that CSV file with --roster.",
            "roster",
        )
    if name not in WITH_ROSTER and roster is not None:
        raise ConfigError(f"--roster is for {' and '.join(WITH_ROSTER)}; {name} needs none.", "roster")
    if roster is not None:
        WITH_ROSTER[name](Gradebook([]), roster)


def export(name: str, book: Gradebook, roster: Path | None) -> Exported:
    """The grades in one of the formats.

    Raises:
        FolderError: the roster lacks what is needed.
    """
    if roster is not None:
        return WITH_ROSTER[name](book, roster)
    return ALONE[name](book)
