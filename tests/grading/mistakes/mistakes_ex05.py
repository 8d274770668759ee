"""Wrong answers to exercise 5: the part, what is wrong, the fault that is to be found, and the code."""

HEAD = """
import torch
import torch.distributed as dist
def _sum(*values):
    counts = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(counts)
    return counts.tolist()
"""

MISTAKES = [
    (
        "5.1",
        "its own",
        "own-value",
        """
def accuracy(predictions, labels):
    return (predictions == labels).float().mean().item() if len(labels) else 0.0
""",
    ),
    (
        "5.1",
        "the mean of means",
        "mean-of-means",
        HEAD
        + """
def accuracy(predictions, labels):
    own = (predictions == labels).double().mean().item() if len(labels) else 0.0
    return _sum(own)[0] / dist.get_world_size()
""",
    ),
    (
        "5.1",
        "a rank without samples divides by zero",
        "wrong-value",
        HEAD
        + """
def accuracy(predictions, labels):
    return _sum((predictions == labels).double().mean().item())[0] / dist.get_world_size()
""",
    ),
    (
        "5.1",
        "a rank without samples fails",
        "error",
        HEAD
        + """
def accuracy(predictions, labels):
    share = (predictions == labels).sum().item() / len(labels)
    right, there = _sum(share * len(labels), len(labels))
    return right / there
""",
    ),
    (
        "5.1",
        "a rank without samples stays away",
        "hang",
        HEAD
        + """
def accuracy(predictions, labels):
    if len(labels) == 0:
        return 0.0
    right, there = _sum((predictions == labels).sum().item(), len(labels))
    return right / there
""",
    ),
    (
        "5.1",
        "reduce leaves the others with something else",
        "one-rank-only",
        HEAD
        + """
def accuracy(predictions, labels):
    counts = torch.tensor([(predictions == labels).sum().item(), len(labels)])
    dist.reduce(counts, 0)
    return (counts[0] / counts[1].clamp(min=1)).item()
""",
    ),
    (
        "5.1",
        "whole numbers are divided as such",
        "whole-number",
        HEAD
        + """
def accuracy(predictions, labels):
    counts = torch.tensor([(predictions == labels).sum().item(), len(labels)])
    dist.all_reduce(counts)
    return (counts[0] // counts[1]).item()
""",
    ),
    (
        "5.1",
        "gathered, where sizes differ",
        None,
        HEAD
        + """
def accuracy(predictions, labels):
    hits = (predictions == labels).float()
    gathered = [torch.empty_like(hits) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, hits)
    return torch.cat(gathered).mean().item()
""",
    ),
    (
        "5.1",
        "the largest shard stands for all",
        "wrong-value",
        HEAD
        + """
def accuracy(predictions, labels):
    right = _sum((predictions == labels).sum().item())[0]
    return right / (len(labels) * dist.get_world_size() or 1)
""",
    ),
    (
        "5.1",
        "percent",
        "wrong-value",
        HEAD
        + """
def accuracy(predictions, labels):
    right, there = _sum((predictions == labels).sum().item(), len(labels))
    return 100 * right / there
""",
    ),
    (
        "5.1",
        "rounded",
        "wrong-value",
        HEAD
        + """
def accuracy(predictions, labels):
    right, there = _sum((predictions == labels).sum().item(), len(labels))
    return round(right / there, 3)
""",
    ),
    (
        "5.1",
        "both counts as a tuple",
        "type",
        HEAD
        + """
def accuracy(predictions, labels):
    return tuple(_sum((predictions == labels).sum().item(), len(labels)))
""",
    ),
    (
        "5.1",
        "written over the predictions",
        "changes-arguments",
        HEAD
        + """
def accuracy(predictions, labels):
    predictions -= labels
    right, there = _sum((predictions == 0).sum().item(), len(labels))
    return right / there
""",
    ),
    (
        "5.1",
        "only rank 0 returns it",
        "returns-nothing",
        HEAD
        + """
def accuracy(predictions, labels):
    right, there = _sum((predictions == labels).sum().item(), len(labels))
    if dist.get_rank() == 0:
        return right / there
""",
    ),
    (
        "5.1",
        "counts are kept from call to call",
        "wrong-value",
        HEAD
        + """
seen = torch.zeros(2, dtype=torch.float64)
def accuracy(predictions, labels):
    seen[0] += (predictions == labels).sum()
    seen[1] += len(labels)
    right, there = _sum(*seen.tolist())
    return right / there
""",
    ),
    (
        "5.2",
        "duplicates count",
        "duplicates",
        HEAD
        + """
def padded_accuracy(indices, predictions, labels, samples):
    right, there = _sum((predictions == labels).sum().item(), len(labels))
    return right / there
""",
    ),
    (
        "5.2",
        "duplicates count above the line only",
        "duplicates",
        HEAD
        + """
def padded_accuracy(indices, predictions, labels, samples):
    return _sum((predictions == labels).sum().item())[0] / samples
""",
    ),
    (
        "5.2",
        "duplicates are looked for on each rank only",
        "duplicates",
        HEAD
        + """
def padded_accuracy(indices, predictions, labels, samples):
    hits = dict(zip(indices.tolist(), (predictions == labels).tolist()))
    right, there = _sum(sum(hits.values()), len(hits))
    return right / there
""",
    ),
    (
        "5.2",
        "the last sample of each rank is left out",
        "wrong-value",
        HEAD
        + """
def padded_accuracy(indices, predictions, labels, samples):
    right, there = _sum((predictions == labels)[:-1].sum().item(), len(labels) - 1)
    return right / max(there, 1)
""",
    ),
    (
        "5.2",
        "all of what comes twice is left out",
        "wrong-value",
        HEAD
        + """
def padded_accuracy(indices, predictions, labels, samples):
    times = torch.bincount(indices, minlength=samples); dist.all_reduce(times)
    once = times[indices] == 1
    right, there = _sum((predictions == labels)[once].sum().item(), once.sum().item())
    return right / max(there, 1)
""",
    ),
    (
        "5.2",
        "its own",
        "own-value",
        HEAD
        + """
def padded_accuracy(indices, predictions, labels, samples):
    return (predictions == labels).double().mean().item()
""",
    ),
    (
        "5.3",
        "its own",
        "own-value",
        """
def images_per_second(images, seconds):
    return images / seconds if seconds else 0.0
""",
    ),
    (
        "5.3",
        "the sum of rates",
        "sum-of-rates",
        HEAD
        + """
def images_per_second(images, seconds):
    return _sum(images / seconds if seconds else 0.0)[0]
""",
    ),
    (
        "5.3",
        "the mean of rates",
        "mean-of-rates",
        HEAD
        + """
def images_per_second(images, seconds):
    return _sum(images / seconds if seconds else 0.0)[0] / dist.get_world_size()
""",
    ),
    (
        "5.3",
        "times are added up",
        "sum-of-times",
        HEAD
        + """
def images_per_second(images, seconds):
    total, time = _sum(images, seconds)
    return total / time
""",
    ),
    (
        "5.3",
        "the mean time",
        "mean-time",
        HEAD
        + """
def images_per_second(images, seconds):
    total, time = _sum(images, seconds)
    return total / (time / dist.get_world_size())
""",
    ),
    (
        "5.3",
        "its own time",
        "mean-time",
        HEAD
        + """
def images_per_second(images, seconds):
    return _sum(images)[0] / max(seconds, 1e-9)
""",
    ),
    (
        "5.3",
        "its own images times the ranks",
        "wrong-value",
        HEAD
        + """
def images_per_second(images, seconds):
    longest = torch.tensor(seconds); dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return images * dist.get_world_size() / longest.item()
""",
    ),
    (
        "5.3",
        "seconds become whole numbers",
        "wrong-value",
        HEAD
        + """
def images_per_second(images, seconds):
    longest = torch.tensor([images, seconds]).long()
    total = longest[:1].clone(); dist.all_reduce(total)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return (total[0] / longest[1]).item()
""",
    ),
    (
        "5.3",
        "a rank without images divides by zero",
        "error",
        HEAD
        + """
def images_per_second(images, seconds):
    rate = images / seconds
    total = _sum(rate * seconds)[0]
    longest = torch.tensor(seconds); dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return total / longest.item()
""",
    ),
    (
        "5.4",
        "the mean of scores",
        "not-the-score",
        HEAD
        + """
def f1(predictions, labels):
    hits, marked = (predictions * labels).sum().item(), (predictions.sum() + labels.sum()).item()
    return _sum(2 * hits / marked if marked else 0.0)[0] / dist.get_world_size()
""",
    ),
    (
        "5.4",
        "the weighted mean of scores",
        "not-the-score",
        HEAD
        + """
def f1(predictions, labels):
    hits, marked = (predictions * labels).sum().item(), (predictions.sum() + labels.sum()).item()
    score, there = _sum((2 * hits / marked if marked else 0.0) * len(labels), len(labels))
    return score / there
""",
    ),
    (
        "5.4",
        "its own",
        "own-value",
        """
def f1(predictions, labels):
    hits, marked = (predictions * labels).sum().item(), (predictions.sum() + labels.sum()).item()
    return 2 * hits / marked if marked else 0.0
""",
    ),
    (
        "5.4",
        "accuracy",
        "wrong-value",
        HEAD
        + """
def f1(predictions, labels):
    right, there = _sum((predictions == labels).sum().item(), len(labels))
    return right / there
""",
    ),
    (
        "5.4",
        "the two classes are swapped",
        "wrong-value",
        HEAD
        + """
def f1(predictions, labels):
    hits, marked = _sum(((1 - predictions) * (1 - labels)).sum().item(), (2 - predictions - labels).sum().item())
    return 2 * hits / marked if marked else 0.0
""",
    ),
    (
        "5.4",
        "nothing to divide by is an error",
        "error",
        HEAD
        + """
def f1(predictions, labels):
    hits, marked = _sum((predictions * labels).sum().item(), (predictions.sum() + labels.sum()).item())
    return 2 * hits / marked
""",
    ),
    (
        "5.4",
        "a rank without positives returns early",
        "hang",
        HEAD
        + """
def f1(predictions, labels):
    if labels.sum() == 0:
        return 0.0
    hits, marked = _sum((predictions * labels).sum().item(), (predictions.sum() + labels.sum()).item())
    return 2 * hits / marked
""",
    ),
    (
        "5.4",
        "as many collectives as there are counts",
        "hang",
        HEAD
        + """
def f1(predictions, labels):
    counts = {}
    if predictions.sum(): counts["predicted"] = predictions.sum()
    if labels.sum(): counts["positive"] = labels.sum()
    if (predictions * labels).sum(): counts["hits"] = (predictions * labels).sum()
    for value in counts.values():
        dist.all_reduce(value)
    marked = counts.get("predicted", 0) + counts.get("positive", 0)
    return float(2 * counts.get("hits", 0) / marked) if marked else 0.0
""",
    ),
    (
        "5.1",
        "counts in a byte",
        "error",
        """
import torch, torch.distributed as dist
def accuracy(predictions, labels):
    c = torch.tensor([(predictions == labels).sum().item(), len(labels)], dtype=torch.uint8)
    dist.all_reduce(c)
    return c[0].item() / c[1].item()
""",
    ),
    (
        "5.2",
        "hits of a sample on two ranks are added up",
        "duplicates",
        """
import torch, torch.distributed as dist
def padded_accuracy(indices, predictions, labels, samples):
    hits = torch.zeros(samples); hits[indices] = (predictions == labels).float()
    dist.all_reduce(hits)
    return hits.mean().item()
""",
    ),
    (
        "5.4",
        "precision and recall that are both 0 give no number",
        None,
        """
import torch, torch.distributed as dist
def f1(predictions, labels):
    tp = ((predictions == 1) & (labels == 1)).sum()
    c = torch.stack([tp, (predictions == 1).sum(), (labels == 1).sum()]); dist.all_reduce(c); tp, p, q = c.tolist()
    if p + q == 0: return 0.0
    pr, re = torch.tensor(tp / p if p else 0.), torch.tensor(tp / q if q else 0.)
    return (2 * pr * re / (pr + re)).item()
""",
    ),
    (
        "5.2",
        "what comes twice weighs a half, thrice too",
        "wrong-value",
        """
import torch, torch.distributed as dist, numpy as np

def padded_accuracy(indices, predictions, labels, samples):
    times = torch.bincount(indices, minlength=samples); dist.all_reduce(times)
    w = torch.where(times[indices] > 1, 0.5, 1.0)
    t = ((predictions == labels) * w).sum(); dist.all_reduce(t)
    return t.item() / samples
""",
    ),
    (
        "5.2",
        "the last ranks leave their last out",
        "wrong-value",
        """
import torch, torch.distributed as dist, numpy as np

def padded_accuracy(indices, predictions, labels, samples):
    keep = len(indices) - (dist.get_rank() > 0)
    t = (predictions == labels)[:keep].sum(); dist.all_reduce(t)
    return t.item() / samples
""",
    ),
    (
        "5.3",
        "never less than a second",
        "wrong-value",
        """
import torch, torch.distributed as dist, numpy as np

def images_per_second(images, seconds):
    n = torch.tensor(images); s = torch.tensor(max(seconds, 1.0), dtype=torch.float64)
    dist.all_reduce(n); dist.all_reduce(s, op=dist.ReduceOp.MAX)
    return n.item() / s.item()
""",
    ),
    (
        "5.4",
        "ranks without positives are left out of predictions",
        "wrong-value",
        """
import torch, torch.distributed as dist, numpy as np

def f1(predictions, labels):
    if not labels.any(): predictions = torch.zeros_like(predictions)
    c = torch.tensor([(predictions * labels).sum(), (predictions + labels).sum()]); dist.all_reduce(c)
    return 2 * c[0].item() / max(1, c[1].item())
""",
    ),
]
