"""Numbers out of the tables that scaling models are fitted to and predict for."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.errors import FitError


def measurements(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """What a model can be fitted to: the rows of `positive`, of which there must be one.

    Raises:
        FitError: no row is left, or as `positive` does.
    """
    table = positive(frame, *names)
    if not len(table):
        raise FitError(f"The table has no row with all of {', '.join(names)}.")
    return table


def positive(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """These columns as floats, without the rows in which one is missing; the index is kept.

    Raises:
        FitError: a column is not there, or a value is not above 0 or not finite.
    """
    table = numbers(frame, *names).dropna()
    for name in names:
        values = table[name].to_numpy()
        wrong = ~((values > 0) & (values < np.inf))
        if wrong.any():
            row, value = table.index[wrong][0], values[wrong][0]
            raise FitError(f"{name} must be a number above 0; in row {row} it is {value:g}.")
    return table


def numbers(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """These columns as floats, NaN where a value is missing; the index is kept.

    Raises:
        FitError: it is no table, a column is not there, or holds something that is no number.
    """
    if not isinstance(frame, pd.DataFrame):
        raise FitError(f"A table (a pandas DataFrame) with {', '.join(names)} is needed, not {type(frame).__name__}.")
    missing = [name for name in names if name not in frame]
    if missing:
        have = ", ".join(map(str, frame.columns)) or "none"
        raise FitError(f"The table has no column {', '.join(missing)}. It has: {have}.")
    try:
        return frame[list(names)].astype(float)
    except (TypeError, ValueError) as error:
        raise FitError(f"A column of {', '.join(names)} holds something that is no number: {error}.") from error
