"""Functions of a student's on nodes that share no disk, and a download that takes its time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from course_lib.grading.inside.harnesses.calls import function_of, join
from course_lib.grading.inside.probes import answers

SECONDS_TO_DOWNLOAD = 0.4  # on the first node; half as much more on each further one, so that no node is done with it


def main(names: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Call function(*arguments), which joins the group by itself; what it returned."""
    return {"value": function_of(names, inputs)(*inputs["arguments"])}


def prepare(names: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """A student's function gets (folder, download), where each node has a folder of its own.

    Tells when a call of `download` begins and ends.

    Returns:
        Whether all of the data was there when the function returned.
    """
    join()
    node = int(os.environ["GROUP_RANK"])
    folder, seconds = Path(f"node{node}") / "data", SECONDS_TO_DOWNLOAD * (1 + node / 2)

    def download(target: Any) -> None:
        answers.tell({"download": "begins"})
        time.sleep(seconds / 2)  # all that look whether it is there see nothing yet
        path = Path(target)
        path.mkdir(parents=True, exist_ok=True)
        (path / "first_half").write_bytes(b"1" * 100)
        time.sleep(seconds / 2)
        (path / "second_half").write_bytes(b"2" * 100)
        answers.tell({"download": "ends"})

    function_of(names, inputs)(str(folder), download)
    whole = all((folder / half).is_file() for half in ("first_half", "second_half"))
    return {"whole": whole}
