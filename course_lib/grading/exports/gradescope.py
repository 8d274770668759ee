"""What Gradescope reads of an autograder: a results.json for each submission.

https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format
"""

from __future__ import annotations

import json
from typing import Any

from course_lib.grading.exports.exported import Exported, not_judged, told
from course_lib.grading.gradebook import Gradebook, notes
from course_lib.grading.results import Graded, about_isolation, points


def export(book: Gradebook) -> Exported:
    """`gradescope/STUDENT/EXERCISE/results.json` of each submission that could be judged."""
    files = {
        f"gradescope/{graded.student}/{graded.exercise}/results.json": json.dumps(_results(graded), indent=1).encode()
        for graded in book.all.values()
        if not graded.trouble
    }
    return Exported(files, not_judged(iter(book.all.values())))


def _results(graded: Graded) -> dict[str, Any]:
    summary = f"{points(graded.points)} of {points(graded.max_points)} points."
    tests = [
        {
            "name": f"{part.name} {part.title}: {check.title}",
            "score": check.points,
            "max_score": check.max_points,
            "status": "failed" if check.findings or graded.unreadable else "passed",
            "output": told(check),
            "output_format": "text",
            "visibility": "visible",
        }
        for part in graded.parts
        for check in part.checks
    ]
    return {
        "score": graded.points,
        "execution_time": round(graded.seconds, 3),
        "output": "\n".join([summary, *notes(graded), about_isolation([graded])]),
        "output_format": "text",
        "visibility": "visible",
        "tests": tests,
    }
