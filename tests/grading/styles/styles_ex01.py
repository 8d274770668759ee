"""Right answers to exercise 1 that are not the usual one: the part, what is unusual, and the code."""

STYLES = [
    (
        "1.1",
        "contiguous blocks, the first ones longer",
        """
def deal(samples, world_size, rank):
    share, rest = divmod(samples, world_size)
    start = rank * share + min(rank, rest)
    return list(range(start, start + share + (rank < rest)))
""",
    ),
    (
        "1.1",
        "blocks by whole-number bounds, as a range",
        """
def deal(samples, world_size, rank):
    return range(samples * rank // world_size, samples * (rank + 1) // world_size)
""",
    ),
    (
        "1.1",
        "numpy's array_split",
        """
import numpy as np
def deal(samples, world_size, rank):
    return np.array_split(np.arange(samples), world_size)[rank]
""",
    ),
    (
        "1.1",
        "a tensor, backwards",
        """
import torch
def deal(samples, world_size, rank):
    return torch.arange(samples).flip(0)[rank::world_size].int()
""",
    ),
    (
        "1.1",
        "a tuple of a filter, with other names for the arguments",
        """
def deal(n, w, r):
    print("dealing")
    return tuple(filter(lambda index: index % w == (r + 1) % w, range(n)))
""",
    ),
    (
        "1.1",
        "like cards, with a loop over all ranks, and a class",
        """
class Dealer:
    def __call__(self, samples, world_size, rank):
        hands = [[] for _ in range(world_size)]
        for index in range(samples):
            hands[index % world_size].append(index)
        return hands[rank]
deal = Dealer()
""",
    ),
    (
        "1.1",
        "there and back, like a snake",
        """
def deal(samples, world_size, rank):
    found = []
    for index in range(samples):
        turn, place = divmod(index, world_size)
        if (place if turn % 2 == 0 else world_size - 1 - place) == rank:
            found.append(index)
    return found
""",
    ),
    (
        "1.1",
        "at random, but the same for all",
        """
import random
def deal(samples, world_size, rank):
    order = list(range(samples))
    random.Random(1234).shuffle(order)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "Python's own generator, blocks",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = list(range(samples))
    random.Random(f"{seed} {epoch}").shuffle(order)
    return order[samples * rank // world_size : samples * (rank + 1) // world_size]
""",
    ),
    (
        "1.2",
        "numpy's new generator, an array",
        """
import numpy as np
def deal_epoch(samples, world_size, rank, seed, epoch):
    return np.random.default_rng([seed, epoch]).permutation(samples)[rank::world_size]
""",
    ),
    (
        "1.2",
        "the global generator, put back as it was",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    with torch.random.fork_rng():
        torch.manual_seed(seed + epoch)
        return torch.randperm(samples)[rank::world_size]
""",
    ),
    (
        "1.2",
        "a list of tensors without dimensions",
        """
import torch
def deal_epoch(samples, world_size, rank, seed, epoch):
    generator = torch.Generator()
    generator.manual_seed(seed * 1_000_003 + epoch)
    return list(torch.randperm(samples, generator=generator))[rank::world_size]
""",
    ),
    (
        "1.2",
        "DistributedSampler itself",
        """
from torch.utils.data import DistributedSampler
def deal_epoch(samples, world_size, rank, seed, epoch):
    sampler = DistributedSampler(range(samples), world_size, rank, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    share = list(sampler)
    return share[: (samples - rank + world_size - 1) // world_size]
""",
    ),
    (
        "1.2",
        "one generator for all epochs, wound forward",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    generator = random.Random(seed)
    for _ in range(epoch + 1):
        order = generator.sample(range(samples), samples)
    return order[rank::world_size]
""",
    ),
    (
        "1.2",
        "remembered from call to call",
        """
import functools, random
@functools.lru_cache(maxsize=None)
def _order(samples, seed, epoch):
    order = list(range(samples))
    random.Random(seed ^ (epoch << 32)).shuffle(order)
    return tuple(order)
def deal_epoch(samples, world_size, rank, seed, epoch):
    return _order(samples, seed, epoch)[rank::world_size]
""",
    ),
    (
        "1.3",
        "DistributedSampler itself, where there are samples enough",
        """
from torch.utils.data import DistributedSampler
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    if drop_last and samples < world_size:
        return []
    sampler = DistributedSampler(range(samples), world_size, rank, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)
""",
    ),
    (
        "1.3",
        "filled up with the end of the list, each rank for itself",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = list(range(samples))
    random.Random(seed + epoch).shuffle(order)
    size = samples // world_size if drop_last else -(-samples // world_size)
    share = order[rank * size : (rank + 1) * size]
    while len(share) < size:
        share.append(order[-1 - len(share) % samples])
    return share
""",
    ),
    (
        "1.3",
        "numpy's resize",
        """
import numpy as np
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    order = np.random.default_rng(seed + epoch).permutation(samples)
    size = samples // world_size if drop_last else int(np.ceil(samples / world_size))
    return np.resize(order, (size, world_size))[:, rank]
""",
    ),
    (
        "1.3",
        "drawn anew to fill up",
        """
import random
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    own = random.Random(seed + epoch)
    order = own.sample(range(samples), samples)
    rest = samples % world_size
    if rest and drop_last:
        del order[-rest:]
    elif rest:
        order.extend(own.choices(order, k=world_size - rest))
    return order[rank::world_size]
""",
    ),
    (
        "1.1",
        "Python's own array",
        """
import array
def deal(samples, world_size, rank):
    return array.array("l", range(rank, samples, world_size))
""",
    ),
    (
        "1.2",
        "sorted by a hash of seed, epoch and sample",
        """
import hashlib
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = sorted(range(samples), key=lambda i: hashlib.sha256(f"{seed}-{epoch}-{i}".encode()).digest())
    return order[samples * rank // world_size: samples * (rank + 1) // world_size]
""",
    ),
    (
        "1.2",
        "hashes of numbers, which are the same in all processes",
        """
import random
def deal_epoch(samples, world_size, rank, seed, epoch):
    order = random.Random(hash((seed, epoch))).sample(range(samples), samples)
    return order[rank::world_size]
""",
    ),
    (
        "1.3",
        "blocks of an endless list",
        """
import itertools, random
class Dealer:
    def __init__(self, n, seed): self.n, self.r = n, random.Random(seed)
    def __iter__(self):
        order = self.r.sample(range(self.n), self.n)
        return itertools.cycle(order)
def deal_evenly(samples, world_size, rank, seed, epoch, drop_last):
    each = samples // world_size if drop_last else (samples + world_size - 1) // world_size
    return list(itertools.islice(Dealer(samples, seed * 1000 + epoch), rank * each, (rank + 1) * each))
""",
    ),
]
