"""Send a training function, wherever it was defined, to the ranks."""

from __future__ import annotations

import inspect
import linecache
import os
from collections.abc import Callable
from types import CodeType
from typing import Any

import cloudpickle

from course_lib.errors import FunctionError

TrainFunction = Callable[..., Any]

# Stands for the function itself among the names of those that it calls.
_ITSELF = ""
MAX_BYTES = 64 * 2**20


def pickle_function(train: TrainFunction) -> bytes:
    """`train` with all that it captured, as bytes for `load_function`.

    The text of notebook cells goes along, so that a rank's traceback shows their lines.

    Raises:
        FunctionError: it is no function of (config, worker), it cannot be pickled, or it is too
            large; names the captured variable to blame.
    """
    _check_signature(train)
    try:
        content: bytes = cloudpickle.dumps((train, _cells(train)))
    except Exception as error:
        raise FunctionError(
            f"{_name(train)} cannot be sent to the ranks: {_culprit(train)} cannot be pickled ({error}). "
            "Create it inside the function, or pass what it is made from."
        ) from error
    if len(content) > MAX_BYTES:
        raise FunctionError(
            f"{_name(train)} takes {len(content) / 2**20:.0f} MiB to send, at most {MAX_BYTES / 2**20:.0f} go: "
            f"{_largest(train)} is large. Load it inside the function instead."
        )
    return content


def full_name(train: TrainFunction) -> str:
    """The name of a function with that of its module."""
    return f"{getattr(train, '__module__', '')}.{getattr(train, '__qualname__', type(train).__qualname__)}"


def load_function(content: bytes) -> TrainFunction:
    """The function that `pickle_function` took apart."""
    train: TrainFunction
    train, cells = cloudpickle.loads(content)
    for name, (filename, lines) in cells.items():
        function = train if name == _ITSELF else train.__globals__.get(name)
        if inspect.isfunction(function):
            function.__code__ = _as_from(function.__code__, filename)
            linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
    return train


def _cells(train: TrainFunction) -> dict[str, tuple[str, list[str]]]:
    """For `train` and the functions that it calls by name: the notebook cell that each comes from.

    cloudpickle replaces the names of these cells, and a rank cannot look into the kernel for their lines.
    """
    functions = {_ITSELF: train, **_captured(train)}
    filenames = {name: each.__code__.co_filename for name, each in functions.items() if inspect.isfunction(each)}
    return {
        name: (filename, linecache.getlines(filename))
        for name, filename in filenames.items()
        if not os.path.exists(filename) or functions[name].__module__ == "__main__"
    }


def _as_from(code: CodeType, filename: str) -> CodeType:
    """The code, and that of the functions inside it, as if read from `filename`."""
    constants = tuple(_as_from(each, filename) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)


def _check_signature(train: TrainFunction) -> None:
    if not callable(train):
        raise FunctionError(f"launch needs a function train(config, worker), not {train!r}.")
    try:
        inspect.signature(train).bind(None, None)
    except TypeError as error:
        raise FunctionError(
            f"{_name(train)} must take two arguments, (config, worker): {error}. "
            "The ranks call it as train(config, worker)."
        ) from error
    except ValueError:  # a builtin that does not tell its signature
        pass


def _name(train: TrainFunction) -> str:
    return f"The function {getattr(train, '__qualname__', repr(train))!r}"


def _captured(train: TrainFunction) -> dict[str, Any]:
    """What the function carries along: its closure, its globals and its defaults."""
    function = inspect.unwrap(train)
    if not inspect.isfunction(function):
        return {}
    variables = inspect.getclosurevars(function)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return {**variables.globals, **variables.nonlocals, **defaults}


def _size(value: Any) -> int | None:
    try:
        return len(cloudpickle.dumps(value))
    except Exception:
        return None


def _culprit(train: TrainFunction) -> str:
    for name, value in _captured(train).items():
        if _size(value) is None:
            return f"the captured variable {name!r} ({type(value).__name__})"
    return "something that it captured"


def _largest(train: TrainFunction) -> str:
    sizes = {name: _size(value) or 0 for name, value in _captured(train).items()}
    if not sizes:
        return "something that it captured"
    name = max(sizes, key=lambda each: sizes[each])
    return f"the captured variable {name!r} ({sizes[name] / 2**20:.0f} MiB)"
