"""Right programs of exercise 4 that are unusual: each the solution with other pieces, and all of them score full."""

from __future__ import annotations

from course_lib.grading.snapshots import program

MANY = program("many_gpus")

INIT = 'dist.init_process_group("nccl" if use_cuda else "gloo", rank=rank, world_size=world_size)'
SPAWN = "    mp.spawn(train, (args,), nprocs=args.num_gpus)  # step 1: a process for each GPU of this node\n"
PREPARE = "    if local_rank == 0:\n        prepare()\n    dist.barrier()  # nobody reads before all is written\n"
SAMPLER = "    sampler = DistributedSampler(train_set, seed=args.base_seed)\n"
LOADER = "    loader = DataLoader(train_set, args.batch_size, sampler=sampler)\n"
DDP = "DistributedDataParallel(WideResNet().to(device), device_ids=[local_rank] if use_cuda else None)"
LOSS = "            cross_entropy(model(images), labels).backward()\n"
STEP = "            optimizer.step()\n"
SET_EPOCH = "        sampler.set_epoch(epoch)\n"
REDUCED = "    dist.all_reduce(counts)\n    return (counts[0] / counts[1]).item()\n"
VAL_LOADER = "DataLoader(Subset(val_set, range(rank, len(val_set), world_size)), batch_size)"
EVALUATE = "        val_accuracy = evaluate(model.module, val_set, args.batch_size, rank, world_size, device)\n"
SPEED = """        speed = torch.tensor(len(sampler) / (time.perf_counter() - start), device=device)
        dist.reduce(speed, dst=0)
"""
SAVE = '            torch.save(model.module.state_dict(), "model.pt")\n'
DESTROY = "    dist.destroy_process_group()\n"
PLAIN = ((DDP, "WideResNet().to(device)"), ("model.module", "model"))  # without DDP, for averaging by hand
EACH = "            for parameter in model.parameters():\n                "
BROADCAST = "    for tensor in model.state_dict().values():\n        dist.broadcast(tensor, src=0)\n"

Edits = tuple[tuple[str, str], ...]


def edited(edits: Edits) -> str:
    """The solution with other pieces."""
    text = MANY
    for before, afterwards in edits:
        assert before in text, before
        text = text.replace(before, afterwards)
    return text


def _indices(lines: str) -> Edits:
    """Dealing by hand: `lines` make the indices of a rank from `order`, in each epoch."""
    deal = """        order = torch.randperm(
            len(train_set), generator=torch.Generator().manual_seed(args.base_seed + epoch)
        ).tolist()
"""
    return (
        (SAMPLER + LOADER, ""),
        (SET_EPOCH, f"{deal}{lines}        loader = DataLoader(train_set, args.batch_size, sampler=own)\n"),
        ("len(sampler)", "len(own)"),
    )


STREAM = """class Stream(torch.utils.data.IterableDataset):
    def __init__(self, data, seed, rank, world_size):
        self.data, self.seed, self.rank, self.world_size, self.epoch = data, seed, rank, world_size, 0

    def __iter__(self):
        self.epoch += 1
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(self.seed + self.epoch))
        share = len(self.data) // self.world_size
        for index in order[self.rank * share : (self.rank + 1) * share].tolist():
            yield self.data[index]


def train("""

GATHER_AND_STEP = f"""{EACH}parts = [torch.empty_like(parameter) for _ in range(world_size)] if rank == 0 else None
                dist.gather(parameter.grad, parts, dst=0)
                if rank == 0:
                    parameter.grad = torch.stack(parts).mean(0)
            if rank == 0:
                optimizer.step()
{EACH}dist.broadcast(parameter.data, src=0)
"""
FLAT = """            flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            dist.all_reduce(flat)
            flat /= world_size
            for parameter, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
                parameter.grad.copy_(part.view_as(parameter))
"""
HOOKS = """    def average(gradient):
        gradient = gradient / world_size
        dist.all_reduce(gradient)
        return gradient

    for parameter in model.parameters():
        parameter.register_hook(average)
"""
POST_HOOKS = """    def average(parameter):
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)
"""
HALVES = """            halves = list(zip(images.split(2), labels.split(2)))
            for number, (some, answers) in enumerate(halves):
                last = number == len(halves) - 1
                with contextlib.nullcontext() if last else model.no_sync():
                    (cross_entropy(model(some), answers) * len(some) / len(images)).backward()
"""
ASYNC = """            handles = [dist.all_reduce(each.grad, async_op=True) for each in model.parameters()]
            for handle, parameter in zip(handles, model.parameters()):
                handle.wait()
                parameter.grad /= world_size
"""
LOSS_INSIDE = """class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = WideResNet()

    def forward(self, images, labels):
        return cross_entropy(self.model(images), labels)


def prepare("""
GATHERED = """    counts = counts.tolist()
    everyone = [None] * world_size
    dist.all_gather_object(everyone, counts)
    return sum(each[0] for each in everyone) / sum(each[1] for each in everyone)
"""
BY_ID = """    answers = torch.full((len(val_set),), -1.0)
    with torch.no_grad():
        for index in DistributedSampler(val_set, world_size, rank, shuffle=False):
            image, label = val_set[index]
            answers[index] = float(model(image[None].to(device)).argmax() == label)
    dist.all_reduce(answers, op=dist.ReduceOp.MAX)
    return answers.mean().item()
"""
_EVALUATE_BODY = MANY[MANY.index("    loader = DataLoader(Subset(") : MANY.index("\n\ndef train(")]
PROCESSES = """    workers = [mp.Process(target=train, args=(local_rank, args)) for local_rank in range(args.num_gpus)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""
IS_A_RANK = """    if "LOCAL_RANK" in os.environ:
        return train(int(os.environ["LOCAL_RANK"]), args)
"""
EACH_A_COMMAND = f"""{IS_A_RANK}    workers = [
        subprocess.Popen([sys.executable, *sys.argv], env={{**os.environ, "LOCAL_RANK": str(local_rank)}})
        for local_rank in range(args.num_gpus)
    ]
    if any([worker.wait() for worker in workers]):
        raise SystemExit("a rank failed")
"""
TORCHRUN = f"""{IS_A_RANK}    where = [f"--nnodes={{args.num_nodes}}", f"--node-rank={{args.node_id}}", f"--nproc-per-node={{args.num_gpus}}"]
    where += ["--master-addr", os.environ["MASTER_ADDR"], "--master-port", os.environ["MASTER_PORT"]]
    subprocess.run(["torchrun", *where, *sys.argv], check=True)
"""
COMMANDS = ("import argparse\n", "import argparse\nimport subprocess\nimport sys\n")
POOL = """    with mp.get_context("spawn").Pool(args.num_gpus) as pool:
        works = [pool.apply_async(train, (local_rank, args)) for local_rank in range(args.num_gpus)]
        while not all(work.ready() for work in works):
            for work in works:
                if work.ready():
                    work.get()
            time.sleep(0.01)
        for work in works:
            work.get()
"""
FUTURES = """    with concurrent.futures.ProcessPoolExecutor(args.num_gpus, mp.get_context("spawn")) as pool:
        works = [pool.submit(train, local_rank, args) for local_rank in range(args.num_gpus)]
        for work in concurrent.futures.as_completed(works):
            if work.exception():
                for process in pool._processes.values():
                    process.terminate()
                raise SystemExit("a rank failed")
"""
OS_FORK = """    pids = []
    for local_rank in range(args.num_gpus):
        pids.append(os.fork())
        if pids[-1] == 0:
            train(local_rank, args)
            sys.stdout.flush()
            os._exit(0)
    if any([os.waitpid(pid, 0)[1] for pid in pids]):
        raise SystemExit("a rank failed")
"""
OS_SPAWN = f"""{IS_A_RANK}    pids = []
    for local_rank in range(args.num_gpus):
        environ = {{**os.environ, "LOCAL_RANK": str(local_rank)}}
        pids.append(os.spawnve(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv], environ))
    if any([os.waitpid(pid, 0)[1] for pid in pids]):
        raise SystemExit("a rank failed")
"""
ENVIRONMENT = """    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(local_rank))
    dist.init_process_group("nccl" if use_cuda else "gloo")
"""
STORE = """    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, world_size, is_master=rank == 0)
    dist.init_process_group("nccl" if use_cuda else "gloo", store=store, rank=rank, world_size=world_size)
"""
RENAMED = """    if local_rank == 0 and not os.path.exists("data"):
        os.makedirs("unpacking")
        with np.load("fashion_mnist.npz") as packed:
            for name in packed.files:
                np.save(f"unpacking/{name}.npy", packed[name])
        os.rename("unpacking", "data")
    while not os.path.exists("data"):
        time.sleep(0.02)
"""
SHARED = """    os.makedirs("data", exist_ok=True)
    with np.load("fashion_mnist.npz") as packed:
        for name in packed.files[local_rank :: args.num_gpus]:
            np.save(f"data/{name}.npy", packed[name])
    dist.barrier()
"""
IN_TURN = (
    "    if local_rank == 0:\n        prepare()\n    dist.barrier()\n    prepare()  # which finds all of it there\n"
)
ZERO = "ZeroRedundancyOptimizer(model.parameters(), OPTIMIZERS[args.optimizer], lr=args.lr)"

FUNCTIONAL = """            def loss_of(parameters):
                return cross_entropy(torch.func.functional_call(model, parameters, (images,)), labels)

            gradients = torch.func.grad(loss_of)({name: each.detach() for name, each in model.named_parameters()})
            for name, parameter in model.named_parameters():
                dist.all_reduce(gradients[name])
                parameter.grad = gradients[name] / world_size
"""
BY_AUTOGRAD = """            gradients = torch.autograd.grad(cross_entropy(model(images), labels), list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), gradients):
                dist.all_reduce(gradient)
                parameter.grad = gradient.div_(world_size)
"""
SHARES_OF_SUMS = """            flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            share = -(-len(flat) // world_size)
            shares = list(nn.functional.pad(flat, (0, share * world_size - len(flat))).split(share))
            for other in range(world_size):
                dist.reduce(shares[other], dst=other)
            gathered = [torch.zeros(share) for _ in range(world_size)]
            dist.all_gather(gathered, shares[rank])
            mean = torch.cat(gathered)[: len(flat)] / world_size
            torch.nn.utils.vector_to_parameters(mean, [parameter.grad for parameter in model.parameters()])
"""
AT_ONE_RANK = """            for parameter in model.parameters():
                given = [torch.zeros_like(parameter.grad) for _ in range(world_size)] if rank == 0 else None
                dist.gather(parameter.grad, given, dst=0)
                mean = torch.stack(given).mean(0) if rank == 0 else None
                dist.scatter(parameter.grad, [mean.clone() for _ in range(world_size)] if rank == 0 else None, src=0)
"""
SENT = """            for parameter in model.parameters():
                if rank > 0:
                    dist.send(parameter.grad, dst=0)
                    dist.recv(parameter.grad, src=0)
                    continue
                other = torch.empty_like(parameter.grad)
                for source in range(1, world_size):
                    dist.recv(other, src=source)
                    parameter.grad += other
                parameter.grad /= world_size
                for target in range(1, world_size):
                    dist.send(parameter.grad, dst=target)
"""
OWN_HOOK = """
    def hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sent: sent.value()[0] / world_size)

    model.register_comm_hook(None, hook)
"""
CLOSURE = """            def closure():
                optimizer.zero_grad()
                loss = cross_entropy(model(images), labels)
                loss.backward()
                return loss

            optimizer.step(closure)
"""
SHARDED = """        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        if rank == 0:
            results"""
MESH = """    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cuda" if use_cuda else "cpu", (world_size,))
    model = """
BATCHES_DEALT = """        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(args.base_seed + epoch))
        batches = order.split(args.batch_size)
        own = [batch.tolist() for batch in (batches + batches[: -len(batches) % world_size])[rank::world_size]]
        loader = DataLoader(train_set, batch_sampler=own)
"""
NO_GROUP_OF_ONE = (
    (f"    {INIT}\n", f"    if world_size > 1:\n        {INIT}\n"),
    ("    dist.barrier()  # nobody", "    if world_size > 1:\n        dist.barrier()  # nobody"),
    ("DistributedSampler(train_set", "DistributedSampler(train_set, world_size, rank"),
    (
        f"    model = {DDP}\n",
        f"    bare = model = WideResNet().to(device)\n    if world_size > 1:\n        model = {DDP}\n",
    ),
    ("        model = DistributedDataParallel(WideResNet().to(device)", "        model = DistributedDataParallel(bare"),
    ("model.module", "bare"),
    ("        dist.reduce(", "        if world_size > 1:\n            dist.reduce("),
    ("    dist.all_reduce(counts)", "    if world_size > 1:\n        dist.all_reduce(counts)"),
    (DESTROY, "    if world_size > 1:\n        dist.destroy_process_group()\n"),
)
VISIBLE = (
    ('torch.device("cuda", local_rank)', 'torch.device("cuda", 0)'),
    ("[local_rank] if", "[0] if"),
)
USE_CUDA = "    use_cuda = torch.cuda.is_available()\n"
TOLD_OF_GPU = """    if use_cuda:
        print(torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device).total_memory)
        print(torch.cuda.memory_allocated(device), torch.cuda.mem_get_info(device), torch.cuda.get_device_capability())
    torch.manual_seed(args.base_seed)
"""
EVENTS = """        if use_cuda:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            for event in events:
                event.record()
            torch.cuda.synchronize()
            print(events[0].elapsed_time(events[1]))
"""
LOCKED = """    with open("data.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prepare()
"""
STYLES: dict[str, Edits] = {
    "S01 every so many, the tail dropped": _indices(
        "        own = order[rank : len(order) // world_size * world_size : world_size]\n"
    ),
    "S02 a piece of each global batch": _indices(
        """        size, own = args.batch_size * world_size, []
        for first in range(0, len(order) - size + 1, size):
            own += order[first + rank * args.batch_size : first + (rank + 1) * args.batch_size]
"""
    ),
    "S02 a piece of the order": _indices(
        "        share = len(order) // world_size\n        own = order[rank * share : (rank + 1) * share]\n"
    ),
    "S02 batches dealt": (*_indices("")[:1], (SET_EPOCH, BATCHES_DEALT), ("len(sampler)", "sum(map(len, own))")),
    "S03 sum, then divide": (*PLAIN, (LOSS, f"{LOSS}{EACH}dist.all_reduce(parameter.grad)\n                parameter.grad /= world_size\n")),
    "S04 AVG": (*PLAIN, (LOSS, f"{LOSS}{EACH}dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n")),
    "S05 divided loss, then sum": (*PLAIN, (LOSS, f"            (cross_entropy(model(images), labels) / world_size).backward()\n{EACH}dist.all_reduce(parameter.grad)\n")),
    "S07 one flat vector": (*PLAIN, (LOSS, LOSS + FLAT)),
    "S09 one rank steps": (*PLAIN, (STEP, GATHER_AND_STEP)),
    "S11 hooks of tensors": (*PLAIN, ("    results = []\n", HOOKS + "    results = []\n")),
    "S11 hooks after accumulation": (*PLAIN, ("    results = []\n", POST_HOOKS + "    results = []\n")),
    "S12 all_gather and mean": (*PLAIN, (LOSS, f"{LOSS}{EACH}parts = [torch.empty_like(parameter) for _ in range(world_size)]\n                dist.all_gather(parts, parameter.grad)\n                parameter.grad = sum(parts) / world_size\n")),
    "S12 reduce and broadcast": (*PLAIN, (LOSS, f"{LOSS}{EACH}dist.reduce(parameter.grad, dst=0)\n                dist.broadcast(parameter.grad, src=0)\n                parameter.grad /= world_size\n")),
    "S14 asynchronous": (*PLAIN, (LOSS, LOSS + ASYNC)),
    "S15 loss inside": (("def prepare(", LOSS_INSIDE), (DDP, DDP.replace("WideResNet()", "WithLoss()")), (LOSS, "            model(images, labels).backward()\n"), ("model.module", "model.module.model")),
    "S16 optimizer first": ((f"    model = {DDP}\n", "    bare = WideResNet().to(device)\n"), ("(model.parameters(), lr=args.lr)\n", "(bare.parameters(), lr=args.lr)\n    model = DistributedDataParallel(bare)\n")),
    "S17 accumulation with no_sync": (("import argparse\n", "import argparse\nimport contextlib\n"), (LOSS, HALVES)),
    "S18 accumulation without": (("import argparse\n", "import argparse\nimport contextlib\n"), (LOSS, HALVES.replace("if last else model.no_sync()", "").replace("contextlib.nullcontext() ", "contextlib.nullcontext()"))),
    "S19 ZeRO": (("from torch.nn.parallel", "from torch.distributed.optim import ZeroRedundancyOptimizer\nfrom torch.nn.parallel"), ("OPTIMIZERS[args.optimizer](model.parameters(), lr=args.lr)", ZERO)),
    "S22 averaged again": ((LOSS, f"{LOSS}{EACH}dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n"),),
    "S23 seeds by rank": (("manual_seed(args.base_seed)", "manual_seed(args.base_seed + rank)"),),
    "S24 broadcast by hand": (*PLAIN, ("manual_seed(args.base_seed)", "manual_seed(args.base_seed + rank)"), ("    optimizer = OPT", BROADCAST + "    optimizer = OPT"), (LOSS, f"{LOSS}{EACH}dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n")),
    "S25 Process": ((SPAWN, PROCESSES.replace("mp.Process", 'mp.get_context("spawn").Process')),),
    "S25 Process, forked": ((SPAWN, PROCESSES),),
    "S25 start_processes, forked": ((SPAWN, '    mp.start_processes(train, (args,), nprocs=args.num_gpus, start_method="fork")\n'),),
    "S25 not joined at once": ((SPAWN, "    context = mp.spawn(train, (args,), nprocs=args.num_gpus, join=False)\n    while not context.join():\n        pass\n"),),
    "S25 the launcher is rank 0": ((SPAWN, PROCESSES.replace("range(args", "range(1, args").replace("mp.Process", 'mp.get_context("spawn").Process').replace("    for worker in workers:\n        worker.join", "    train(0, args)\n    for worker in workers:\n        worker.join")),),
    "S25 start_processes, by a fork server": ((SPAWN, '    mp.start_processes(train, (args,), nprocs=args.num_gpus, start_method="forkserver")\n'),),
    "S25 a pool": ((SPAWN, POOL),),
    "S25 a pool, forked": ((SPAWN, POOL.replace('"spawn"', '"fork"')),),
    "S25 a pool, by a fork server": ((SPAWN, POOL.replace('"spawn"', '"forkserver"')),),
    "S25 futures": ((SPAWN, FUTURES), ("import argparse\n", "import argparse\nimport concurrent.futures\n")),
    "S25 futures, forked": ((SPAWN, FUTURES.replace('"spawn"', '"fork"')), ("import argparse\n", "import argparse\nimport concurrent.futures\n")),
    "S25 os.fork": ((SPAWN, OS_FORK), COMMANDS),
    "S25 each rank a command": ((SPAWN, EACH_A_COMMAND), COMMANDS),
    "S25 each rank a command, with an environment of its own": ((SPAWN, EACH_A_COMMAND.replace("**os.environ", '**{name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT")}')), COMMANDS),
    "S25 each rank a module": ((SPAWN, EACH_A_COMMAND.replace("[sys.executable, *sys.argv]", '[sys.executable, "-u", "-m", "train", *sys.argv[1:]]')), COMMANDS),
    "S25 each rank code of a command": ((SPAWN, EACH_A_COMMAND.replace("[sys.executable, *sys.argv]", '[sys.executable, "-c", "import train; train.main()", *sys.argv[1:]]')), COMMANDS),
    "S25 each rank a command of a shell": ((SPAWN, EACH_A_COMMAND.replace("[sys.executable, *sys.argv]", '" ".join(["exec", "python", *sys.argv])').replace("env=", "shell=True, env=")), COMMANDS),
    "S25 os.spawnve": ((SPAWN, OS_SPAWN), COMMANDS),
    "S25 torchrun": ((SPAWN, TORCHRUN), COMMANDS),
    "S25 torchrun, which the program becomes": ((SPAWN, TORCHRUN.replace("subprocess.run([", "os.execvp(\"torchrun\", [").replace(", check=True", "")), COMMANDS),
    "S25 torchrun as a module": ((SPAWN, TORCHRUN.replace('["torchrun", ', '[sys.executable, "-m", "torch.distributed.run", ')), COMMANDS),
    "S25 env://": ((f"    {INIT}\n", ENVIRONMENT),),
    "S25 tcp://": ((INIT, INIT.replace(", rank", ", init_method=f\"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}\", rank")),),
    "S25 file://": ((INIT, INIT.replace(", rank", ", init_method=f\"file:///tmp/meeting-{os.environ['MASTER_PORT']}\", rank")),),
    "S25 a store": ((f"    {INIT}\n", STORE),),
    "S26 no group of one": NO_GROUP_OF_ONE,
    "S26 gloo always": ((INIT, 'dist.init_process_group("gloo", rank=rank, world_size=world_size)'),),
    "S26 no backend named": ((INIT, "dist.init_process_group(rank=rank, world_size=world_size)"),),
    "S27 a stream": (("def train(", STREAM), (SAMPLER, "    sampler = range(len(train_set) // world_size)\n"), (LOADER, "    loader = DataLoader(Stream(train_set, args.base_seed, rank, world_size), args.batch_size)\n"), (SET_EPOCH, "")),
    "S29 batches by hand": (*_indices("        own = order[rank : len(order) // world_size * world_size : world_size]\n")[:1], (SET_EPOCH, _indices("        own = order[rank : len(order) // world_size * world_size : world_size]\n")[1][1].replace("DataLoader(train_set, args.batch_size, sampler=own)", "[train_set[part] for part in torch.tensor(own).split(args.batch_size)]")), ("len(sampler)", "len(own)")),
    "S30 the tail dropped by the sampler": ((SAMPLER, SAMPLER.replace("seed=", "drop_last=True, seed=")),),
    "S30 only full batches": ((LOADER, LOADER.replace("sampler=sampler", "sampler=sampler, drop_last=True")),),
    "S31 rank 0 looks at all": ((VAL_LOADER, "DataLoader(val_set, batch_size)"), (REDUCED, "    return (counts[0] / counts[1]).item()\n"), (EVALUATE, "        val_accuracy = evaluate(model.module, val_set, args.batch_size, rank, world_size, device) if rank == 0 else 0\n")),
    "S31 all look at all": ((VAL_LOADER, "DataLoader(val_set, batch_size)"), (REDUCED, "    return (counts[0] / counts[1]).item()\n")),
    "S31 gathered objects": ((REDUCED, GATHERED),),
    "S31 by number, filled up": ((_EVALUATE_BODY, BY_ID.rstrip("\n")),),
    "S31 two sums": ((REDUCED, "    correct, seen = counts.clone()\n    dist.all_reduce(correct)\n    dist.all_reduce(seen)\n    return float(correct) / float(seen)\n"),),
    "S31 reduced to rank 0": ((REDUCED, REDUCED.replace("all_reduce(counts)", "reduce(counts, 0)")),),
    "S32 rank 0 through the wrapper": ((VAL_LOADER, "DataLoader(val_set, batch_size)"), (REDUCED, "    return (counts[0] / counts[1]).item()\n"), (EVALUATE, "        val_accuracy = evaluate(model, val_set, args.batch_size, rank, world_size, device) if rank == 0 else 0\n")),
    "S33 the last rank writes": (("if rank == 0:", "if rank == world_size - 1:"), ("dist.reduce(speed, dst=0)", "dist.all_reduce(speed)")),
    "S33 a file for each rank too": (("        if rank == 0:\n", "        torch.save(model.module.state_dict(), f'rank{rank}.pt')\n        if rank == 0:\n"),),
    "S33 names mended": ((SAVE, '            weights = {name.removeprefix("module."): value for name, value in model.state_dict().items()}\n            torch.save(weights, "model.pt")\n'),),
    "S33 written, then moved": ((SAVE, SAVE.replace("model.pt", "model.tmp") + '            os.replace("model.tmp", "model.pt")\n'),),
    "S33 saved once": ((SAVE, ""), (DESTROY, '    if rank == 0:\n        torch.save(model.module.state_dict(), "model.pt")\n' + DESTROY)),
    "S34 unpacked before the ranks start": ((PREPARE, ""), (SPAWN, "    prepare()\n" + SPAWN)),
    "S34 unpacked, then moved": ((PREPARE, RENAMED),),
    "S34 each unpacks a part": ((PREPARE, SHARED),),
    "S34 in turn": ((PREPARE, IN_TURN),),
    "S34 a barrier before and after": ((PREPARE, "    dist.barrier()\n" + PREPARE),),
    "S34 a sum for a barrier": ((PREPARE, PREPARE.replace("dist.barrier()", "dist.all_reduce(torch.zeros(1, device=device))")),),
    "S34 the first of all, with a lock": (("import argparse\n", "import argparse\nimport fcntl\n"), (PREPARE, LOCKED)),
    "S34 the first of all makes the folder": ((PREPARE, "    try:\n        prepare()\n    except FileExistsError:\n        pass\n    dist.barrier()\n"),),
    "S36 no destroy": ((DESTROY, ""),),
    "S36 a group of its own": ((REDUCED, "    own = dist.new_group(list(range(world_size)))\n" + REDUCED.replace("(counts)", "(counts, group=own)", 1)),),
    "S37 all images by the slowest time": ((SPEED, "        seconds = torch.tensor(time.perf_counter() - start, device=device)\n        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)\n        speed = len(train_set) / seconds\n"),),
    "S37 counted, then added": ((SPEED, "        both = torch.tensor([float(len(sampler)), time.perf_counter() - start], device=device)\n        dist.all_reduce(both)\n        speed = both[0] / (both[1] / world_size)\n"),),
    "S38 no_sync at no time, hooks of DDP": (("    optimizer = OPT", "    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n    model.register_comm_hook(dist.group.WORLD, default_hooks.allreduce_hook)\n    optimizer = OPT"),),
    "S38 options of DDP": ((DDP, DDP.replace("device_ids", "gradient_as_bucket_view=True, static_graph=True, find_unused_parameters=False, bucket_cap_mb=1, device_ids")),),
    "S39 prints a lot": ((STEP, STEP + '            print("x" * 1000, rank, flush=True)\n'),),
    "S39 closures": (("        model.train()\n", "        model.train()\n\n        def closure():\n            return 0\n\n"),),
    "S40 failure handled by all": (("    mp.spawn(train, (args,), nprocs=args.num_gpus)", "    try:\n        mp.spawn(train, (args,), nprocs=args.num_gpus)\n    except Exception as error:\n        print(error)\n        raise SystemExit(3) from error\n    return\n    mp.spawn(train, (args,), nprocs=args.num_gpus)"),),
    "S41 NaN skipped by all": ((LOSS, "            loss = cross_entropy(model(images), labels)\n            bad = (~torch.isfinite(loss)).float().detach()\n            dist.all_reduce(bad)\n            if bad:\n                continue\n            loss.backward()\n"),),
    "S42 channels last, zero_grad kept": (("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)"), ("images, labels = images.to(device), labels.to(device)", "images, labels = images.to(device, memory_format=torch.channels_last), labels.to(device)")),
    "S43 normalised images": (("images[:, None] / 255", "images[:, None].float().div(255)"),),
    "S44 workers of the loader": ((LOADER, LOADER.replace("sampler=sampler", "sampler=sampler, num_workers=1")),),
    "S44 pinned": ((LOADER, LOADER.replace("sampler=sampler", "sampler=sampler, pin_memory=True")),),
    "S44 pinned by workers": ((LOADER, LOADER.replace("sampler=sampler", "sampler=sampler, pin_memory=use_cuda, num_workers=1")),),
    "S45 torch.func": (*PLAIN, (LOSS, FUNCTIONAL)),
    "S45 autograd.grad": (*PLAIN, (LOSS, BY_AUTOGRAD)),
    "S46 shares of sums": (*PLAIN, (LOSS, LOSS + SHARES_OF_SUMS)),
    "S46 gathered and scattered": (*PLAIN, (LOSS, LOSS + AT_ONE_RANK)),
    "S46 sent to one rank": (*PLAIN, (LOSS, LOSS + SENT)),
    "S47 a hook of its own": ((f"    model = {DDP}\n", f"    model = {DDP}\n{OWN_HOOK}"),),
    "S47 a mesh": ((f"    model = {DDP}", MESH + DDP.replace("device_ids", "device_mesh=mesh, device_ids")),),
    "S47 replicate": ((DDP, "__import__('torch.distributed._composable.replicate', fromlist=['']).replicate(WideResNet().to(device))"), ("model.module", "model")),
    "S48 sharded": ((SAVE, SAVE.replace("model.module.state_dict()", "state")), (DDP, "__import__('torch.distributed.fsdp', fromlist=['']).fully_shard(WideResNet().to(device))"), ("model.module", "model"), ("        if rank == 0:\n            results", SHARDED), ("range(rank, len(val_set), world_size)", "range(len(val_set))")),
    "S49 uneven inputs joined": (("        for images, labels in loader:  # step 6", "        with model.join():\n         for images, labels in loader:  # step 6"),),
    "S49 a step with a closure": (("            optimizer.zero_grad()\n" + LOSS + STEP, CLOSURE),),
    "S51 one GPU visible": (*VISIBLE, (USE_CUDA, f'    os.environ["CUDA_VISIBLE_DEVICES"] = str(local_rank)\n{USE_CUDA}')),
    "S51 one GPU visible to each command": (*VISIBLE, (SPAWN, EACH_A_COMMAND.replace("str(local_rank)}", 'str(local_rank), "CUDA_VISIBLE_DEVICES": str(local_rank)}')), COMMANDS),
    "S52 tells of its GPU": (("    torch.manual_seed(args.base_seed)\n", TOLD_OF_GPU), (SPEED, EVENTS + SPEED)),
    "S53 accuracy to four digits": (('"val_accuracy": val_accuracy}', '"val_accuracy": round(val_accuracy, 4)}'),),
    "S50 a rate in a tensor": ((", lr=args.lr)", ", lr=torch.tensor(args.lr), foreach=False)"),),
    "S50 groups of parameters": (("model.parameters(), lr", "[{'params': [each]} for each in model.parameters()], lr"),),
}  # fmt: skip
