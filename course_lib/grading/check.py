"""What students call in an exercise: `check("4.2")` says what their code did; `hint("4.2")` and `snapshot("4.2")` help.

Code runs in one sandbox, which starts when this is imported, so that it is ready when the first check is asked for, and
ends with the kernel.
"""

from __future__ import annotations

import atexit
from pathlib import Path

from IPython.core.getipython import get_ipython
from IPython.display import display

from course_lib.errors import CourseError, GradingError, RunStopped, UsageError
from course_lib.grading.sandbox import Sandbox

# Before what takes time to import. It is this thread's child: bubblewrap ends its own with the thread that started it.
_sandbox = Sandbox()
if get_ipython() is not None:
    _sandbox.start()
atexit.register(_sandbox.close)

from course_lib.grading import catalog, feedback, hints, own_code, snapshots  # noqa: E402
from course_lib.grading.judging import judge  # noqa: E402
from course_lib.grading.laws.finding import Finding, listed  # noqa: E402
from course_lib.grading.parts import CheckResult, Part, PartResult  # noqa: E402


class ShownResult(PartResult):
    """A result that is on the page already, and so is not shown again as the value of a cell."""

    def _ipython_display_(self) -> None:
        pass


def check(name: str) -> PartResult:
    """Judge a part, as "4.2", and show what was seen.

    The functions are taken from the cells that defined them last; a program is the file train.py in this folder.

    Raises:
        UsageError: there is no such part, or this is no notebook.
        GradingError: it could not be judged, which is no fault of the student's.
        RunStopped: the kernel was interrupted.
    """
    part = catalog.part(name)
    shell = get_ipython()
    if shell is None:
        raise UsageError(f'check("{name}") works in a notebook. In a terminal: ddp-course check NOTEBOOK')
    area = _Area(f"Checking {part.name} {part.title}…")
    own = own_code.find(part, shell)
    result = _missing(part, own.missing) if own.code is None else _judge(part, own.code, area)
    notes = [hints.in_words(part, Path())] if not result.passed else []
    if own.elsewhere and not result.passed:
        notes.insert(0, _elsewhere(own.elsewhere))
    area.show(feedback.as_html(result, notes), feedback.as_text(result, notes))
    return ShownResult(**vars(result))


def hint(name: str) -> None:
    """Show the next of a part's three hints, below those that were shown before.

    Raises:
        UsageError: there is no such part.
        FolderError: it cannot be recorded in this folder that it was taken.
    """
    part = catalog.part(name)
    shown = hints.take(part, Path())
    display({"text/html": feedback.hints_html(part, shown), "text/plain": feedback.hints_text(part, shown)}, raw=True)


def snapshot(name: str) -> None:
    """Show the program of exercise 4 as it is after a part, for whoever is stuck there.

    Raises:
        UsageError: there is no such part, or no program of it.
    """
    part = catalog.part(name)
    try:
        program = snapshots.after(part.name)
    except KeyError:
        raise UsageError(
            f'There is no snapshot after part {name}. Snapshots are of exercise 4, as snapshot("4.2").'
        ) from None
    display({"text/markdown": f"```python\n{program}```", "text/plain": program}, raw=True)


class _Area:
    """A place on the page whose content is replaced."""

    def __init__(self, text: str) -> None:
        bundle = {"text/html": feedback.line_html(text, busy=True), "text/plain": text}
        self._handle = display(bundle, raw=True, display_id=True)

    def show(self, html: str, text: str) -> None:
        self._handle.update({"text/html": html, "text/plain": text}, raw=True)


def _judge(part: Part, code: str, area: _Area) -> PartResult:
    try:
        result = judge(part, code, _sandbox)
    except KeyboardInterrupt:
        _sandbox.close()  # with what runs in it
        _sandbox.start()
        raise _ended(area, part, RunStopped("The check was stopped.")) from None
    if result.trouble:
        text = f"Part {part.name} could not be judged, which is no fault of yours. {result.trouble}"
        raise _ended(area, part, GradingError(text))
    return result


def _ended(area: _Area, part: Part, error: CourseError) -> CourseError:
    """The error itself, after the page no longer says that something goes on."""
    text = f"{part.name} {part.title}: not judged."
    area.show(feedback.line_html(text), text)
    return error


def _missing(part: Part, text: str) -> PartResult:
    finding = Finding("not-defined", text, "What is judged is the code that you ran last.")
    checks = tuple(CheckResult(check.title, 0, check.points, (finding,)) for check in part.checks)
    return PartResult(part.name, part.title, checks, isolated=_sandbox.isolated)


def _elsewhere(names: tuple[str, ...]) -> str:
    said = listed(f"`{name}`" for name in names)
    them = "it" if len(names) == 1 else "them"
    return (
        f"Your code uses {said} from another cell. Only this part's cell is handed in: import or define {them} there."
    )
