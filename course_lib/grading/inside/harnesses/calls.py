"""Calls of functions that a student wrote."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from course_lib.grading.inside.harnesses import meeting
from course_lib.grading.inside.student import describe, run_cells

SECONDS = 6.0  # that ranks wait for each other


def call(names: dict[str, Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Call one function several times; `inputs` are {"function": …, "calls": [[argument, …], …]}.

    Returns:
        Of each call {"value": …}, or {"error": …} (see `describe`).
    """
    function = function_of(names, inputs)
    answers = []
    for arguments in inputs["calls"]:
        try:
            answers.append({"value": function(*arguments)})
        except Exception as error:
            answers.append({"error": describe(error)})
    return answers


def function_of(names: dict[str, Any], inputs: dict[str, Any]) -> Callable[..., Any]:
    """The student's function that the inputs name.

    Raises:
        NameError: there is none.
    """
    function = names.get(inputs["function"])
    if not callable(function):
        raise NameError(f"There is no function {inputs['function']!r}.")
    return function


def call_in_group(names: dict[str, Any], inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """As `call`, on a rank of a gloo group that meets through a file; RANK and WORLD_SIZE say which."""
    join()
    return call(names, inputs)


def join() -> None:
    """Make the group."""
    meeting.join(f".meeting-{os.environ['MASTER_PORT']}", SECONDS)


def call_once_in_group(names: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Call function(*arguments) on a rank of a group, once; an error of its ends the process, as it would a program."""
    join()
    return {"value": function_of(names, inputs)(*inputs["arguments"])}


def value_of(names: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """The value of a variable after `code` ran, as far as it comes; no entry where there is none."""
    try:
        names = run_cells(inputs["code"])
    except BaseException:
        names = sys.modules["__main__"].__dict__
    return {"value": names[inputs["name"]]} if inputs["name"] in names else {}
