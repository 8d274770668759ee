"""Right answers to exercise 5 that are not the usual one: the part, what is unusual, and the code."""

STYLES = [
    (
        "5.1",
        "two collectives, a tensor as the answer",
        """
import torch, torch.distributed as dist
def accuracy(predictions, labels):
    right, there = predictions.eq(labels).sum(), torch.tensor(labels.numel())
    dist.all_reduce(right); dist.all_reduce(there)
    return right / there
""",
    ),
    (
        "5.1",
        "gathered objects",
        """
import torch.distributed as dist
def accuracy(predictions, labels):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, (predictions == labels).tolist())
    hits = [hit for each in found for hit in each]
    return sum(hits) / len(hits)
""",
    ),
    (
        "5.1",
        "gathered, filled up to the longest",
        """
import torch, torch.distributed as dist
def accuracy(predictions, labels):
    longest = torch.tensor([len(labels)]); dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    hits = torch.full((int(longest),), -1, dtype=torch.long)
    hits[: len(labels)] = (predictions == labels).long()
    gathered = [torch.empty_like(hits) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, hits)
    hits = torch.cat(gathered)
    return hits[hits >= 0].double().mean().item()
""",
    ),
    (
        "5.1",
        "rank 0 counts and tells the others",
        """
import torch, torch.distributed as dist
def accuracy(predictions, labels):
    counts = torch.tensor([float((predictions == labels).sum()), float(len(labels))])
    dist.reduce(counts, dst=0)
    answer = counts[0] / counts[1] if dist.get_rank() == 0 else torch.tensor(0.0)
    dist.broadcast(answer, src=0)
    return float(answer)
""",
    ),
    (
        "5.1",
        "means of means of equal weight, since they are weighted",
        """
import torch, torch.distributed as dist
def accuracy(predictions, labels):
    share = torch.tensor([0.0, len(labels)], dtype=torch.float64)
    if len(labels):
        share[0] = (predictions == labels).double().mean() * len(labels)
    dist.all_reduce(share, op=dist.ReduceOp.AVG)
    return (share[0] / share[1]).numpy()
""",
    ),
    (
        "5.2",
        "what was filled up is known by its place",
        """
import torch, torch.distributed as dist
def padded_accuracy(indices, predictions, labels, samples):
    places = torch.arange(len(indices)) * dist.get_world_size() + dist.get_rank()
    right = ((predictions == labels) & (places < samples)).sum()
    dist.all_reduce(right)
    return right.item() / samples
""",
    ),
    (
        "5.2",
        "gathered and put into a dict",
        """
import torch, torch.distributed as dist
def padded_accuracy(indices, predictions, labels, samples):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, list(zip(indices.tolist(), (predictions == labels).tolist())))
    hits = {index: hit for each in found for index, hit in each}
    return sum(hits.values()) / len(hits)
""",
    ),
    (
        "5.2",
        "each sample weighs as much as it is seldom",
        """
import torch, torch.distributed as dist
def padded_accuracy(indices, predictions, labels, samples):
    times = torch.zeros(samples, dtype=torch.float64)
    times.index_add_(0, indices, torch.ones(len(indices), dtype=torch.float64))
    dist.all_reduce(times)
    right = ((predictions == labels).double() / times[indices]).sum()
    dist.all_reduce(right)
    return right.item() / samples
""",
    ),
    (
        "5.3",
        "gathered",
        """
import torch, torch.distributed as dist
def images_per_second(images, seconds):
    found = [torch.zeros(2, dtype=torch.float64) for _ in range(dist.get_world_size())]
    dist.all_gather(found, torch.tensor([images, seconds], dtype=torch.float64))
    images, seconds = torch.stack(found).unbind(1)
    return images.sum() / seconds.max()
""",
    ),
    (
        "5.3",
        "the smallest of the rates that all images would have in each rank's time",
        """
import torch, torch.distributed as dist
def images_per_second(images, seconds):
    total = torch.tensor(float(images)); dist.all_reduce(total)
    rate = total / seconds if seconds else torch.tensor(float("inf"))
    dist.all_reduce(rate, op=dist.ReduceOp.MIN)
    return rate.item()
""",
    ),
    (
        "5.4",
        "a confusion matrix",
        """
import torch, torch.distributed as dist
def f1(predictions, labels):
    matrix = torch.bincount(2 * labels + predictions, minlength=4)
    dist.all_reduce(matrix)
    _, false_positive, false_negative, true_positive = matrix.tolist()
    return 2 * true_positive / max(1, 2 * true_positive + false_positive + false_negative)
""",
    ),
    (
        "5.4",
        "precision and recall",
        """
import torch, torch.distributed as dist
def f1(predictions, labels):
    counts = torch.tensor([((predictions == 1) & (labels == 1)).sum(), predictions.sum(), labels.sum()]).double()
    dist.all_reduce(counts)
    hits, marked, there = counts.tolist()
    if hits == 0:
        return 0
    precision, recall = hits / marked, hits / there
    return 2 * precision * recall / (precision + recall)
""",
    ),
    (
        "5.4",
        "all samples on every rank",
        """
import torch.distributed as dist
def f1(predictions, labels):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, (predictions.tolist(), labels.tolist()))
    pairs = [pair for each in found for pair in zip(*each)]
    hits, wrong = pairs.count((1, 1)), pairs.count((1, 0)) + pairs.count((0, 1))
    return 2 * hits / (2 * hits + wrong) if hits + wrong else 0.0
""",
    ),
    (
        "5.2",
        "sets of what was right",
        """
import torch.distributed as dist
def padded_accuracy(indices, predictions, labels, samples):
    mine = {int(i) for i, p, l in zip(indices, predictions, labels) if p == l}
    out = [None] * dist.get_world_size(); dist.all_gather_object(out, mine)
    return len(set().union(*out)) / samples
""",
    ),
]
