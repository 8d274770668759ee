"""Right answers to exercise 2 that are not the usual one: the part, what is unusual, and the code."""

STYLES = [
    (
        "2.1",
        "weights first",
        """
import torch
def mean_gradient(gradients, sizes):
    weights = torch.tensor(sizes, dtype=gradients[0].dtype)
    return torch.tensordot(weights / weights.sum(), torch.stack(gradients), dims=1)
""",
    ),
    (
        "2.1",
        "sample by sample",
        """
import torch
def mean_gradient(gradients, sizes):
    each = [gradient for gradient, size in zip(gradients, sizes) for _ in range(size)]
    return torch.stack(each).mean(0)
""",
    ),
    (
        "2.1",
        "a running mean",
        """
import torch
def mean_gradient(gradients, sizes):
    mean, seen = torch.zeros_like(gradients[0]), 0
    for gradient, size in zip(gradients, sizes):
        if size:
            seen += size
            mean += (gradient - mean) * (size / seen)
    return mean
""",
    ),
    (
        "2.1",
        "numpy, and back to the type",
        """
import numpy as np, torch
def mean_gradient(gradients, sizes):
    mean = np.average(np.stack([each.numpy() for each in gradients]), axis=0, weights=sizes)
    return torch.from_numpy(mean).to(gradients[0].dtype)
""",
    ),
    (
        "2.1",
        "a parameter, whole numbers as float64",
        """
import torch
def mean_gradient(gradients, sizes):
    total = sum(each.double() * size for each, size in zip(gradients, sizes))
    return torch.nn.Parameter((total / sum(sizes)).type_as(gradients[0]))
""",
    ),
    (
        "2.2",
        "one flat vector, with the number of samples at its end",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    trained = [each for each in model.parameters() if each.requires_grad]
    flat = [torch.zeros(each.numel()) if each.grad is None else each.grad.flatten() * samples for each in trained]
    flat = torch.cat([*flat, torch.tensor([float(samples)])])
    dist.all_reduce(flat)
    parts = (flat[:-1] / flat[-1]).split([each.numel() for each in trained])
    for each, part in zip(trained, parts):
        each.grad = part.view_as(each).clone()
""",
    ),
    (
        "2.2",
        "the mean, undone and done again",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    mean_samples = torch.tensor(float(samples)); dist.all_reduce(mean_samples, op=dist.ReduceOp.AVG)
    for each in model.parameters():
        if each.requires_grad:
            grad = each.grad if each.grad is not None else torch.zeros_like(each)
            grad = grad * samples / mean_samples
            dist.all_reduce(grad, op=dist.ReduceOp.AVG)
            each.grad = grad
""",
    ),
    (
        "2.2",
        "all at once, waited for later",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor([samples]); waiting = [dist.all_reduce(total, async_op=True)]
    for each in filter(lambda each: each.requires_grad, model.parameters()):
        if each.grad is None:
            each.grad = torch.zeros_like(each)
        each.grad.mul_(samples)
        waiting.append(dist.all_reduce(each.grad, async_op=True))
    for work in waiting:
        work.wait()
    for each in model.parameters():
        if each.grad is not None:
            each.grad.div_(total)
""",
    ),
    (
        "2.2",
        "gathered by everybody",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    own = {name: each.grad for name, each in model.named_parameters()}
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, (samples, own))
    for name, each in model.named_parameters():
        if each.requires_grad:
            total = sum(count for count, _ in everybody)
            each.grad = sum(grads[name] * count for count, grads in everybody if count) / total
""",
    ),
    (
        "2.2",
        "rank 0 averages and tells the others",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.tensor(float(samples)); dist.reduce(total, 0)
    for each in model.parameters():
        if not each.requires_grad:
            continue
        share = torch.zeros_like(each) if each.grad is None else each.grad * samples
        parts = [torch.empty_like(share) for _ in range(size)] if rank == 0 else None
        dist.gather(share, parts, dst=0)
        if rank == 0:
            share = sum(parts) / total
        dist.broadcast(share, 0)
        each.grad = share
""",
    ),
    (
        "2.3",
        "parameters and buffers, without their history",
        """
import torch, torch.distributed as dist
from itertools import chain
@torch.no_grad()
def same_start(model):
    for tensor in chain(model.parameters(), model.buffers()):
        dist.broadcast(tensor, src=0)
""",
    ),
    (
        "2.3",
        "the whole state as an object",
        """
import torch.distributed as dist
def same_start(model):
    box = [model.state_dict()]
    dist.broadcast_object_list(box, src=0)
    model.load_state_dict(box[0])
    return model
""",
    ),
    (
        "2.3",
        "others add zeros",
        """
import torch.distributed as dist
def same_start(model):
    for tensor in model.state_dict().values():
        if dist.get_rank() != 0:
            tensor.zero_()
        dist.all_reduce(tensor)
""",
    ),
    (
        "2.3",
        "from neighbour to neighbour",
        """
import torch.distributed as dist
def same_start(model):
    rank, size = dist.get_rank(), dist.get_world_size()
    for tensor in model.state_dict().values():
        if rank > 0:
            dist.recv(tensor, rank - 1)
        if rank < size - 1:
            dist.send(tensor, rank + 1)
""",
    ),
    (
        "2.4",
        "the loss is scaled before the backward pass",
        """
import torch, torch.distributed as dist
from torch.nn.functional import cross_entropy
def train_step(model, optimizer, images, labels):
    total = torch.tensor(len(images)); dist.all_reduce(total)
    model.zero_grad(set_to_none=False)
    loss = cross_entropy(model(images), labels, reduction="sum") / total
    loss.backward()
    for each in model.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
    whole = loss.detach().clone(); dist.all_reduce(whole)
    return whole
""",
    ),
    (
        "2.4",
        "everybody has the whole batch",
        """
import torch, torch.distributed as dist
from torch.nn.functional import cross_entropy
def train_step(model, optimizer, images, labels):
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, (images, labels))
    images, labels = (torch.cat([share[place] for share in shares]) for place in (0, 1))
    loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
""",
    ),
    (
        "2.4",
        "DDP, with a loss that knows the shares",
        """
import torch, torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
wrapped = {}
def train_step(model, optimizer, images, labels):
    if id(model) not in wrapped:
        wrapped[id(model)] = DistributedDataParallel(model)
    total = torch.tensor(float(len(images))); dist.all_reduce(total)
    loss = cross_entropy(wrapped[id(model)](images), labels)
    optimizer.zero_grad()
    (loss * len(images) * dist.get_world_size() / total).backward()
    optimizer.step()
    whole = loss.detach() * len(images) / total; dist.all_reduce(whole)
    return float(whole)
""",
    ),
    (
        "2.1",
        "halves of halves",
        """
def mean_gradient(gradients, sizes):
    if len(gradients) == 1: return gradients[0].clone()
    h = len(gradients) // 2
    a, b = sum(sizes[:h]), sum(sizes[h:])
    if not a: return mean_gradient(gradients[h:], sizes[h:])
    if not b: return mean_gradient(gradients[:h], sizes[:h])
    return mean_gradient(gradients[:h], sizes[:h]).lerp(mean_gradient(gradients[h:], sizes[h:]), b / (a + b))
""",
    ),
    (
        "2.3",
        "DDP's constructor",
        """
from torch.nn.parallel import DistributedDataParallel
def same_start(model):
    DistributedDataParallel(model)
""",
    ),
    (
        "2.4",
        "a closure",
        """
def train_step(model, optimizer, images, labels):
    seen = []
    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels); loss.backward()
        average_gradients(model, len(images))
        seen.append(loss.item())
        return loss
    optimizer.step(closure)
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, (seen[0], len(images)))
    return sum(l * n for l, n in out) / sum(n for _, n in out)
""",
    ),
]
