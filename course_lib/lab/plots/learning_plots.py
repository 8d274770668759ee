"""Plots of what was learned: accuracy and loss, a line for each run."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.config import SIMULATED
from course_lib.lab.plots.series import Series, caveat_notes, how_timed, identity, split, usable
from course_lib.lab.style import (
    finish,
    hollow_entry,
    label_axes,
    legend_beside,
    new_figure,
    nothing_to_draw,
    whole_numbers,
)
from course_lib.lab.words import SETTINGS_OF_A_RUN, number

SMOOTH_FROM, SMOOTH_OVER = 200, 25  # steps
CROWDED = 12  # lines from which on they are drawn thin
IN_WORDS = 12  # lines that the text of a figure speaks of
ACCURACY, LOSS = "validation accuracy", "training loss"  # what a line is called that nothing tells from others


def accuracy_against_epoch(epochs: pd.DataFrame) -> Figure:
    """Validation accuracy against the epoch, one line a run, one colour a setting; `epochs` is `store.epochs`'."""
    rows = usable(epochs, ["run", "epoch", "val_accuracy"])
    figure, (axes,) = new_figure()
    label_axes(axes, "Epoch", "Validation accuracy (%)")
    title = "Validation accuracy against epoch"
    if rows.empty:
        return _nothing(figure, axes, title, "No epoch has ended yet. Launch a run, and draw this again.")
    series, notes = split(rows, SETTINGS_OF_A_RUN, apart=[identity(rows)], alone=ACCURACY)
    facts = _draw_accuracy(axes, series, "epoch")
    legend_beside(axes)
    return finish(figure, title, [*notes, *_coinciding(series, "val_accuracy")], facts)


def accuracy_against_seconds(epochs: pd.DataFrame) -> Figure:
    """The same against the seconds of training."""
    rows = usable(epochs, ["run", "seconds", "val_accuracy"])
    figure, (axes,) = new_figure()
    label_axes(axes, "Training time (seconds)", "Validation accuracy (%)")
    title = f"Validation accuracy against training time{how_timed(rows)}"
    if rows.empty:
        return _nothing(figure, axes, title, "No epoch has ended yet. Launch a run, and draw this again.")
    # The times of simulated runs are those of their hardware.
    several = "hardware" in rows and rows["hardware"].nunique() > 1
    names = (*SETTINGS_OF_A_RUN, "hardware") if several else SETTINGS_OF_A_RUN
    series, notes = split(rows, names, apart=[identity(rows)])
    facts = _draw_accuracy(axes, series, "seconds")
    axes.set_xlim(left=0)
    legend_beside(axes, hollow_entry(rows))
    return finish(figure, title, [*notes, *caveat_notes(rows)], facts)


def loss_against_step(steps: pd.DataFrame) -> Figure:
    """Training loss against the step of the optimizer, the mean over ranks; `steps` as `store.steps` gives it.

    Where each row has all `SETTINGS_OF_A_RUN`, repeats share a colour; otherwise runs go by their names.
    """
    rows = usable(steps, ["run", "step", "loss"])
    figure, (axes,) = new_figure()
    title = "Training loss against step"
    label_axes(axes, "Step of the optimizer", "Training loss (cross-entropy)")
    if rows.empty:
        return _nothing(figure, axes, title, "No step has been recorded yet. Launch a run, and draw this again.")
    known = {*SETTINGS_OF_A_RUN} <= {*rows}
    names = SETTINGS_OF_A_RUN if known else ("world_size", "run")
    series, notes = split(rows, names, apart=[identity(rows)], alone=LOSS)
    facts, more = _draw_loss(axes, series)
    legend_beside(axes)
    return finish(figure, title, [*notes, *more, *_coinciding(series, "loss")], facts)


def with_settings(events: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The events of runs, each with the settings of its run in place of what is called alike (the phase "optimizer").

    `events` has `path`, as `store.steps` gives it; `runs` has one row a run, as `store.frame` does.
    """
    settings = [*SETTINGS_OF_A_RUN]
    return events.drop(columns=settings, errors="ignore").merge(runs[["path", *settings]], on="path")


def progress(steps: pd.DataFrame, epochs: pd.DataFrame, total_epochs: int) -> Figure:
    """Loss per step beside accuracy per epoch, for runs that go on and take up to `total_epochs`.

    Where that is one epoch, accuracy would be a single point, and the loss stands alone.

    Columns: `run`, `path`, `timing` and those of `SETTINGS_OF_A_RUN` in both frames; `step` and `loss` in one, `epoch`
    and `val_accuracy` in the other.
    """
    steps, epochs = usable(steps, ["run", "step", "loss"]), usable(epochs, ["run", "epoch", "val_accuracy"])
    both = pd.concat([steps, epochs])  # so that a run has one colour
    # Not laid out anew for each drawing: axes that move are hard to watch.
    figure, (left, *right) = new_figure(columns=min(2, total_epochs), width=9.0, height=3.2, by_hand=True)
    several = both[identity(both)].nunique() > 1
    figure.subplots_adjust(left=0.065, right=0.75 if several else 0.985, bottom=0.22, top=0.88, wspace=0.22)
    label_axes(left, "Step of the optimizer", "Training loss")
    names, apart = _names(both), [identity(both)]
    facts, notes = _draw_loss(left, split(both, names, apart, alone=LOSS)[0])
    if steps.empty:
        nothing_to_draw(left, "no step has been recorded yet")
    for axes in right:
        label_axes(axes, "Epoch", "Validation accuracy (%)")
        facts += _draw_accuracy(axes, split(both, names, apart, alone=ACCURACY)[0], "epoch")
        axes.set_xlim(0.5, total_epochs + 0.5)
        if epochs.empty:
            nothing_to_draw(axes, "no epoch has ended yet")
    if several:
        legend_beside([left, *right][-1], of=right[0] if right and steps.empty else left)
    title = "Loss and accuracy" if right else "Loss"
    return finish(figure, title, notes, facts or ["Nothing has been recorded yet"])


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
        at = f"epoch {number(points[x].iloc[-1])}" if x == "epoch" else f"{points[x].iloc[-1]:.3g} s"
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
            label=each.legend,
            gid=each.timing,
        )
        end = f"{loss.iloc[0]:.3f} at step {loss.index[0]} to {mean.iloc[-1]:.3f} at step {loss.index[-1]}"
        facts.setdefault(each.label, []).append(end)
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


def _coinciding(series: list[Series], column: str) -> list[str]:
    """The note that fewer lines are seen than there are runs."""
    lines = [(each.label, *each.rows[column].sort_values()) for each in series]
    return ["Some repeats coincide: the same seed gave the same result."] if len(set(lines)) < len(lines) else []


def _names(rows: pd.DataFrame) -> list[str]:
    """What to call the lines of a live view: their settings, and their names where these do not tell them apart."""
    runs = rows.drop_duplicates(identity(rows))
    settings = [name for name in SETTINGS_OF_A_RUN if name in runs]
    return settings if len(runs[settings].drop_duplicates()) == len(runs) else [*settings, "run"]


def _in_words(facts: dict[str, list[str]]) -> list[str]:
    """One sentence a label, as far as somebody would read on."""
    words = [
        f"{label}: {', '.join(said) if len(said) <= 3 else f'{len(said)} lines, from {min(said)} to {max(said)}'}"
        for label, said in facts.items()
    ]
    return words if len(words) <= IN_WORDS else [*words[:IN_WORDS], f"And {len(words) - IN_WORDS} more"]


def _nothing(figure: Figure, axes: Axes, title: str, text: str) -> Figure:
    nothing_to_draw(axes, text)
    return finish(figure, title, [], [text])
