"""Plots of what was learned: accuracy, loss, and the learning rate against the batch size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.config import SIMULATED
from course_lib.lab.series import Series, caveat_notes, how_timed, identity, in_words, number, split, usable
from course_lib.lab.style import (
    NORMAL,
    PALETTE,
    SMALL,
    TIMING_UNKNOWN,
    finish,
    hollow_entry,
    label_axes,
    legend_beside,
    new_figure,
    nothing_to_draw,
    whole_numbers,
)

SETTINGS_OF_A_RUN = ("model", "world_size", "global_batch_size", "lr")  # `lr` of a step is another
SMOOTH_FROM, SMOOTH_OVER = 200, 25  # steps
CROWDED = 12  # lines from which on they are drawn thin
IN_WORDS = 12  # lines that the text of a figure speaks of


def accuracy_against_epoch(epochs: pd.DataFrame) -> Figure:
    """Validation accuracy against the epoch, one line a run; `epochs` as `store.epochs` gives it."""
    rows = usable(epochs, ["run", "epoch", "val_accuracy"])
    figure, (axes,) = new_figure()
    label_axes(axes, "Epoch", "Validation accuracy (%)")
    title = "Validation accuracy against epoch"
    if rows.empty:
        return _nothing(figure, axes, title, "No epoch has ended yet. Launch a run, and draw this again.")
    series, notes = split(rows, SETTINGS_OF_A_RUN, apart=[identity(rows)])
    facts = _draw_accuracy(axes, series, "epoch")
    legend_beside(axes)
    return finish(figure, title, notes, facts)


def accuracy_against_seconds(epochs: pd.DataFrame) -> Figure:
    """Validation accuracy against the seconds of training, one line a run; `epochs` as `store.epochs` gives it."""
    rows = usable(epochs, ["run", "seconds", "val_accuracy"])
    figure, (axes,) = new_figure()
    label_axes(axes, "Training time (seconds)", "Validation accuracy (%)")
    title = f"Validation accuracy against training time{how_timed(rows)}"
    if rows.empty:
        return _nothing(figure, axes, title, "No epoch has ended yet. Launch a run, and draw this again.")
    series, notes = split(rows, SETTINGS_OF_A_RUN, apart=[identity(rows)])
    facts = _draw_accuracy(axes, series, "seconds")
    axes.set_xlim(left=0)
    legend_beside(axes, hollow_entry(rows))
    return finish(figure, title, [*notes, *caveat_notes(rows)], facts)


def loss_against_step(steps: pd.DataFrame) -> Figure:
    """Training loss against the step of the optimizer, the mean over ranks; `steps` as `store.steps` gives it."""
    rows = usable(steps, ["run", "step", "loss"])
    figure, (axes,) = new_figure()
    title = "Training loss against step"
    label_axes(axes, "Step of the optimizer", "Training loss (cross-entropy)")
    if rows.empty:
        return _nothing(figure, axes, title, "No step has been recorded yet. Launch a run, and draw this again.")
    series, notes = split(rows, _names(rows, ("world_size",)), apart=[identity(rows)])
    facts, more = _draw_loss(axes, series)
    legend_beside(axes)
    return finish(figure, title, [*notes, *more], facts)


def progress(steps: pd.DataFrame, epochs: pd.DataFrame) -> Figure:
    """Loss per step beside accuracy per epoch, for runs that go on.

    Columns: `run`, `path`, `timing` and those of `SETTINGS_OF_A_RUN` in both frames, the settings being the
    config's; `step` and `loss` in one, `epoch` and `val_accuracy` in the other.
    """
    steps, epochs = usable(steps, ["run", "step", "loss"]), usable(epochs, ["run", "epoch", "val_accuracy"])
    both = pd.concat([steps, epochs])  # so that a run has one colour
    # Not laid out anew for each drawing: axes that move are hard to watch.
    figure, (left, right) = new_figure(columns=2, width=9.0, height=3.2, by_hand=True)
    several = both["run"].nunique() > 1
    figure.subplots_adjust(left=0.065, right=0.75 if several else 0.985, bottom=0.22, top=0.88, wspace=0.22)
    label_axes(left, "Step of the optimizer", "Training loss")
    label_axes(right, "Epoch", "Validation accuracy (%)")
    series = split(both, _names(both, SETTINGS_OF_A_RUN), apart=[identity(both)])[0]
    facts, notes = _draw_loss(left, series)
    facts += _draw_accuracy(right, series, "epoch")
    if steps.empty:
        nothing_to_draw(left, "no step has been recorded yet")
    if epochs.empty:
        nothing_to_draw(right, "no epoch has ended yet")
    if several:
        legend_beside(right, of=right if steps.empty else left)
    return finish(figure, "Loss and accuracy", notes, facts or ["Nothing has been recorded yet"])


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
        return _nothing(figure, axes, title, "No run has finished yet. Sweep over lr and batch_size first.")
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


def _draw_accuracy(axes: Axes, series: list[Series], x: str) -> list[str]:
    """Draw accuracy in percent against the column `x`; returns it in words."""
    crowded = len(series) > CROWDED
    facts: dict[str, list[str]] = {}
    for each in series:
        points = each.rows.dropna(subset=["val_accuracy"]).sort_values(x)
        if points.empty:
            continue
        percent = 100 * points["val_accuracy"].to_numpy(float)
        hollow = x == "seconds" and bool((points["speed_caveats"] != "").any())
        axes.plot(
            points[x].to_numpy(float),
            percent,
            color=each.color,
            marker=each.marker,
            markerfacecolor="white" if hollow else each.color,
            markersize=0.6 * each.look.size if crowded else each.look.size,
            markevery=max(1, len(points) // 15),
            linestyle=each.look.line,
            linewidth=0.9 if crowded else 1.6,
            alpha=0.7 if crowded else 1.0,
            label=each.legend,
            gid=each.timing,
        )
        at = f"epoch {number(points[x].iloc[-1])}" if x == "epoch" else f"{points[x].iloc[-1]:.1f} s"
        facts.setdefault(each.label, []).append(f"{percent[-1]:.1f} % at {at}")
    if x == "epoch" and facts:
        whole_numbers(axes)
    return _in_words(facts)


def _draw_loss(axes: Axes, series: list[Series]) -> tuple[list[str], list[str]]:
    """Draw the loss of each step; where there are many, faintly, and their running mean over it.

    Returns:
        What was drawn in words, and the notes.
    """
    curves = {each.number: each.rows.groupby("step")["loss"].mean().astype(float) for each in series}
    smooth = max(map(len, curves.values()), default=0) >= SMOOTH_FROM
    facts: dict[str, list[str]] = {}
    for each in series:
        loss = curves[each.number]
        if loss.empty:
            continue
        mean = loss.rolling(SMOOTH_OVER, min_periods=1, center=True).mean() if smooth else loss
        if smooth:
            axes.plot(loss.index, loss, color=each.color, linewidth=0.6, alpha=0.3, label="_nolegend_", gid=each.timing)
        axes.plot(
            mean.index,
            mean,
            color=each.color,
            marker=each.marker if len(series) > 1 or len(loss) == 1 else "",
            markersize=0.8 * each.look.size,
            markevery=max(1, len(mean) // 8),
            linestyle=each.look.line if each.timing == SIMULATED else "-",  # dashes would hide the noise
            linewidth=1.4,
            label=each.legend.replace(TIMING_UNKNOWN, "training loss"),
            gid=each.timing,
        )
        end = f"{loss.iloc[0]:.3f} at step {loss.index[0]} to {mean.iloc[-1]:.3f} at step {loss.index[-1]}"
        facts.setdefault(each.label.replace(TIMING_UNKNOWN, "training loss"), []).append(end)
    if not facts:
        return [], []
    whole_numbers(axes)
    notes = [f"Faint: each step. Strong: the mean over the {SMOOTH_OVER} steps around it."] if smooth else []
    return _in_words(facts), [*notes, *_cut_off(axes, pd.concat(curves.values()))]


def _cut_off(axes: Axes, loss: pd.Series[float]) -> list[str]:
    """Leave out of sight a loss far above where training began; returns the note that says so."""
    top = 2 * float(loss[loss.index == loss.index.min()].median())
    highest = float(loss.max())
    if not highest > 2 * top:
        axes.set_ylim(bottom=0)
        return []
    axes.set_ylim(0, top)
    return [f"Cut off: the loss rose to {highest:.3g}."]


def _names(rows: pd.DataFrame, settings: Sequence[str]) -> list[str]:
    """What to call the lines of runs: their settings, and their names where these do not tell them apart."""
    runs = rows.drop_duplicates(identity(rows))
    settings = [name for name in settings if name in runs]
    told_apart = len(runs[settings].drop_duplicates()) == len(runs) if settings else False
    return settings if told_apart else [*settings, "run"]


def _in_words(facts: dict[str, list[str]]) -> list[str]:
    """One sentence a label, as far as somebody would read on."""
    words = [
        f"{label}: {', '.join(said) if len(said) <= 3 else f'{len(said)} lines, from {min(said)} to {max(said)}'}"
        for label, said in facts.items()
    ]
    return words if len(words) <= IN_WORDS else [*words[:IN_WORDS], f"And {len(words) - IN_WORDS} more"]


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
    differing = [name for name in ("model", "world_size", "optimizer", "lr_rule", "epochs") if name in rows]
    differing = [in_words(name) for name in differing if rows[name].nunique() > 1]
    if differing:
        notes.append(f"The runs also differ in: {', '.join(differing)}.")
    if rows["timing"].nunique() > 1:
        notes.append(f"The runs were{how_timed(rows).replace(',', '', 1)}.")
    return notes


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def _nothing(figure: Figure, axes: Axes, title: str, text: str) -> Figure:
    nothing_to_draw(axes, text)
    return finish(figure, title, [], [text])
