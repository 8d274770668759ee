"""The plot of accuracy over a grid: the learning rate against the batch size."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.lab.plots.series import how_timed, usable
from course_lib.lab.style import NORMAL, PALETTE, SMALL, finish, label_axes, new_figure, nothing_to_draw
from course_lib.lab.words import SETTINGS_OF_A_RUN, differing, in_words, number

# All that the axes do not show. The rate in use follows from the rule and what they do show.
OTHER_SETTINGS = ("lr_rule", *(name for name in SETTINGS_OF_A_RUN if name not in ("peak_lr", "global_batch_size")))


def heat_map(frame: pd.DataFrame) -> Figure:
    """Final validation accuracy for each learning rate and global batch size.

    `frame` has one row a run, as `store.frame` gives it. A cell is the median over its runs; where
    all of them failed it says so, since this is how a learning rate that is too high shows.
    """
    keys = ["lr", "global_batch_size"]
    rows = usable(frame, [*keys, "val_accuracy"])
    figure, (axes,) = new_figure()
    axes.grid(False)
    axes.set_facecolor("#EEEEEE")
    label_axes(axes, "Global batch size (images a step)", f"Learning rate{_rule(frame)}")
    title = "Validation accuracy for each learning rate and batch size"
    if rows.empty:
        nothing_to_draw(axes, text := "No run has finished yet. Sweep over lr and batch_size first.")
        return finish(figure, title, [], [text])
    cells = (100 * rows["val_accuracy"].astype(float)).groupby([rows[key] for key in keys]).median().unstack()
    failed = frame[frame["status"] == "failed"] if "status" in frame else frame.head(0)
    failures = failed.dropna(subset=keys).groupby(keys).size().unstack()
    cells = cells.reindex(index=cells.index.union(failures.index), columns=cells.columns.union(failures.columns))
    image = axes.imshow(cells.to_numpy(float), cmap="cividis", aspect="auto", origin="lower")
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label("Validation accuracy (%)", fontsize=NORMAL)
    bar.ax.tick_params(labelsize=SMALL)
    axes.set_xticks(range(cells.shape[1]), [number(batch) for batch in cells.columns])
    axes.set_yticks(range(cells.shape[0]), [number(lr) for lr in cells.index])
    facts = _write_cells(axes, cells, failures.reindex_like(cells).fillna(0) > 0)
    return finish(figure, title, _cell_notes(rows, keys), facts)


def _rule(frame: pd.DataFrame) -> str:
    rules = sorted(set(frame["lr_rule"].dropna()) - {"none"}) if "lr_rule" in frame else []
    return f" (before the {' or '.join(rules)} rule)" if rules else ""


def _write_cells(axes: Axes, cells: pd.DataFrame, failed: pd.DataFrame) -> list[str]:
    """Write each cell's accuracy into it and frame the best; returns them in words."""
    values = cells.to_numpy(float)
    low, high = np.nanmin(values), np.nanmax(values)
    facts = []
    for row, lr in enumerate(cells.index):
        words = []
        for column, batch in enumerate(cells.columns):
            value = values[row, column]
            text = f"{value:.1f}" if value == value else "failed" if failed.iloc[row, column] else "–"
            on_dark = value == value and value - low < 0.55 * max(high - low, 1e-9)
            color = "white" if on_dark else "black"
            weight = "bold" if value == high else "normal"
            axes.text(column, row, text, ha="center", va="center", fontsize=NORMAL, color=color, fontweight=weight)
            if value == high:
                axes.add_patch(
                    Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, fill=False, color=PALETTE[1], linewidth=2.5)
                )
            words.append(f"{text} at batch {number(batch)}")
        facts.append(f"Learning rate {number(lr)}: {', '.join(words)}")
    return facts


def _cell_notes(rows: pd.DataFrame, keys: list[str]) -> list[str]:
    """What the reader of a heat map must know: what else differs within it."""
    runs = rows.groupby(keys).size()
    notes = ["Framed: the best."] if len(runs) > 1 else ["Sweep over more of lr and batch_size to compare."]
    if runs.max() > 1:
        notes[0] += f" A cell is the median over its runs, {_range(int(runs.min()), int(runs.max()))} each."
    others = [in_words(name) for name in differing(rows, OTHER_SETTINGS)]
    if others:
        notes.append(f"The runs also differ in: {', '.join(others)}.")
    if rows["timing"].nunique() > 1:
        notes.append(f"The runs were{how_timed(rows).replace(',', '', 1)}.")
    return notes


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
