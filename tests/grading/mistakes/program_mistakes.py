"""Wrong programs of exercise 4: each the solution with a small edit, and the parts that have to refuse it.

The names are those of a survey of mistakes that people make with data-parallel training: A launch, B data,
C gradients, D model state, E batch size and learning rate, F metrics, G collectives, H files.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.grading.snapshots import program

MANY = program("many_gpus")

INIT = 'dist.init_process_group("nccl" if use_cuda else "gloo", rank=rank, world_size=world_size)'
SPAWN = "mp.spawn(train, (args,), nprocs=args.num_gpus)"
PREPARE = "    if local_rank == 0:\n        prepare()\n    dist.barrier()  # nobody reads before all is written\n"
SAMPLER = "DistributedSampler(train_set, seed=args.base_seed)"
LOADER = "DataLoader(train_set, args.batch_size, sampler=sampler)"
DDP = "DistributedDataParallel(WideResNet().to(device), device_ids=[local_rank] if use_cuda else None)"
LOSS = "            cross_entropy(model(images), labels).backward()\n"
SET_EPOCH = "sampler.set_epoch(epoch)"
COUNTS = "            counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)], device=device)\n"
REDUCED = "    dist.all_reduce(counts)\n    return (counts[0] / counts[1]).item()\n"
VAL_LOADER = "DataLoader(Subset(val_set, range(rank, len(val_set), world_size)), batch_size)"
SPEED = "        dist.reduce(speed, dst=0)\n"
SAVE = '            torch.save(model.module.state_dict(), "model.pt")\n'
RESULT = '    if rank == 0:\n        with open("result.json", "w") as file:\n            json.dump(results, file)\n'
PLAIN = (DDP, "WideResNet().to(device)"), ("model.module", "model")  # without DDP, for averaging by hand
STREAM = """class Stream(torch.utils.data.IterableDataset):
    def __init__(self, data, seed):
        self.data, self.seed, self.epoch = data, seed, 0

    def __iter__(self):
        self.epoch += 1
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        for index in torch.randperm(len(self.data), generator=generator).tolist():
            yield self.data[index]


def train("""
SHORT = """        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(args.base_seed + epoch)).tolist()
        share = len(order) // world_size
        own = order[rank * share : (rank + 1) * share - 1]
        loader = DataLoader(train_set, args.batch_size, sampler=own)
"""
OWN_PORT = f"""    if "MASTER_PORT" not in os.environ:
        import socket
        with socket.socket() as free:
            free.bind(("", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
    {INIT}
"""
IS_A_RANK = '    if "LOCAL_RANK" in os.environ:\n        return train(int(os.environ["LOCAL_RANK"]), args)\n'
COMMANDS = f"""{IS_A_RANK}    workers = [
        subprocess.Popen([sys.executable, *sys.argv], env={{**os.environ, "LOCAL_RANK": str(local_rank)}})
        for local_rank in range(args.num_gpus)
    ]
    if any([worker.wait() for worker in workers]):
        raise SystemExit(1)
"""
TORCHRUN = f"""{IS_A_RANK}    where = [f"--nnodes={{args.num_nodes}}", f"--node-rank={{args.node_id}}", f"--nproc-per-node={{args.num_gpus}}"]
    where += ["--master-addr", os.environ["MASTER_ADDR"], "--master-port", os.environ["MASTER_PORT"]]
    subprocess.run(["torchrun", *where, *sys.argv], check=True)
"""


@dataclass(frozen=True)
class Mistake:
    """A wrong program.

    Fields:
        refused: the parts that refuse it, each with the names of faults one of which it has to tell.
        right: the parts that have nothing to say, since what they are about is as it should be.
    """

    name: str
    edits: tuple[tuple[str, str], ...]
    refused: dict[str, str]
    right: str = ""

    @property
    def code(self) -> str:
        """The program."""
        return edited(MANY, self.edits)


def edited(text: str, edits: tuple[tuple[str, str], ...]) -> str:
    """A program with other pieces in it."""
    for before, afterwards in edits:
        assert before in text, before
        text = text.replace(before, afterwards)
    return text


def _hand(step: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Averaging by hand: what comes after backward."""
    return (*PLAIN, (LOSS, LOSS + step), *more)


def _loss(lines: str) -> tuple[tuple[str, str], ...]:
    return ((LOSS, "".join(f"            {line}\n" for line in lines.splitlines())),)


def _started(how: str, *edits: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Ranks that are started by COMMANDS or TORCHRUN, with other pieces in that."""
    line = f"    {SPAWN}  # step 1: a process for each GPU of this node\n"
    return ((line, edited(how, edits)), ("import argparse\n", "import argparse\nimport subprocess\nimport sys\n"))


_OWN_WORLD = 'dist.init_process_group("gloo", f"tcp://127.0.0.1:{29600 + rank}", rank=0, world_size=1)'
_EACH_PARAMETER = "            for parameter in model.parameters():\n                "

MISTAKES = (
    Mistake("A01 each process a group of one", ((INIT, _OWN_WORLD),), {"4.2": "world-size"}),
    Mistake("A02 one more announced", ((INIT, INIT.replace("=world_size", "=world_size + 1")),), {"4.2": "world-size"}),
    Mistake("A02 one fewer started", ((SPAWN, SPAWN.replace(".num_gpus", ".num_gpus - 1")),), {"4.1": "number-of-processes"}),
    Mistake("A03 all are rank 0", ((INIT, INIT.replace("rank=rank", "rank=0")),), {"4.2": "same-rank"}),
    Mistake("A03 rank from an empty environment", ((INIT, INIT.replace("rank=rank", 'rank=int(os.environ.get("RANK", 0))')),), {"4.2": "same-rank"}),
    Mistake("A05 local rank joins", ((INIT, INIT.replace("rank=rank", "rank=local_rank")),), {"4.2": "same-rank"}),
    Mistake("A05 node id left out", (("args.node_id * args.num_gpus + local_rank", "args.node_id + local_rank"),), {"4.2": "same-rank"}),
    Mistake("A05 local rank deals", ((SAMPLER, "DistributedSampler(train_set, args.num_gpus, local_rank, seed=args.base_seed)"),), {"4.4": "same-samples"}),
    Mistake("A05 local rank writes", (("        if rank == 0:\n", "        if local_rank == 0:\n"),), {"4.10": "several-writers"}),
    Mistake("A06 global rank is the device", (('("cuda", local_rank)', '("cuda", rank)'),), {"4.3": "device-index"}),
    Mistake("A06 no device number", (('torch.device("cuda", local_rank)', 'torch.device("cuda", 0)'), ("[local_rank] if", "[0] if")), {"4.3": "same-device"}),
    Mistake(
        "A06 images on another device", (("images, labels = images.to(device), labels.to(device)", 'images, labels = images.to("cuda:0" if use_cuda else "cpu"), labels.to("cuda:0" if use_cuda else "cpu")'), ("    model.eval()\n", "    model.eval()\n    use_cuda = torch.cuda.is_available()\n")), {"4.3": "two-devices"}
    ),
    Mistake("A06 nothing on the GPU", (('torch.device("cuda", local_rank)', 'torch.device("cpu")'), ("[local_rank] if use_cuda else None", "None")), {"4.3": "no-device"}),
    Mistake("A07 port overwritten", (('os.environ.setdefault("MASTER_PORT", "29500")', 'os.environ["MASTER_PORT"] = "29512"'),), {"4.2": "port"}),
    Mistake("A07 address in init_method", ((INIT, INIT.replace(", rank", ', init_method="tcp://127.0.0.1:29512", rank')),), {"4.2": "port"}),
    Mistake("A08 no guard", (('if __name__ == "__main__":\n    main()', "main()"),), {"4.1": "no-main-guard"}),
    Mistake("A09 a lambda", ((SPAWN, "mp.spawn(lambda local_rank: train(local_rank, args), nprocs=args.num_gpus)"),), {"4.1": "cannot-be-sent"}),
    Mistake("A09 an open file is sent", ((SPAWN, "args.log = open('log.txt', 'w')\n    " + SPAWN),), {"4.1": "cannot-be-sent"}),
    Mistake("A10 no process index", (("def train(local_rank, args):", "def train(args):\n    local_rank = 0"),), {"4.1": "signature"}),
    Mistake("A10 the rank twice", ((SPAWN, SPAWN.replace("(args,)", "(0, args)")),), {"4.1": "signature"}),
    Mistake("A11 wants a launcher's flag", (("    args = parser", '    parser.add_argument("--local_rank", type=int, required=True)\n    args = parser'),), {"4.1": "arguments"}),
    Mistake("A13 sampler before the group", ((f"    {INIT}\n", ""), (f"    loader = {LOADER}\n", f"    loader = {LOADER}\n    {INIT}\n")), {"4.2": "too-early"}),
    Mistake("A13 DDP without a group", ((f"    {INIT}\n", ""), ("    dist.barrier()  # nobody reads before all is written\n", ""), (SAMPLER, "DistributedSampler(train_set, world_size, rank, seed=args.base_seed)")), {"4.2": "too-early"}),
    Mistake("A16 started twice", (("def main():", "def start(index, args):\n    " + SPAWN + "\n\n\ndef main():"), ("    mp.spawn(train, (args,), nprocs=args.num_gpus)  #", "    mp.spawn(start, (args,), nprocs=args.num_gpus)  #")), {"4.1": "started-twice number-of-processes"}),
    Mistake("A16 torchrun, and spawn in each", _started(TORCHRUN, (IS_A_RANK, f'    if "LOCAL_RANK" in os.environ:\n        return {SPAWN}\n')), {"4.1": "started-twice number-of-processes same-rank"}),
    Mistake("A16 torchrun in each", _started(TORCHRUN, (IS_A_RANK, "")), {"4.1": "processes nothing-trains hang port"}),
    Mistake("A03 commands without a rank", _started(COMMANDS, ("str(local_rank)", '"0"')), {"4.2": "same-rank"}),
    Mistake("A05 torchrun, and the local rank joins", (*_started(TORCHRUN), (INIT, INIT.replace("rank=rank", "rank=local_rank"))), {"4.2": "same-rank"}),
    Mistake("A02 one command too few", _started(COMMANDS, ("range(args.num_gpus)", "range(1, args.num_gpus)")), {"4.1": "number-of-processes"}),
    Mistake("A04 commands one after the other", _started(COMMANDS, (".Popen(", ".run("), ("worker.wait()", "worker.returncode")), {"4.1": "one-process world-size hang"}),
    Mistake("B03 torchrun, no set_epoch", (*_started(TORCHRUN), (SET_EPOCH, "pass")), {"4.4": "not-reshuffled"}),
    Mistake("A17 as many as there are GPUs", ((SPAWN, SPAWN.replace("args.num_gpus", "torch.cuda.device_count()")),), {"4.1": "nothing-trains"}),
    Mistake("A17 always two", ((SPAWN, SPAWN.replace("args.num_gpus", "2")),), {"4.1": "number-of-processes"}),
    Mistake("A17 world size of one node", (("args.num_nodes * args.num_gpus\n", "args.num_gpus\n"),), {"4.2": "world-size error port same-rank number-of-processes"}),
    Mistake("A18 nccl", ((INIT, INIT.replace(' if use_cuda else "gloo"', "")),), {"4.2": "backend"}),
    Mistake("A19 device_ids on the CPU", (("[local_rank] if use_cuda else None", "[local_rank]"),), {"4.5": "device-ids"}),
    Mistake("A23 a network interface", ((f"    {INIT}", f'    os.environ["GLOO_SOCKET_IFNAME"] = "lab0"\n    {INIT}'),), {"4.2": "interface"}),
    Mistake("A24 a host of one's own", ((f"    {INIT}", f'    os.environ["MASTER_ADDR"] = "node01.lab"\n    {INIT}'),), {"4.2": "no-address world-size error"}),
    Mistake("B01 no sampler", ((LOADER, "DataLoader(train_set, args.batch_size, shuffle=True)"),), {"4.4": "not-dealt"}),
    Mistake("B01 no sampler, other seeds", ((LOADER, "DataLoader(train_set, args.batch_size, shuffle=True)"), ("manual_seed(args.base_seed)", "manual_seed(args.base_seed + rank)")), {"4.4": "not-dealt"}),
    Mistake("B01 a world of one", ((SAMPLER, "DistributedSampler(train_set, 1, 0, seed=args.base_seed)"),), {"4.4": "not-dealt"}),
    Mistake("B01 all are rank 0", ((SAMPLER, "DistributedSampler(train_set, world_size, 0, seed=args.base_seed)"),), {"4.4": "same-samples"}),
    Mistake("B02 shuffle and sampler", ((LOADER, "DataLoader(train_set, args.batch_size, shuffle=True, sampler=sampler)"),), {"4.4": "sampler-and-shuffle"}),
    Mistake("B03 no set_epoch", ((SET_EPOCH, "pass"),), {"4.4": "not-reshuffled"}),
    Mistake("B03 not shuffled", ((SAMPLER, "DistributedSampler(train_set, shuffle=False)"),), {"4.4": "not-reshuffled not-shuffled"}),
    Mistake("B04 always epoch 0", ((SET_EPOCH, "sampler.set_epoch(0)"),), {"4.4": "not-reshuffled"}),
    Mistake("B04 one rank only", ((SET_EPOCH, "rank or sampler.set_epoch(epoch)"),), {"4.4": "samples-twice samples-missing same-samples not-reshuffled"}),
    Mistake("B04 epochs differ", ((SET_EPOCH, "sampler.set_epoch(epoch + rank)"),), {"4.4": "samples-twice samples-missing same-samples"}),
    Mistake("B04 seeds differ", ((SAMPLER, "DistributedSampler(train_set, seed=args.base_seed + rank)"),), {"4.4": "samples-twice samples-missing same-samples"}),
    Mistake("B04 numpy's own numbers", ((SAMPLER, "[int(index) for index in np.random.permutation(len(train_set))[rank : len(train_set) // world_size * world_size : world_size]]"), (SET_EPOCH, "pass")), {"4.4": "samples-twice samples-missing same-samples"}),
    Mistake("B04 Python's own numbers", ((SAMPLER, "__import__('random').sample(range(len(train_set)), len(train_set) // world_size * world_size)[rank::world_size]"), (SET_EPOCH, "pass")), {"4.4": "samples-twice samples-missing same-samples"}),
    Mistake("B08 a stream for all", (("def train(", STREAM), (SAMPLER, "None"), (LOADER, "DataLoader(Stream(train_set, args.base_seed), args.batch_size)"), (SET_EPOCH, "pass"), ("len(sampler)", "len(train_set)")), {"4.4": "not-dealt"}),
    Mistake("B10 divided twice", (("    # Step 4:", "    train_set = Subset(train_set, range(rank, len(train_set), world_size))\n    # Step 4:"),), {"4.4": "samples-missing"}),
    Mistake("B12 other numbers of batches", ((SAMPLER, "range(rank, len(train_set), world_size)"), (SET_EPOCH, "pass")), {"4.6": "uneven-steps hang peer-gone killed"}),
    Mistake("B18 drawn with replacement", ((SAMPLER, "torch.utils.data.RandomSampler(train_set, replacement=True, num_samples=len(train_set) // world_size)"), (SET_EPOCH, "torch.manual_seed(epoch * 100 + rank)")), {"4.4": "samples-twice samples-missing"}),
    Mistake("B19 data on one rank only", (('train_set, val_set = load("train"), load("val")', 'train_set, val_set = load("train") if rank == 0 else [], load("val")'),), {"4.4": "hang error idle-rank"}),
    Mistake("B20 all unpack", ((PREPARE, "    prepare()\n    dist.barrier()\n"),), {"4.7": "prepared-by-all"}),
    Mistake("B20 nobody waits", ((PREPARE, "    if local_rank == 0:\n        prepare()\n"),), {"4.7": "not-prepared read-too-early"}),
    Mistake("B20 barrier too early", ((PREPARE, "    dist.barrier()\n    if local_rank == 0:\n        prepare()\n"),), {"4.7": "not-prepared read-too-early"}),
    Mistake("B20 on one node only", ((PREPARE, PREPARE.replace("local_rank", "rank")),), {"4.7": "not-prepared"}),
    Mistake("B20 sleep for a barrier", ((PREPARE, "    if local_rank == 0:\n        prepare()\n    else:\n        time.sleep(0.3)\n"),), {"4.7": "read-too-early"}),
    Mistake("B20 only the writer waits", ((PREPARE, "    if local_rank == 0:\n        prepare()\n        dist.barrier()\n"),), {"4.7": "not-prepared read-too-early hang"}),
    Mistake("B20 wait for the folder", ((PREPARE, "    if local_rank == 0:\n        prepare()\n    while not os.path.exists('data'):\n        time.sleep(0.02)\n"),), {"4.7": "read-too-early"}),
    Mistake("B20 wait for the last file", ((PREPARE, "    if local_rank == 0:\n        prepare()\n    while not os.path.exists('data/val_labels.npy'):\n        time.sleep(0.02)\n"),), {"4.7": "read-too-early"}),
    Mistake("C01 no averaging", PLAIN, {"4.5": "drift"}),
    Mistake("C02 past the wrapper", _loss("cross_entropy(model.module(images), labels).backward()"), {"4.5": "drift"}),
    Mistake("C02 another handle", ((f"    model = {DDP}\n", f"    bare = WideResNet().to(device)\n    model = {DDP.replace('WideResNet().to(device)', 'bare')}\n"), *_loss("cross_entropy(bare(images), labels).backward()")), {"4.5": "drift"}),
    Mistake("C03 a sum", _hand(f"{_EACH_PARAMETER}dist.all_reduce(parameter.grad)\n"), {"4.5": "summed"}),
    Mistake("C04 loss divided too", _loss("(cross_entropy(model(images), labels) / world_size).backward()"), {"4.5": "divided-twice"}),
    Mistake("C04 gradient divided too", ((LOSS, f"{LOSS}{_EACH_PARAMETER}parameter.grad /= world_size\n"),), {"4.5": "divided-twice"}),
    Mistake("C05 loss times world size", _loss("(cross_entropy(model(images), labels) * world_size).backward()"), {"4.5": "summed"}),
    Mistake("C06 loss reduced", (*PLAIN, *_loss("loss = cross_entropy(model(images), labels)\ndist.all_reduce(loss)\n(loss / world_size).backward()")), {"4.5": "drift"}),
    Mistake("C07 averaged after the step", (*PLAIN, ("            optimizer.step()\n", f"            optimizer.step()\n{_EACH_PARAMETER}dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n")), {"4.5": "drift"}),
    Mistake("C08 some gradients only", _hand("            for parameter in list(model.parameters())[::2]:\n                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n"), {"4.5": "drift"}),
    Mistake("C08 handles not waited for", _hand("            for parameter in model.parameters():\n                parameter.grad = parameter.grad * 1.0 if rank else parameter.grad\n"), {"4.5": "drift"}),
    Mistake("C09 clipped before averaging", _hand(f"            nn.utils.clip_grad_norm_(model.parameters(), 0.05)\n{_EACH_PARAMETER}dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n"), {"4.5": "other-update scale"}),
    Mistake("C12 weights averaged", (*PLAIN, ("            optimizer.step()\n", f"            optimizer.step()\n{_EACH_PARAMETER}dist.all_reduce(parameter.data, op=dist.ReduceOp.AVG)\n")), {"4.5": "other-update other-step scale"}),
    Mistake("C13 other starts", _hand(f"{_EACH_PARAMETER}dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n", ("manual_seed(args.base_seed)", "manual_seed(args.base_seed + rank)")), {"4.5": "different-start"}),
    Mistake("C14 loaded on rank 0 only", (("    results = []\n", "    results = []\n    if rank == 0:\n        nn.init.zeros_(model.module.head.weight)\n"),), {"4.5": "different-start"}),
    Mistake("C16 rates differ", (("lr=args.lr)", "lr=args.lr * (rank + 1))"),), {"4.5": "drift"}),
    Mistake("C18 last pass not shared", _loss("with model.no_sync():\n    (cross_entropy(model(images), labels) / 2).backward()\n    (cross_entropy(model(images), labels) / 2).backward()"), {"4.5": "drift"}),
    Mistake("C20 halves not divided", _loss("for each, answer in zip(images.chunk(2), labels.chunk(2)):\n    cross_entropy(model(each), answer).backward()"), {"4.5": "summed scale"}),
    Mistake("C21 sum of losses", _loss('cross_entropy(model(images), labels, reduction="sum").backward()'), {"4.5": "scale summed"}),
    Mistake("C22 gradients not cleared", (("            optimizer.zero_grad()\n", ""),), {"4.5": "gradients-kept"}),
    Mistake("C23 a layer that is not used", (("self.head = ", "self.spare = nn.Linear(4, 4)\n        self.head = "),), {"4.6": "unused-parameters"}),
    Mistake("C25 a layer replaced", (("    optimizer = OPT", "    model.module.head = nn.Linear(32, 10).to(device)\n    optimizer = OPT"),), {"4.6": "unused-parameters different-start"}),
    Mistake("C27 two backward passes", _loss("loss = cross_entropy(model(images), labels)\nloss.backward(retain_graph=True)\nloss.backward()"), {"4.5": "drift summed scale ready-twice other-update"}),
    Mistake("C29 errors swallowed", _loss("try:\n    loss = cross_entropy(model(images), labels)\nexcept RuntimeError:\n    continue\nloss.backward()"), {"4.6": "swallowed hang-after-failure"}),
    Mistake("C29 a pool keeps the error", (("    " + SPAWN, '    import concurrent.futures\n    context = mp.get_context("spawn")\n    with concurrent.futures.ProcessPoolExecutor(args.num_gpus, context) as pool:\n        list(pool.map(train, range(args.num_gpus), [args] * args.num_gpus))\n'),), {"4.6": "hang-after-failure"}),
    Mistake("C30 NaN skipped alone", _loss("loss = cross_entropy(model(images), labels)\nif not torch.isfinite(loss):\n    continue\nloss.backward()"), {"4.6": "hang drift uneven-steps killed peer-gone"}),
    Mistake("D02 SyncBatchNorm", ((f"= {DDP}", "= DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(WideResNet(), nn.BatchNorm1d(10))))"),), {"4.5": "sync-batch-norm"}),
    Mistake("D07 models differ", (("WideResNet().to(device)", "WideResNet(8 + 4 * rank).to(device)"),), {"4.5": "models-differ"}),
    Mistake("D08 nothing to train", (("WideResNet().to(device)", "WideResNet().to(device).requires_grad_(False)"),), {"4.5": "nothing-to-average"}),
    Mistake("E01 batch divided", ((LOADER, "DataLoader(train_set, args.batch_size // world_size, sampler=sampler)"),), {"4.4": "batch-size"}),
    Mistake("E01 batch multiplied", ((LOADER, "DataLoader(train_set, args.batch_size * world_size, sampler=sampler)"),), {"4.4": "batch-size"}),
    Mistake("E02 rate multiplied", (("lr=args.lr)", "lr=args.lr * world_size)"),), {"4.5": "learning-rate"}),
    Mistake("F01 local accuracy", (("    dist.all_reduce(counts)\n", ""),), {"4.9": "accuracy"}),
    Mistake("F01 local speed", ((SPEED, ""),), {"4.8": "local-speed"}),
    Mistake("F01 mean of the speeds", ((SPEED, "        dist.reduce(speed, dst=0, op=dist.ReduceOp.AVG)\n"),), {"4.8": "local-speed"}),
    Mistake("F01 the largest speed", ((SPEED, "        dist.reduce(speed, dst=0, op=dist.ReduceOp.MAX)\n"),), {"4.8": "local-speed"}),
    Mistake("F01 all images, then added", (("len(sampler) /", "len(train_set) /"),), {"4.8": "speed-too-high"}),
    Mistake("F01 added, then multiplied", ((SPEED, SPEED + "        speed *= world_size\n"),), {"4.8": "speed-too-high"}),
    Mistake("F02 filled up", ((VAL_LOADER, "DataLoader(val_set, batch_size, sampler=DistributedSampler(val_set, shuffle=False))"),), {"4.9": "accuracy"}),
    Mistake("F02 tail left out", ((VAL_LOADER, "DataLoader(Subset(val_set, range(rank, len(val_set) // world_size * world_size, world_size)), batch_size)"),), {"4.9": "accuracy"}),
    Mistake("F02 all count all", ((REDUCED, "    dist.all_reduce(counts)\n    return (counts[0] / len(loader.dataset)).item()\n"),), {"4.9": "accuracy"}),
    Mistake("F03 mean of means", ((REDUCED, "    share = counts[0] / counts[1]\n    dist.all_reduce(share)\n    return (share / world_size).item()\n"),), {"4.9": "accuracy"}),
    Mistake("F03 mean over batches", ((COUNTS, "            counts += torch.tensor([(model(images).argmax(1) == labels).float().mean(), 1.0], device=device)\n"),), {"4.9": "accuracy"}),
    Mistake("F06 reduced to another rank", (("    dist.all_reduce(counts)\n", "    dist.reduce(counts, dst=world_size - 1)\n"),), {"4.9": "accuracy"}),
    Mistake("F06 speed on another rank", ((SPEED, SPEED.replace("dst=0", "dst=world_size - 1")),), {"4.8": "one-rank-only"}),
    Mistake(
        "F09 gathered in other sizes", ((REDUCED, "    right = torch.zeros(int(counts[1]))\n    right[: int(counts[0])] = 1\n    parts = [torch.zeros(int(counts[1])) for _ in range(world_size)]\n    dist.all_gather(parts, right)\n    return torch.cat(parts).mean().item()\n"),), {"4.9": "accuracy peer-gone error killed hang"}
    ),
    Mistake("F11 whole numbers", ((REDUCED, "    counts = counts.long()\n    dist.all_reduce(counts, op=dist.ReduceOp.AVG)\n    return (counts[0] / counts[1]).item()\n"),), {"4.9": "integers accuracy"}),
    Mistake("F15 a collective on rank 0", (("            results.append", "            dist.all_reduce(torch.ones(1))\n            results.append"),), {"4.6": "hang peer-gone killed"}),
    Mistake("F15 validation on rank 0", (("        val_accuracy = evaluate(", "        val_accuracy = rank == 0 and evaluate("),), {"4.6": "hang peer-gone killed"}),
    Mistake("G01 a barrier on rank 0", (("    if rank == 0:\n        with", "    if rank == 0:\n        dist.barrier()\n        with"),), {"4.6": "hang peer-gone killed"}),
    Mistake("G02 others have left", ((RESULT, "    if rank:\n        return\n    dist.barrier()\n" + RESULT),), {"4.6": "hang peer-gone killed"}),
    Mistake("G03 barrier if there is work", ((PREPARE, '    if not os.path.exists("data"):\n        if local_rank == 0:\n            prepare()\n            dist.barrier()\n'),), {"4.7": "not-prepared read-too-early hang peer-gone"}),
    Mistake("G05 other shapes", (("    counts = torch.zeros(2, device=device)", "    counts = torch.zeros(2 + (rank > 0), device=device)"), (COUNTS, COUNTS.replace("counts +=", "counts[:2] +="))), {"4.9": "accuracy peer-gone error killed hang"}),
    Mistake("F16 each stops by its own loss", _loss("loss = cross_entropy(model(images), labels)\nloss.backward()\nif loss.item() * 1000 % 2 < 1:\n    break"), {"4.6": "hang uneven-steps peer-gone killed error"}),
    Mistake("F18 each stops by its own clock", ((LOSS, "            begun = time.perf_counter()\n            outputs = model(images)\n            spent += time.perf_counter() - begun\n            if spent > 0.2:\n                break\n            cross_entropy(outputs, labels).backward()\n"), ("        model.train()\n", "        model.train()\n        spent = 0.0\n")), {"4.6": "hang uneven-steps peer-gone killed error"}),
    Mistake("G10 order of collectives", (("        dist.reduce(speed, dst=0)\n", "        if rank == 0:\n            dist.reduce(speed, dst=0)\n        dist.barrier()\n        if rank:\n            dist.reduce(speed, dst=0)\n"),), {"4.6": "hang peer-gone killed"}),
    Mistake("H01 all write", ((SAVE, SAVE[4:]),), {"4.10": "several-writers"}),
    Mistake("H01 all write results", ((RESULT, '    with open("result.json", "w") as file:\n        json.dump(results, file)\n'),), {"4.10": "several-writers"}),
    Mistake("H02 names of the wrapper", ((SAVE, SAVE.replace(".module", "")),), {"4.10": "names-of-weights"}),
    Mistake("H02 the whole model", ((SAVE, SAVE.replace("model.module.state_dict()", "model.module")),), {"4.10": "torn-file"}),
    Mistake("H03 saved before training", ((SAVE, ""), ("    results = []\n", '    results = []\n    if rank == 0:\n        torch.save(model.module.state_dict(), "model.pt")\n')), {"4.10": "other-weights"}),
    Mistake("H03 saved nowhere", ((SAVE, ""),), {"4.10": "not-written"}),
    Mistake("H03 another model is saved", ((SAVE, SAVE.replace("model.module", "WideResNet()")),), {"4.10": "other-weights"}),
    Mistake("Z01 does not end", (("    args = parser.parse_args()\n", "    args = parser.parse_args()\n    while True:\n        pass\n"),), {"4.1": "hang"}),
    Mistake("Z02 sleeps", (("    args = parser.parse_args()\n", "    args = parser.parse_args()\n    time.sleep(1000)\n"),), {"4.1": "hang"}),
    Mistake("Z03 no Python", (("def main():", "def main(:"),), {"4.1": "error"}),
    Mistake("Z04 not begun", (("    mp.spawn(", "    raise NotImplementedError()\n    mp.spawn("),), {"4.1": "not-done"}),
    Mistake("Z05 uses the course", (("import torch\n", "import course_lib.training.ddp\nimport torch\n"),), {"4.1": "course"}),
    Mistake("Z06 ends at once", (("    args = parser.parse_args()\n", "    args = parser.parse_args()\n    os._exit(0)\n"),), {"4.1": "nothing-trains"}),
    Mistake("Z11 all averaged but the biases", (*PLAIN, (LOSS, LOSS + "            for name, parameter in model.named_parameters():\n                if 'bias' not in name:\n                    dist.all_reduce(parameter.grad)\n                    parameter.grad /= world_size\n")), {"4.5": "drift"}),
    Mistake("Z12 a little too small", (*PLAIN, (LOSS, LOSS + "            for parameter in model.parameters():\n                dist.all_reduce(parameter.grad)\n                parameter.grad /= world_size + 0.02\n")), {"4.5": "scale"}),
    Mistake("Z13 weights of rank 0 for all", (*PLAIN, ("            optimizer.step()\n", "            optimizer.step()\n            for parameter in model.parameters():\n                dist.broadcast(parameter.data, 0)\n")), {"4.5": "other-update"}),
    Mistake("Z14 weights averaged, not gradients", (*PLAIN, ("            optimizer.step()\n", "            optimizer.step()\n            for parameter in model.parameters():\n                dist.all_reduce(parameter.data)\n                parameter.data /= world_size\n")), {"4.5": "other-update"}),
    Mistake("Z15 another rate on each rank", ((", lr=args.lr)", ", lr=args.lr * (1 + 0.1 * rank))"),), {"4.5": "drift"}),
    Mistake("Z16 seconds of the evaluation too", ((SPEED, ""), ("        speed = torch.tensor(len(sampler) / (time.perf_counter() - start), device=device)\n", ""), ("        if rank == 0:\n            results", "        speed = torch.tensor(len(sampler) / (time.perf_counter() - start), device=device)\n        dist.reduce(speed, dst=0)\n        if rank == 0:\n            results")), {"4.8": "local-speed speed-too-low"}),
    Mistake("Z17 images of a node", ((SPEED, "        speed *= args.num_gpus\n"),), {"4.8": "speed-too-low local-speed"}),
    Mistake("Z18 accuracy of the training set", (("evaluate(model.module, val_set", "evaluate(model.module, train_set"),), {"4.9": "accuracy"}),
    Mistake("Z19 saved after the first epoch only", ((SAVE, "            if epoch == 0:\n    " + SAVE),), {"4.10": "other-weights"}),
    Mistake("Z20 an address of its own", (('os.environ.setdefault("MASTER_ADDR", "127.0.0.1")', 'os.environ["MASTER_ADDR"] = "127.0.0.1"'),), {"4.2": "address"}),
    Mistake("Z21 an address of its own in a URL", ((INIT, INIT.replace("rank=rank", "init_method=f'tcp://127.0.0.1:{os.environ[\"MASTER_PORT\"]}', rank=rank")),), {"4.2": "address"}),
    Mistake("Z24 divided by the node first", (("    # Step 4:", "    train_set = Subset(train_set, range(args.node_id, len(train_set), args.num_nodes))\n    # Step 4:"),), {"4.4": "samples-missing"}, "4.5"),
    Mistake("Z25 shares one too short", ((f"    sampler = {SAMPLER}\n    loader = {LOADER}\n", ""), (f"        {SET_EPOCH}\n", SHORT), ("len(sampler)", "len(own)")), {"4.4": "samples-missing"}, "4.5 4.8"),
    Mistake("Z26 batch divided by the nodes", ((LOADER, LOADER.replace("args.batch_size", "args.batch_size // args.num_nodes")),), {"4.4": "batch-size"}, "4.5"),
    Mistake("Z27 an epoch too many", (("range(args.epochs)", "range(args.epochs + 1)"),), {"4.4": "number-of-epochs", "4.9": "no-result"}, "4.5"),
    Mistake("Z28 the weights of another model", ((f"    model = {DDP}\n", f"    bare = WideResNet()\n    model = {DDP}\n"), ("](model.parameters()", "](bare.parameters()")), {"4.5": "never-moves"}, "4.4 4.6 4.8 4.9 4.10"),
    Mistake("Z29 cleared before the step", (("            optimizer.zero_grad()\n", ""), (LOSS, LOSS + "            optimizer.zero_grad()\n")), {"4.5": "never-moves"}, "4.4 4.6 4.8 4.9 4.10"),
    Mistake("Z30 a frozen layer", ((f"    model = {DDP}\n", f"    bare = WideResNet().to(device)\n    bare.stem.requires_grad_(False)\n    model = {DDP.replace('WideResNet().to(device)', 'bare')}\n"),), {"4.5": "weights-left-out"}, "4.4 4.6 4.9 4.10"),
    Mistake("Z31 one rank steps", (("            optimizer.step()\n", "            if rank == 0:\n                optimizer.step()\n"),), {"4.5": "drift"}, "4.4 4.8 4.9 4.10"),
    Mistake("Z32 full batches step", (("            optimizer.step()\n", "            if len(images) == args.batch_size:\n                optimizer.step()\n"),), {"4.5": "other-update"}, "4.4 4.6 4.9 4.10"),
    Mistake("Z33 averaged in the first epoch only", _hand("            if epoch == 0:\n                for parameter in model.parameters():\n                    dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)\n"), {"4.5": "drift"}, "4.4 4.6 4.8 4.9"),
    Mistake("Z34 a node's ranks average", ((DDP, DDP.replace("device_ids", "process_group=dist.new_subgroups(args.num_gpus)[0], device_ids")),), {"4.5": "drift"}, "4.4 4.6 4.8 4.9"),
    Mistake("Z35 each leaves out its step where its own loss is NaN", _loss("loss = cross_entropy(model(images), labels)\nloss.backward()\nif not torch.isfinite(loss):\n    continue"), {"4.6": "drift"}, "4.4 4.5 4.9"),
    Mistake("Z36 a barrier after the end", (("    dist.destroy_process_group()\n", "    dist.destroy_process_group()\n    dist.barrier()\n"),), {"4.6": "too-late"}, "4.2 4.3 4.5 4.7"),
    Mistake("Z37 a sampler of another world", ((SAMPLER, "DistributedSampler(train_set, args.num_gpus, rank, seed=args.base_seed)"),), {"4.4": "error"}, "4.1 4.2"),
    Mistake("Z38 a rate of each epoch since the start", (("        start = time.perf_counter()\n", ""), ("    results = []\n", "    start = time.perf_counter()\n    results = []\n")), {"4.8": "speed-since-start"}, "4.9"),
    Mistake("Z39 images of all epochs", (("len(sampler) /", "(epoch + 1) * len(sampler) /"),), {"4.8": "speed-too-high"}, "4.9"),
    Mistake("Z40 batches for images", (("len(sampler) /", "len(loader) * args.batch_size /"),), {"4.8": "speed-too-high"}, "4.9"),
    Mistake("Z41 in percent", (('"val_accuracy": val_accuracy}', '"val_accuracy": 100 * val_accuracy}'),), {"4.9": "accuracy"}, "4.8 4.10"),
    Mistake("Z42 a copy of before is evaluated", (("    results = []\n", "    shown = __import__('copy').deepcopy(model.module)\n    results = []\n"), ("evaluate(model.module", "evaluate(shown")), {"4.9": "accuracy"}, "4.5 4.10"),
    Mistake("Z43 evaluated before the epoch", (("        val_accuracy = evaluate(model.module, val_set, args.batch_size, rank, world_size, device)\n", ""), ("        model.train()\n", "        val_accuracy = evaluate(model.module, val_set, args.batch_size, rank, world_size, device)\n        model.train()\n")), {"4.9": "accuracy"}, "4.5 4.10"),
    Mistake("Z44 whoever finds a folder reads", ((PREPARE, "    try:\n        prepare()\n    except FileExistsError:\n        pass\n"),), {"4.7": "read-too-early"}, "4.5 4.9"),
    Mistake("Z45 a port for each node", (('os.environ.setdefault("MASTER_PORT", "29500")', 'os.environ["MASTER_PORT"] = str(int(os.environ.get("MASTER_PORT", "29500")) + args.node_id)'),), {"4.2": "address"}, "4.1"),
    Mistake("Z46 a port for each rank, where none is given", ((f"    {INIT}\n", OWN_PORT), ('    os.environ.setdefault("MASTER_PORT", "29500")\n', "")), {"4.2": "address"}, "4.1 4.4 4.5"),
    Mistake("Z22 always the same seed", (("torch.manual_seed(args.base_seed)", "torch.manual_seed(0)"),), {"4.6": "seed-ignored"}),
    Mistake("Z23 no seed", (("    torch.manual_seed(args.base_seed)\n", ""),), {"4.6": "seed-ignored"}),
)  # fmt: skip
