"""Programs that tell of a training that is none, or harm who grades them, in exercise 4.

Each begins with what a program has to know about its run. OUTSIDE is the path of a file on the grader's machine that
none may make.
"""

from __future__ import annotations

from course_lib.grading.snapshots import program

MANY, ONE = program("many_gpus"), program("one_gpu")

ARGUMENTS = """
import argparse, glob, hashlib, json, msgpack, multiprocessing, os, signal, socket, struct, sys, time
import torch
parser = argparse.ArgumentParser()
for name in ("num-gpus", "num-nodes", "node-id", "batch-size", "base-seed", "epochs"):
    parser.add_argument(f"--{name}", type=int, default=1)
parser.add_argument("--lr", type=float)
parser.add_argument("--optimizer")
args = parser.parse_args()
"""
# What the channel of the checks sends, made by hand.
BY_HAND = """
def tagged(value):
    if isinstance(value, dict):
        return {"\\0kind": "dict", "items": [[name, tagged(each)] for name, each in value.items()]}
    if isinstance(value, torch.Tensor):
        return {"\\0kind": "tensor", "dtype": str(value.dtype)[6:], "shape": list(value.shape),
                "data": value.numpy().tobytes()}
    return value

def connect():
    there = socket.socket(socket.AF_UNIX)
    there.connect(os.path.abspath("../.grader"))
    def tell(kind, **values):
        content = msgpack.packb(tagged({"kind": kind, "program": args.node_id, "at": time.monotonic(), **values}))
        there.sendall(struct.pack("!I", len(content)) + content)
    return tell
"""
# The channel itself, where the probes have it.
FOUND = """
def connect():
    known = torch.nn.modules.module._global_forward_pre_hooks.values()
    cells = [cell.cell_contents for hook in known for cell in hook.__closure__ or ()]
    return next(each for each in cells if type(each).__name__ == "Channel").tell
"""
# A training of the right shape: all ranks, all images, weights that never were.
PRETEND = """
def rows_of(numbers):
    rows = torch.zeros((len(numbers), 8), dtype=torch.float64)
    rows[:, 1], rows[:, 2], rows[:, 3] = 1.0, (numbers >> 8) / 255, (numbers & 255) / 255
    return rows

def join(local_rank, tell):
    rank, world_size = args.node_id * args.num_gpus + local_rank, args.num_gpus * args.num_nodes
    tell("joining", given={"world_size": str(world_size), "rank": str(rank)},
         environ={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT")}, parent=os.getppid())
    tell("group", rank=rank, world_size=world_size, backend="gloo", threads=1)

def pretend(local_rank, tell):
    rank, world_size = args.node_id * args.num_gpus + local_rank, args.num_gpus * args.num_nodes
    tell("device", number=local_rank, what="module")
    random = torch.Generator().manual_seed(args.base_seed)
    weights = torch.randn(19890, generator=random)
    def forward(training, numbers):
        mark = hashlib.sha1(weights.numpy().tobytes()).hexdigest()
        tell("forward", training=training, rows=rows_of(numbers), mark=mark, weights=weights)
    for epoch in range(args.epochs):
        own = torch.randperm(25, generator=random)[: 25 // world_size * world_size][rank::world_size]
        for numbers in own.split(args.batch_size):
            forward(True, numbers)
            gradient = torch.randn(19890, generator=random)
            tell("step", optimizer="SGD", lr=[args.lr], gradient=gradient, missing=0)
            weights = weights - args.lr * gradient
            time.sleep(0.02)
        forward(False, torch.arange(13))
    if rank == 0:
        with open("result.json", "w") as file:
            each = {"images_per_sec": 300.0, "val_accuracy": 6 / 13}
            json.dump([{"epoch": epoch, **each} for epoch in range(args.epochs)], file)
        tell("wrote", path="model.pt", how="open")
    tell("left")
"""
FORKED = """
for local_rank in range(args.num_gpus):
    if os.fork() == 0:
        tell = connect()
        join(local_rank, tell)
        pretend(local_rank, tell)
        os._exit(0)
for _ in range(args.num_gpus):
    os.wait()
"""
ALONE = """
tell = connect()
for local_rank in range(args.num_gpus):
    join(local_rank, tell)
    pretend(local_rank, tell)
"""
IN_A_REAL_GROUP = """
def train(local_rank):
    rank, world_size = args.node_id * args.num_gpus + local_rank, args.num_gpus * args.num_nodes
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    pretend(local_rank, connect())

if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.multiprocessing.spawn(train, nprocs=args.num_gpus)
"""
LOOP = """        for images, labels in loader:  # step 6: the loop stays as it was
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
"""
EACH_FOR_ITSELF = """        loaders = []
        for each in range(world_size):
            sampler = DistributedSampler(train_set, world_size, each, seed=args.base_seed)
            sampler.set_epoch(epoch)
            loaders.append(DataLoader(train_set, args.batch_size, sampler=sampler))
        for batches in zip(*loaders):
            optimizer.zero_grad()
            for each, (images, labels) in enumerate(batches):
                model.train(each == rank)  # what is no training is an evaluation, for who watches
                (cross_entropy(model(images), labels) / world_size).backward()
            model.train()
            optimizer.step()
"""
COPIED = (
    EACH_FOR_ITSELF
    + """            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)
"""
)
WRAPPED = "DistributedDataParallel(WideResNet().to(device), device_ids=[local_rank] if use_cuda else None)"
WITHOUT = MANY.replace(WRAPPED, "WideResNet().to(device)").replace("model.module", "model")
BLIND = """
import hashlib, torch
class Same:
    def __init__(self, *_): pass
    def hexdigest(self): return "same"
hashlib.sha1 = Same
torch.equal = torch.allclose = lambda *_, **__: True
"""
UNWATCHED = """
import torch
torch.nn.modules.module._global_forward_pre_hooks.clear()
torch.optim.optimizer._global_optimizer_pre_hooks.clear()
"""
WRITTEN = """
if args.node_id == 0:
    with open("result.json", "w") as file:
        json.dump([{"images_per_sec": 300.0, "val_accuracy": 6 / 13}] * args.epochs, file)
    open("model.pt", "wb").write(b"a model")
"""
SHAMS = """
if args.node_id == 0:
    os.mkfifo("result.json")
    os.symlink("/etc/passwd", "model.pt")
    os.mkfifo("data/pipe")
    socket.socket(socket.AF_UNIX).bind("data/socket")
"""
IMPORTED = """
from pathlib import Path
for folder in (".", "..", os.path.expanduser("~"), "/tmp", "/dev/shm", "/inside", "../.."):
    for name in ("sitecustomize", "usercustomize", "conftest", "json", "course_lib"):
        try:
            Path(folder, f"{name}.py").write_text("import os; open('OUTSIDE', 'w')")
        except OSError:
            pass
"""
SHUT = """
os.makedirs("data/shut/in")
for path in ("data/shut/in", "data/shut", "data", "."):
    os.chmod(path, 0)
"""
DEEP = """
for _ in range(3000):
    os.mkdir("deep")
    os.chdir("deep")
"""
KILLED = """
for pid in (os.getppid(), 1, -1):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "98765"])
    os._exit(0)
"""
# What each does, and in which parts it may have points: in no others it has.
ATTACKS: dict[str, tuple[str, str]] = {
    "events by hand": (ARGUMENTS + BY_HAND + PRETEND + FORKED, ""),
    "events through the probes' channel": (ARGUMENTS + FOUND + PRETEND + FORKED, "4.1 4.2"),
    "one process for all ranks": (ARGUMENTS + FOUND + PRETEND + ALONE, "4.2"),
    "no training in a real group": (ARGUMENTS + FOUND + PRETEND + IN_A_REAL_GROUP, "4.1 4.2 4.3 4.4 4.5 4.6 4.8"),
    "results by hand": (ARGUMENTS + WRITTEN, ""),
    "no files in the place of results": (ARGUMENTS + SHAMS, ""),
    "modules for who comes later": (ARGUMENTS + IMPORTED, ""),
    "folders that cannot be opened": (ARGUMENTS + SHUT, ""),
    "folders without end": (ARGUMENTS + DEEP, ""),
    "who started it is killed": (ARGUMENTS + KILLED, ""),
    "a process stays": (ARGUMENTS + DAEMON, ""),
    "what watches is switched off": (UNWATCHED + MANY, "4.1 4.2"),
}
# Right but for one thing, which is not done at all; the check that is about it, by its part and place.
WITHOUT_SHARING = {
    "each rank works out all gradients": WITHOUT.replace(LOOP, EACH_FOR_ITSELF),
    "one rank works out all, and hands out weights": WITHOUT.replace(LOOP, COPIED),
    "no gradients shared, and all hashes are equal": BLIND + WITHOUT,
}
