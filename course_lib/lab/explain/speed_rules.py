"""Why a run was not faster: each rule looks for one reason in the numbers of the run and of its baseline.

A rule's weight is the share of a step that it explains.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.config import SIMULATED
from course_lib.lab.explain.evidence import Case, Finding, Rule, best, milliseconds
from course_lib.lab.words import percent
from course_lib.runs.folder import FINISHED
from course_lib.runs.machine import NOT_ALONE
from course_lib.runs.store import SPLIT_COLUMNS
from course_lib.scaling.speedup import FEW_STEPS
from course_lib.scaling.step_time import BACKWARD_SHARE

NOTABLE = 0.15  # a smaller share of a step is no reason
NEAR_IDEAL = 0.9  # efficiency
LONG_START = 2.0  # times the training
MOSTLY = 0.75  # of the steps: a rank that is slowest in so many is slow itself, not by chance


def speed_findings(case: Case) -> list[Finding]:
    """At most two reasons, the weightiest first; where nothing stands out, how near it came to the ideal."""
    run = case.run
    if not (run["status"] == FINISHED and run["images_per_sec"] > 0 and run["step_seconds"] > 0):
        return []
    rules = [simulated] if run["timing"] == SIMULATED else MEASURED
    return best(rules, case) or [nothing_stands_out(case)]


def loader(case: Case) -> Finding | None:
    """Fetching the images takes a good part of a step."""
    data, step = case.run["data_seconds"], case.run["step_seconds"]
    share = data / step
    if not share >= NOTABLE:
        return None
    return Finding(
        share,
        f"Fetching the images took {milliseconds(data)} of a step's {milliseconds(step)} ({percent(share)}): "
        "time in which nothing is computed.",
        "Train a larger model: it computes longer on the images that it gets.",
    )


def exposed_communication(case: Case) -> Finding | None:
    """Backward, in which gradients are exchanged, takes longer than computing these images alone."""
    run, one = case.run, case.baseline
    if one is None or _shares_cores(case):
        return None
    part = run["batch_size"] / one["batch_size"]
    alone = part * one["backward_seconds"] + (1 - part) * BACKWARD_SHARE / (1 - BACKWARD_SHARE) * _fixed_forward(case)
    alone *= _slowdown(case)
    grew = run["backward_seconds"] - alone
    share = grew / run["step_seconds"]
    if not share >= NOTABLE:
        return None
    return Finding(
        share,
        f"Backward, in which the ranks exchange gradients, took {milliseconds(run['backward_seconds'])}; computing "
        f"alone would take {milliseconds(alone)}. The {milliseconds(grew)} more are {percent(share)} of a step: "
        "communication, and waiting for other ranks, that no computing hid.",
        f"Double the batch size to {2 * run['batch_size']:.0f} per rank: the gradients are as large, and each exchange "
        "serves twice as many images.",
    )


def slower_computing(case: Case) -> Finding | None:
    """The forward pass, in which nothing is exchanged, takes longer than the same images took on one rank."""
    run, one = case.run, case.baseline
    slowdown = _slowdown(case)
    if one is None or run["speed_caveats"] or not slowdown > 1:
        return None
    share = (slowdown - 1) * (one["forward_seconds"] + one["backward_seconds"]) / run["step_seconds"]
    if not share >= NOTABLE:
        return None
    return Finding(
        share,
        f"Computing itself was slower: the forward pass, in which nothing is exchanged, took "
        f"{milliseconds(run['forward_seconds'])}, and {milliseconds(one['forward_seconds'])} for as many images on one "
        "rank. Ranks on one machine share its memory and its power.",
        "Repeat both runs while nothing else goes on, to see whether it stays so.",
    )


def small_batch(case: Case) -> Finding | None:
    """What a step costs whatever its batch is a good part of it."""
    run, one = case.run, case.baseline
    step, batch = run["step_seconds"], run["batch_size"]
    fixed, how = run["optimizer_seconds"], "The optimizer's update"
    if (forward := _fixed_forward(case)) > 0:
        assert one is not None
        fixed += forward
        how = f"The update, and what the forward pass costs whatever the batch ({one['batch_size']:.0f} on one rank),"
    share = fixed / step
    if not share >= NOTABLE:
        return None
    return Finding(
        share,
        f"{how} took {milliseconds(fixed)} of a step's {milliseconds(step)} ({percent(share)}): {batch:.0f} images per "
        "rank are few for it.",
        f"Take a batch size of {4 * batch:.0f} per rank, and see how far images per second rise.",
    )


def more_ranks_than_cores(case: Case) -> Finding | None:
    """The ranks take turns on the same cores or GPUs."""
    if not _shares_cores(case):
        return None
    caveat = next(text for text in case.run["speed_caveats"].split("; ") if " share " in text)
    cores = case.run["cores"]
    fitting = max(1, cores // case.run["threads_per_rank"])
    most = f"at most {fitting:.0f} CPU ranks" if case.run["devices"] == "cpu" and cores > 0 else "a rank for each GPU"
    return Finding(
        1.0,
        f"{caveat[0].upper()}{caveat[1:]} and take turns, so {case.run['images_per_sec']:,.0f} images/s say nothing "
        "about more hardware.",
        f"Use {most}; device simulated shows what more hardware would do.",
    )


def disturbed(case: Case) -> Finding | None:
    """Another run took part of the machine."""
    if NOT_ALONE not in str(case.run["speed_caveats"]):
        return None
    return Finding(
        0.9,
        f"Another run went on at the same time and took its share of the machine, so {case.run['images_per_sec']:,.0f} "
        "images/s are no measurement of speed.",
        "Make the run again while nothing else goes on.",
    )


def long_start(case: Case) -> Finding | None:
    """Most of the time went by outside of steps."""
    run = case.run
    training = run["steps"] * run["step_seconds"]
    around = run["seconds"] - training
    if not around > LONG_START * training:
        return None
    return Finding(
        0.5,
        f"Of {run['seconds']:.3g} s only {training:.3g} s were {run['steps']:.0f} steps at their usual pace; the other "
        f"{around:.3g} s went into starting, the first slow steps and evaluation, which a speedup does not count.",
        "Take more of the data or more epochs: the start is paid once.",
    )


def stragglers(case: Case) -> Finding | None:
    """In each step all wait for the rank that is slowest in it."""
    if case.steps is None or _shares_cores(case):
        return None
    forward = case.steps.pivot_table(index="step", columns="rank", values="forward").dropna()
    if forward.shape[1] < 2 or forward.empty:
        return None
    in_order = np.sort(forward.to_numpy(), axis=1)
    slowest, waiting = np.median([in_order[:, -1], in_order[:, -1] - np.median(in_order[:, :-1], axis=1)], axis=1)
    share = min(1.0, waiting / (1 - BACKWARD_SHARE) / case.run["step_seconds"])  # who is slow stays so in backward
    if not share >= NOTABLE:
        return None
    places = forward.idxmax(axis=1).value_counts(normalize=True)
    who, try_next = "Now one rank was slowest, now another", "Close other programs, and repeat the run."
    if places.iloc[0] >= MOSTLY:
        who = f"Rank {places.index[0]:.0f} was slowest in {percent(places.iloc[0])} of the steps"
        try_next = "See what else runs on that rank's core or GPU."
    return Finding(
        share,
        f"{who}: the slowest forward pass took {milliseconds(slowest)}, {milliseconds(waiting)} longer than those of "
        f"the others, and {case.ranks} wait for it in each step.",
        try_next,
    )


def few_steps(case: Case) -> Finding | None:
    """The speed is the mean of a few steps."""
    timed = case.run["timed_steps"]
    if not timed < FEW_STEPS:
        return None
    return Finding(
        0.6,
        f"Only {timed:.0f} steps were timed: one slow step can change {case.run['images_per_sec']:,.0f} images/s much.",
        f"Train for more epochs or on more of the data, until {FEW_STEPS} steps and more are timed.",
    )


def simulated(case: Case) -> Finding | None:
    """By the scaling model, what of a step is no computing."""
    run = case.run
    if run["timing"] != SIMULATED or run["world_size"] == 1:
        return None
    step = run["step_seconds"]
    waiting = max(0.0, step - run["forward_seconds"] / (1 - BACKWARD_SHARE))
    share = waiting / step
    batch = run["batch_size"]
    if share >= NOTABLE:
        try_next = f"Take a batch size of {4 * batch:.0f} per GPU: more computing for each exchange of gradients."
    else:
        try_next = f"Simulate {4 * run['world_size']:.0f} GPUs, and see where that share begins to grow."
    return Finding(
        max(share, 0.01),
        f"By the scaling model of {run['hardware']}, {milliseconds(waiting)} of a step's {milliseconds(step)} "
        f"({percent(share)}) on {case.ranks} are waiting for the slowest GPU and for gradients.",
        try_next,
    )


def nothing_stands_out(case: Case) -> Finding:
    """No single reason; how near it came to the ideal, where there is something to compare with."""
    run = case.run
    rate, step = run["images_per_sec"], run["step_seconds"]
    if run["world_size"] == 1:
        part = max(SPLIT_COLUMNS, key=lambda name: run[name] if run[name] > 0 else 0.0)
        return Finding(
            0.0,
            f"One rank takes {rate:,.0f} images/s; of a step's {milliseconds(step)}, {part.removesuffix('_seconds')} "
            f"takes {milliseconds(run[part])}.",
            "Run the same on 2 GPUs per node, and predict the speedup first.",
        )
    if pd.isna(run["speedup"]):
        batch = run["global_batch_size" if run["scaling"] == "strong" else "batch_size"]
        return Finding(
            0.0,
            f"{case.ranks} take {rate:,.0f} images/s, and there is no run on one rank to compare them with.",
            f"Run the same on one rank, with a batch size of {batch:.0f}.",
        )
    if run["efficiency"] >= NEAR_IDEAL:
        return Finding(
            0.0,
            f"{case.ranks} are {run['speedup']:.2f} times as fast as one, {percent(run['efficiency'])} of the ideal "
            f"{run['world_size']:.0f}: little of a step's {milliseconds(step)} is lost.",
            "Double the number of GPUs, or halve the batch size, until more is.",
        )
    return Finding(
        0.0,
        f"{case.ranks} are {run['speedup']:.2f} times as fast as one, {percent(run['efficiency'])} of the ideal, "
        f"and no single part of a step's {milliseconds(step)} says why.",
        "Repeat both runs three times: the interval of the speedup tells whether that is more than chance.",
    )


def _fixed_forward(case: Case) -> float:
    """Seconds of the forward pass at a batch of none: a line through this run's batch and a larger one of the baseline.

    Only strong scaling has two batches; elsewhere it is not known, and taken as none.
    """
    run, one = case.run, case.baseline
    if one is None or not one["batch_size"] > run["batch_size"] or _shares_cores(case):
        return 0.0
    slope = (one["forward_seconds"] - run["forward_seconds"]) / (one["batch_size"] - run["batch_size"])
    fixed = float(run["forward_seconds"] - slope * run["batch_size"])
    return fixed if fixed > 0 else 0.0


def _slowdown(case: Case) -> float:
    """How many times as long as on one rank the forward pass takes, where both have as many images; 1 elsewhere."""
    run, one = case.run, case.baseline
    if one is None or one["batch_size"] != run["batch_size"] or not one["forward_seconds"] > 0:
        return 1.0
    return max(1.0, float(run["forward_seconds"] / one["forward_seconds"]))


def _shares_cores(case: Case) -> bool:
    return " share " in str(case.run["speed_caveats"])


MEASURED: tuple[Rule, ...] = (
    loader,
    exposed_communication,
    slower_computing,
    small_batch,
    more_ranks_than_cores,
    disturbed,
    long_start,
    stragglers,
    few_steps,
)
