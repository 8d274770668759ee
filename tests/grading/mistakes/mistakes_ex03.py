"""Wrong answers to exercise 3: the part, what is wrong, the fault that is to be found, and the code."""

HEAD = """
import torch
import torch.distributed as dist
def _me():
    return dist.get_rank(), dist.get_world_size()
def _swap(chunk, like, forward=1):
    rank, size = _me()
    arrived = torch.empty_like(like)
    sending = dist.isend(chunk.contiguous(), (rank + forward) % size)
    dist.recv(arrived, (rank - forward) % size)
    sending.wait()
    return arrived
"""

MISTAKES = [
    (
        "3.1",
        "torch.chunk gives fewer",
        "number-of-chunks",
        """
import torch
def chunks(tensor, world_size):
    return list(torch.chunk(tensor, world_size))
""",
    ),
    (
        "3.1",
        "the rest is in no chunk",
        "not-the-tensor",
        """
def chunks(tensor, world_size):
    size = len(tensor) // world_size
    return [tensor[rank * size : (rank + 1) * size] for rank in range(world_size)]
""",
    ),
    (
        "3.1",
        "the last chunk has all of the rest",
        "uneven",
        """
def chunks(tensor, world_size):
    size = len(tensor) // world_size
    ends = [rank * size for rank in range(world_size)] + [len(tensor)]
    return [tensor[start:end] for start, end in zip(ends, ends[1:])]
""",
    ),
    (
        "3.1",
        "a chunk more for the rest",
        "number-of-chunks",
        """
import torch
def chunks(tensor, world_size):
    return list(torch.split(tensor, max(1, len(tensor) // world_size)))
""",
    ),
    (
        "3.1",
        "dealt like cards",
        "not-the-tensor",
        """
def chunks(tensor, world_size):
    return [tensor[rank::world_size] for rank in range(world_size)]
""",
    ),
    (
        "3.1",
        "filled up with zeros",
        "not-the-tensor",
        """
import torch
def chunks(tensor, world_size):
    size = -(-len(tensor) // world_size)
    return list(torch.cat([tensor, tensor.new_zeros(size * world_size - len(tensor))]).view(world_size, size))
""",
    ),
    (
        "3.1",
        "lists of numbers",
        "type",
        """
import torch
def chunks(tensor, world_size):
    return [each.tolist() for each in torch.tensor_split(tensor, world_size)]
""",
    ),
    (
        "3.1",
        "it scales the tensor on the way",
        "changes-arguments",
        """
import torch
def chunks(tensor, world_size):
    pieces = [each.clone() for each in torch.tensor_split(tensor, world_size)]
    tensor /= world_size
    return pieces
""",
    ),
    (
        "3.2",
        "dist.all_reduce does it",
        "other-collectives",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    total = tensor.clone()
    dist.all_reduce(total)
    return rank, chunks(total, size)[rank]
""",
    ),
    (
        "3.2",
        "everything to rank 0 and back",
        "not-a-ring",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    if rank:
        dist.send(tensor, 0)
        total = torch.empty_like(tensor)
        dist.recv(total, 0)
    else:
        total = tensor.clone()
        for other in range(1, size):
            arrived = torch.empty_like(tensor)
            dist.recv(arrived, other)
            total += arrived
        for other in range(1, size):
            dist.send(total, other)
    return rank, chunks(total, size)[rank]
""",
    ),
    (
        "3.2",
        "all send first",
        "hang",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        arrived = torch.empty_like(pieces[into])
        dist.send(pieces[out], (rank + 1) % size)
        dist.recv(arrived, (rank - 1) % size)
        pieces[into] += arrived
    return (rank + 1) % size, pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "a round too few",
        "not-complete",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(max(0, size - 2)):
        out, into = (rank - step) % size, (rank - step - 1) % size
        pieces[into] += _swap(pieces[out], pieces[into])
    return (rank + 1) % size, pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "a round too many",
        "number-of-messages",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        pieces[into] += _swap(pieces[out], pieces[into])
    if size > 1:
        _swap(pieces[rank], pieces[(rank - 1) % size])
    return (rank + 1) % size, pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "the same chunk is sent in each round",
        "not-complete",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    own = chunks(tensor, size)
    pieces = [each.clone() for each in own]
    for step in range(size - 1):
        into = (rank - 1) % size
        arrived = _swap(pieces[rank], pieces[into])
        pieces[into] += arrived if len(pieces[rank]) == len(pieces[into]) else 0
    return (rank + 1) % size, pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "the wrong number for the right chunk",
        "not-complete",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        pieces[into] += _swap(pieces[out], pieces[into])
    return rank, pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "every rank says 0",
        "whose-chunk",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        pieces[into] += _swap(pieces[out], pieces[into])
    return 0, pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "whole tensors go round",
        "whole-tensor",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    total, passing = tensor.clone(), tensor
    for _ in range(size - 1):
        passing = _swap(passing, tensor)
        total += passing
    return rank, chunks(total, size)[rank]
""",
    ),
    (
        "3.2",
        "the chunk alone",
        "type",
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        pieces[into] += _swap(pieces[out], pieces[into])
    return pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "a buffer of the sent chunk's size for what arrives",
        None,
        HEAD
        + """
def reduce_scatter(tensor):
    rank, size = _me()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        pieces[into] += _swap(pieces[out], pieces[out])
    return (rank + 1) % size, pieces[(rank + 1) % size]
""",
    ),
    (
        "3.3",
        "a new tensor instead of the given one",
        "not-in-place",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    number, chunk = reduce_scatter(tensor)
    pieces = [each.clone() for each in chunks(tensor, size)]
    pieces[number] = chunk
    for _ in range(size - 1):
        into = (number - 1) % size
        pieces[into] = _swap(pieces[number], pieces[into])
        number = into
    return torch.cat(pieces)
""",
    ),
    (
        "3.3",
        "what arrives is added once more",
        "wrong-sum",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    number, chunk = reduce_scatter(tensor)
    pieces = chunks(tensor, size)
    pieces[number].copy_(chunk)
    for _ in range(size - 1):
        into = (number - 1) % size
        pieces[into] += _swap(pieces[number], pieces[into])
        number = into
""",
    ),
    (
        "3.3",
        "only the own chunk is written",
        "wrong-sum",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    number, chunk = reduce_scatter(tensor)
    chunks(tensor, size)[number].copy_(chunk)
""",
    ),
    (
        "3.3",
        "divided by the ranks",
        "wrong-sum",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    number, chunk = reduce_scatter(tensor)
    pieces = chunks(tensor, size)
    pieces[number].copy_(chunk / size)
    for _ in range(size - 1):
        into = (number - 1) % size
        pieces[into].copy_(_swap(pieces[number], pieces[into]))
        number = into
""",
    ),
    (
        "3.3",
        "dist.all_reduce does it",
        "other-collectives",
        HEAD
        + """
def ring_all_reduce(tensor):
    dist.all_reduce(tensor)
""",
    ),
    (
        "3.3",
        "broadcasts instead of the second half",
        "other-collectives",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    number, chunk = reduce_scatter(tensor)
    pieces = chunks(tensor, size)
    pieces[number].copy_(chunk)
    for each in range(size):
        dist.broadcast(pieces[each], (each - 1) % size)
""",
    ),
    (
        "3.3",
        "whole tensors go round",
        "whole-tensor",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    passing = tensor.clone()
    for _ in range(size - 1):
        passing = _swap(passing, tensor)
        tensor += passing
""",
    ),
    (
        "3.3",
        "made for two ranks",
        "wrong-sum",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    if size > 1:
        tensor += _swap(tensor, tensor)
""",
    ),
    (
        "3.3",
        "whole numbers go through float32",
        "wrong-sum",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    values = tensor.float()
    number, chunk = reduce_scatter(values)
    pieces = chunks(values, size)
    pieces[number].copy_(chunk)
    for _ in range(size - 1):
        into = (number - 1) % size
        pieces[into].copy_(_swap(pieces[number], pieces[into]))
        number = into
    tensor.copy_(values)
""",
    ),
    (
        "3.3",
        "each value for itself",
        "number-of-messages",
        HEAD
        + """
def ring_all_reduce(tensor):
    rank, size = _me()
    own = tensor.clone()
    for place in range(len(tensor)):
        passing = own[place : place + 1].clone()
        for _ in range(size - 1):
            passing = _swap(passing, passing)
            tensor[place : place + 1] += passing
""",
    ),
    (
        "3.4",
        "of one rank",
        "one-rank",
        """
def traffic(length, bytes_per_value, world_size):
    return 2 * (world_size - 1), 2 * (world_size - 1) * length * bytes_per_value / world_size
""",
    ),
    (
        "3.4",
        "one half only",
        "one-phase",
        """
def traffic(length, bytes_per_value, world_size):
    return world_size * (world_size - 1), (world_size - 1) * length * bytes_per_value
""",
    ),
    (
        "3.4",
        "values, not bytes",
        "values-not-bytes",
        """
def traffic(length, bytes_per_value, world_size):
    return 2 * world_size * (world_size - 1), 2 * (world_size - 1) * length
""",
    ),
    (
        "3.4",
        "W rounds instead of W - 1",
        "wrong-count",
        """
def traffic(length, bytes_per_value, world_size):
    return 2 * world_size * world_size, 2 * world_size * length * bytes_per_value
""",
    ),
    (
        "3.4",
        "each message is the whole tensor",
        "wrong-count",
        """
def traffic(length, bytes_per_value, world_size):
    messages = 2 * world_size * (world_size - 1)
    return messages, messages * length * bytes_per_value
""",
    ),
    (
        "3.4",
        "one number",
        "type",
        """
def traffic(length, bytes_per_value, world_size):
    return 2 * world_size * (world_size - 1)
""",
    ),
    (
        "3.1",
        "whole numbers become floats",
        "dtype",
        """
import torch
def chunks(tensor, world_size):
    return [c.float() for c in torch.tensor_split(tensor, world_size)]
""",
    ),
    (
        "3.3",
        "short ones by all_reduce",
        "other-collectives",
        """
import torch, torch.distributed as dist, numpy as np

def ring_all_reduce(tensor, inner=ring_all_reduce):
    if len(tensor) < dist.get_world_size(): dist.all_reduce(tensor)
    else: inner(tensor)
""",
    ),
]
