"""The final project as it is given: a model that predicts the next token of a sequence, trained on one device."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class NextToken(nn.Module):
    """Predicts the next token from this one and the two before: [n, length] in, [n, length, 256] out."""

    def __init__(self, width=12):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.mix = nn.Conv1d(width, width, kernel_size=3)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens):
        features = nn.functional.pad(self.embedding(tokens).transpose(1, 2), (2, 0))
        return self.head(torch.relu(self.mix(features)).transpose(1, 2))


def load(part):
    """Tokens [n, length], and how many of each row are a sequence; the rest only fills the row."""
    with np.load("sequences.npz") as data:
        tokens, lengths = data[f"{part}_tokens"], data[f"{part}_lengths"]
    return TensorDataset(torch.from_numpy(tokens).long(), torch.from_numpy(lengths).long())


def targets_of(tokens, lengths):
    """The token after each one; -100 where none follows, which the loss leaves out."""
    following = tokens.roll(-1, dims=1)
    following[torch.arange(tokens.shape[1]) >= lengths[:, None] - 1] = -100
    return following


def loss_of(outputs, targets, reduction="mean"):
    """The mean over all tokens that are followed by one, or the sum."""
    return cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction=reduction)


# Up to here the program stays as it is.


def accuracy(model, dataset, device):
    """The share of tokens that the model predicts."""
    correct = count = 0
    with torch.no_grad():
        for tokens, lengths in DataLoader(dataset, batch_size=16):
            targets = targets_of(tokens, lengths).to(device)
            found = model(tokens.to(device)).argmax(2)
            correct += ((found == targets) & (targets != -100)).sum().item()
            count += (targets != -100).sum().item()
    return correct / count


def main(epochs, global_batch_size, lr):
    """Train, and return the accuracy after each epoch."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = load("train"), load("val")
    torch.manual_seed(0)
    model = NextToken().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    loader = DataLoader(train_set, global_batch_size, shuffle=True, drop_last=True)
    accuracies = []
    for _ in range(epochs):
        model.train()
        for tokens, lengths in loader:
            targets = targets_of(tokens, lengths).to(device)
            optimizer.zero_grad()
            loss_of(model(tokens.to(device)), targets).backward()
            optimizer.step()
        model.eval()
        accuracies.append(accuracy(model, val_set, device))
    torch.save(model.state_dict(), "model.pt")
    return accuracies
