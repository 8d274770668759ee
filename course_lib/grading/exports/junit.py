"""JUnit's XML, which CI systems read: a suite for each submission, a case for each check."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from course_lib.grading.exports.exported import Exported, told
from course_lib.grading.gradebook import Gradebook
from course_lib.grading.parts import CheckResult, PartResult
from course_lib.grading.results import Graded

NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def export(book: Gradebook) -> Exported:
    """`junit.xml`; what could not be judged, or not be read, is an error, and what was found is a failure."""
    root = ElementTree.Element("testsuites", name="ddp-course")
    for student in book.students:
        for graded in book.of(student):
            root.append(_suite(graded))
    ElementTree.indent(root)
    return Exported({"junit.xml": ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)})


def _suite(graded: Graded) -> ElementTree.Element:
    cases = [_case(graded, part, check) for part in graded.parts for check in part.checks]
    suite = ElementTree.Element(
        "testsuite",
        name=_text(f"{graded.student}/{graded.exercise}"),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        time=f"{graded.seconds:.3f}",
        timestamp=_text(graded.graded_at),
    )
    suite.extend(cases)
    return suite


def _case(graded: Graded, part: PartResult, check: CheckResult) -> ElementTree.Element:
    where = _text(f"{graded.student}.{graded.exercise}.{part.name}")
    case = ElementTree.Element("testcase", classname=where, name=_text(check.title))
    if why := part.trouble or graded.unreadable:
        ElementTree.SubElement(case, "error", message=_text(why))
    elif check.findings:
        first = check.findings[0]
        failure = ElementTree.SubElement(case, "failure", message=_text(first.seen), type=_text(first.fault))
        failure.text = _text(told(check))
    return case


def _text(text: str) -> str:
    """The text without what XML cannot hold."""
    return NO_XML.sub("\ufffd", text)
