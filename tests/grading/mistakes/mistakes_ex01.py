"""Wrong answers to exercise 1: the part, what is wrong, the fault that is to be found, and the code."""

MISTAKES = [
    (
        "1.1",
        "the rest is nobody's",
        "left-out",
        """
def deal(samples, world_size, rank):
    share = samples // world_size
    return list(range(rank * share, (rank + 1) * share))
""",
    ),
    (
        "1.1",
        "the last rank takes all of the rest",
        "uneven",
        """
def deal(samples, world_size, rank):
    share = samples // world_size
    end = samples if rank == world_size - 1 else (rank + 1) * share
    return list(range(rank * share, end))
""",
    ),
    (
        "1.1",
        "shares are rounded up and overlap nothing, but the last ones stay empty",
        "uneven",
        """
def deal(samples, world_size, rank):
    share = -(-samples // world_size)
    return list(range(samples))[rank * share : (rank + 1) * share]
""",
    ),
    (
        "1.1",
        "all ranks take everything",
        "same-for-all-ranks",
        """
def deal(samples, world_size, rank):
    return list(range(samples))
""",
    ),
    (
        "1.1",
        "it begins one too late",
        "left-out",
        """
def deal(samples, world_size, rank):
    return list(range(rank + 1, samples, world_size))
""",
    ),
    (
        "1.1",
        "samples are counted from 1",
        "out-of-range",
        """
def deal(samples, world_size, rank):
    return list(range(rank + 1, samples + 1, world_size))
""",
    ),
    (
        "1.1",
        "made for two ranks",
        "dealt-twice",
        """
def deal(samples, world_size, rank):
    return list(range(rank % 2, samples, 2))
""",
    ),
    (
        "1.1",
        "neighbours share a border",
        "dealt-twice",
        """
def deal(samples, world_size, rank):
    bounds = [samples * each // world_size for each in range(world_size + 1)]
    return list(range(bounds[rank], min(samples, bounds[rank + 1] + 1)))
""",
    ),
    (
        "1.1",
        "it prints its answer",
        "returns-nothing",
        """
def deal(samples, world_size, rank):
    print(list(range(rank, samples, world_size)))
""",
    ),
    (
        "1.1",
        "it returns how many",
        "type",
        """
def deal(samples, world_size, rank):
    return len(range(rank, samples, world_size))
""",
    ),
    (
        "1.1",
        "a set, which has no order",
        "type",
        """
def deal(samples, world_size, rank):
    return set(range(rank, samples, world_size))
""",
    ),
    (
        "1.1",
        "a mask instead of indices",
        "type",
        """
def deal(samples, world_size, rank):
    return [index % world_size == rank for index in range(samples)]
""",
    ),
    (
        "1.1",
        "a generator",
        "type",
        """
def deal(samples, world_size, rank):
    return (index for index in range(samples) if index % world_size == rank)
""",
    ),
    (
        "1.1",
        "floats",
        "type",
        """
import torch
def deal(samples, world_size, rank):
    return torch.arange(float(rank), samples, world_size)
""",
    ),
    (
        "1.1",
        "at random, each rank for itself",
        "disagree",
        """
import random
def deal(samples, world_size, rank):
    order = list(range(samples))
    random.shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.1",
        "each rank takes from a pile that it keeps",
        "disagree",
        """
pile = []
def deal(samples, world_size, rank):
    if not pile:
        pile.extend(range(samples))
    share = [pile.pop() for _ in range(min(len(pile), samples // world_size))]
    return share
""",
    ),
    (
        "1.1",
        "the ranks have a sample each, not a share",
        "left-out",
        """
def deal(samples, world_size, rank):
    return [rank] if rank < samples else []
""",
    ),
    (
        "1.1",
        "an empty share is an error",
        "error",
        """
def deal(samples, world_size, rank):
    if rank >= samples:
        raise ValueError("too few samples")
    return list(range(rank, samples, world_size))
""",
    ),
    (
        "1.2",
        "not shuffled",
        "same-order",
        """
def deal_epoch(samples, world_size, rank, seed, epoch):
    return list(range(rank, samples, world_size))
""",
    ),
    (
        "1.2",
        "the epoch is not asked for",
        "same-order",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples))
    random.Random(seed).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "the seed is not asked for",
        "seed-ignored",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples))
    random.Random(epoch).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "the seed counts for nothing in epoch 0",
        "seed-ignored",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples))
    random.Random(seed * epoch).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "dealt first, then each share is shuffled",
        "same-shards",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    share = list(range(rank, samples, world_size))
    random.Random(seed + epoch).shuffle(share)
    return share
""",
    ),
    (
        "1.2",
        "each rank shuffles with a seed of its own",
        "dealt-twice",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples))
    random.Random(seed + epoch + 1000 * rank).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "the state of the process decides",
        "disagree",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    return torch.randperm(samples).tolist()[rank::world_size]
""",
    ),
    (
        "1.2",
        "it seeds everybody's generator",
        "global-generator",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    torch.manual_seed(seed + epoch)
    return torch.randperm(samples).tolist()[rank::world_size]
""",
    ),
    (
        "1.2",
        "it seeds everybody's generator in numpy",
        "global-generator",
        """
import numpy as np
def deal_epoch(samples, world_size, rank, seed, epoch):
    np.random.seed(seed + epoch)
    return np.random.permutation(samples)[rank::world_size]
""",
    ),
    (
        "1.2",
        "the samples are turned, not shuffled",
        "not-random",
        """
def deal_epoch(samples, world_size, rank, seed, epoch):
    return [(index + 7 * epoch + seed) % samples for index in range(rank, samples, world_size)]
""",
    ),
    (
        "1.2",
        "at random, but in order",
        "not-random",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    return sorted(order[rank::world_size])
""",
    ),
    (
        "1.2",
        "drawn with repetition",
        "dealt-twice",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    own = random.Random(seed + epoch)
    return [own.randrange(samples) for _ in range(samples)][rank::world_size]
""",
    ),
    (
        "1.3",
        "filled up although it was to be dropped",
        "not-equal",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.3",
        "drop_last the other way round",
        "other-length",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    size = -(-samples // world_size) if drop_last else samples // world_size
    return (order * world_size)[: size * world_size][rank::world_size]
""",
    ),
    (
        "1.3",
        "filled up from a list that is too short",
        "not-equal",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    if drop_last:
        order = order[: samples // world_size * world_size]
    else:
        order += order[: -samples % world_size]
    return order[rank::world_size]
""",
    ),
    (
        "1.3",
        "one sample more than needed where nothing is left over",
        "other-length",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    size = samples // world_size + (0 if drop_last else 1)
    return (order * world_size)[: size * world_size][rank::world_size]
""",
    ),
    (
        "1.3",
        "filled up with -1",
        "out-of-range",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    if drop_last:
        order = order[: samples // world_size * world_size]
    else:
        order += [-1] * (-samples % world_size)
    return order[rank::world_size]
""",
    ),
    (
        "1.3",
        "the last ones are dropped before they are shuffled",
        "same-dropped",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    size = samples // world_size if drop_last else -(-samples // world_size)
    order = (list(range(samples)) * world_size)[: size * world_size]
    random.Random(seed + epoch).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.3",
        "not shuffled",
        "same-order",
        """
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    size = samples // world_size if drop_last else -(-samples // world_size)
    return (list(range(samples)) * world_size)[: size * world_size][rank::world_size]
""",
    ),
    (
        "1.3",
        "filled up with samples while others are missing",
        "left-out",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    size = samples // world_size if drop_last else -(-samples // world_size)
    if not drop_last and samples % world_size:
        order[-1] = order[0]
    return (order * world_size)[: size * world_size][rank::world_size]
""",
    ),
    (
        "1.2",
        "shuffled in a small buffer",
        "not-random",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    own, order = random.Random(seed + epoch), []
    for start in range(0, samples, 6):
        block = list(range(start, min(samples, start + 6)))
        own.shuffle(block)
        order += block
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "shards that stay together and change the rank",
        "same-shards",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples))
    random.Random(seed).shuffle(order)
    share = order[(rank + epoch) % world_size :: world_size]
    random.Random(seed + epoch).shuffle(share)
    return share
""",
    ),
    (
        "1.1",
        "numbers of one byte, which end at 127",
        "out-of-range",
        """
import numpy as np
def deal(samples, world_size, rank):
    return np.arange(rank, samples, world_size, dtype=np.int8)
""",
    ),
    (
        "1.1",
        "only a hundred samples at most",
        "left-out",
        """
def deal(samples, world_size, rank):
    return [i for i in range(min(samples, 100)) if i % world_size == rank]
""",
    ),
    (
        "1.2",
        "the epoch is a factor of the seed",
        "same-order",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    g = torch.Generator().manual_seed(seed * (epoch + 1))
    return torch.randperm(samples, generator=g).tolist()[rank::world_size]
""",
    ),
    (
        "1.2",
        "the hash of a text, which each process has its own of",
        "disagree",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples)); random.Random(hash(f"{seed} {epoch}")).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "the first sample stays the first",
        "not-random",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    g = torch.Generator().manual_seed(seed + epoch)
    order = [0] + (torch.randperm(samples - 1, generator=g) + 1).tolist()
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "blocks are shuffled, not samples",
        "not-random",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    g = torch.Generator().manual_seed(seed + epoch)
    order = list(range(samples))
    blocks = [order[i:i+world_size] for i in range(0, samples, world_size)]
    order = [x for b in torch.randperm(len(blocks), generator=g).tolist() for x in blocks[b]]
    return order[rank::world_size]
""",
    ),
    (
        "1.3",
        "it seeds everybody's generator",
        "global-generator",
        """
import torch
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    torch.manual_seed(seed + epoch)
    order = torch.randperm(samples).tolist()
    total = samples // world_size * world_size if drop_last else -(-samples // world_size) * world_size
    return (order * world_size)[:total][rank::world_size]
""",
    ),
    (
        "1.3",
        "the seed is not asked for",
        "seed-ignored",
        """
import torch
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    g = torch.Generator().manual_seed(epoch)
    order = torch.randperm(samples, generator=g).tolist()
    total = samples // world_size * world_size if drop_last else -(-samples // world_size) * world_size
    return (order * world_size)[:total][rank::world_size]
""",
    ),
    (
        "1.2",
        "seeded back to the first seed, which forgets what was drawn",
        "global-generator",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    old = torch.initial_seed()
    torch.manual_seed(seed + epoch)
    order = torch.randperm(samples)
    torch.manual_seed(old)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "epochs by turns of one order",
        "same-neighbours",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    o = torch.randperm(samples, generator=torch.Generator().manual_seed(seed)).roll(epoch)
    return o[rank::world_size]
""",
    ),
]
