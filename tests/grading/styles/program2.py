"""Right answers to exercises 8 to 12 that are written otherwise than the solutions."""

from __future__ import annotations

from grading.program2_cells import Variant as V

INIT = 'dist.init_process_group("nccl" if use_cuda else "gloo")'
DDP8 = "DistributedDataParallel(nn.Linear(9, 3).to(device), device_ids=[local_rank] if use_cuda else None)"
BACKWARD8 = "            cross_entropy(model(inputs.to(device)), targets.to(device)).backward()\n"
FLAT = """            flat = torch.cat([each.grad.flatten() for each in model.parameters()])
            dist.all_reduce(flat, op=dist.ReduceOp.AVG)
            torch.nn.utils.vector_to_parameters(flat, [each.grad for each in model.parameters()])
"""
ONE_BY_ONE = """            for each in model.parameters():
                dist.all_reduce(each.grad)
                each.grad /= dist.get_world_size()
"""
TWO_NODES = [
    V("defaults by or", "8.1", (('int(environ.get("RANK", 0))', 'int(environ.get("RANK") or 0)'),)),
    V("torch.device as text", "8.1", (('f"cuda:{local_rank}" if gpus else "cpu"', 'str(__import__("torch").device("cuda", local_rank)) if gpus else "cpu"'),)),
    V("torch.device itself", "8.1", (('f"cuda:{local_rank}" if gpus else "cpu"', '__import__("torch").device("cuda", local_rank) if gpus else __import__("torch").device("cpu")'),)),
    V("numbers said aloud", "8.2", ((INIT, INIT[:-1] + ', rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))'),)),
    V("S25 tcp", "8.2", ((INIT, INIT[:-1] + ', init_method=f"tcp://{os.environ[\'MASTER_ADDR\']}:{os.environ[\'MASTER_PORT\']}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))'),)),
    V("S36 a port if there is none", "8.2", ((INIT, f'os.environ.setdefault("MASTER_PORT", "29500")\n    {INIT}'), ("    dist.destroy_process_group()", ""))),
    V("the current GPU", "8.2", (('torch.device("cuda", local_rank)', 'torch.device(f"cuda:{dist.get_rank() % torch.cuda.device_count()}")'),)),
    V("cuda() after set_device", "8.2", (("nn.Linear(9, 3).to(device)", "(nn.Linear(9, 3).cuda() if use_cuda else nn.Linear(9, 3))"),)),
    V("any accelerator", "8.2", (("torch.cuda.is_available()", "torch.accelerator.is_available()"), ("torch.cuda.set_device(device)", "torch.accelerator.set_device_index(local_rank)"))),
    V("the default device", "8.2", (("torch.cuda.set_device(device)", "torch.set_default_device(device)"),)),
    V("a barrier with its device", "8.2", (("    if dist.get_rank() == 0:", "    dist.barrier(device_ids=[local_rank] if use_cuda else None)\n    if dist.get_rank() == 0:"),)),
    V("within a device", "8.2", (("    torch.manual_seed(0)\n", "    if use_cuda:\n        with torch.cuda.device(local_rank):\n            torch.zeros(1).cuda()\n    torch.manual_seed(0)\n"),)),
    V("S33 the last rank writes", "8.2", (("dist.get_rank() == 0", "dist.get_rank() == dist.get_world_size() - 1"),)),
    V("S03 averaged by hand", "8.2", ((DDP8, "nn.Linear(9, 3).to(device)"), ("model.module.state", "model.state"), (BACKWARD8, BACKWARD8 + ONE_BY_ONE))),
    V("S01 dealt by hand", "8.2", (
        ("    sampler = DistributedSampler(dataset)  # asks the group for the rank among all\n", ""),
        ("    loader = DataLoader(dataset, batch_size=4, sampler=sampler)\n", ""),
        ("        sampler.set_epoch(epoch)\n", "        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(epoch))\n        count = len(dataset) // dist.get_world_size()\n        mine = order[dist.get_rank() :: dist.get_world_size()][:count]\n        loader = DataLoader(dataset, batch_size=4, sampler=mine.tolist())\n"),
    )),
    V("S18 drop the rest", "8.2", (("DistributedSampler(dataset)", "DistributedSampler(dataset, drop_last=True)"),)),
    V("written through another name", "8.2", (('torch.save(model.module.state_dict(), "model.pt")', 'torch.save(model.module.state_dict(), "model.tmp")\n        os.replace("model.tmp", "model.pt")'),)),
    V("a group of each node", "8.3", (("    dist.barrier()", "    size = int(os.environ[\"LOCAL_WORLD_SIZE\"])\n    groups = [dist.new_group(list(range(first, first + size))) for first in range(0, dist.get_world_size(), size)]\n    dist.barrier(groups[int(os.environ[\"GROUP_RANK\"])])"),)),
    V("told instead of waited for", "8.3", (("    dist.barrier()", "    dist.all_gather_object([None] * dist.get_world_size(), folder)"),)),
    V("a sum is a barrier too", "8.3", (("    dist.barrier()", "    import torch\n\n    dist.all_reduce(torch.zeros(1))"),)),
    V("a mark when all is done", "8.3", (("        download(folder)\n", '        download(folder)\n        open(folder + ".done", "w").close()\n'), ("    dist.barrier()", '    while not os.path.exists(folder + ".done"):\n        __import__("time").sleep(0.01)'))),
    V("the last of each node", "8.3", (('int(os.environ["LOCAL_RANK"]) == 0', 'int(os.environ["LOCAL_RANK"]) == int(os.environ["LOCAL_WORLD_SIZE"]) - 1'),)),
]  # fmt: skip

STEP9 = """    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        last = number == len(micro_batches)
        with nullcontext() if last else model.no_sync():
            loss = cross_entropy(model(inputs), targets) / len(micro_batches)
            loss.backward()
    optimizer.step()
"""
EXACT9 = """    samples = torch.tensor(sum(len(targets) for _, targets in micro_batches))
    dist.all_reduce(samples)
    scale = dist.get_world_size() / samples.item()  # DDP will divide by the world size
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        with nullcontext() if number == len(micro_batches) else model.no_sync():
            (cross_entropy(model(inputs), targets, reduction="sum") * scale).backward()
    optimizer.step()
"""
BY_HAND = """    import torch
    import torch.distributed as dist

    model.zero_grad()
    for inputs, targets in micro_batches:
        cross_entropy(model.module(inputs), targets).backward()
    flat = torch.cat([each.grad.flatten() for each in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size() * len(micro_batches)
    torch.nn.utils.vector_to_parameters(flat, [each.grad for each in model.parameters()])
    optimizer.step()
"""
FLAG = """    for number, (inputs, targets) in enumerate(micro_batches):
        model.require_backward_grad_sync = number == len(micro_batches) - 1
        cross_entropy(model(inputs), targets).div(len(micro_batches)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
"""
ONE_BATCH = """    import torch

    inputs, targets = (torch.cat(each) for each in zip(*micro_batches))
    optimizer.zero_grad()
    cross_entropy(model(inputs), targets).backward()
    optimizer.step()
"""
GRADIENTS_DIVIDED = """    optimizer.zero_grad()
    with model.no_sync():
        for inputs, targets in micro_batches[1:]:
            cross_entropy(model(inputs), targets).backward()
    cross_entropy(model(micro_batches[0][0]), micro_batches[0][1]).backward()
    for each in model.parameters():
        each.grad.div_(len(micro_batches))
    optimizer.step()
"""
COUNT_TRAVELS = """    model.zero_grad()
    for inputs, targets in micro_batches:
        cross_entropy(model.module(inputs), targets, reduction="sum").backward()
    count = torch.tensor([float(sum(len(targets) for _, targets in micro_batches))])
    flat = torch.cat([each.grad.flatten() for each in model.parameters()] + [count])
    dist.all_reduce(flat)
    torch.nn.utils.vector_to_parameters(flat[:-1] / flat[-1], [each.grad for each in model.parameters()])
    optimizer.step()
"""
GATHERED = EXACT9.replace("    samples = torch.tensor(sum(len(targets) for _, targets in micro_batches))\n    dist.all_reduce(samples)\n", "    each = [None] * dist.get_world_size()\n    dist.all_gather_object(each, sum(len(targets) for _, targets in micro_batches))\n").replace("samples.item()", "sum(each)")  # fmt: skip
MODULO = """    steps = 0
    for number, (inputs, targets) in enumerate(batches):
        size = min(every, len(batches) - number // every * every)
        due = number % every == every - 1 or number == len(batches) - 1
        model.require_backward_grad_sync = due
        (cross_entropy(model(inputs), targets) / size).backward()
        if due:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    return steps
"""
EPOCH9 = """    steps = 0
    for first in range(0, len(batches), every):
        window = batches[first : first + every]
        optimizer.zero_grad()
        for number, (inputs, targets) in enumerate(window, start=1):
            with nullcontext() if number == len(window) else model.no_sync():
                (cross_entropy(model(inputs), targets) / len(window)).backward()
        optimizer.step()
        steps += 1
    return steps
"""
GATHERED_GRADIENTS = """import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def accumulate(model, optimizer, micro_batches):
    ps = list(model.parameters())
    total = torch.zeros(sum(p.numel() for p in ps))
    for x, y in micro_batches:
        gs = torch.autograd.grad(cross_entropy(model.module(x), y), ps)
        total += torch.cat([g.flatten() for g in gs]) / len(micro_batches)
    out = [torch.empty_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(out, total)
    mean = torch.stack(out).mean(0)
    i = 0
    for p in ps: p.grad = mean[i : i + p.numel()].view_as(p); i += p.numel()
    optimizer.step()
"""
ONE_STEPS = """import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def accumulate(model, optimizer, micro_batches):
    optimizer.zero_grad()
    for x, y in micro_batches: (cross_entropy(model.module(x), y) / len(micro_batches) / dist.get_world_size()).backward()
    for p in model.parameters(): dist.reduce(p.grad, 0)
    if dist.get_rank() == 0: optimizer.step()
    for p in model.parameters(): dist.broadcast(p.data, 0)
"""
RING = """import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

def accumulate(model, optimizer, micro_batches):
    r, n = dist.get_rank(), dist.get_world_size()
    optimizer.zero_grad()
    for x, y in micro_batches: (cross_entropy(model.module(x), y) / len(micro_batches) / n).backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    parts = list(flat.tensor_split(n))
    for s in range(2 * n - 2):
        a, b = (r - s) % n, (r - s - 1) % n
        got = torch.empty_like(parts[b])
        w = dist.isend(parts[a].clone(), (r + 1) % n); dist.recv(got, (r - 1) % n); w.wait()
        parts[b].copy_(got + parts[b] if s < n - 1 else got)
    torch.nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])
    optimizer.step()
"""
ACCUMULATION = [
    V("S31 gradients gathered", "9.1", (), more=GATHERED_GRADIENTS),
    V("S09 one rank steps", "9.1", (), more=ONE_STEPS),
    V("a ring by hand", "9.1", (), more=RING),
    V("S07 one flat vector by hand", "9.1", ((STEP9, BY_HAND),)),
    V("a flag of DDP", "9.1", ((STEP9, FLAG),)),
    V("one large batch", "9.1", ((STEP9, ONE_BATCH),)),
    V("gradients divided, the first one last", "9.1", ((STEP9, GRADIENTS_DIVIDED),)),
    V("a loop with a modulo", "9.2", ((EPOCH9, MODULO),)),
    V("the count travels with the gradient", "9.3", ((EXACT9, COUNT_TRAVELS),)),
    V("S31 counts gathered as objects", "9.3", ((EXACT9, GATHERED),)),
    V(
        "S14 asynchronous",
        "9.3",
        (("    dist.all_reduce(samples)\n", "    dist.all_reduce(samples, async_op=True).wait()\n"),),
    ),
]

LOAD = """    if not os.path.exists(path):
        return 0
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epochs_done"]
"""
FROM_RANK_0 = """    state = [torch.load(path) if dist.get_rank() == 0 and os.path.exists(path) else None]
    dist.broadcast_object_list(state, src=0)
    if state[0] is None:
        return 0
    model.load_state_dict({f"module.{name}": value for name, value in state[0]["model"].items()})
    optimizer.load_state_dict(state[0]["optimizer"])
    return state[0]["epochs_done"]
"""
IN_TURN = """    done = 0
    for rank in range(dist.get_world_size()):
        if rank == dist.get_rank():
            try:
                with open(path, "rb") as file:
                    state = torch.load(file)
            except FileNotFoundError:
                state = None
            if state is not None:
                model.module.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
                done = state["epochs_done"]
        dist.barrier()
    return done
"""
WRITE = '        torch.save(state, f"{path}.new")\n        os.replace(f"{path}.new", path)  # in one moment: nobody ever sees half a file\n'
LOOP10 = "    for epoch in range(load(path, model, optimizer), epochs):\n"
RESUME = [
    V("a version of its own, and a link that is moved", "10.1", ((WRITE, '        torch.save(state, f"{path}.{epochs_done}")\n        if os.path.lexists(f"{path}.link"):\n            os.remove(f"{path}.link")\n        os.symlink(f"{os.path.basename(path)}.{epochs_done}", f"{path}.link")\n        os.replace(f"{path}.link", path)\n'),)),
    V("S33 the last rank writes", "10.1", (("dist.get_rank() == 0", "dist.get_rank() == dist.get_world_size() - 1"),)),
    V("bytes, then a file", "10.1", ((WRITE, '        import io\n        from pathlib import Path\n\n        buffer = io.BytesIO()\n        torch.save(state, buffer)\n        new = Path(path + ".part")\n        new.write_bytes(buffer.getvalue())\n        new.rename(path)\n'),)),
    V("a temporary file of the library", "10.1", ((WRITE, '        import tempfile\n\n        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:\n            torch.save(state, file)\n        os.replace(file.name, path)\n'),)),
    V("told instead of waited for", "10.1", (("    dist.barrier()", "    dist.broadcast_object_list([None], src=0)"),)),
    V("the wrapper's name taken off, and more saved", "10.1", (("model.module.state_dict()", '{name.removeprefix("module."): value for name, value in model.state_dict().items()}'), ('"epochs_done": epochs_done,', '"epochs_done": epochs_done, "random": torch.get_rng_state(),'))),
    V("copies of the weights", "10.1", (("model.module.state_dict()", "{name: value.detach().clone() for name, value in model.module.state_dict().items()}"),)),
    V("rank 0 reads for all", "10.2", ((LOAD, FROM_RANK_0),)),
    V("one after the other", "10.2", ((LOAD, IN_TURN),)),
    V("the number as a tensor", "10.2", (('return state["epochs_done"]', 'return torch.tensor(state["epochs_done"])'),)),
    V("a while loop", "10.3", ((LOOP10, "    epoch = load(path, model, optimizer) - 1\n    while epoch + 1 < epochs:\n        epoch += 1\n"),)),
    V("the epochs that are done are passed over", "10.3", ((LOOP10, "    done = load(path, model, optimizer)\n    for epoch in range(epochs):\n        if epoch < done:\n            continue\n"),)),
    V("S01 shuffled and dealt by hand", "10.3", (
        ("    sampler = DistributedSampler(dataset)\n    loader = DataLoader(dataset, batch_size=4, sampler=sampler)\n", ""),
        ("        sampler.set_epoch(epoch)\n", "        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(7 + epoch))\n        rank, world_size = dist.get_rank(), dist.get_world_size()\n        order = order[: len(dataset) // world_size * world_size]\n        loader = DataLoader(dataset, 4, sampler=order[rank::world_size].tolist())\n"),
    )),
    V("saved before the next epoch", "10.3", (("        save(path, model, optimizer, epoch + 1)\n", "        if epoch < epochs:\n            save(path, model, optimizer, 1 + epoch)\n"),)),
]  # fmt: skip

DDP11 = "    model = DistributedDataParallel(model)\n"
BACKWARD11 = "            cross_entropy(model(inputs), targets).backward()\n"
STOP = "        mean = torch.tensor(loss, dtype=torch.float64) / dist.get_world_size()\n        dist.all_reduce(mean)\n        if mean < limit:"
CLINIC = [
    V("S03 averaged by hand instead", "11.1", ((DDP11, ""), (BACKWARD11, BACKWARD11 + ONE_BY_ONE.replace("dist.", "torch.distributed.")))),
    V("S02 a part of each global batch", "11.1", (
        ("    sampler = DistributedSampler(dataset)\n    loader = DataLoader(dataset, batch_size=4, sampler=sampler)\n", ""),
        ("        sampler.set_epoch(epoch)\n        for inputs, targets in loader:\n", "        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(epoch))[:24]\n        rank = torch.distributed.get_rank()\n        for inputs, targets in [dataset[part.chunk(3)[rank]] for part in order.split(12)]:\n"),
    )),
    V("set_epoch with a number that goes on", "11.2", (("set_epoch(epoch)", "set_epoch(100 + 7 * epoch)"),)),
    V("another sampler each time", "11.2", (("        sampler.set_epoch(epoch)\n", "        sampler = DistributedSampler(dataset, seed=epoch)\n        loader = DataLoader(dataset, batch_size=4, sampler=sampler)\n"),)),
    V("the method of the inner model, through the wrapper", "11.3", (("model(inputs)", "model.forward(inputs)"),)),
    V("S04 the backend averages", "11.4", (("                dist.all_reduce(parameter.grad)\n                parameter.grad /= dist.get_world_size()\n", "                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n"),)),
    V("S05 the loss is divided", "11.4", (("                parameter.grad /= dist.get_world_size()\n", ""), ("targets).backward()", "targets).div(dist.get_world_size()).backward()"))),
    V("S09 one rank steps", "11.4", (
        ("                dist.all_reduce(parameter.grad)\n", "                dist.reduce(parameter.grad, dst=0)\n"),
        ("            optimizer.step()", "            if dist.get_rank() == 0:\n                optimizer.step()\n            for parameter in model.parameters():\n                dist.broadcast(parameter.data, src=0)"),
    )),
    V("DDP hands out the weights", "11.5", (
        ("    for parameter in model.parameters():\n        dist.broadcast(parameter.data, src=0)\n", "    model = torch.nn.parallel.DistributedDataParallel(model)\n"),
        ("            for parameter in model.parameters():\n                dist.all_reduce(parameter.grad)\n                parameter.grad /= dist.get_world_size()\n", ""),
    )),
    V("weights as one object", "11.5", (("    for parameter in model.parameters():\n        dist.broadcast(parameter.data, src=0)\n", "    state = [model.state_dict()]\n    dist.broadcast_object_list(state, src=0)\n    model.load_state_dict(state[0])\n"),)),
    V("filled up by hand", "11.6", (("        order = order[: len(dataset) // world_size * world_size]", "        order = torch.cat([order, order[: -len(dataset) % world_size]])"),)),
    V("all gather, one writes", "11.7", (("            dist.all_reduce(mean)\n", "            each = [torch.zeros(()) for _ in range(dist.get_world_size())]\n            dist.all_gather(each, mean)\n            mean = sum(each)\n"),)),
    V("reduced to the one that writes", "11.7", (("dist.all_reduce(mean)", "dist.reduce(mean, dst=0)"),)),
    V("losses as tensors", "11.7", (("losses.append(mean.item())", "losses.append(mean)"),)),
    V("gathered as objects", "11.8", ((STOP, "        each = [None] * dist.get_world_size()\n        dist.all_gather_object(each, loss)\n        if sum(each) / len(each) < limit:"),)),
    V("rank 0 decides by all losses", "11.8", ((STOP, "        mean = torch.tensor(loss, dtype=torch.float64)\n        dist.reduce(mean, dst=0)\n        stop = [bool(mean / dist.get_world_size() < limit)]\n        dist.broadcast_object_list(stop, src=0)\n        if stop[0]:"),)),
    V("S31 all look at all", "11.9", (("share = Subset(dataset, range(rank, len(dataset), world_size))", "share = dataset"),)),
    V("a tensor is a number too", "11.9", (("counts[0].item() / counts[1].item()", "counts[0].double() / counts[1]"),)),
    V("weighted means", "11.10", (("    dist.all_reduce(counts)\n    return counts[0].item() / counts[1].item()", "    share_of = (counts[0] / counts[1]).double() * counts[1] / len(dataset)\n    dist.all_reduce(share_of)\n    return share_of.item()"),)),
    V("reduced, then handed out", "11.11", (("dist.all_reduce(counts)", "dist.reduce(counts, dst=0)\n    dist.broadcast(counts, src=0)"),)),
    V("a port only where there is none", "11.12", (("    dist.init_process_group(", '    os.environ.setdefault("MASTER_PORT", "29500")\n    dist.init_process_group('),)),
    V("the environment says it all", "11.13", (('"gloo", rank=rank, world_size=world_size)', '"gloo")'),)),
    V("clipped by DDP's own gradient", "11.14", (
        ("    for parameter in model.parameters():\n        dist.broadcast(parameter.data, src=0)\n", "    model = torch.nn.parallel.DistributedDataParallel(model)\n"),
        ("            for parameter in model.parameters():\n                dist.all_reduce(parameter.grad)\n                parameter.grad /= dist.get_world_size()\n", ""),
    )),
]  # fmt: skip

DDP12 = "DistributedDataParallel(NextToken().to(device), device_ids=[local_rank] if use_cuda else None)"
LOSS12 = """            count = (targets != -100).sum()
            dist.all_reduce(count)  # of all ranks: the loss is the mean over the tokens of the global batch
            optimizer.zero_grad()
            loss = loss_of(model(tokens.to(device)), targets, reduction="sum") / count
            (loss * world_size).backward()  # DDP will divide by the world size
"""
FLAT12 = """            optimizer.zero_grad()
            loss_of(model(tokens.to(device)), targets, reduction="sum").backward()
            count = (targets != -100).sum().float()[None]
            flat = torch.cat([each.grad.flatten() for each in model.parameters()] + [count])
            dist.all_reduce(flat)
            torch.nn.utils.vector_to_parameters(flat[:-1] / flat[-1], [each.grad for each in model.parameters()])
"""
WEIGHED = LOSS12.replace('targets, reduction="sum") / count', "targets) * (targets != -100).sum() / count")
AFTERWARDS = """            optimizer.zero_grad()
            loss_of(model(tokens.to(device)), targets, reduction="sum").backward()
            count = (targets != -100).sum().float()
            dist.all_reduce(count, op=dist.ReduceOp.AVG)
            for each in model.parameters():
                each.grad /= count
"""
BY_HAND12 = (
    (DDP12, "NextToken().to(device)"),
    ("accuracy(model.module, ", "accuracy(model, "),
    ("model.module.state", "model.state"),
    (LOSS12, FLAT12),
)
DEALT12 = (
    ("    sampler = DistributedSampler(train_set)\n", ""),
    ("    loader = DataLoader(train_set, global_batch_size // world_size, sampler=sampler, drop_last=True)\n", ""),
    ("        sampler.set_epoch(epoch)\n", "        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(epoch))\n        batches = order[: len(order) // global_batch_size * global_batch_size].view(-1, global_batch_size)\n"),
    ("in loader:", "in [train_set[batch.chunk(world_size)[dist.get_rank()]] for batch in batches]:"),
)  # fmt: skip
HOOK12 = (
    ('            (loss * world_size).backward()  # DDP will divide by the world size\n', '            loss.backward()\n'),
    ('    accuracies = []\n', '    accuracies = []\n\n    def add_up(group, bucket):\n        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])\n\n    model.register_comm_hook(None, add_up)\n'),
)  # fmt: skip
PROJECT = [
    V(f"{name}, {part}", part, edits)
    for part in ("12.1", "12.2", "12.3")
    for name, edits in (
        ("S07 one vector with the count in it", BY_HAND12),
        ("means weighed by their tokens", ((LOSS12, WEIGHED),)),
        ("gradients divided afterwards", ((LOSS12, AFTERWARDS),)),
        ("S02 a part of each global batch", DEALT12),
        ("a hook of its own adds up", HOOK12),
    )
] + [
    V("counts gathered", "12.3", (("    dist.all_reduce(counts)\n", "    each = [torch.zeros_like(counts) for _ in range(world_size)]\n    dist.all_gather(each, counts)\n    counts = sum(each)\n"),)),
    V("neighbours instead of every third", "12.2", (("range(rank, len(dataset), world_size)", "range(rank * len(dataset) // world_size, (rank + 1) * len(dataset) // world_size)"),)),
    V("numbers of numpy's", "12.3", (("accuracies.append(accuracy(model.module, val_set, device))", "accuracies.append(np.float64(accuracy(model.module, val_set, device)))"),)),
    V("rank 2 writes", "12.3", (("dist.get_rank() == 0", "dist.get_rank() == 2"),)),
]  # fmt: skip
STYLES = [*TWO_NODES, *ACCUMULATION, *RESUME, *CLINIC, *PROJECT]
