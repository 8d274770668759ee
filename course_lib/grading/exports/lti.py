"""Scores of LTI's Assignment and Grade Services, one line item an exercise.

https://www.imsglobal.org/spec/lti-ags/v2p0#score-publish-service
"""

from __future__ import annotations

import json
from typing import Any

from course_lib.grading.exports.exported import Exported
from course_lib.grading.gradebook import Gradebook
from course_lib.grading.results import Graded


def export(book: Gradebook) -> Exported:
    """`lti.json`: for each exercise its line item, and the scores to post to it."""
    content = [
        {
            "lineItem": {
                "label": exercise.title,
                "resourceId": exercise.notebook,
                "scoreMaximum": exercise.points,
            },
            "scores": [
                _score(book.all[student, exercise.notebook])
                for student in book.students
                if (student, exercise.notebook) in book.all
            ],
        }
        for exercise in book.exercises
    ]
    remark = "userId is the name of the student's folder. Where your platform has other ids, put those in its place."
    return Exported({"lti.json": json.dumps(content, indent=1).encode()}, (remark,))


def _score(graded: Graded) -> dict[str, Any]:
    who = {"userId": graded.student, "timestamp": graded.graded_at, "activityProgress": "Completed"}
    if graded.trouble:
        return {**who, "gradingProgress": "Failed", "comment": "It could not be judged yet."}
    failed = [part.name for part in graded.parts if not part.passed]
    comment = graded.unreadable or ("All checks passed." if not failed else f"Not passed: {', '.join(failed)}.")
    points = {"scoreGiven": graded.points, "scoreMaximum": graded.max_points}
    return {**who, **points, "gradingProgress": "FullyGraded", "comment": comment}
