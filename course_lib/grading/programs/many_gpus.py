"""Train a small wide ResNet on Fashion-MNIST: on the GPUs of one node or several, or on CPU cores."""

import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy, relu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)])
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        residual = self.first(relu(self.norms[0](x)))
        return self.shortcut(x) + self.second(relu(self.norms[1](residual)))


class WideResNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, 10)

    def forward(self, images):
        return self.head(relu(self.blocks(self.stem(images))).mean((2, 3)))


def prepare():
    """Unpack the images: once for all programs that will run here."""
    if not os.path.exists("data"):
        os.makedirs("data")
        with np.load("fashion_mnist.npz") as packed:
            for name in packed.files:
                np.save(f"data/{name}.npy", packed[name])


def load(part):
    images, labels = (torch.from_numpy(np.load(f"data/{part}_{what}.npy")) for what in ("images", "labels"))
    return TensorDataset(images[:, None] / 255, labels.long())


def evaluate(model, val_set, batch_size, rank, world_size, device):
    """The accuracy over all images, each of which one rank looks at."""
    model.eval()
    loader = DataLoader(Subset(val_set, range(rank, len(val_set), world_size)), batch_size)
    counts = torch.zeros(2, device=device)  # correct, seen
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)], device=device)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def train(local_rank, args):
    # Step 2: the ranks find each other.
    rank, world_size = args.node_id * args.num_gpus + local_rank, args.num_nodes * args.num_gpus
    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo", rank=rank, world_size=world_size)
    # Step 3: a device for each rank of the node.
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(args.base_seed)
    if local_rank == 0:
        prepare()
    dist.barrier()  # nobody reads before all is written
    train_set, val_set = load("train"), load("val")
    # Step 4: the data is dealt, anew in each epoch.
    sampler = DistributedSampler(train_set, seed=args.base_seed)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler)
    # Step 5: gradients are averaged.
    model = DistributedDataParallel(WideResNet().to(device), device_ids=[local_rank] if use_cuda else None)
    optimizer = OPTIMIZERS[args.optimizer](model.parameters(), lr=args.lr)
    results = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        start = time.perf_counter()
        for images, labels in loader:  # step 6: the loop stays as it was
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        speed = torch.tensor(len(sampler) / (time.perf_counter() - start), device=device)
        dist.reduce(speed, dst=0)
        val_accuracy = evaluate(model.module, val_set, args.batch_size, rank, world_size, device)
        if rank == 0:
            results.append({"epoch": epoch, "images_per_sec": speed.item(), "val_accuracy": val_accuracy})
            print(f"epoch {epoch}: {speed.item():.0f} images/s, validation accuracy {val_accuracy:.3f}")
            torch.save(model.module.state_dict(), "model.pt")
    if rank == 0:
        with open("result.json", "w") as file:
            json.dump(results, file)
    dist.destroy_process_group()


OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-gpus", type=int, default=1, help="of this node")
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--node-id", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=32, help="of one GPU")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--base-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    args = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # CPU ranks share the cores
    mp.spawn(train, (args,), nprocs=args.num_gpus)  # step 1: a process for each GPU of this node


if __name__ == "__main__":
    main()
