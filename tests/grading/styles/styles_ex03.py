"""Right answers to exercise 3 that are not the usual one: the part, what is unusual, and the code."""

STYLES = [
    (
        "3.1",
        "bounds by whole numbers",
        """
def chunks(tensor, world_size):
    bounds = [len(tensor) * rank // world_size for rank in range(world_size + 1)]
    return tuple(tensor[start:end].clone() for start, end in zip(bounds, bounds[1:]))
""",
    ),
    (
        "3.1",
        "numpy's array_split",
        """
import numpy as np, torch
def chunks(tensor, world_size):
    return [torch.from_numpy(each) for each in np.array_split(tensor.numpy(), world_size)]
""",
    ),
    (
        "3.1",
        "sizes first, the last ones longer",
        """
def chunks(tensor, world_size):
    share, rest = divmod(len(tensor), world_size)
    return list(tensor.split([share + (rank >= world_size - rest) for rank in range(world_size)]))
""",
    ),
    (
        "3.2",
        "even ranks send first, odd ones receive first; and it begins with another chunk",
        """
import torch, torch.distributed as dist
def reduce_scatter(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(1, size):
        out, into = (rank - step) % size, (rank - step - 1) % size
        arrived = torch.zeros_like(pieces[into])
        if rank % 2 == 0:
            waiting = dist.isend(pieces[out], (rank + 1) % size)
            dist.recv(arrived, src=(rank - 1) % size)
            waiting.wait()
        else:
            waiting = dist.irecv(arrived, src=(rank - 1) % size)
            dist.send(pieces[out], dst=(rank + 1) % size)
            waiting.wait()
        pieces[into] = pieces[into] + arrived
    return [rank, pieces[rank]]
""",
    ),
    (
        "3.2",
        "batch_isend_irecv",
        """
import torch, torch.distributed as dist
def reduce_scatter(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    pieces = [each.clone() for each in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        arrived = torch.empty_like(pieces[into])
        both = [
            dist.P2POp(dist.isend, pieces[out], (rank + 1) % size),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        pieces[into] += arrived
    return torch.tensor((rank + 1) % size), pieces[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "received from whoever sends, and nothing is said about empty chunks",
        """
import torch, torch.distributed as dist
def reduce_scatter(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    pieces = [each.clone() for each in chunks(tensor, size)]
    carry = pieces[rank]
    for step in range(size - 1):
        into = (rank - step - 1) % size
        arrived = torch.empty_like(pieces[into])
        waiting = dist.isend(carry, (rank + 1) % size) if len(carry) else None
        if len(arrived):
            dist.recv(arrived)
        if waiting:
            waiting.wait()
        carry = arrived.add_(pieces[into])
    return (rank + 1) % size, carry
""",
    ),
    (
        "3.3",
        "in one function, on views of the tensor, and it returns the tensor",
        """
import torch, torch.distributed as dist
def ring_all_reduce(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    pieces = torch.tensor_split(tensor, size)
    for step in range(2 * (size - 1)):
        out, into = (rank - step) % size, (rank - step - 1) % size
        arrived = torch.empty_like(pieces[into])
        waiting = dist.isend(pieces[out].contiguous(), (rank + 1) % size)
        dist.recv(arrived, (rank - 1) % size)
        waiting.wait()
        if step < size - 1:
            pieces[into].add_(arrived)
        else:
            pieces[into].copy_(arrived)
    return tensor
""",
    ),
    (
        "3.3",
        "put together at the end",
        """
import torch, torch.distributed as dist
def ring_all_reduce(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    number, chunk = reduce_scatter(tensor)
    found = {number: chunk.clone()}
    shapes = chunks(tensor, size)
    for _ in range(size - 1):
        before = (number - 1) % size
        arrived = torch.empty_like(shapes[before])
        waiting = dist.irecv(arrived, (rank - 1) % size)
        dist.isend(found[number], (rank + 1) % size).wait()
        waiting.wait()
        found[before], number = arrived, before
    tensor[:] = torch.cat([found[place] for place in range(size)])
""",
    ),
    (
        "3.4",
        "by adding up",
        """
def traffic(length, bytes_per_value, world_size):
    messages = total = 0
    for _ in ("add up", "pass on"):
        for _ in range(world_size - 1):
            messages += world_size
            total += length * bytes_per_value
    return [messages, total]
""",
    ),
    (
        "3.4",
        "as floats and tensors",
        """
import torch
def traffic(length, bytes_per_value, world_size):
    return torch.tensor(2 * world_size * (world_size - 1)), 2.0 * (world_size - 1) * length * bytes_per_value
""",
    ),
    (
        "3.2",
        "a thread that sends",
        """
import torch, torch.distributed as dist, numpy as np

def reduce_scatter(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    nxt, prv = (rank + 1) % size, (rank - 1) % size
    parts = [c.clone() for c in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        got = torch.empty_like(parts[into])

        import threading
        t = threading.Thread(target=dist.send, args=(parts[out], nxt)); t.start()
        dist.recv(got, prv); t.join()

        parts[into] += got
    return (rank + 1) % size, parts[(rank + 1) % size]
""",
    ),
    (
        "3.2",
        "a pool of threads",
        """
import torch, torch.distributed as dist, numpy as np

def reduce_scatter(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    nxt, prv = (rank + 1) % size, (rank - 1) % size
    parts = [c.clone() for c in chunks(tensor, size)]
    for step in range(size - 1):
        out, into = (rank - step) % size, (rank - step - 1) % size
        got = torch.empty_like(parts[into])

        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(2) as pool:
            a, b = pool.submit(dist.send, parts[out], nxt), pool.submit(dist.recv, got, prv)
        a.result(); b.result()

        parts[into] += got
    return (rank + 1) % size, parts[(rank + 1) % size]
""",
    ),
    (
        "3.3",
        "threads",
        """
import torch, torch.distributed as dist, numpy as np

import threading
def ring_all_reduce(tensor):
    r, n = dist.get_rank(), dist.get_world_size()
    i, full = reduce_scatter(tensor)
    have = {i: full}
    for s in range(n - 1):
        got = torch.empty_like(chunks(tensor, n)[(i - s - 1) % n])
        t = threading.Thread(target=dist.send, args=(have[(i - s) % n],), kwargs={"dst": (r + 1) % n}); t.start()
        dist.recv(got, (r - 1) % n); t.join()
        have[(i - s - 1) % n] = got
    tensor[:] = torch.cat([have[k] for k in sorted(have)])
    return tensor
""",
    ),
    (
        "3.3",
        "padded to equal chunks",
        """
import torch, torch.distributed as dist, numpy as np

def ring_all_reduce(tensor):
    r, n = dist.get_rank(), dist.get_world_size()
    k = -(-len(tensor) // n)
    buf = torch.zeros(k * n, dtype=tensor.dtype); buf[: len(tensor)] = tensor
    parts = buf.view(n, k)
    for s in range(2 * n - 2):
        a, b = (r - s) % n, (r - s - 1) % n
        got = torch.empty(k, dtype=tensor.dtype)
        w = dist.isend(parts[a], (r + 1) % n); dist.recv(got, (r - 1) % n); w.wait()
        parts[b] = parts[b] + got if s < n - 1 else got
    tensor.copy_(buf[: len(tensor)])
""",
    ),
]
