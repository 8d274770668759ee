"""Wrong answers to exercise 2: the part, what is wrong, the fault that is to be found, and the code."""

MISTAKES = [
    (
        "2.1",
        "the plain mean",
        "mean-of-means",
        """
import torch
def mean_gradient(gradients, sizes):
    return torch.stack(gradients).mean(0)
""",
    ),
    (
        "2.1",
        "the plain mean of those that have samples",
        "mean-of-means",
        """
import torch
def mean_gradient(gradients, sizes):
    return torch.stack([each for each, size in zip(gradients, sizes) if size]).mean(0)
""",
    ),
    (
        "2.1",
        "the sum",
        "wrong-mean",
        """
def mean_gradient(gradients, sizes):
    return sum(gradients)
""",
    ),
    (
        "2.1",
        "the sum over all samples",
        "not-divided",
        """
def mean_gradient(gradients, sizes):
    return sum(each * size for each, size in zip(gradients, sizes))
""",
    ),
    (
        "2.1",
        "divided by the shards, too",
        "divided-twice",
        """
def mean_gradient(gradients, sizes):
    return sum(each * size for each, size in zip(gradients, sizes)) / sum(sizes) / len(sizes)
""",
    ),
    (
        "2.1",
        "weighted the wrong way round",
        "wrong-mean",
        """
def mean_gradient(gradients, sizes):
    weights = [1 / max(size, 1) for size in sizes]
    return sum(each * weight for each, weight in zip(gradients, weights)) / sum(weights)
""",
    ),
    (
        "2.1",
        "the last shard is forgotten",
        "wrong-mean",
        """
def mean_gradient(gradients, sizes):
    return sum(gradients[i] * sizes[i] for i in range(max(1, len(sizes) - 1))) / sum(sizes)
""",
    ),
    (
        "2.1",
        "made for two shards",
        "wrong-mean",
        """
def mean_gradient(gradients, sizes):
    if len(sizes) == 1:
        return gradients[0] * 1.0
    return (gradients[0] * sizes[0] + gradients[1] * sizes[1]) / (sizes[0] + sizes[1])
""",
    ),
    (
        "2.1",
        "it adds up in the first gradient",
        "changes-arguments",
        """
def mean_gradient(gradients, sizes):
    total = gradients[0]
    total *= sizes[0]
    for each, size in zip(gradients[1:], sizes[1:]):
        total += each * size
    return total / sum(sizes)
""",
    ),
    (
        "2.1",
        "it drops empty shards from the list that it was given",
        "changes-arguments",
        """
def mean_gradient(gradients, sizes):
    while 0 in sizes:
        place = sizes.index(0)
        del sizes[place], gradients[place]
    return sum(each * size for each, size in zip(gradients, sizes)) / sum(sizes)
""",
    ),
    (
        "2.1",
        "float64 becomes float32",
        "dtype",
        """
def mean_gradient(gradients, sizes):
    return sum(each.float() * size for each, size in zip(gradients, sizes)) / sum(sizes)
""",
    ),
    (
        "2.1",
        "numpy floats make it float64",
        "dtype",
        """
import numpy as np, torch
def mean_gradient(gradients, sizes):
    return torch.from_numpy(np.average(np.stack([each.numpy() for each in gradients]), axis=0, weights=sizes))
""",
    ),
    (
        "2.1",
        "one number",
        "shape",
        """
def mean_gradient(gradients, sizes):
    return (sum(each * size for each, size in zip(gradients, sizes)) / sum(sizes)).mean()
""",
    ),
    (
        "2.1",
        "a list",
        "type",
        """
def mean_gradient(gradients, sizes):
    return (sum(each * size for each, size in zip(gradients, sizes)) / sum(sizes)).tolist()
""",
    ),
    (
        "2.1",
        "an empty shard divides by zero",
        "not-finite",
        """
def mean_gradient(gradients, sizes):
    return sum(each / (sum(sizes) / size if size else 0.0) for each, size in zip(gradients, sizes))
""",
    ),
    (
        "2.1",
        "it prints",
        "returns-nothing",
        """
def mean_gradient(gradients, sizes):
    print(sum(each * size for each, size in zip(gradients, sizes)) / sum(sizes))
""",
    ),
    (
        "2.2",
        "the plain mean of ranks",
        "mean-of-means",
        """
import torch.distributed as dist
def average_gradients(model, samples):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
""",
    ),
    (
        "2.2",
        "the sum of ranks",
        "wrong-mean",
        """
import torch.distributed as dist
def average_gradients(model, samples):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.2",
        "the sum over all samples",
        "not-divided",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples
            dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.2",
        "divided by the ranks, too",
        "divided-twice",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples / total / dist.get_world_size()
            dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.2",
        "the sum is put nowhere",
        "own-gradient",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for parameter in model.parameters():
        if parameter.requires_grad:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            grad = grad * samples / total
            dist.all_reduce(grad)
""",
    ),
    (
        "2.2",
        "ranks without samples stay away",
        "hang",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad *= samples / total
            dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.2",
        "a rank without samples takes part and keeps nothing",
        "no-gradient",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for parameter in model.parameters():
        if parameter.requires_grad:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad * (samples / total)
            dist.all_reduce(grad)
            if parameter.grad is not None:
                parameter.grad = grad
""",
    ),
    (
        "2.2",
        "only rank 0 has the result",
        "wrong-mean",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples / total
            dist.reduce(parameter.grad, 0)
""",
    ),
    (
        "2.2",
        "frozen parameters get a gradient",
        "frozen",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parameter.grad *= samples / total
        dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.2",
        "the weights are averaged",
        "own-gradient",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()
""",
    ),
    (
        "2.2",
        "it steps itself",
        "weights-changed",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples / total
            dist.all_reduce(parameter.grad)
            parameter.data -= 0.1 * parameter.grad
""",
    ),
    (
        "2.2",
        "the sizes are whole numbers, and so is the share",
        "wrong-mean",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = torch.tensor(samples); dist.all_reduce(total)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples // total
            dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.2",
        "the total is taken for granted",
        "mean-of-means",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    total = samples * dist.get_world_size()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad *= samples / max(1, total)
            dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.2",
        "a collective on rank 0 only",
        "hang",
        """
import torch, torch.distributed as dist
def average_gradients(model, samples):
    if dist.get_rank() == 0:
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
""",
    ),
    (
        "2.3",
        "buffers are forgotten",
        "not-copied",
        """
import torch.distributed as dist
def same_start(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
""",
    ),
    (
        "2.3",
        "only what is trained",
        "not-copied",
        """
import torch.distributed as dist
def same_start(model):
    for tensor in [*(each for each in model.parameters() if each.requires_grad), *model.buffers()]:
        dist.broadcast(tensor.data, 0)
""",
    ),
    (
        "2.3",
        "from the last rank",
        "other-rank",
        """
import torch.distributed as dist
def same_start(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, dist.get_world_size() - 1)
""",
    ),
    (
        "2.3",
        "each rank from itself",
        "error",
        """
import torch.distributed as dist
def same_start(model):
    for tensor in model.state_dict().values():
        if dist.get_rank():
            raise ValueError("only rank 0 may start")
        dist.broadcast(tensor, 0)
""",
    ),
    (
        "2.3",
        "averaged",
        "averaged-start",
        """
import torch.distributed as dist
def same_start(model):
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            dist.all_reduce(tensor)
            tensor /= dist.get_world_size()
        else:
            dist.broadcast(tensor, 0)
""",
    ),
    (
        "2.3",
        "new parameters instead of new values",
        "not-copied",
        """
import torch, torch.distributed as dist
def same_start(model):
    for name, parameter in list(model.named_parameters()):
        value = parameter.detach().clone()
        dist.broadcast(value, 0)
        setattr(model, name, torch.nn.Parameter(value))
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
""",
    ),
    (
        "2.3",
        "copies are filled",
        "not-copied",
        """
import torch.distributed as dist
def same_start(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor.clone(), 0)
""",
    ),
    (
        "2.3",
        "zeros everywhere",
        "wrong-start",
        """
def same_start(model):
    for tensor in model.state_dict().values():
        tensor.zero_()
""",
    ),
    (
        "2.4",
        "gradients pile up",
        "not-as-one",
        """
def train_step(model, optimizer, images, labels):
    loss = cross_entropy(model(images), labels)
    loss.backward()
    average_gradients(model, len(images))
    optimizer.step()
    total = torch.tensor([loss.item() * len(images), len(images)]); dist.all_reduce(total)
    return (total[0] / total[1]).item()
""",
    ),
    (
        "2.4",
        "the step comes before the average",
        "not-as-one",
        """
def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    average_gradients(model, len(images))
    total = torch.tensor([loss.item() * len(images), len(images)]); dist.all_reduce(total)
    return (total[0] / total[1]).item()
""",
    ),
    (
        "2.4",
        "its own loss is returned",
        "loss",
        """
def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    average_gradients(model, len(images))
    optimizer.step()
    return loss.item()
""",
    ),
    (
        "2.4",
        "the mean of the ranks' losses",
        "loss",
        """
def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    average_gradients(model, len(images))
    optimizer.step()
    mean = loss.detach().clone(); dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()
""",
    ),
    (
        "2.4",
        "the loss is averaged, not the gradients",
        "not-as-one",
        """
def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    total = torch.tensor([loss.item() * len(images), len(images)]); dist.all_reduce(total)
    loss.backward()
    optimizer.step()
    return (total[0] / total[1]).item()
""",
    ),
    (
        "2.4",
        "weights are averaged instead, which Adam does not forgive",
        "not-as-one",
        """
def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    total = torch.tensor([loss.item() * len(images), len(images)]); dist.all_reduce(total)
    for parameter in model.parameters():
        parameter.data *= len(images) / total[1]
        dist.all_reduce(parameter.data)
    return (total[0] / total[1]).item()
""",
    ),
    (
        "2.4",
        "it returns nothing",
        "returns-nothing",
        """
def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    cross_entropy(model(images), labels).backward()
    average_gradients(model, len(images))
    optimizer.step()
""",
    ),
    (
        "2.3",
        "nothing is trained afterwards",
        "no-longer-trained",
        """
import torch.distributed as dist
def same_start(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        dist.broadcast(parameter, 0)
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
""",
    ),
    (
        "2.3",
        "frozen parameters are trained afterwards",
        "no-longer-trained",
        """
import torch.distributed as dist
def same_start(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        dist.broadcast(parameter, 0)
        parameter.requires_grad_(True)
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
""",
    ),
    (
        "2.1",
        "it adds up in the first gradient, if that shard is empty",
        "changes-arguments",
        """
def mean_gradient(gradients, sizes):
    out = gradients[0] * sizes[0] if sizes[0] else gradients[0]
    for g, s in zip(gradients[1:], sizes[1:]): out += g * s
    out /= sum(sizes)
    return out
""",
    ),
    (
        "2.3",
        "whole numbers go through float32",
        "wrong-start",
        """
import torch, torch.distributed as dist
def same_start(model):
    for t in model.state_dict().values():
        f = t.detach().clone().float(); dist.broadcast(f, src=0); t.copy_(f)
""",
    ),
    (
        "2.2",
        "frozen get zeros on the rank without samples",
        "frozen",
        """
import torch, torch.distributed as dist, numpy as np
from torch.nn.functional import cross_entropy

def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    if samples == 0:
        for p in model.parameters(): p.grad = torch.zeros_like(p)
    for p in model.parameters():
        if p.requires_grad:
            p.grad *= samples / total
            dist.all_reduce(p.grad)
""",
    ),
    (
        "2.2",
        "rank 0 without samples",
        "error",
        """
import torch, torch.distributed as dist, numpy as np
from torch.nn.functional import cross_entropy

def average_gradients(model, samples):
    total = torch.tensor(float(samples)); dist.all_reduce(total)
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None and dist.get_rank() > 0: p.grad = torch.zeros_like(p)
            p.grad *= samples / total
            dist.all_reduce(p.grad)
""",
    ),
    (
        "2.4",
        "the total is kept by model",
        "not-as-one",
        """
import torch, torch.distributed as dist, numpy as np
from torch.nn.functional import cross_entropy

total = {}
def train_step(model, optimizer, images, labels):
    if model not in total:
        n = torch.tensor(float(len(labels))); dist.all_reduce(n); total[model] = n
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels, reduction="sum") / total[model]; loss.backward()
    for p in model.parameters(): dist.all_reduce(p.grad)
    optimizer.step()
    with torch.no_grad(): dist.all_reduce(loss)
    return loss.item()
""",
    ),
]
