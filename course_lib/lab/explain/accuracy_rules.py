"""Why accuracy moved: each rule looks for one reason in how a run learned and how the one before it did.

Small steps in a mini-batch's noise and the learning rate that goes with a batch: Goyal et al. 2017, arXiv 1706.02677.
"""

from __future__ import annotations

from math import ceil, sqrt
from statistics import mean
from typing import Any

import pandas as pd

from course_lib.config import SUITABLE_LR
from course_lib.lab.explain.evidence import LEARNING, Case, Finding, Rule, best, differences
from course_lib.lab.words import in_short, in_words, number
from course_lib.runs.folder import FINISHED

# At a peak of 0.4 half of the short runs with SGD learned nothing, MLP and SmallCNN alike; at 0.8 none learned.
HIGH_PEAK_LR = 0.4
LEARNED_NOTHING = 0.2  # accuracy; guessing among ten classes is 0.1
SPREAD_OF_SEEDS = 0.01  # of the accuracy of short runs, where it was not measured
WARM_UP_FROM = 0.2  # the peak learning rate from which a start at full height throws the weights far
FEWER = 0.75  # of the steps
DIVERGED = "The loss became"  # how the error of a loss that is not finite begins


def accuracy_findings(case: Case) -> list[Finding]:
    """At most two reasons, the weightiest first; where nothing stands out, what is to be compared."""
    run = case.run
    if not _diverged(run) and (run["status"] != FINISHED or pd.isna(run["val_accuracy"])):
        return []
    return best(RULES, case) or [nothing_stands_out(case)]


def lr_too_high(case: Case) -> Finding | None:
    """The loss was no number any more, or nothing was learned at a learning rate above the usual one."""
    run = case.run
    tried = f"at a peak learning rate of {run['peak_lr']:.3g}, with {number(run['warmup_epochs'])} epochs of warm-up"
    if _diverged(run):
        sentence = f"The run diverged {tried}: its loss was no finite number any more."
    elif _learned_nothing(run) and _high_lr(run):
        sentence = f"It learned nothing {tried}: an accuracy of {_points(run['val_accuracy'])} is close to guessing."
    else:
        return None
    return Finding(2.0, sentence, f"Halve the learning rate to {run['lr'] / 2:.3g}, or take a longer warm-up.")


def moved_too_little(case: Case) -> Finding | None:
    """Nothing was learned, and no learning rate above the usual one can be the reason."""
    run = case.run
    if not _learned_nothing(run) or _high_lr(run):
        return None
    return Finding(
        2.0,
        f"It learned nothing in {number(run['steps'])} steps at a peak learning rate of {run['peak_lr']:.3g}: an "
        f"accuracy of {_points(run['val_accuracy'])} is close to guessing, and so small a rate is hardly too high.",
        f"Train for {number(2 * run['epochs'])} epochs, or double the learning rate to {2 * run['lr']:.3g}.",
    )


def larger_batch(case: Case) -> Finding | None:
    """A larger global batch with the same learning rate moves less in an epoch."""
    run, other = case.run, case.before
    if other is None or not _fell(case) or lr_too_high(case):
        return None
    factor = run["global_batch_size"] / other["global_batch_size"]
    if not (factor > 1 and run["peak_lr"] <= 1.01 * other["peak_lr"]):
        return None
    rule, scaled = "linear", factor * other["peak_lr"]
    if scaled >= HIGH_PEAK_LR:
        rule, scaled = "sqrt", sqrt(factor) * other["peak_lr"]
    return Finding(
        0.9,
        f"{_moved(case)}: the global batch grew from {number(other['global_batch_size'])} to "
        f"{number(run['global_batch_size'])} and the learning rate did not, {run['peak_lr']:.3g}: an epoch has "
        f"{factor:.3g} times fewer steps, each no longer than before.",
        f"By the {rule} rule, {scaled:.3g} goes with this batch: take that as the peak learning rate, with a warm-up.",
    )


def fewer_steps(case: Case) -> Finding | None:
    """There were fewer steps to learn in."""
    run, other = case.run, case.before
    if other is None or not _fell(case) or lr_too_high(case) or not run["steps"] < FEWER * other["steps"]:
        return None
    more = ceil(run["epochs"] * other["steps"] / run["steps"])
    return Finding(
        0.7,
        f"{_moved(case)}: it took {number(run['steps'])} steps, and the other one {number(other['steps'])}.",
        f"Train for up to {more} epochs, which are as many steps at least, and see where accuracy catches up.",
    )


def no_warmup(case: Case) -> Finding | None:
    """A high learning rate from the first step on."""
    run = case.run
    if not (run["warmup_epochs"] == 0 and run["peak_lr"] >= WARM_UP_FROM):
        return None
    if not (_diverged(run) or _learned_nothing(run) or _fell(case)):
        return None
    sentence = f"There was no warm-up, and the first step was taken at the full learning rate of {run['peak_lr']:.3g}."
    return Finding(0.8, sentence, "Set half an epoch of warm-up or more, and leave the rest as it is.")


def within_spread(case: Case) -> Finding | None:
    """The difference is none: other seeds would move accuracy as much."""
    if case.before is None or pd.isna(case.run["val_accuracy"]) or abs(_change(case)) > _spread(case):
        return None
    measured = _measured_spread(case)
    by = (
        f"runs that differ in the seed alone are {_points(measured)} apart"
        if measured
        else (f"other seeds commonly move short runs by about {_points(SPREAD_OF_SEEDS)}")
    )
    return Finding(
        0.5,
        f"Accuracy did not really move: {_points(case.run['val_accuracy'])} against "
        f"{_points(case.before['val_accuracy'])} with {_settings(case.before)}, and {by}.",
        "Repeat both with other seeds before you believe a difference as small.",
    )


def nothing_stands_out(case: Case) -> Finding:
    """No single reason: what there is to compare."""
    run, other = case.run, case.before
    if other is None:
        return Finding(
            0.0,
            f"{_points(run['val_accuracy'])} of the test images were right after {_epochs(run)} with "
            f"{_settings(run)}; there is no other run to compare with.",
            "Run the same with twice the batch size, and predict first whether accuracy will change.",
        )
    changed = [in_words(name) for name in differences(run, other, LEARNING)]
    what = f"it differs in {', '.join(changed)}" if changed else "they differ in the number of ranks alone"
    return Finding(
        0.0,
        f"{_moved(case)}; {what}.",
        "Change one of these alone, to see which it is." if len(changed) > 1 else "Repeat both with other seeds.",
    )


def _moved(case: Case) -> str:
    assert case.before is not None
    change = _change(case)
    return (
        f"Accuracy {'rose' if change > 0 else 'fell'} by {abs(100 * change):.1f} points to "
        f"{_points(case.run['val_accuracy'])}, compared with {_settings(case.before)}"
    )


def _settings(row: pd.Series[Any]) -> str:
    return in_short(row, ["world_size", "global_batch_size", "peak_lr"])


def _epochs(run: pd.Series[Any]) -> str:
    return f"{number(run['epochs'])} epoch{'' if run['epochs'] == 1 else 's'}"


def _points(accuracy: float) -> str:
    return f"{100 * accuracy:.1f} %"


def _fell(case: Case) -> bool:
    return case.before is not None and _change(case) < -_spread(case)


def _change(case: Case) -> float:
    """How far accuracy is from that of the run before; of repeats, their mean."""
    assert case.before is not None
    own, others = case.accuracies
    return mean(own or (case.run["val_accuracy"],)) - mean(others or (case.before["val_accuracy"],))


def _spread(case: Case) -> float:
    return _measured_spread(case) or SPREAD_OF_SEEDS


def _measured_spread(case: Case) -> float:
    """How far runs are apart that differ in the seed alone; 0 where there are none."""
    return max((max(values) - min(values) for values in case.accuracies if len(values) > 1), default=0.0)


def _learned_nothing(run: pd.Series[Any]) -> bool:
    return bool(run["val_accuracy"] <= LEARNED_NOTHING)


def _high_lr(run: pd.Series[Any]) -> bool:
    return bool(run["peak_lr"] > SUITABLE_LR[run["optimizer"]])


def _diverged(run: pd.Series[Any]) -> bool:
    return run["status"] != FINISHED and isinstance(run["error"], str) and DIVERGED in run["error"]


RULES: tuple[Rule, ...] = (lr_too_high, moved_too_little, larger_batch, fewer_steps, no_warmup, within_spread)
