"""The one engine behind `check`, `ddp-course check` and `ddp-course grade`: code in, what was found out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace

from course_lib.errors import GradingError
from course_lib.grading import catalog
from course_lib.grading.laws.finding import Finding, listed
from course_lib.grading.laws.learning import OTHER_GRADIENT
from course_lib.grading.parts import FALSE_EVENTS, Attempt, Broken, Check, CheckResult, Part, PartResult
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.submission import Submission

TRIES = 2  # where the sandbox itself fails
ODD = {FALSE_EVENTS, "not-connected", "not-disturbed", OTHER_GRADIENT}  # faults of programs that only pretend
LONGEST_SEEN = 3_000  # characters of a finding: names of a student's may be of any length
MOST_FINDINGS = 3  # of a check that are told: who mends the first sees the others next


def judge(part: Part, code: str | None, sandbox: Sandbox) -> PartResult:
    """Run a student's code for a part, and say what was seen; `code` is None where the cells are missing."""
    try:
        return _judge(part, code, sandbox, {})
    except GradingError as error:
        return without_verdict(part, sandbox, trouble=str(error))


def judge_all(parts: Sequence[Part], submission: Submission, sandbox: Sandbox) -> tuple[list[PartResult], list[str]]:
    """Judge these parts of a submission; parts with the same cells share their runs.

    Returns:
        The results, and remarks on what was made of unusual cells.
    """
    attempts: dict[str, Attempt] = {}
    results: list[PartResult] = []
    remarks: list[str] = []
    try:
        for part in parts:
            results.append(_judge_cells(part, submission, sandbox, attempts, remarks))
    except GradingError as error:  # without a sandbox nothing more can be judged
        results += [without_verdict(part, sandbox, trouble=str(error)) for part in parts[len(results) :]]
    if odd := [part.name for part in results if _faults(part) & ODD]:
        remarks.append(
            f"Part{'s' * (len(odd) > 1)} {listed(odd)}: what its processes told of themselves is not what was "
            "seen of them. Look at its code."
        )
    if not any(name in submission.cells for part in parts for name in part.cells):
        remarks.append(_about_other_cells(submission))
    return results, remarks


def _about_other_cells(submission: Submission) -> str:
    """What a notebook is that has no cell of the exercise that it is called after."""
    other = catalog.with_cells(submission.cells)
    if other is not None:
        return f"Its cells are those of {other.notebook}. Rename the notebook so, and it is judged as that."
    return "None of its cells has the mark of a solution. Was it saved by a program that drops the cells' metadata?"


def without_verdict(
    part: Part, sandbox: Sandbox, findings: tuple[Finding, ...] = (), trouble: str = "", seconds: float = 0.0
) -> PartResult:
    """No points for a part whose code was not run to an end, and why."""
    checks = tuple(CheckResult(check.title, 0, check.points, findings) for check in part.checks)
    return PartResult(part.name, part.title, checks, trouble, sandbox.isolated, seconds)


def _judge_cells(
    part: Part, submission: Submission, sandbox: Sandbox, attempts: dict[str, Attempt], remarks: list[str]
) -> PartResult:
    """Judge a part by its cells; where they do not pass, also by these and the unmarked cells after them."""
    result = _judge(part, submission.code(part.cells), sandbox, attempts)
    longer = submission.code_with_following(part.cells)
    if longer is None or result.passed or result.trouble:
        return result
    other = _judge(part, longer, sandbox, attempts)
    if other.points <= result.points:
        return result
    remarks.append(f"Part {part.name}: the unmarked cell after a solution cell was taken as a piece of it.")
    return other


def _judge(part: Part, code: str | None, sandbox: Sandbox, attempts: dict[str, Attempt]) -> PartResult:
    """As `judge`; `attempts` are those that were made before, by their code.

    Raises:
        GradingError: the sandbox failed, and failed again.
    """
    began = time.monotonic()
    if code is None:
        missing = Finding(
            "no-cell",
            "The cell for this part is not there.",
            "Was it deleted? Take the notebook that was handed out, and put your code into its cell.",
        )
        return without_verdict(part, sandbox, findings=(missing,))
    for left in reversed(range(TRIES)):
        try:
            attempt = attempts.setdefault(code, Attempt(code, sandbox))
            checks = tuple(_judged(check, attempt) for check in part.checks)
            seconds = time.monotonic() - began
            return PartResult(part.name, part.title, checks, isolated=sandbox.isolated, seconds=seconds)
        except GradingError:
            attempts.pop(code, None)
            sandbox.close()
            if not left:
                raise
        except Exception as error:  # of a check of ours: it costs this part, and is no fault of the student's
            where = traceback.extract_tb(error.__traceback__)[-1]
            trouble = f"A check failed: {type(error).__name__} in {where.name}, line {where.lineno}: {error}"
            return without_verdict(part, sandbox, trouble=trouble, seconds=time.monotonic() - began)
    raise AssertionError("there is at least one try")


def _faults(part: PartResult) -> set[str]:
    return {finding.fault for check in part.checks for finding in check.findings}


def _judged(check: Check, attempt: Attempt) -> CheckResult:
    findings = _first(check.judge(attempt))
    points = 0 if findings else check.points
    return CheckResult(check.title, points, check.points, findings)


def _first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first findings, one of each fault."""
    kept: dict[str, Finding] = {}
    try:
        for finding in found:
            kept.setdefault(finding.fault, _shortened(finding))
            if len(kept) == MOST_FINDINGS:
                break
    except Broken as error:
        kept.setdefault(error.finding.fault, _shortened(error.finding))
    return tuple(kept.values())


def _shortened(finding: Finding) -> Finding:
    seen = finding.seen
    return replace(finding, seen=f"{seen[:LONGEST_SEEN]}…") if len(seen) > LONGEST_SEEN else finding
