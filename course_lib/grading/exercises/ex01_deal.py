"""Exercise 1: deal the data. Which samples a rank takes, so that all together take each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from course_lib.grading.answers import Answer, call_in_processes, failed
from course_lib.grading.laws.finding import Finding
from course_lib.grading.laws.shares import (
    Arguments,
    Deal,
    Law,
    all_of,
    dropped,
    nearly_equal,
    once_each,
    padded,
    reshuffled,
    samples_in_words,
    seeded,
    undisturbed,
    well_mixed,
)
from course_lib.grading.laws.values import integers, of_other_type
from course_lib.grading.parts import Attempt, Broken, Check, Exercise, Part

INDICES = "a list of whole numbers, one for each sample of the rank"
RANK = 2  # the place of `rank` among the arguments of all three functions
EPOCHS = (0, 1, 2)


class Dealings:
    """The answers to all calls of one part: each made in two processes, in which it does not come at the same place."""

    def __init__(self, attempt: Attempt, function: str, cases: Sequence[Arguments]) -> None:
        calls = [(*case[:RANK], rank, *case[RANK:]) for case in cases for rank in range(case[1])]
        there = call_in_processes(attempt, [[(function, [*each]) for each in order] for order in (calls, calls[::-1])])
        self._function = function
        self._answers = [dict(zip(calls, there[0], strict=True)), dict(zip(calls[::-1], there[1], strict=True))]

    def deal(self, case: Arguments) -> Deal:
        """What each rank was dealt, each in another process than its neighbours.

        Raises:
            Broken: one call failed, or gave no list of samples, or the two processes do not agree.
        """
        return Deal(self._function, case, [self._shard((*case[:RANK], rank, *case[RANK:])) for rank in range(case[1])])

    def answers(self) -> Iterator[Answer]:
        """All of them."""
        for each in self._answers:
            yield from each.values()

    def _shard(self, arguments: Arguments) -> list[int]:
        both = []
        for answers in self._answers:
            for finding in failed(self._function, answers[arguments]):
                raise Broken(finding)
            indices = integers(answers[arguments].value)
            if indices is None:
                raise Broken(of_other_type(self._function, answers[arguments].value, INDICES))
            both.append(indices)
        if both[0] != both[1]:
            words = f"{self._function}({', '.join(map(str, arguments))})"
            raise Broken(
                Finding(
                    "disagree",
                    f"Two processes that called {words} got different samples.",
                    "No rank sees what another was dealt. Which of your values is the same in every process?",
                )
            )
        return both[arguments[RANK] % 2]


# The laws, of one deal.


# The laws, of several epochs.


# The checks.


def deals(attempt: Attempt) -> tuple[Dealings, dict[str, Arguments]]:
    """Those of part 1.1: alone, evenly, with a rest, and more ranks than samples."""

    def make() -> tuple[Dealings, dict[str, Arguments]]:
        draw = attempt.random.integers
        world_size = int(draw(4, 7))
        cases: dict[str, Arguments] = {
            "alone": (int(draw(5, 12)), 1),
            "even": (world_size * int(draw(3, 8)), world_size),
            "rest": (world_size * int(draw(4, 9)) + int(draw(2, world_size)), world_size),
            "two": (2 * int(draw(4, 9)) + 1, 2),
            "one over": (world_size * (world_size + int(draw(1, 4))) + 1, world_size),
            "many": (int(draw(300, 400)), 3),
            "few": (int(draw(2, 5)), 6),
        }
        return Dealings(attempt, "deal", list(cases.values())), cases

    return attempt.once("deal", make)


def holds_on_deals(law: Law, *names: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of part 1.1."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        dealings, cases = deals(attempt)
        for name in names:
            yield from law(dealings.deal(cases[name]))

    return judge


def epochs(attempt: Attempt) -> tuple[Dealings, list[Arguments]]:
    """Those of part 1.2: two seeds, each with its epochs. One is 0, from which no factor makes another number."""

    def make() -> tuple[Dealings, list[Arguments]]:
        draw = attempt.random.integers
        samples, world_size = 4 * int(draw(12, 17)) + 1, 4  # one more than can be shared
        seeds = (0, int(draw(1000, 2**30)))
        cases: list[Arguments] = [(samples, world_size, seed, epoch) for seed in seeds for epoch in EPOCHS]
        return Dealings(attempt, "deal_epoch", cases), cases

    return attempt.once("epochs", make)


def once_in_each_epoch(attempt: Attempt) -> Iterator[Finding]:
    """Part 1.2: each sample once, whoever is asked."""
    dealings, cases = epochs(attempt)
    law = all_of(once_each, nearly_equal)
    for case in cases:
        yield from law(dealings.deal(case))


def another_order_each_epoch(attempt: Attempt) -> Iterator[Finding]:
    """Part 1.2: dealt anew."""
    dealings, cases = epochs(attempt)
    found = [dealings.deal(case) for case in cases]
    count = len(EPOCHS)
    yield from reshuffled(found[:count])
    for one, other in zip(found[:count], found[count:], strict=True):
        yield from seeded(one, other)
    yield from well_mixed(found)


def leaves_generators_alone(attempt: Attempt) -> Iterator[Finding]:
    """Part 1.2: its random numbers are its own."""
    dealings, cases = epochs(attempt)
    deal = dealings.deal(cases[0])
    if not any(deal.shards):  # nothing can be said of a function that does nothing
        yield from nearly_equal(deal)
    yield from undisturbed(dealings.answers())


def evenly(attempt: Attempt) -> tuple[Dealings, dict[str, list[Arguments]]]:
    """Those of part 1.3, by what is special: without a rest, with one, with fewer samples than ranks; some epochs."""

    def make() -> tuple[Dealings, dict[str, list[Arguments]]]:
        draw = attempt.random.integers
        world_size, seed = 4, int(draw(2**30))
        even, rest, few = 4 * int(draw(9, 13)), 4 * int(draw(12, 16)) + int(draw(2, 4)), 2
        cases: dict[str, list[Arguments]] = {}
        for drop in (False, True):
            cases[f"even {drop}"] = [(even, world_size, seed, 0, drop)]
            cases[f"rest {drop}"] = [(rest, world_size, seed, epoch, drop) for epoch in EPOCHS]
            cases[f"seed {drop}"] = [(rest, world_size, seed + int(draw(1000, 2**30)), 0, drop)]
            cases[f"alone {drop}"] = [(7, 1, seed, 0, drop)]
            cases[f"few {drop}"] = [(few, int(draw(5, 7)), seed, 1, drop)]
        return Dealings(attempt, "deal_evenly", [case for each in cases.values() for case in each]), cases

    return attempt.once("evenly", make)


def holds_evenly(law: Law, *names: str) -> Callable[[Attempt], Iterator[Finding]]:
    """A check of part 1.3."""

    def judge(attempt: Attempt) -> Iterator[Finding]:
        dealings, cases = evenly(attempt)
        for name in names:
            for case in cases[name]:
                yield from law(dealings.deal(case))

    return judge


def more_ranks_than_samples(attempt: Attempt) -> Iterator[Finding]:
    """Part 1.3: some samples to several ranks, or nothing to anybody."""
    yield from holds_evenly(padded, "few False")(attempt)
    yield from holds_evenly(dropped, "few True")(attempt)


def anew_each_epoch(attempt: Attempt) -> Iterator[Finding]:
    """Part 1.3: shuffled as in 1.2, and not always the same samples left out."""
    dealings, cases = evenly(attempt)
    for drop in (False, True):
        epochs = [dealings.deal(case) for case in cases[f"rest {drop}"]]
        yield from reshuffled(epochs)
        yield from seeded(epochs[0], dealings.deal(cases[f"seed {drop}"][0]))
    yield from undisturbed(dealings.answers())
    found = [dealings.deal(case) for case in cases["rest True"]]
    out = [set(range(deal.samples)).difference(*deal.shards) for deal in found]
    if all(each == out[0] for each in out):
        yield Finding(
            "same-dropped",
            f"{found[0].words}: {samples_in_words(sorted(out[0]))} never take part, in none of {len(out)} epochs.",
            "A sample that is left out in one epoch should have its turn in another. What is dropped first?",
        )


PARTS = (
    Part(
        "1.1",
        "A share for each rank",
        ("deal",),
        (
            Check(
                "each sample goes to one rank",
                2,
                holds_on_deals(once_each, "alone", "even", "two", "rest", "one over", "many"),
            ),
            Check(
                "no rank gets two samples more than another",
                1,
                holds_on_deals(nearly_equal, "even", "two", "rest", "one over"),
            ),
            Check("so it is with fewer samples than ranks", 1, holds_on_deals(all_of(once_each, nearly_equal), "few")),
        ),
        (
            "Take pencil and paper: deal 10 samples to 4 ranks as you would deal cards. Which are rank 1's?",
            "From one sample of a rank to its next it is always the same distance. Which, and where does it begin?",
            "`range` takes a start, an end and a step. Nobody needs to know how many samples each rank will have.",
        ),
        names=("deal",),
    ),
    Part(
        "1.2",
        "Another order in each epoch",
        ("deal_epoch",),
        (
            Check("each sample goes to one rank in each epoch", 2, once_in_each_epoch),
            Check("epochs and seeds have orders of their own", 2, another_order_each_epoch),
            Check("the global random numbers are left alone", 1, leaves_generators_alone),
        ),
        (
            "All ranks must shuffle alike without speaking to each other. What do they all know?",
            "Shuffle all samples first, with what all ranks know; then deal the shuffled list as before.",
            "`torch.Generator().manual_seed(…)` is a generator of your own, and `torch.randperm` takes "
            "one. Its seed has "
            "to follow from both the seed and the epoch.",
        ),
        names=("deal_epoch",),
    ),
    Part(
        "1.3",
        "Equally many for all",
        ("deal_evenly",),
        (
            Check(
                "filled up: all ranks have as many, and no sample is missing",
                2,
                holds_evenly(padded, "even False", "rest False", "alone False"),
            ),
            Check(
                "dropped: all ranks have as many, and no sample comes twice",
                2,
                holds_evenly(dropped, "even True", "rest True", "alone True"),
            ),
            Check("so it is with fewer samples than ranks", 1, more_ranks_than_samples),
            Check("dealt anew in each epoch, as in 1.2", 1, anew_each_epoch),
        ),
        (
            "Change the shuffled list before it is dealt, so that the ranks divide its length.",
            "To drop, cut its end off; to fill up, put some of its own samples at its end.",
            "How long is it then? `samples // world_size` and `math.ceil(samples / world_size)` tell how "
            "many a rank has. "
            "With 2 samples and 5 ranks, one copy of the list is not enough to fill up.",
        ),
        names=("deal_evenly",),
    ),
)
EXERCISE = Exercise("01_deal_the_data", "Deal the data", PARTS)
