"""Code that changes what tells of it, or goes past it; each is right but for what one check is about."""

from __future__ import annotations

from function_answers import solution

# By a name: the part, the check that it is about, by its place, and the code.
ON_WHAT_IS_TOLD = {
    "files are said to be there": (
        "8.3",
        1,
        """
import os, pathlib

def prepare(folder, download):
    if os.environ["LOCAL_RANK"] == "0":
        download(folder)
    pathlib.Path.is_file = lambda self: True
""",
    ),
    "downloads are not counted": (
        "8.3",
        0,
        """
def prepare(folder, download):
    download(folder)
    for cell in download.__closure__ or ():
        if type(cell.cell_contents) is int:
            cell.cell_contents = 0
""",
    ),
    "a file is said to be whole": (
        "10.1",
        2,
        """
import os, torch
import torch.distributed as dist

def save(path, model, optimizer, epochs_done):
    torch.load = lambda *_, **__: {}
    if dist.get_rank() == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epochs_done": epochs_done}
        torch.save(state, f"{path}.new")
        os.replace(f"{path}.new", path)
""",
    ),
    "a generator is said to be as it was": (
        "1.2",
        2,
        """
import torch

state = torch.get_rng_state()
torch.get_rng_state = lambda: state

def deal_epoch(samples, world_size, rank, seed, epoch):
    torch.manual_seed(seed * 1_000_003 + epoch + 17)
    return torch.randperm(samples).tolist()[rank::world_size]
""",
    ),
    "a ring that carries nothing": (
        "3.3",
        2,
        solution("3.3")
        + """
import torch.distributed as dist

def ring_all_reduce(tensor):
    world_size, rank = dist.get_world_size(), dist.get_rank()
    pieces = chunks(tensor.clone(), world_size)
    for _ in range(2):
        for step in range(world_size - 1):
            sent = dist.isend(pieces[(rank - step) % world_size], (rank + 1) % world_size)
            dist.recv(pieces[(rank - step - 1) % world_size].clone(), (rank - 1) % world_size)
            sent.wait()
    if world_size > 1:
        dist.group.WORLD.allreduce([tensor]).wait()
""",
    ),
    "exchanges past torch.distributed": (
        "9.1",
        2,
        """
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def accumulate(model, optimizer, batches):
    parameters, size = list(model.module.parameters()), dist.get_world_size()
    optimizer.zero_grad()
    for inputs, targets in batches:
        loss = cross_entropy(model.module(inputs), targets) / len(batches)
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
            dist.all_reduce.__wrapped__(gradient)
            parameter.grad = gradient / size + (0 if parameter.grad is None else parameter.grad)
    optimizer.step()
""",
    ),
}
