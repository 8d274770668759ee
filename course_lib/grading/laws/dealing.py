"""Each sample goes to one rank in each epoch, and in another order the next time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from course_lib.grading import samples
from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.finding import Finding, counted, counted_were, listed, ranks

Ledger = dict[int, list[list[int | None]]]  # of each rank, for each epoch, the samples in their order


def ledger(evidence: Evidence, epochs: int) -> Ledger:
    """Which samples each rank read in each epoch: its passes are divided into so many equal parts."""
    found: Ledger = {}
    for number, rank in evidence.ranks.items():
        parts = [rank.passes[_of_epoch(len(rank.passes), epoch, epochs)] for epoch in range(epochs)]
        found[number] = [[sample for each in part for sample in samples.ids(each["rows"])] for part in parts]
    return found


def _of_epoch(count: int, epoch: int, epochs: int) -> slice:
    """The part of so many passes or steps that belongs to an epoch."""
    per_epoch = -(-count // epochs)
    return slice(epoch * per_epoch, (epoch + 1) * per_epoch)


def dealt(evidence: Evidence, epochs: int, count: int, global_batch_size: int) -> Iterator[Finding]:
    """All `count` samples are read once an epoch, by any rank; the last may be dropped, or some read again to fill.

    Those may be dropped by which the number of ranks does not divide the samples, or batches that are not full.
    """
    found = next(_dealt(evidence, epochs, count, global_batch_size), None)
    if found is None:
        return
    read = sum(len(event["rows"]) for rank in evidence.ranks.values() for event in rank.passes)
    others = round(read / count)
    if others not in (0, epochs) and _all_read(evidence, others, count):
        yield Finding(
            "number-of-epochs",
            f"{counted(epochs, 'epoch')} were asked for, and each sample was read in {others}.",
            "Which of the program's arguments says how often it goes through the images?",
        )
        return
    yield found


def _all_read(evidence: Evidence, epochs: int, count: int) -> bool:
    """Whether the ranks together read all samples in each of so many epochs."""
    read = ledger(evidence, epochs).values()
    return all(set().union(*(each[epoch] for each in read)) >= {*range(count)} for epoch in range(epochs))


def _dealt(evidence: Evidence, epochs: int, count: int, global_batch_size: int) -> Iterator[Finding]:
    read = ledger(evidence, epochs)
    world_size = len(read)
    for epoch in range(epochs):
        parts = {number: each[epoch] for number, each in read.items()}
        if idle := [number for number, part in parts.items() if not part]:
            yield Finding(
                "idle-rank",
                f"{ranks(idle).capitalize()} read no sample in epoch {epoch}.",
                "Only some workers got work. Does each of them have a data set and a share of it?",
            )
            return
        times = Counter(sample for part in parts.values() for sample in part)
        missing = [sample for sample in range(count) if sample not in times]
        again = sum(times.values()) - len(times)
        # Some may be read again to fill the ranks' shares, or to fill batches where none is left out.
        only_full = _only_full(evidence, epoch, epochs, global_batch_size // world_size)
        too_few = len(missing) >= (global_batch_size if only_full else world_size)
        too_often = again >= (world_size if missing else max(world_size, global_batch_size))
        if (too_few or too_often) and (shared := next(_shared(parts, count), None)):
            yield shared_finding(shared, epoch, count)
            return
        if unknown := times[None]:
            yield Finding(
                "unknown-samples",
                f"In epoch {epoch}, {counted_were(unknown, 'sample')} read that the training set does not have.",
                "What happens to an image between the file and the model?",
            )
            return
        if len(missing) >= global_batch_size or (too_few and not too_often):
            yield Finding(
                "samples-missing",
                f"In epoch {epoch}, {counted_were(len(missing), 'sample')} read by no rank, of {count}.",
                "The shares do not add up to the whole. Is the data divided once, or was a share divided again?",
            )
            return
        if too_often:
            yield Finding(
                "samples-twice",
                f"In epoch {epoch}, {counted_were(again, 'sample')} read by a second rank or again, "
                f"and {len(missing)} by none.",
                "All ranks must agree on how the samples are dealt in this epoch. What do they need to have in common?",
            )
            return


def _only_full(evidence: Evidence, epoch: int, epochs: int, batch_size: int) -> bool:
    """Whether ranks take full batches only, but for one rank at the end: who leaves out the last batch does."""
    rounds = [rank.rounds[_of_epoch(len(rank.rounds), epoch, epochs)] for rank in evidence.ranks.values()]
    sizes = [len(step.rows) for each in rounds for step in each]
    return sum(size < max(batch_size, *sizes) for size in sizes) <= 1


def apart(evidence: Evidence) -> Iterator[Finding]:
    """There is a step in which ranks read different samples: else what they learn together is what each learns."""
    ranks_of = list(evidence.ranks.values())
    for step in range(min((len(rank.rounds) for rank in ranks_of), default=0)):
        if len({tuple(sorted(samples.ids(rank.rounds[step].rows), key=str)) for rank in ranks_of}) > 1:
            return
    if len(ranks_of) > 1:
        yield Finding(
            "same-batches",
            "In each step all ranks read the same samples, so they have the same weights whether they share gradients "
            "or not.",
            "First each image should go to one rank. Then look at the weights again.",
        )


def shared_finding(shared: tuple[int, int, int, bool], epoch: int, count: int) -> Finding:
    """Two ranks that read the same."""
    first, second, same, everything = shared
    if everything:
        return Finding(
            "not-dealt",
            f"Ranks {first} and {second} both read all {count} samples in epoch {epoch}.",
            "Write down which samples each rank reads. Who decides which samples a rank gets?",
        )
    return Finding(
        "same-samples",
        f"Ranks {first} and {second} read the same {same} samples in epoch {epoch}.",
        "Who decides which samples a rank gets, and does it know which rank asks?",
    )


def _shared(parts: dict[int, list[int | None]], count: int) -> Iterator[tuple[int, int, int, bool]]:
    """Two ranks of which most samples are the same: which, how many, and whether each read nearly all there are."""
    for first, second in combinations(parts, 2):
        one, other = set(parts[first]), set(parts[second])
        if (same := len(one & other)) > 0.6 * min(len(one), len(other)) and same > 2:
            yield first, second, same, same > 0.9 * count


def reshuffled(evidence: Evidence, epochs: int) -> Iterator[Finding]:
    """The order is not that of the data set, and another one in the next epoch."""
    read = ledger(evidence, epochs)
    same = [number for number, parts in read.items() if len(parts) > 1 and parts[0] == parts[1] and len(parts[0]) > 2]
    if same:
        yield Finding(
            "not-reshuffled",
            f"{ranks(same).capitalize()} read the same samples in the same order in epochs 0 and 1.",
            "Compare the order of two epochs. How does the one who shuffles know which epoch it is?",
        )
        return
    for number, parts in read.items():
        known = [sample for sample in parts[0] if sample is not None]
        if len(known) > 6 and known == sorted(known):
            yield Finding(
                "not-shuffled",
                f"Rank {number} read its samples in the order of the data set: {listed(known, 5)}.",
                "The single program shuffled. What became of that?",
            )
            return


def batches(evidence: Evidence, batch_size: int) -> Iterator[Finding]:
    """Each rank takes `batch_size` samples a step, but for the last steps of an epoch."""
    for number, rank in evidence.ranks.items():
        sizes = Counter(len(each.rows) for each in rank.rounds)
        if sum(size * times for size, times in sizes.items()) < batch_size:
            continue  # its share is no full batch
        if (most := max(sizes, key=lambda size: (sizes[size], size))) != batch_size:
            yield Finding(
                "batch-size",
                f"Rank {number} took {counted(most, 'sample')} a step; the batch size of one GPU is {batch_size}.",
                "Whose batch size is that number: one rank's, or everybody's?",
            )
            return


def full(evidence: Evidence, global_batch_size: int) -> Iterator[Finding]:
    """No step has fewer samples than the global batch."""
    for step, parts in enumerate(zip(*(rank.rounds for rank in evidence.ranks.values()), strict=False)):
        taken = sum(len(each.rows) for each in parts)
        if taken < global_batch_size:
            yield Finding(
                "incomplete-batch",
                f"In step {step} all ranks together took {counted(taken, 'sample')}; the global batch has "
                f"{global_batch_size}.",
                "What became of a last batch that is not full, on one device?",
            )
            return
