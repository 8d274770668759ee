"""Wrong answers to exercises 8 to 10. The letters are those of the collection of mistakes that they were taken from."""

from __future__ import annotations

from grading.program2_cells import Variant as V

INIT = 'dist.init_process_group("nccl" if use_cuda else "gloo")'
RANKED = "{}, rank={}, world_size={})".format(INIT[:-1], "{}", "{}")
DDP8 = "DistributedDataParallel(nn.Linear(9, 3).to(device), device_ids=[local_rank] if use_cuda else None)"
LOCAL = 'int(os.environ["LOCAL_RANK"])'

TWO_NODES = [
    V(
        "the ranks share a batch of 4",
        "8.2",
        (("batch_size=4", "batch_size=4 // dist.get_world_size()"),),
        ("batch-size",),
        "each sample",
    ),
    V(
        "A05 the local rank decides who writes",
        "8.1",
        (('"writes": rank == 0', '"writes": local_rank == 0'),),
        ("writes",),
    ),
    V("nobody writes", "8.1", (('"writes": rank == 0', '"writes": False'),), ("writes",)),
    V("A06 the global rank chooses the GPU", "8.1", (('f"cuda:{local_rank}"', 'f"cuda:{rank}"'),), ("device",)),
    V("every rank takes the first GPU", "8.1", (('f"cuda:{local_rank}"', '"cuda"'),), ("device",)),
    V("a GPU is taken for granted", "8.1", ((' if gpus else "cpu"', ""),), ("device",)),
    V(
        "rank stays text",
        "8.1",
        (('rank = int(environ.get("RANK", 0))\n    local', 'rank = environ.get("RANK", 0)\n    local'),),
        ("text",),
    ),
    V(
        "rank worked out as if all nodes were alike",
        "8.1",
        (
            (
                'int(environ.get("RANK", 0))',
                'int(environ.get("GROUP_RANK", 0)) * int(environ.get("LOCAL_WORLD_SIZE", 1)) + int(environ.get("LOCAL_RANK", 0))',
            ),
        ),
        ("rank",),
    ),
    V(
        "world size of one node",
        "8.1",
        (('environ.get("WORLD_SIZE", 1)', 'environ.get("LOCAL_WORLD_SIZE", 1)'),),
        ("world-size",),
    ),
    V(
        "a launcher is taken for granted",
        "8.1",
        (('environ.get("RANK", 0)', 'environ["RANK"]'),),
        ("error",),
        "a program that nobody",
    ),
    V(
        "node worked out from the rank",
        "8.1",
        (('int(environ.get("GROUP_RANK", 0))', "rank // max(gpus, 1)"),),
        ("node",),
    ),
    V(
        "A05 the local rank joins",
        "8.2",
        ((INIT, RANKED.format(LOCAL, 'int(os.environ["LOCAL_WORLD_SIZE"])')),),
        ("same-rank",),
    ),
    V("A01 a group of one", "8.2", ((INIT, RANKED.format(0, 1)),), ("world-size", "port", "same-rank")),
    V(
        "A05 the local rank chooses the data",
        "8.2",
        (("DistributedSampler(dataset)", "DistributedSampler(dataset, 2, local_rank)"),),
        ("not-dealt", "same-samples"),
    ),
    V("A05 one writer a node", "8.2", (("dist.get_rank() == 0", "local_rank == 0"),), ("several-writers",)),
    V("H01 all write", "8.2", (("if dist.get_rank() == 0:", "if True:"),), ("several-writers",)),
    V("nobody writes the file", "8.2", (("dist.get_rank() == 0", "dist.get_rank() == 4"),), ("no-file",)),
    V(
        "A06 the global rank on the GPU",
        "8.2",
        ((f"local_rank = {LOCAL}", "local_rank = dist.get_rank()"),),
        ("device-index",),
    ),
    V(
        "every rank on the first GPU",
        "8.2",
        (
            ('torch.device("cuda", local_rank)', 'torch.device("cuda", 0)'),
            ("device_ids=[local_rank] if use_cuda else None", "device_ids=None"),
        ),
        ("shared-gpu",),
    ),
    V("GPUs are left alone", "8.2", (("torch.cuda.is_available()", "False"),), ("no-gpu-used",)),
    V("A07 port of its own", "8.2", ((INIT, f'os.environ["MASTER_PORT"] = "29511"\n    {INIT}'),), ("port",)),
    V("A23 host name of its own", "8.2", ((INIT, f'os.environ["MASTER_ADDR"] = "localhost"\n    {INIT}'),), ("port",)),
    V(
        "A07 port in the method",
        "8.2",
        ((INIT, INIT[:-1] + ', init_method="tcp://127.0.0.1:29511", rank=int(os.environ["RANK"]), world_size=4)'),),
        ("port",),
    ),
    V(
        "A07 port in a store",
        "8.2",
        (
            (
                INIT,
                'rank = int(os.environ["RANK"])\n    store = dist.TCPStore(os.environ["MASTER_ADDR"], 29511, 4, rank == 0)\n    '
                + INIT[:-1]
                + ", store=store, rank=rank, world_size=4)",
            ),
        ),
        ("port",),
    ),
    V("A18 nccl everywhere", "8.2", ((INIT, 'dist.init_process_group("nccl")'),), ("backend",)),
    V("A19 device ids on the CPU", "8.2", ((" if use_cuda else None)", ")"),), ("device-ids",)),
    V("A13 sampler before the group", "8.2", ((INIT, f"DistributedSampler(range(9))\n    {INIT}"),), ("too-early",)),
    V("B01 no sampler", "8.2", (("sampler=sampler", "shuffle=True"),), ("not-dealt", "same-samples")),
    V(
        "B02 shuffle and sampler",
        "8.2",
        (("sampler=sampler", "sampler=sampler, shuffle=True"),),
        ("sampler-and-shuffle",),
    ),
    V("B03 no epoch", "8.2", (("sampler.set_epoch(epoch)", "pass"),), ("not-reshuffled",)),
    V("C01 no DDP", "8.2", ((DDP8, "nn.Linear(9, 3).to(device)"), ("model.module.state", "model.state")), ("drift",)),
    V("C02 past the wrapper", "8.2", (("(model(inputs", "(model.module(inputs"),), ("drift",)),
    V("only rank 0 of all downloads", "8.3", ((LOCAL, "dist.get_rank()"),), ("no-download",)),
    V("B20 all download", "8.3", ((f"if {LOCAL} == 0:", "if True:"),), ("several-downloads",)),
    V("B20 a look before", "8.3", ((f"if {LOCAL} == 0:", "if not os.path.exists(folder):"),), ("several-downloads",)),
    V(
        "barrier before the work",
        "8.3",
        ((f"    if {LOCAL}", f"    dist.barrier()\n    if {LOCAL}"), ("(folder)\n    dist.barrier()", "(folder)")),
        ("too-early",),
    ),
    V(
        "nodes of two ranks only",
        "8.3",
        ((f"if {LOCAL} == 0:", "if dist.get_rank() % 2 == 0:"),),
        ("several-downloads",),
    ),
    V("no barrier", "8.3", (("    dist.barrier()", "    pass"),), ("too-early",)),
    V(
        "G01 barrier for those that wait",
        "8.3",
        (("    dist.barrier()", "    else:\n        dist.barrier()"),),
        ("hang", "peer-gone"),
    ),
    V(
        "all wait for rank 0",
        "8.3",
        (("    dist.barrier()", "    dist.broadcast_object_list([None], src=0)"),),
        ("too-early",),
        "no rank goes on",
    ),
    V(
        "the folder is there, its content not yet",
        "8.3",
        (("    dist.barrier()", "    while not os.path.exists(folder):\n        pass"),),
        ("too-early",),
    ),
]

DIVIDED = " / len(micro_batches)"
NO_SYNC = "with nullcontext() if last else model.no_sync():"
WINDOW = "with nullcontext() if number == len(window) else model.no_sync():"
EPOCH = """    steps = 0
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


def by_modulo(last: str, then: str = "", divisor: str = "every", start: int = 1) -> tuple[tuple[str, str], ...]:
    """The loop that most people write: one over all batches, which asks each time whether a step is due."""
    loop = f"""    steps = 0
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(batches, start={start}):
        last = {last}
        with nullcontext() if last else model.no_sync():
            (cross_entropy(model(inputs), targets) / {divisor}).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
{then}    return steps
"""
    return ((EPOCH, loop),)


EXACT = 'reduction="sum") * scale'
ACCUMULATION = [
    V("C20 not divided", "9.1", ((DIVIDED, ""),), ("scale",)),
    V("divided by a number of old", "9.1", ((DIVIDED, " / 4"),), ("scale",)),
    V(
        "C04 divided by the ranks too",
        "9.1",
        (
            (DIVIDED, DIVIDED + " / torch.distributed.get_world_size()"),
            ("import cross_entropy", "import cross_entropy\nimport torch"),
        ),
        ("scale",),
    ),
    V(
        "C05 multiplied by the ranks",
        "9.1",
        (
            (DIVIDED, DIVIDED + " * torch.distributed.get_world_size()"),
            ("import cross_entropy", "import cross_entropy\nimport torch"),
        ),
        ("scale",),
    ),
    V("C18 the first is exchanged", "9.1", (("number == len(micro_batches)", "number == 1"),), ("drift",)),
    V("C18 off by one", "9.1", (("start=1", "start=0"),), ("drift",)),
    V("never exchanged", "9.1", ((NO_SYNC, "with model.no_sync():"),), ("drift",)),
    V(
        "I02 exchanged each time",
        "9.1",
        ((NO_SYNC, "with nullcontext():"),),
        ("too-many-exchanges",),
        "the ranks exchange",
    ),
    V(
        "only backward under no_sync",
        "9.1",
        (
            (
                "            loss = cross_entropy(model(inputs), targets) / len(micro_batches)\n            loss.backward()",
                "            loss.backward()",
            ),
            (
                f"        {NO_SYNC}",
                f"        loss = cross_entropy(model(inputs), targets) / len(micro_batches)\n        {NO_SYNC}",
            ),
        ),
        ("too-many-exchanges",),
        "the ranks exchange",
    ),
    V(
        "only forward under no_sync",
        "9.1",
        (("            loss.backward()", "        loss.backward()"), (NO_SYNC, "with model.no_sync():")),
        ("drift",),
    ),
    V("gradients of the step before", "9.1", (("optimizer.zero_grad()", "pass"),), ("other-gradient", "scale")),
    V(
        "set to zero each time",
        "9.1",
        (("        last = ", "        optimizer.zero_grad()\n        last = "),),
        ("scale", "other-gradient", "drift"),
    ),
    V(
        "a step each time",
        "9.1",
        (
            ("            loss.backward()", "            loss.backward()\n        optimizer.step()"),
            ("\n    optimizer.step()", "\n    pass"),
        ),
        ("drift", "number-of-steps"),
    ),
    V("no step", "9.1", (("    optimizer.step()", "    pass"),), ("number-of-steps",)),
    V(
        "only the last counts",
        "9.1",
        (("in enumerate(micro_batches, start=1)", "in [(len(micro_batches), micro_batches[-1])]"),),
        ("other-gradient", "scale"),
    ),
    V(
        "the last is left out",
        "9.1",
        (("enumerate(micro_batches, start=1)", "enumerate(micro_batches[:-1], start=2)"),),
        ("other-gradient", "scale", "number-of-steps", "other-update", "drift"),
    ),
    V("C02 past the wrapper", "9.1", (("model(inputs)", "model.module(inputs)"),), ("drift",)),
    V(
        "C06 the loss is averaged",
        "9.1",
        (
            (NO_SYNC, "with model.no_sync():"),
            (
                "            loss.backward()",
                "            torch.distributed.all_reduce(loss.detach())\n            loss.backward()",
            ),
            ("import cross_entropy", "import cross_entropy\nimport torch"),
        ),
        ("drift",),
    ),
    V(
        "no numbers as weights",
        "9.1",
        (("    optimizer.step()", "    model.module[0].weight.grad.fill_(float('nan'))\n    optimizer.step()"),),
        ("not-finite",),
        "a step on 2",
    ),
    V("the rest is dropped", "9.2", by_modulo("number % every == 0"), ("number-of-steps",)),
    V("the rest is divided by too much", "9.2", by_modulo("number % every == 0 or number == len(batches)"), ("scale",)),
    V(
        "off by one",
        "9.2",
        by_modulo("number % every == 0", start=0),
        ("drift", "number-of-steps", "scale", "other-gradient"),
    ),
    V(
        "the rest is not exchanged",
        "9.2",
        by_modulo("number % every == 0", "    if number % every:\n        optimizer.step()\n        steps += 1\n"),
        ("drift",),
    ),
    V(
        "the rest stays for the next epoch",
        "9.2",
        (*by_modulo("number % every == 0"), ("    optimizer.zero_grad()\n    for", "    for")),
        ("number-of-steps",),
    ),
    V("C20 not divided at all", "9.2", ((" / len(window)", ""),), ("scale",)),
    V(
        "I02 exchanged each time",
        "9.2",
        ((WINDOW, "with nullcontext():"),),
        ("too-many-exchanges",),
        "the ranks exchange",
    ),
    V(
        "returns nothing",
        "9.2",
        (("    return steps", "    return None"),),
        ("number-of-steps",),
        "the batches that are left",
    ),
    V(
        "counts batches",
        "9.2",
        (("    return steps", "    return len(batches)"),),
        ("number-of-steps",),
        "the batches that are left",
    ),
    V("C21 a mean of means", "9.3", ((EXACT, 'reduction="mean") / len(micro_batches)'),), ("other-gradient",)),
    V(
        "by the samples of this rank",
        "9.3",
        (("    dist.all_reduce(samples)\n", ""), ("dist.get_world_size() / samples", "1 / samples")),
        ("other-gradient",),
    ),
    V("DDP's average forgotten", "9.3", (("dist.get_world_size() / samples", "1 / samples"),), ("scale",)),
    V(
        "the average of samples",
        "9.3",
        (("dist.get_world_size() / samples", "dist.get_world_size() ** 2 / samples"),),
        ("scale",),
    ),
    V(
        "F06 the sum on one rank only",
        "9.3",
        (("dist.all_reduce(samples)", "dist.reduce(samples, 0)"),),
        ("other-gradient", "scale"),
    ),
    V(
        "samples of the last micro-batch",
        "9.3",
        (("sum(len(targets) for _, targets in micro_batches)", "len(micro_batches[-1][1])"),),
        ("other-gradient", "scale"),
    ),
]

RANK_0 = "    if dist.get_rank() == 0:\n"
LOADS = "    model.module.load_state_dict(state"
RANGE = "range(load(path, model, optimizer), epochs)"
RESUME = [
    V("buffers are forgotten", "10.1", (("model.module.state_dict()", "dict(model.module.named_parameters())"),), ("keys",)),
    V("parameters are copied, buffers are not", "10.2", (('model.module.load_state_dict(state["model"])', '[each.data.copy_(state["model"][name]) for name, each in model.module.named_parameters()]'),), ("other-buffer",)),
    V("the rate of before is put back", "10.2", (('optimizer.load_state_dict(state["optimizer"])', 'rate = optimizer.param_groups[0]["lr"]\n    optimizer.load_state_dict(state["optimizer"])\n    optimizer.param_groups[0]["lr"] = rate'),), ("other-step",)),
    V("H02 the wrapper is saved", "10.1", (("model.module.state_dict()", "model.state_dict()"),), ("keys",), "a program without DDP"),
    V("H01 all write", "10.1", ((RANK_0, "    if True:\n"), ('f"{path}.new"', 'f"{path}.{dist.get_rank()}"')), ("several-writers",), "one process"),
    V("no barrier", "10.1", (("    dist.barrier()", "    pass"),), ("not-awaited",), "no rank goes on"),
    V("barrier before the work", "10.1", ((RANK_0, "    dist.barrier()\n" + RANK_0), ("path)  # in one moment: nobody ever sees half a file\n    dist.barrier()", "path)")), ("not-awaited",), "no rank goes on"),
    V("G01 barrier on rank 0 only", "10.1", (("    dist.barrier()", "        dist.barrier()"),), ("hang", "peer-gone")),
    V("written in place", "10.1", (('torch.save(state, f"{path}.new")', "torch.save(state, path)"), ('        os.replace(f"{path}.new", path)', "        pass")), ("not-atomic",), "killed"),
    V("the old one is removed first", "10.1", (("        torch.save(", "        if os.path.exists(path):\n            os.remove(path)\n        torch.save("),), ("not-atomic",), "killed"),
    V("copied instead of renamed", "10.1", (('os.replace(f"{path}.new", path)', '__import__("shutil").copy(f"{path}.new", path)'),), ("not-atomic",), "killed"),
    V("the old one is moved aside first", "10.1", (('        os.replace(f"{path}.new", path)', '        if os.path.exists(path):\n            os.rename(path, f"{path}.old")\n        os.replace(f"{path}.new", path)'),), ("not-atomic",), "killed"),
    V("renamed after the barrier", "10.1", (('        os.replace(f"{path}.new", path)  # in one moment: nobody ever sees half a file\n    dist.barrier()', '    dist.barrier()\n    if dist.get_rank() == 0:\n        os.replace(f"{path}.new", path)'),), ("not-awaited",), "no rank goes on"),
    V("H04 no folder", "10.1", (("os.makedirs(os.path.dirname(path) or \".\", exist_ok=True)", "pass"),), ("error",)),
    V("the optimizer is forgotten", "10.1", (('            "optimizer": optimizer.state_dict(),\n', ""),), ("missing-entry",), "a program without DDP"),
    V("the epochs are forgotten", "10.1", (('            "epochs_done": epochs_done,\n', ""),), ("missing-entry",), "a program without DDP"),
    V("an optimizer without memory", "10.1", (("optimizer.state_dict(),", "torch.optim.AdamW(model.parameters()).state_dict(),"),), ("no-optimizer",), "a program without DDP"),
    V("another number", "10.1", (('"epochs_done": epochs_done', '"epochs_done": epochs_done + 1'),), ("epochs",), "a program without DDP"),
    V("G05 nothing is written", "10.1", ((RANK_0, "    if dist.get_rank() == dist.get_world_size():\n"),), ("no-file", "hang", "peer-gone", "error")),
    V("C14 loaded on rank 0 only", "10.2", (("    if not os.path", "    if dist.get_rank() != 0 or not os.path"),), ("other-weights",)),
    V("weights handed on, the rest not", "10.2", (
        ("    if not os.path.exists(path):\n        return 0\n", "    if not os.path.exists(path):\n        return 0\n    if dist.get_rank() != 0:\n        for each in model.parameters():\n            dist.broadcast(each.data, 0)\n        return 3\n"),
        ("    return state[", "    for each in model.parameters():\n        dist.broadcast(each.data, 0)\n    return state["),
    ), ("other-step",), "the optimizer"),
    V("the optimizer is new", "10.2", (("    optimizer.load_state_dict", "    dict"),), ("other-step",), "the optimizer"),
    V("the model is not loaded", "10.2", ((LOADS, "    dict(state"),), ("other-weights",)),
    V("names that do not fit, and nobody minds", "10.2", ((LOADS + '["model"])', '    model.load_state_dict(state["model"], strict=False)'),), ("other-weights",)),
    V("epochs on rank 0 only", "10.2", (('return state["epochs_done"]', 'return state["epochs_done"] if dist.get_rank() == 0 else 0'),), ("epochs",), "each rank knows"),
    V("off by one", "10.2", (('return state["epochs_done"]', 'return state["epochs_done"] + 1'),), ("epochs",), "each rank knows"),
    V("no file is an error", "10.2", (("    if not os.path.exists(path):\n        return 0\n", ""),), ("error",), "where there is no file"),
    V("without a file the buffers are set to zero", "10.2", (("        return 0\n", "        for each in model.buffers():\n            each.zero_()\n        return 0\n"),), ("other-buffer",), "where there is no file"),
    V("always an epoch", "10.3", ((RANGE, "range(min(load(path, model, optimizer), epochs - 1), epochs)"),), ("epochs",), "stopped and resumed"),
    V("the ranks share a batch of 4", "10.3", (("batch_size=4", "batch_size=4 // dist.get_world_size()"),), ("batch-size",), "without a stop"),
    V("begins again", "10.3", ((RANGE, "range((load(path, model, optimizer), 0)[1], epochs)"),), ("epochs",), "stopped and resumed"),
    V("one epoch twice", "10.3", ((RANGE, "range(max(0, load(path, model, optimizer) - 1), epochs)"),), ("epochs",), "stopped and resumed"),
    V("so many epochs more", "10.3", ((RANGE, "range(start := load(path, model, optimizer), start + epochs)"),), ("epochs", "idle-rank")),
    V("the sampler begins again", "10.3", (("    for epoch in " + RANGE, "    for number, epoch in enumerate(" + RANGE + ")"), ("set_epoch(epoch)", "set_epoch(number)")), ("order",), "stopped and resumed"),
    V("B03 no epoch at all", "10.3", (("sampler.set_epoch(epoch)", "pass"),), ("not-reshuffled",), "without a stop"),
    V("B01 no sampler", "10.3", (("batch_size=4, sampler=sampler", "batch_size=4, shuffle=True"),), ("not-dealt", "same-samples"), "without a stop"),
    V("saved at the end only", "10.3", (("        save(path, model, optimizer, epoch + 1)", "    save(path, model, optimizer, epochs)"),), ("saved-rarely",), "it saves"),
    V("the number of the epoch is saved", "10.3", (("optimizer, epoch + 1)", "optimizer, epoch)"),), ("epochs",), "stopped and resumed"),
    V("never saved", "10.3", (("        save(path, model, optimizer, epoch + 1)", "        pass"),), ("no-file",)),
    V("a new optimizer after loading", "10.3", (
        ("    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n", "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n    start = load(path, model, optimizer)\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n"),
        (RANGE, "range(start, epochs)"),
    ), ("other-weights",), "stopped and resumed"),
    # A rank that nobody waits for may find what another one has saved of this run, and then makes an epoch less.
    V("C01 no DDP", "10.3", (("cross_entropy(model(inputs), targets)", "cross_entropy(model.module(inputs), targets)"),), ("drift", "peer-gone"), "without a stop"),
]  # fmt: skip
