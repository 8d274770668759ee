"""Train a small wide ResNet on Fashion-MNIST: on one GPU, or on one CPU core."""

import argparse
import json
import os
import time

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu
from torch.utils.data import DataLoader, TensorDataset


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


def evaluate(model, loader, device):
    model.eval()
    correct = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            correct += (model(images).argmax(1) == labels).sum().item()
            seen += len(labels)
    return correct / seen


def train(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.base_seed)
    prepare()
    train_set, val_set = load("train"), load("val")
    loader = DataLoader(train_set, args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, args.batch_size)
    model = WideResNet().to(device)
    optimizer = OPTIMIZERS[args.optimizer](model.parameters(), lr=args.lr)
    results = []
    for epoch in range(args.epochs):
        model.train()
        start = time.perf_counter()
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        images_per_sec = len(train_set) / (time.perf_counter() - start)
        val_accuracy = evaluate(model, val_loader, device)
        results.append({"epoch": epoch, "images_per_sec": images_per_sec, "val_accuracy": val_accuracy})
        print(f"epoch {epoch}: {images_per_sec:.0f} images/s, validation accuracy {val_accuracy:.3f}")
        torch.save(model.state_dict(), "model.pt")
    with open("result.json", "w") as file:
        json.dump(results, file)


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
    train(args)


if __name__ == "__main__":
    main()
