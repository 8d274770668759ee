"""The program of exercise 4 after each step, for whoever is stuck: what is given, and what each step changes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Step:
    """What one step changes.

    Fields:
        part: of exercise 4, as "4.2".
        edits: pieces of the program as it was, and what becomes of them.
    """

    part: str
    edits: tuple[tuple[str, str], ...]


def program(name: str) -> str:
    """A program of the course, "one_gpu" or "many_gpus"."""
    return files("course_lib.grading.programs").joinpath(f"{name}.py").read_text()


def after(part: str) -> str:
    """The program after a step, and all steps before it.

    Raises:
        KeyError: no step belongs to this part.
    """
    text = program("one_gpu")
    for step in STEPS:
        for before, afterwards in step.edits:
            assert text.count(before) == 1, f"{part}: {before!r}"
            text = text.replace(before, afterwards)
        if step.part == part:
            return text
    raise KeyError(part)


STEPS = (
    Step(
        "4.1",
        (
            (
                "import torch\nfrom torch import nn",
                "import torch\nimport torch.multiprocessing as mp\nfrom torch import nn",
            ),
            ("def train(args):", "def train(local_rank, args):"),
            (
                "    train(args)\n",
                '    os.environ.setdefault("OMP_NUM_THREADS", "1")  # CPU ranks share the cores\n'
                "    mp.spawn(train, (args,), nprocs=args.num_gpus)  # step 1: a process for each GPU of this node\n",
            ),
        ),
    ),
    Step(
        "4.2",
        (
            (
                "import torch.multiprocessing as mp",
                "import torch.distributed as dist\nimport torch.multiprocessing as mp",
            ),
            (
                "def train(local_rank, args):\n",
                """def train(local_rank, args):
    # Step 2: the ranks find each other.
    rank, world_size = args.node_id * args.num_gpus + local_rank, args.num_nodes * args.num_gpus
    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo", rank=rank, world_size=world_size)
""",
            ),
            (
                "        json.dump(results, file)\n",
                "        json.dump(results, file)\n    dist.destroy_process_group()\n",
            ),
            (
                '    os.environ.setdefault("OMP',
                '    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")\n'
                '    os.environ.setdefault("MASTER_PORT", "29500")\n'
                '    os.environ.setdefault("OMP',
            ),
        ),
    ),
    Step(
        "4.3",
        (
            (
                '    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n',
                """    # Step 3: a device for each rank of the node.
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
""",
            ),
        ),
    ),
    Step(
        "4.4",
        (
            ("import DataLoader, TensorDataset", "import DataLoader, DistributedSampler, TensorDataset"),
            (
                "    loader = DataLoader(train_set, args.batch_size, shuffle=True)\n",
                """    # Step 4: the data is dealt, anew in each epoch.
    sampler = DistributedSampler(train_set, seed=args.base_seed)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler)
""",
            ),
            ("        model.train()\n", "        sampler.set_epoch(epoch)\n        model.train()\n"),
        ),
    ),
    Step(
        "4.5",
        (
            ("from torch.utils", "from torch.nn.parallel import DistributedDataParallel\nfrom torch.utils"),
            (
                "    model = WideResNet().to(device)\n",
                """    # Step 5: gradients are averaged.
    model = DistributedDataParallel(WideResNet().to(device), device_ids=[local_rank] if use_cuda else None)
""",
            ),
        ),
    ),
    Step(
        "4.6",
        (
            (
                "labels in loader:\n            images, labels = images.to(device), labels.to(device)\n            optimizer",
                "labels in loader:  # step 6: the loop stays as it was\n"
                "            images, labels = images.to(device), labels.to(device)\n            optimizer",
            ),
        ),
    ),
    Step(
        "4.7",
        (
            (
                "    prepare()\n",
                "    if local_rank == 0:\n        prepare()\n    dist.barrier()  # nobody reads before all is written\n",
            ),
        ),
    ),
    Step(
        "4.8",
        (
            (
                "        images_per_sec = len(train_set) / (time.perf_counter() - start)\n",
                "        speed = torch.tensor(len(sampler) / (time.perf_counter() - start), device=device)\n"
                "        dist.reduce(speed, dst=0)\n",
            ),
            (
                """        results.append({"epoch": epoch, "images_per_sec": images_per_sec, "val_accuracy": val_accuracy})
        print(f"epoch {epoch}: {images_per_sec:.0f} images/s, validation accuracy {val_accuracy:.3f}")
""",
                """        if rank == 0:
            results.append({"epoch": epoch, "images_per_sec": speed.item(), "val_accuracy": val_accuracy})
            print(f"epoch {epoch}: {speed.item():.0f} images/s, validation accuracy {val_accuracy:.3f}")
""",
            ),
            (
                """    with open("result.json", "w") as file:
        json.dump(results, file)
""",
                """    if rank == 0:
        with open("result.json", "w") as file:
            json.dump(results, file)
""",
            ),
        ),
    ),
    Step(
        "4.9",
        (
            ("DistributedSampler, TensorDataset", "DistributedSampler, Subset, TensorDataset"),
            (
                "def evaluate(model, loader, device):\n",
                "def evaluate(model, val_set, batch_size, rank, world_size, device):\n"
                '    """The accuracy over all images, each of which one rank looks at."""\n',
            ),
            (
                "    correct = seen = 0\n",
                "    loader = DataLoader(Subset(val_set, range(rank, len(val_set), world_size)), batch_size)\n"
                "    counts = torch.zeros(2, device=device)  # correct, seen\n",
            ),
            (
                """            correct += (model(images).argmax(1) == labels).sum().item()
            seen += len(labels)
    return correct / seen
""",
                "            counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)], device=device)\n"
                "    dist.all_reduce(counts)\n"
                "    return (counts[0] / counts[1]).item()\n",
            ),
            ("    val_loader = DataLoader(val_set, args.batch_size)\n", ""),
            (
                "evaluate(model, val_loader, device)",
                "evaluate(model.module, val_set, args.batch_size, rank, world_size, device)",
            ),
        ),
    ),
    Step(
        "4.10",
        (
            (
                '"""Train a small wide ResNet on Fashion-MNIST: on one GPU, or on one CPU core."""',
                '"""Train a small wide ResNet on Fashion-MNIST: on the GPUs of one node or several, or on CPU cores."""',
            ),
            (
                '        torch.save(model.state_dict(), "model.pt")\n',
                '            torch.save(model.module.state_dict(), "model.pt")\n',
            ),
        ),
    ),
)
