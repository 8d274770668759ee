"""The commands that judge exercises: `ddp-course check` for one's own notebook, `ddp-course grade` for a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from course_lib.console import Screen, count
from course_lib.errors import ConfigError, FolderError, RunStopped
from course_lib.options import Json, named, path
from course_lib.progress import GradingBar
from course_lib.signals import load_torch

if TYPE_CHECKING:
    from course_lib.grading.gradebook import Gradebook
    from course_lib.grading.parts import PartResult
    from course_lib.grading.results import Graded

MOST_ROWS = 60  # of students that a terminal shows
MOST_FAULTS = 5
FORMATS = "nbgrader, canvas, moodle, gradescope, lti or junit"
Notebook = Annotated[Path, typer.Argument(help="Your notebook of an exercise.", metavar="NOTEBOOK", parser=named)]
Folder = Annotated[
    Path,
    typer.Argument(
        help="Submissions: FOLDER/STUDENT/NAME.ipynb, or what nbgrader, Moodle or Canvas gives.",
        metavar="FOLDER",
        parser=named,
    ),
]


def check(context: typer.Context, notebook: Notebook, json: Json = False) -> int:
    """Judge one exercise, all its parts, with the checks that grading uses."""
    screen: Screen = context.obj
    with screen.err.status("Loading PyTorch…") as status:
        load_torch()
        from course_lib.grading.batch import grade_one
        from course_lib.grading.class_report import in_words
        from course_lib.grading.handed_in import HandedIn, exercise_of
        from course_lib.grading.results import about_isolation, points, visible
        from course_lib.grading.sandbox import Sandbox

        exercise = exercise_of(notebook)
        if exercise is None:
            raise FolderError(_no_exercise(notebook))
        status.update(f"Judging {exercise}…")
        with Sandbox() as sandbox:
            graded = grade_one(HandedIn("", exercise, notebook), sandbox)
    if graded.unreadable:
        raise FolderError(graded.unreadable)
    about = about_isolation([graded])
    content = {"notebook": str(notebook), **graded.to_dict(), "isolated": graded.isolated, "isolation": about}
    verdict = f"{points(graded.points)} of {points(graded.max_points)} points. {in_words(graded.parts)}"
    remarks = [Text(visible(remark), "yellow") for remark in graded.remarks]
    style = "bold green" if graded.passed else "bold"
    screen.result(content, _parts_table(graded.parts), "", *remarks, Text(verdict, style), Text(about, "dim"))
    return 0 if graded.passed else 1


def grade(
    context: typer.Context,
    folder: Folder,
    out: Annotated[Path, path("Where grades and feedback go; an earlier grading there goes on.")] = Path("grades"),
    format: Annotated[str | None, typer.Option(help=f"Also write grades for {FORMATS}.", metavar="NAME")] = None,
    roster: Annotated[
        Path | None, path("Your own export from Canvas or Moodle, which the grades go into.", "FILE")
    ] = None,
    json: Json = False,
) -> int:
    """Judge a folder of submissions, several at once: grades, and a page of feedback for each student.

    The same command goes on where a grading was stopped,
    and grades anew what was handed in anew. Look at OUT/index.html first.
    """
    screen: Screen = context.obj
    with screen.err.status("Loading PyTorch…"):
        load_torch()
        from course_lib.grading.batch import grade_all
        from course_lib.grading.exports import formats
        from course_lib.grading.gradebook import Gradebook
        from course_lib.grading.handed_in import find
        from course_lib.grading.journal import Journal, only_one
        from course_lib.grading.written import write_all

    if format is not None:
        formats.check(format, roster)
    elif roster is not None:
        raise ConfigError("A roster is of no use without --format canvas or --format moodle.", "roster")
    found = find(folder, leave_out=out)
    screen.facts["out"] = str(out)
    with only_one(out):
        with GradingBar(screen) as bar:
            try:
                graded = grade_all(found.notebooks, Journal(out), bar.show)
            except KeyboardInterrupt as interrupt:
                raise RunStopped(
                    f"The grading was stopped. What was graded is kept in {out}; the same command goes on from there."
                ) from interrupt
        book = Gradebook(graded)
        files, remarks = write_all(book, found.ignored, out, format, roster)
    content = _content(book, graded, files, remarks, len(found.ignored))
    screen.result({"out": str(out), **content}, *_summary(book, graded, out, files, remarks, len(found.ignored)))
    return 1 if content["not_judged"] else 0


def _no_exercise(notebook: Path) -> str:
    from course_lib.grading import submission
    from course_lib.grading.exercises import EXERCISES

    submission.read(notebook)  # it says better what is wrong with a file that is none
    return f"{notebook} is none of the exercises. They are {', '.join(each.notebook for each in EXERCISES)}."


def _parts_table(parts: Sequence[PartResult]) -> Table:
    """Each part, and below it what was found."""
    from course_lib.grading.results import points, visible, without_repeats

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, justify="right")
    for part in without_repeats(parts):
        sign, style = ("–", "yellow") if part.trouble else ("✓", "green") if part.passed else ("✗", "bold red")
        reached = f"{points(part.points)} of {points(part.max_points)}"
        table.add_row(Text(sign, style), Text(f"{part.name} {part.title}", "bold"), reached)
        if part.trouble:
            table.add_row("", Text(f"Not judged, which is not your fault: {visible(part.trouble)}", "yellow"), "")
        for check in part.checks:
            if not check.findings:
                continue
            told = Text(f"{check.title}\n", "dim")
            for finding in check.findings:
                told.append(f"{visible(finding.seen)}\n", "default not dim")
                told.append(f"{visible(finding.idea)}\n" if finding.idea else "", "italic not dim")
            table.add_row("", told, "")
    return table


def _content(
    book: Gradebook, graded: Sequence[Graded], files: Sequence[Path], remarks: Sequence[str], ignored: int
) -> dict[str, Any]:
    from course_lib.grading.results import about_isolation

    return {
        "submissions": len(graded),
        "passed": sum(each.passed for each in graded),
        "not_judged": sum(bool(each.trouble) for each in graded),
        "ignored": ignored,
        "isolated": all(each.isolated for each in graded),
        "isolation": about_isolation(graded),
        "max_points": book.max_points,
        "students": [{"student": student, "points": book.points(student)} for student in book.students],
        "files": [str(file) for file in files],
        "remarks": list(remarks),
    }


def _summary(
    book: Gradebook, graded: Sequence[Graded], out: Path, files: Sequence[Path], remarks: Sequence[str], ignored: int
) -> list[Table | Text]:
    from course_lib.grading.results import about_isolation, visible

    said: list[Table | Text] = [_grades_table(book), Text()]
    faults = book.faults()[:MOST_FAULTS]
    if faults:
        said.append(Text("Found most often", "bold"))
        for each in faults:
            seen = visible(": ".join(each.seen.splitlines()[:2]))  # of an error, where it is and then what
            said.append(Text(f"{len(each.students):>4}  {', '.join(each.parts)}: {seen}"))
        said.append(Text())
    if troubled := sum(bool(each.trouble) for each in graded):
        said.append(
            Text(f"{count(troubled, 'submission')} could not be judged; the same command tries again.", "yellow")
        )
    if ignored:
        said.append(Text(f"{count(ignored, 'notebook')} not graded; the overview lists which.", "yellow"))
    said += [Text(visible(remark), "yellow") for remark in remarks]
    isolated = all(each.isolated for each in graded)
    said.append(Text(about_isolation(graded), "dim" if isolated else "bold yellow"))
    exported = dict.fromkeys(out / file.relative_to(out).parts[0] for file in files[3 + len(book.students) :])
    places = "".join(f"    for your grade book: {visible(str(place))}" for place in exported)
    said.append(Text(f"Overview: {files[0]}    grades: {out / 'grades.csv'}    feedback: {out / 'feedback'}{places}"))
    return said


def _grades_table(book: Gradebook) -> Table:
    from course_lib.grading.gradebook import score
    from course_lib.grading.results import points, visible

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("student", overflow="fold")
    for exercise in book.exercises:
        table.add_column(f"{exercise.notebook[:2]} (of {points(exercise.points)})", justify="right")
    table.add_column(f"points (of {points(book.max_points)})", justify="right")
    for student in book.students[:MOST_ROWS]:
        scores = [score(book.all.get((student, exercise.notebook))) for exercise in book.exercises]
        shown = ["-" if each is None else points(each) for each in (*scores, book.points(student))]
        table.add_row(Text(visible(student)), *shown)
    if len(book.students) > MOST_ROWS:
        table.add_row(Text(f"… and {len(book.students) - MOST_ROWS} more", "dim"))
    return table
