"""What came of a submission, and how a line of the journal holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from course_lib.grading.laws.finding import Finding
from course_lib.grading.parts import CheckResult, PartResult

NOT_ISOLATED = (
    "Students' code ran without bubblewrap: limits of time, memory and processes held, but it could read and write "
    "what you can, and reach the network."
)
ISOLATED = "Students' code ran in a sandbox (bubblewrap): without network, and without this machine's files."


@dataclass(frozen=True)
class Graded:
    """What came of one notebook of one student.

    Fields:
        digest: of the notebook's content, SHA-256.
        course: the version of the course that judged it.
        graded_at: when, in ISO 8601 with the offset to UTC.
        unreadable: why it could not be read, which scores nothing; empty where it could.
        remarks: what is unusual about it.
    """

    student: str
    exercise: str
    digest: str
    course: str
    graded_at: str
    parts: tuple[PartResult, ...]
    seconds: float = 0.0
    unreadable: str = ""
    remarks: tuple[str, ...] = ()
    number: str = ""

    @property
    def points(self) -> float:
        """Of all parts."""
        return sum(part.points for part in self.parts)

    @property
    def max_points(self) -> float:
        """Of all parts."""
        return sum(part.max_points for part in self.parts)

    @property
    def trouble(self) -> str:
        """Why some of it could not be judged, which is no fault of the student's."""
        return "; ".join(dict.fromkeys(part.trouble for part in self.parts if part.trouble))

    @property
    def isolated(self) -> bool:
        """Whether none of it ran with access to this machine."""
        return all(part.isolated for part in self.parts)

    @property
    def passed(self) -> bool:
        """Whether all checks of all parts passed."""
        return not self.unreadable and all(part.passed for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        sums = {"points": self.points, "max_points": self.max_points, "trouble": self.trouble}
        return {**asdict(self), **sums, "passed": self.passed, "parts": [part_to_dict(part) for part in self.parts]}


def part_to_dict(part: PartResult) -> dict[str, Any]:
    """As JSON can hold it."""
    return {"points": part.points, "max_points": part.max_points, "passed": part.passed, **asdict(part)}


def graded_from_dict(content: dict[str, Any]) -> Graded:
    """What `to_dict` made.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    texts = ("student", "exercise", "digest", "course", "graded_at", "unreadable", "number")
    return Graded(
        **{name: _text(content[name]) for name in texts},
        parts=tuple(_part(part) for part in content["parts"]),
        seconds=float(content["seconds"]),
        remarks=tuple(_text(remark) for remark in content["remarks"]),
    )


def _part(content: dict[str, Any]) -> PartResult:
    checks = tuple(
        CheckResult(
            _text(check["title"]),
            float(check["points"]),
            float(check["max_points"]),
            tuple(Finding(*(_text(found[name]) for name in ("fault", "seen", "idea"))) for found in check["findings"]),
        )
        for check in content["checks"]
    )
    name, title, trouble = (_text(content[key]) for key in ("name", "title", "trouble"))
    return PartResult(name, title, checks, trouble, bool(content["isolated"]), float(content["seconds"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def without_repeats(parts: Sequence[PartResult]) -> list[PartResult]:
    """The parts as people read them: what was told before only says where."""
    told: dict[tuple[str, str], tuple[str, str]] = {}
    return [replace(part, checks=tuple(_check_once(check, part.name, told) for check in part.checks)) for part in parts]


def _check_once(check: CheckResult, part: str, told: dict[tuple[str, str], tuple[str, str]]) -> CheckResult:
    findings = []
    for finding in check.findings:
        before = told.setdefault((finding.fault, finding.seen), (part, check.title))
        where = "above" if before[0] == part else f"in {before[0]}"
        again = Finding(finding.fault, f"For the same reason as {where}.", "")
        findings.append(finding if before == (part, check.title) else again)
    return replace(check, findings=tuple(findings))


def visible(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)


def about_isolation(graded: Sequence[Graded]) -> str:
    """Whether students' code was kept from this machine, in a sentence."""
    return ISOLATED if all(each.isolated for each in graded) else NOT_ISOLATED


def points(value: float) -> str:
    """Points as people write them: 3, 2.5."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
