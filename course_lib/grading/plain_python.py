"""The plain Python of a notebook's cell: what only IPython understands becomes a comment. Nothing of it is run."""

from __future__ import annotations

import re
import tokenize

from IPython.core.inputtransformer2 import (
    EscapedCommand,
    HelpEnd,
    MagicAssign,
    SystemAssign,
    TransformerManager,
    classic_prompt,
    find_end_of_continued_line,
    ipython_prompt,
    leading_indent,
)

# Whether there may be anything to do; what is found in a text or a comment is left alone later.
SIGNS = re.compile(r"^[ \t]*([%!?,;/]|>>>|In ?\[)|=[ \t]*[%!]|\?[ \t]*$", re.MULTILINE)
MOST_WORK = 500_000  # characters that are read, anew for each command, before it is left as it is
CELL_MAGIC = re.compile(r"[ \t]*%%(\w+)(.*)")
WRITES = ("writefile", "file")
MEASURES = ("time", "timeit", "capture", "prun")  # they run the code that follows
TIMED = re.compile(r"%time(it)?\s+(?!-)")


def plain(code: str) -> tuple[str, tuple[str, ...]]:
    """The code without magics and shell commands, line for line, and what IPython alone understood of it."""
    head, _, rest = code.partition("\n")
    if not SIGNS.search(code) and not head[:1].isspace():
        return code, ()
    taken: list[str] = []
    if magic := CELL_MAGIC.fullmatch(head):
        taken.append(head.strip())
        if magic[1] not in (*WRITES, *MEASURES):
            return "\n".join(f"# {line}" for line in code.splitlines()), tuple(taken)
        code = f"# {head}\n{rest}"
        if magic[1] in WRITES:
            return code, tuple(taken)  # the rest is a file, which IPython does not look at
    return _without_commands(code, taken), tuple(taken)


def writes_anew(code: str) -> bool:
    """Whether a cell writes a file from its beginning."""
    magic = CELL_MAGIC.fullmatch(code.partition("\n")[0])
    return magic is not None and magic[1] in WRITES and "-a" not in magic[2].split()


def _without_commands(code: str, taken: list[str]) -> str:
    if len(code) * len(SIGNS.findall(code)) > MOST_WORK:
        return code
    manager = TransformerManager()
    manager.cleanup_transforms = [leading_indent, classic_prompt, ipython_prompt]
    manager.line_transforms = []
    manager.token_transformers = [
        type(each.__name__, (_Comment, each), {"taken": taken})
        for each in (MagicAssign, SystemAssign, EscapedCommand, HelpEnd)
    ]
    try:
        return manager.transform_cell(code)
    except (SyntaxError, ValueError, RuntimeError, tokenize.TokenError, IndexError, AssertionError):
        return code  # it is no Python, which is said when it runs


class _Comment:
    """Puts a comment in the place of what IPython would run."""

    taken: list[str]
    start_line: int
    start_col: int

    def transform(self, lines: list[str]) -> list[str]:
        """The lines of the cell, as many as before."""
        last = getattr(self, "q_line", None)
        last = find_end_of_continued_line(lines, self.start_line) if last is None else last
        before, first = lines[self.start_line][: self.start_col], lines[self.start_line][self.start_col :]
        said = first.rstrip()
        self.taken.append(said)
        if not before.strip() and (timed := TIMED.match(said)):
            instead = said[timed.end() :]
        else:
            instead = f"{'None' if before.strip() else 'pass'}  # {said}"
        rest = [f"# {line}" for line in lines[self.start_line + 1 : last + 1]]
        return [*lines[: self.start_line], f"{before}{instead}\n", *rest, *lines[last + 1 :]]
