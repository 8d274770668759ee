"""What is right about dealing samples to ranks, and what is not, on any number of samples and ranks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from course_lib.grading.evidence import Evidence
from course_lib.grading.laws.dealing import apart, batches, dealt, reshuffled
from course_lib.grading.sandbox import Process, Record

EPOCHS = 2
Dealer = Callable[[int, int], list[int]]  # of an epoch and a rank

sizes = st.tuples(st.integers(24, 70), st.integers(1, 4), st.integers(1, 5), st.integers(0, 1000))


def evidence(deal: Dealer, world_size: int, batch_size: int) -> Evidence:
    """What ranks would tell that read these samples."""
    processes = []
    for rank in range(world_size):
        events = [{"kind": "group", "rank": rank, "world_size": world_size, "at": 0.0}]
        for epoch in range(EPOCHS):
            for step, part in enumerate(torch.tensor(deal(epoch, rank)).split(batch_size)):
                rows = torch.stack(
                    [torch.zeros(len(part)), torch.full((len(part),), 255.0), part // 256, part % 256], 1
                )
                mark = f"{epoch} {step}"
                events.append(
                    {"kind": "forward", "training": True, "rows": rows, "mark": mark, "weights": None, "at": 1.0}
                )
        processes.append(Process(rank, None, events))
    return Evidence(Record(processes, "ended", 1.0, [], {}))


@given(sizes, st.booleans())
def test_what_the_distributed_sampler_deals_is_right(size: tuple[int, int, int, int], drop_last: bool) -> None:
    count, world_size, batch_size, seed = size

    def deal(epoch: int, rank: int) -> list[int]:
        sampler = DistributedSampler(range(count), world_size, rank, seed=seed, drop_last=drop_last)  # type: ignore[var-annotated, arg-type]
        sampler.set_epoch(epoch)
        return list(sampler)

    seen = evidence(deal, world_size, batch_size)
    found = [
        *dealt(seen, EPOCHS, count, batch_size * world_size),
        *reshuffled(seen, EPOCHS),
        *batches(seen, batch_size),
    ]
    assert found == []
    assert list(apart(seen)) == []


@given(sizes)
def test_ranks_that_all_read_all_share_nothing(size: tuple[int, int, int, int]) -> None:
    count, world_size, batch_size, seed = size
    world_size = max(2, world_size)

    def deal(epoch: int, rank: int) -> list[int]:
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch)).tolist()

    seen = evidence(deal, world_size, batch_size)
    assert [finding.fault for finding in dealt(seen, EPOCHS, count, batch_size * world_size)] == ["not-dealt"]
    assert [finding.fault for finding in apart(seen)] == ["same-batches"]


@given(sizes)
def test_a_share_that_was_divided_again_leaves_samples_out(size: tuple[int, int, int, int]) -> None:
    count, world_size, batch_size, seed = size
    world_size, batch_size = max(2, world_size), min(2, batch_size)

    def deal(epoch: int, rank: int) -> list[int]:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch)).tolist()
        return order[rank::world_size][rank::world_size]

    seen = evidence(deal, world_size, batch_size)
    assert [finding.fault for finding in dealt(seen, EPOCHS, count, batch_size * world_size)] == ["samples-missing"]


@given(sizes)
def test_an_order_that_comes_again_is_not_reshuffled(size: tuple[int, int, int, int]) -> None:
    count, world_size, batch_size, seed = size

    def deal(epoch: int, rank: int) -> list[int]:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
        return order[rank : count // world_size * world_size : world_size]

    seen = evidence(deal, world_size, batch_size)
    assert [finding.fault for finding in reshuffled(seen, EPOCHS)] == ["not-reshuffled"]


@given(sizes)
def test_only_who_takes_full_batches_may_leave_out_a_batch(size: tuple[int, int, int, int]) -> None:
    count, world_size, batch_size, seed = size
    share = count // world_size
    full = share // batch_size * batch_size

    def order(epoch: int, rank: int) -> list[int]:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch)).tolist()
        return order[rank * share : (rank + 1) * share]

    seen = evidence(lambda epoch, rank: order(epoch, rank)[:full], world_size, batch_size)
    assert list(dealt(seen, EPOCHS, count, batch_size * world_size)) == []
    seen = evidence(lambda epoch, rank: order(epoch, rank)[: full - 1], world_size, batch_size)
    if batch_size > 1 and world_size > 1:
        assert [finding.fault for finding in dealt(seen, EPOCHS, count, batch_size * world_size)] == ["samples-missing"]


@given(sizes)
def test_batches_may_come_again_so_that_all_ranks_have_as_many(size: tuple[int, int, int, int]) -> None:
    count, world_size, batch_size, seed = size

    def deal(epoch: int, rank: int) -> list[int]:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch))
        batches = [*order.split(batch_size)]
        batches += batches[: -len(batches) % world_size]
        return torch.cat(batches[rank::world_size]).tolist()

    seen = evidence(deal, world_size, batch_size)
    assert list(dealt(seen, EPOCHS, count, batch_size * world_size)) == []
