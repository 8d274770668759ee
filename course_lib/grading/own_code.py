"""A student's code for a part, as it stands in a running notebook."""

from __future__ import annotations

import builtins
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

from course_lib.grading.laws.finding import listed
from course_lib.grading.parts import Part
from course_lib.grading.plain_python import plain, writes_anew

PROGRAM = "train.py"  # what a part without names is judged by


@dataclass(frozen=True)
class OwnCode:
    """What was found of it.

    Fields:
        code: None where something is missing.
        missing: what, and what to do; empty where nothing is.
        elsewhere: names that it uses and other cells define, which are not handed in with it.
    """

    code: str | None
    missing: str = ""
    elsewhere: tuple[str, ...] = ()


def find(part: Part, shell: InteractiveShell) -> OwnCode:
    """The code of the cells that define the part's names, as they ran last; or the program in the current folder."""
    if not part.names:
        return _program(Path(PROGRAM))
    assert shell.history_manager is not None
    # What a cell only wrote into a file defines nothing here.
    history = shell.history_manager.input_hist_raw
    cells = ["" if writes_anew(source) else plain(source)[0] for source in history]
    tables = [_table(cell) for cell in cells]
    places = {name: _last(name, tables) for name in part.names}
    for name, place in places.items():
        if refused := _refused(name, cells[0 if place is None else place + 1 :]):
            return OwnCode(None, refused)
    undefined = [name for name in part.names if name not in shell.user_ns]
    if undefined:
        said = listed(f"`{name}`" for name in undefined)
        return OwnCode(None, f"{said} {'is' if len(undefined) == 1 else 'are'} not defined. Run the cell of this part.")
    lost = [name for name, place in places.items() if place is None]
    if lost:
        said = listed(f"`{name}`" for name in lost)
        return OwnCode(None, f"No cell of this notebook defines {said}. Write it in the cell of this part.")
    code = "\n\n".join(cells[place] for place in sorted({place for place in places.values() if place is not None}))
    used = {name for table in _all(_table(code)) for name in _globals(table)}
    known = _bound(_table(code)) | set(dir(builtins))
    elsewhere = sorted(name for name in used - known if name in shell.user_ns and not name.startswith("_"))
    return OwnCode(code, elsewhere=tuple(elsewhere))


def _program(path: Path) -> OwnCode:
    try:
        return OwnCode(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return OwnCode(None, f"There is no {path.name} here. Run the cell that begins with %%writefile {path.name}.")


def _refused(name: str, later: Sequence[str]) -> str:
    """What is wrong with the newest cell that meant to define a name and that Python did not take; empty if none is."""
    meant = re.compile(rf"^\s*(?:(?:async\s+def|def|class)\s+{name}\b|{name}\s*=[^=])", re.MULTILINE)
    for cell in reversed(later):
        if not meant.search(cell):
            continue
        try:
            compile(cell, "cell", "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"The cell with `{name}` is no Python yet. Line {error.lineno}: {error.msg}."
        except (ValueError, RecursionError):
            return f"The cell with `{name}` is no Python yet."
    return ""


def _table(code: str) -> symtable.SymbolTable | None:
    """Who defines and who uses which name; None where this is no Python."""
    try:
        return symtable.symtable(code, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return None


def _last(name: str, tables: Sequence[symtable.SymbolTable | None]) -> int | None:
    """The last cell that defines a name."""
    return next((place for place in reversed(range(len(tables))) if name in _bound(tables[place])), None)


def _bound(table: symtable.SymbolTable | None) -> set[str]:
    if table is None:
        return set()
    return {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}


def _globals(table: symtable.SymbolTable) -> set[str]:
    at_top = table.get_type() == "module"
    return {each.get_name() for each in table.get_symbols() if each.is_referenced() and (at_top or each.is_global())}


def _all(table: symtable.SymbolTable | None) -> Iterator[symtable.SymbolTable]:
    if table is not None:
        yield table
        for child in table.get_children():
            yield from _all(child)
