"""Each file is written by one process, and read when it is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.finding import Finding, listed, ranks
from course_lib.grading.sandbox import Process


def one_writer(evidence: Evidence, path: str, there: Container[str]) -> Iterator[Finding]:
    """A file is written by one process, of all nodes, and is `there` afterwards."""
    writers = [process for process in evidence.record.processes if _opened(process)[path]]
    if not writers or path not in there:
        yield Finding(
            "not-written", f"No process wrote {path}.", "Which process should write it, and does it get that far?"
        )
    elif len(writers) > 1:
        who = [_name(evidence, process) for process in writers]
        yield Finding(
            "several-writers",
            f"{path} was written by {len(writers)} processes: {listed(who)}.",
            "How many pens are on one page? Which one process, of all nodes, should write?",
        )


def prepared_once(evidence: Evidence, folder: str) -> Iterator[Finding]:
    """On the disk of each node, each file of a folder is written by one process, and others read it afterwards."""
    for node in _nodes(evidence):
        yield from _prepared(evidence, node, folder)


def _prepared(evidence: Evidence, node: list[Process], folder: str) -> Iterator[Finding]:
    began = [each for each in node if any(_is_in(folder, event["path"]) for event in each.of("wrote"))]
    paths = {path for process in began for path in _opened(process) if _is_in(folder, path)}
    several = next(
        (each for path in sorted(paths) if len(each := [one for one in began if _opened(one)[path]]) > 1), []
    )
    if len(began) > 1 and any(process.error and process.error["type"] == "FileExistsError" for process in began):
        several = began
    if several:
        who = [_name(evidence, process) for process in several]
        yield Finding(
            "prepared-by-all",
            f"{listed(who).capitalize()}, on the same node, wrote the same into {folder}.",
            "Who unpacks the data of a node, and what do the others do meanwhile?",
        )
    elif not began and any(_by_files(process) for process in node):
        missing = [number for process in node if (number := evidence.rank_of(process)) is not None]
        yield Finding(
            "not-prepared",
            f"On the node of {ranks(missing)} no process unpacked the data into {folder}.",
            "Each node has a disk of its own. Which of its processes unpacks the data there?",
        )
    wrote = [process for process in began if any(_is_in(folder, path) for path in _opened(process))] or began
    for process in node:
        error = process.error
        if wrote and process not in wrote and error is not None and _by_files(process):
            yield Finding(
                "read-too-early",
                f"{_name(evidence, process).capitalize()} could not read the data, which "
                f"{_name(evidence, wrote[0])} was still writing: {error['type']}: {error['message'][:200]}",
                "Who writes, and how do the others know that it is done?",
            )


def _is_in(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _by_files(process: Process) -> bool:
    """Whether a process failed as those do who read what is not there, or not complete."""
    error = process.error
    if error is not None and error["type"].startswith("Process"):
        return False  # of what started it
    if error is None or error["type"] in ("FileNotFoundError", "EOFError", "UnpicklingError", "BadZipFile"):
        return error is not None
    return any(part in error["message"] for part in ("cannot reshape", "pickled data", "magic string", "No data left"))


def _opened(process: Process) -> Counter[str]:
    """How often a process opened each path for writing, or moved a file there."""
    return Counter(event["path"] for event in process.of("wrote") if event["how"] in ("open", "move"))


def _nodes(evidence: Evidence) -> list[list[Process]]:
    """The processes of each node: each node runs one program."""
    programs = sorted({process.program for process in evidence.record.processes if process.program is not None})
    return [[each for each in evidence.record.processes if each.program == program] for program in programs]


def _name(evidence: Evidence, process: Process) -> str:
    number = evidence.rank_of(process)
    return "the program that starts the ranks" if number is None else ranks([number])
