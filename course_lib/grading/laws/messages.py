"""What torch and Python say when data-parallel programs fail, and what that is mostly about."""

from __future__ import annotations

from typing import Any

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.finding import Finding, quoted, ranks
from course_lib.grading.sandbox import Process

# The fault, the idea, and what messages of it contain (or the type of the error). The first that fits is taken.
KNOWN = (
    (
        "no-main-guard",
        "Each new process imports your file again. What runs when it is imported?",
        ("bootstrapping phase",),
    ),
    (
        "cannot-be-sent",
        "Spawn sends your function by its name. Can a stranger find it by that name?",
        ("Can't pickle", "Can't get attribute"),
    ),
    ("cannot-be-sent", "Everything that spawn sends to a process must survive being written down.", ("cannot pickle",)),
    ("backend", "Which backend can talk between tensors on the CPU, and which needs GPUs?", ("nccl", "NCCL")),
    ("device-ids", "On the CPU there is no device number to give. When may device_ids be there?", ("device_ids",)),
    (
        "device-index",
        "A node has only its own GPUs. Which number starts at zero on each node?",
        ("invalid device ordinal",),
    ),
    ("device-index", "Where does the file think that it lives?", ("Attempting to deserialize object on a CUDA",)),
    ("no-gpu", "Here is no GPU. What does the program do then?", ("No CUDA GPUs", "not compiled with CUDA")),
    (
        "too-early",
        "You asked the group before it was made. What must come first?",
        ("Default process group has not been initialized", "default process group has not been initialized"),
    ),
    (
        "sampler-and-shuffle",
        "Two want to decide the order. Which of them should?",
        ("mutually exclusive with shuffle",),
    ),
    (
        "port",
        "Somebody may live at that address already. Who should be able to choose another?",
        ("Address already in use", "EADDRINUSE"),
    ),
    ("no-address", "The ranks must know where to meet. Where do they read it?", ("expected, but not set",)),
    (
        "world-size",
        "The group waits for all that were announced. Count the processes that you start.",
        ("clients joined", "wait timeout after"),
    ),
    ("unused-parameters", "A parameter had no part in the loss. Which layer never voted?", ("prior iteration",)),
    (
        "ready-twice",
        "Was the same weight used in two backward passes?",
        ("marked ready twice", "mark a variable ready only once"),
    ),
    ("sync-batch-norm", "Not every layer can talk over this backend.", ("SyncBatchNorm",)),
    (
        "models-differ",
        "Are all ranks building the same model?",
        ("appear not to match", "appears not to match", "same model across all ranks"),
    ),
    ("nothing-to-average", "The module that was wrapped has nothing to train.", ("requires a gradient",)),
    ("batch-of-one", "How small can the last batch be, after it was dealt?", ("more than 1 value per channel",)),
    ("integers", "Whole numbers cannot hold halves. Which type should be averaged?", ("can't be cast to",)),
    (
        "arguments",
        "With which arguments is the program started?",
        ("unrecognized arguments", "arguments are required", "expected one argument"),
    ),
    (
        "interface",
        "That name exists on one machine only. Who should choose how ranks are connected?",
        ("Unable to find address for",),
    ),
    ("course", "The exercise is solved in plain PyTorch, so that it runs anywhere.", ("No course_lib here",)),
    (
        "killed",
        "Sizes that differ between ranks end a process like this. Is what each rank sends the same size?",
        ("terminated with signal",),
    ),
    ("not-done", "There is still work to do in this cell.", ("NotImplementedError",)),
    (
        "no-such-name",
        "Which line defines or imports this name? What stands in other cells is not handed in.",
        ("NameError",),
    ),
)
FROM_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Timed out waiting",
    "Socket closed",
    "Broken pipe",
)


def explained(evidence: Evidence) -> Finding:
    """The failure of a program: that of the rank which failed by itself, not of those that noticed."""
    process, error = _culprit(evidence)
    number = evidence.rank_of(process)
    unnamed = "The program" if process.place is not None else "A process that the program started"
    who = unnamed if number is None else ranks([number]).capitalize()
    if error["type"] == "SystemExit":  # argparse, mostly: it prints what is wrong
        error = {**error, "message": "\n".join(evidence.record.output)}
    seen = told(who, error, _line(error))
    if error["type"] == "TypeError" and "positional argument" in error["message"]:
        spawned = "Spawn hands your function something before your own arguments. What is it?"
        called = "With which arguments is the function called? The text of the exercise says it."
        return Finding("signature", seen, spawned if process.place is None else called)
    for fault, idea, parts in KNOWN:
        if any(part in error["message"] or part == error["type"] for part in parts):
            if fault == "too-early" and process.of("left"):
                return Finding("too-late", seen, "The group was left before. Who still needs it then?")
            return Finding(fault, seen, idea)
    if _from_peer(error):
        return Finding(
            "peer-gone",
            _in_vain(evidence) or seen,
            "This rank waits for a partner who has gone home, or who is at another call. Which call is it, and do all "
            "ranks make it, in the same order?",
        )
    return Finding("error", seen, "Read the last line first: what did Python expect, and what was there?")


def told(who: str, error: dict[str, Any], line: str) -> str:
    """How somebody failed: where, and what Python said, with `line` as what the message says most."""
    where = error["where"]
    if error["type"] == "NotImplementedError" and not line:
        return f"{who} is not written yet" + (f": line {where['line']} raises NotImplementedError." if where else ".")
    place = f" at line {where['line']}: {quoted(str(where.get('text')))}" if where else ""
    return f"{who} failed{place}\n{error['type']}" + (f": {line}" if line else "")


def _culprit(evidence: Evidence) -> tuple[Process, dict[str, Any]]:
    """Who failed first by itself: those come later that only noticed, as the program that waits for its ranks does."""
    in_order = sorted(evidence.errors, key=lambda each: each[1].get("at", 0.0))
    found = [each for each in in_order if not str(each[1]["type"]).startswith("Process")] or in_order
    ranks_first = [each for each in found if evidence.rank_of(each[0]) is not None] or found
    own = [each for each in ranks_first if not _from_peer(each[1])]
    return (own or ranks_first)[0]


def _from_peer(error: dict[str, Any]) -> bool:
    """Whether a rank only noticed that another one was not there."""
    return any(part in error["message"] for part in FROM_PEER)


def _in_vain(evidence: Evidence) -> str:
    """Where each rank waited for others until it gave up; empty where that is not known."""
    words = []
    for process, error in evidence.errors:
        number, where = evidence.rank_of(process), error["where"]
        if number is not None and where and _from_peer(error):
            line = f"line {where['line']} ({quoted((where['text'] or '').strip())})"
            words.append(f"{ranks([number]).capitalize()} waited at {line} for a rank that did not come")
    return "; ".join(words) + "." * bool(words)


def _line(error: dict[str, Any]) -> str:
    """The line of a message that says most: the last one where it holds another process's traceback; perhaps empty."""
    lines = [line.strip() for line in error["message"].splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1 if error["type"] == "SystemExit" or error["type"].startswith("Process") else 0][:300]
