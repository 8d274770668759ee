"""What ranks were dealt by a function: each sample once, fair shares, another order in each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from course_lib.grading.answers import Answer
from course_lib.grading.laws.finding import Finding, counted, counted_were, listed, ranks

Arguments = tuple[int | bool, ...]
SIDE_BY_SIDE = 0.4  # of the samples; in a random order of 40 or more it is hardly one in ten
NEARLY_SORTED = 0.8  # a correlation that 40 samples on 3 ranks or more do not have by chance
Law = Callable[["Deal"], Iterator[Finding]]


@dataclass(frozen=True)
class Deal:
    """What all ranks were dealt by calls that differ in nothing but the rank.

    Fields:
        case: the arguments, without the rank.
        shards: the indices of each rank.
    """

    function: str
    case: Arguments
    shards: list[list[int]]

    @property
    def samples(self) -> int:
        """How many there are to be dealt."""
        return self.case[0]

    @property
    def world_size(self) -> int:
        """To how many ranks."""
        return self.case[1]

    @property
    def words(self) -> str:
        """The call in words."""
        return f"{self.function}({self.samples}, {self.world_size}, …)"


def in_range(deal: Deal) -> Iterator[Finding]:
    """Indices of samples that are there."""
    strange = sorted({index for shard in deal.shards for index in shard if not 0 <= index < deal.samples})
    if strange:
        yield Finding(
            "out-of-range",
            f"{deal.words} dealt {listed(strange, 3)}; the samples are numbered from 0 to {deal.samples - 1}.",
            "What are the first and the last index, and how many are there to share?",
        )


def nobody_left_out(deal: Deal) -> Iterator[Finding]:
    """Each sample is with a rank."""
    missing = sorted(set(range(deal.samples)).difference(*deal.shards))
    if missing:
        yield Finding(
            "left-out",
            f"{deal.words}: no rank got {samples_in_words(missing)}.",
            "Count what all ranks have together. Which samples are nobody's, and where do they stand?",
        )


def no_sample_twice(deal: Deal) -> Iterator[Finding]:
    """No sample is with two ranks, or twice with one."""
    owners: dict[int, list[int]] = {}
    for rank, shard in enumerate(deal.shards):
        for index in shard:
            owners.setdefault(index, []).append(rank)
    twice = {index: both for index, both in owners.items() if len(both) > 1}
    if not twice:
        return
    if deal.world_size > 1 and all(set(shard) == set(deal.shards[0]) for shard in deal.shards):
        yield Finding(
            "same-for-all-ranks",
            f"{deal.words}: all {deal.world_size} ranks got the same {len(deal.shards[0])} samples.",
            "Write down what each rank got. What in your code depends on the rank?",
        )
        return
    index, both = min(twice.items())
    with_whom = f"{ranks(sorted(set(both)))}" + (" twice" if len(set(both)) == 1 else "")
    yield Finding(
        "dealt-twice",
        f"{deal.words}: {counted_were(len(twice), 'sample')} dealt more than once; sample {index} to {with_whom}.",
        "Where does a rank's share begin, and where does that of the one before it end?",
    )


def nearly_equal(deal: Deal) -> Iterator[Finding]:
    """No rank has two samples more than another; where nothing is dealt, nothing is dealt fairly."""
    sizes = [len(shard) for shard in deal.shards]
    if deal.samples and not any(sizes):
        yield Finding("nothing-dealt", f"{deal.words}: no rank got a sample.", "Who reads the samples, if nobody does?")
    elif max(sizes) - min(sizes) > 1:
        yield Finding(
            "uneven",
            f"{deal.words}: the ranks got {listed(sizes)} samples.",
            "All wait for the one with the most. How large is the largest share, if the rest is dealt fairly?",
        )


def equally_many(size: Callable[[int, int], int], rest: str) -> Law:
    """All ranks have `size(samples, world_size)` samples."""

    def law(deal: Deal) -> Iterator[Finding]:
        sizes = [len(shard) for shard in deal.shards]
        wanted = size(deal.samples, deal.world_size)
        if len(set(sizes)) > 1:
            yield Finding(
                "not-equal",
                f"{deal.words}: the ranks got {listed(sizes)} samples, not all the same number.",
                f"A rank that takes a step more waits for ever. What becomes of the rest, if it is {rest}?",
            )
        elif sizes[0] != wanted:
            yield Finding(
                "other-length",
                f"{deal.words}: each rank got {counted(sizes[0], 'sample')}; it should be {wanted}.",
                f"With the rest {rest}, what is the next number that {deal.world_size} divides?",
            )

    return law


def all_of(*laws: Law) -> Law:
    """The first law that does not hold: they are told from causes to what follows from them."""

    def law(deal: Deal) -> Iterator[Finding]:
        for each in laws:
            for finding in each(deal):
                yield finding
                return

    return law


once_each = all_of(in_range, no_sample_twice, nobody_left_out)


padded = all_of(in_range, equally_many(lambda samples, size: -(-samples // size), "filled up"), nobody_left_out)


dropped = all_of(in_range, equally_many(lambda samples, size: samples // size, "dropped"), no_sample_twice)


def reshuffled(deals: Sequence[Deal]) -> Iterator[Finding]:
    """Epochs that follow each other deal anew, and in a random order."""
    for first, second in combinations(deals, 2):
        if first.shards == second.shards:
            yield Finding(
                "same-order",
                f"{first.words}: epochs {first.case[3]} and {second.case[3]} have the same samples in the same order.",
                "What tells the dealer that an epoch is over? Compare the order of two epochs.",
            )
            return
        together = [{frozenset(shard) for shard in deal.shards} for deal in (first, second)]
        if first.world_size > 1 and together[0] == together[1]:
            yield Finding(
                "same-shards",
                f"{first.words}: in epochs {first.case[3]} and {second.case[3]} the same samples are "
                f"together on a rank.",
                "Does a sample ever meet one that a neighbour had? What comes first, shuffling or dealing?",
            )
            return
        followers = [_followers(deal) for deal in (first, second)]
        if len(followers[0] & followers[1]) > SIDE_BY_SIDE * min(map(len, followers)):
            yield Finding(
                "same-neighbours",
                f"{first.words}: in epochs {first.case[3]} and {second.case[3]} most samples come after the same one.",
                "Is it another order, or the same one that begins elsewhere? Can any sample come after any other one?",
            )
            return
    for deal in deals:
        yield from _random_order(deal)


def _followers(deal: Deal) -> set[tuple[int, int]]:
    """Each sample with the one that comes after it on its rank."""
    return {pair for shard in deal.shards for pair in pairwise(shard)}


def _random_order(deal: Deal) -> Iterator[Finding]:
    """The samples of a rank are in no simple order, and not nearly in their own one."""
    simple = any(
        shard == sorted(shard) or _most_common(np.diff(shard) % deal.samples) > len(shard) / 2 for shard in deal.shards
    )
    # Of n samples in a random order this is 0 give or take 1 / √n, and here it is the mean of several ranks'.
    alike = np.mean([np.corrcoef(shard, np.arange(len(shard)))[0, 1] for shard in deal.shards])
    if simple or abs(alike) > NEARLY_SORTED:
        yield Finding(
            "not-random",
            f"{deal.words}: in epoch {deal.case[3]} the samples of each rank still come more or less in their order.",
            "Neighbours in a file are often alike. Can any sample come after any other one?",
        )


def well_mixed(deals: Sequence[Deal]) -> Iterator[Finding]:
    """Each sample may come to any place, whatever comes next to it; these are at least five random deals."""
    where = [{index: place for place, index in _placed(deal)} for deal in deals]
    still = [index for index in where[0] if all(places.get(index) == where[0][index] for places in where)]
    if still:
        yield Finding(
            "not-random",
            f"{deals[0].words}: sample {still[0]} has the same place in all {len(deals)} orders.",
            "Can any sample come to any place, the first one and the last one, too?",
        )
        return
    for deal, places in zip(deals, where, strict=True):
        steps = [np.subtract(places[index + 1], places[index]) for index in places if index + 1 in places]
        if len(steps) and np.unique(steps, axis=0, return_counts=True)[1].max() > SIDE_BY_SIDE * deal.samples:
            yield Finding(
                "not-random",
                f"{deal.words}: in epoch {deal.case[3]} most samples still come next to the one that they come "
                "next to in the data.",
                "Are samples shuffled, or groups of them? Neighbours in a file are often alike.",
            )
            return


def _placed(deal: Deal) -> Iterator[tuple[tuple[int, int], int]]:
    """Each sample, by its rank and its place there."""
    for rank, shard in enumerate(deal.shards):
        for place, index in enumerate(shard):
            yield (rank, place), index


def _most_common(values: np.ndarray) -> int:
    return int(np.unique(values, return_counts=True)[1].max())


def seeded(one: Deal, other: Deal) -> Iterator[Finding]:
    """Another seed deals otherwise."""
    if one.shards == other.shards:
        yield Finding(
            "seed-ignored",
            f"{one.words}: two seeds gave the same order in epoch {one.case[3]}.",
            "Whoever repeats an experiment with another seed wants another order. What does yours depend on?",
        )


def undisturbed(answers: Iterator[Answer]) -> Iterator[Finding]:
    """The global generators of random numbers are left alone."""
    names = sorted({name for answer in answers for name in answer.disturbed})
    if names:
        yield Finding(
            "global-generator",
            f"Calling it changed the state of the global random numbers of {listed(names)}.",
            "Dropout and augmentation draw from them too. Who could have a generator of his own?",
        )


def samples_in_words(indices: Sequence[int]) -> str:
    """Samples in words: "sample 3", "samples 0 and 1"."""
    return f"sample{'s' * (len(indices) != 1)} {listed(indices, 4)}"
