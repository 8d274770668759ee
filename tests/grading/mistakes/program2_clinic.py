"""Wrong answers to exercises 11 and 12: cures that do not help, and projects that are not quite right."""

from __future__ import annotations

from grading.program2_cells import Variant as V

AVERAGE = "parameter.grad /= dist.get_world_size()"
COUNTS = "dist.all_reduce(counts)"
FINISH = "    dist.all_reduce(counts)\n    return counts[0].item() / counts[1].item()"
MEAN = "        dist.all_reduce(mean)\n        if mean < limit:"
JOIN = 'dist.init_process_group("gloo", rank=rank, world_size=world_size)'
CURED = "all ranks"
CLINIC = [
    V("only full batches, of shares that differ", "11.6", (("        order = order[: len(dataset) // world_size * world_size]  # shares of one length: the rest waits for next time\n", ""), ("batch_size=4)", "batch_size=4, drop_last=True)")), ("hang", "peer-gone", "uneven-steps", "rank-left", "steps"), CURED),
    V("another name", "11.1", (('fault_1 = "same-samples"', 'fault_1 = "drift"'),), ("unknown-name",), "the fault"),
    V("no text", "11.1", (('fault_1 = "same-samples"', "fault_1 = 3"),), ("no-name",), "the fault"),
    V("a name of another fault", "11.3", (('fault_3 = "no-average"', 'fault_3 = "sum"'),), ("other-fault",), "the fault"),
    V("dealt, and never anew", "11.1", (("        sampler.set_epoch(epoch)\n", ""),), ("not-reshuffled",), CURED),
    V("dealt twice", "11.1", (("(dataset)\n", "(list(dataset)[dist.get_rank() :: 3])\n"), ("import torch\n", "import torch\nimport torch.distributed as dist\n")), ("samples-missing",), CURED),
    V("B04 another epoch on each rank", "11.2", (("set_epoch(epoch)", "set_epoch(epoch + torch.distributed.get_rank())"),), ("samples-twice", "samples-missing", "same-samples"), CURED),
    V("B04 always the same epoch", "11.2", (("set_epoch(epoch)", "set_epoch(1)"),), ("not-reshuffled",), CURED),
    V("C06 the loss is averaged", "11.3", (("cross_entropy(model(inputs), targets).backward()", "loss = cross_entropy(model.module(inputs), targets)\n            torch.distributed.all_reduce(loss.detach())\n            loss.backward()"),), ("drift",), CURED),
    V("C03 divided by something else", "11.4", ((AVERAGE, "parameter.grad /= 2"),), ("scale",), CURED),
    V("C04 divided twice", "11.4", ((AVERAGE, AVERAGE.replace("get_world_size()", "get_world_size() ** 2")),), ("divided-twice",), CURED),
    V("averaged after the step", "11.4", (("            optimizer.step()", ""), ("targets).backward()\n", "targets).backward()\n            optimizer.step()\n")), ("drift",), CURED),
    V("one parameter is left out", "11.4", (("            for parameter in model.parameters():\n", "            for parameter in list(model.parameters())[1:]:\n"),), ("drift",), CURED),
    V("weights averaged in the end", "11.5", (("    for parameter in model.parameters():\n        dist.broadcast(parameter.data, src=0)\n", ""), ("            optimizer.step()", "            optimizer.step()\n    for parameter in model.parameters():\n        dist.broadcast(parameter.data, src=0)")), ("different-start",), CURED),
    V("the first weights only", "11.5", (("    for parameter in model.parameters():\n        dist.broadcast(", "    for parameter in list(model.parameters())[:1]:\n        dist.broadcast("),), ("different-start",), CURED),
    V("shares cut to nothing", "11.6", (("// world_size * world_size]", "// world_size]"),), ("samples-missing",), CURED),
    V("the mean of rank 0 alone", "11.7", (("            dist.all_reduce(mean)\n", ""),), ("other-loss",), "the run ends"),
    V("the sum for the mean", "11.7", (("loss.detach() / dist.get_world_size()", "loss.detach()"),), ("other-loss",), "the run ends"),
    V("no numbers as losses", "11.7", (("losses.append(mean.item())", "losses.append(float('nan'))"),), ("other-loss",), "the run ends"),
    V("no number as accuracy", "11.9", (("return counts[0].item() / counts[1].item()", "return float('nan')"),), ("other-accuracy",), "the accuracy"),
    V("no losses", "11.7", (("losses.append(mean.item())", "pass"),), ("no-losses",), "the run ends"),
    V("rank 0 decides for all", "11.8", ((MEAN, "        mean = torch.tensor(loss)\n        dist.broadcast(mean, src=0)\n        if mean < limit:"),), ("other-epoch",), CURED),
    V("F17 waiting is not telling", "11.8", ((MEAN, "        dist.barrier()\n        if loss < limit:"),), ("hang", "peer-gone", "other-epoch"), CURED),
    V("the best decides", "11.8", (("dist.all_reduce(mean)", "dist.all_reduce(mean, op=dist.ReduceOp.MIN)"),), ("other-epoch",), CURED),
    V("nobody stops", "11.8", (("            break", "            pass"),), ("other-epoch",), CURED),
    V("F01 the accuracy of a rank", "11.9", ((f"    {COUNTS}\n", ""),), ("other-accuracy",), "the accuracy"),
    V("divided by what was planned", "11.9", (("counts[0].item() / counts[1].item()", "counts[0].item() / (len(share) * world_size)"),), ("other-accuracy",), "the accuracy"),
    V("the rest is dropped", "11.10", (("range(rank, len(dataset), world_size)", "range(rank, len(dataset) // world_size * world_size, world_size)"),), ("other-accuracy",), "the accuracy"),
    V("F06 read by all", "11.11", ((COUNTS, "dist.reduce(counts, dst=1)"),), ("other-accuracy",), "the accuracy"),
    V("shared by one that has it not", "11.11", ((COUNTS, "dist.reduce(counts, dst=0)\n    dist.broadcast(counts, src=1)"),), ("other-accuracy",), "the accuracy"),
    V("a file that both jobs share", "11.12", ((JOIN, JOIN[:-1] + ', init_method="file:///tmp/meeting_of_all")'),), ("port",), "two jobs"),
    V("another fixed port", "11.12", ((JOIN, f'os.environ["MASTER_PORT"] = "29501"\n    {JOIN}'),), ("port",), "two jobs"),
    V("a free port on each rank", "11.12", ((JOIN, f'os.environ["MASTER_PORT"] = str(30000 + os.getpid() % 20000)\n    {JOIN}'),), ("address",), "two jobs"),
    V("another group on each node", "11.13", ((JOIN, f'rank, world_size = int(os.environ["LOCAL_RANK"]), 2\n    os.environ["MASTER_PORT"] = str(30000 + int(os.environ["GROUP_RANK"]))\n    {JOIN}'),), ("same-rank", "world-size"), "four ranks"),
    V("the node for the rank", "11.13", (('os.environ["RANK"]', 'os.environ["GROUP_RANK"]'),), ("same-rank",), "four ranks"),
    V("not clipped", "11.14", (("            clip_grad_norm_(model.parameters(), 0.1)\n", ""),), ("other-step", "scale"), CURED),
    V("clipped before and after", "11.14", (("            for parameter in model.parameters():\n                dist.all", "            clip_grad_norm_(model.parameters(), 0.1)\n            for parameter in model.parameters():\n                dist.all"),), ("other-update",), CURED),
]  # fmt: skip

SAMPLER = "sampler = DistributedSampler(train_set)"
COUNT = "            dist.all_reduce(count)  # of all ranks: the loss is the mean over the tokens of the global batch\n"
LOSS = 'loss = loss_of(model(tokens.to(device)), targets, reduction="sum") / count'
SHARE = "Subset(dataset, range(rank, len(dataset), world_size))"
STEP = "            optimizer.step()\n"
PROJECT = [
    V("the last batch is not dropped", "12.1", ((", drop_last=True", ""),), ("incomplete-batch",), "each sequence"),
    V("A01 a group of one", "12.1", (('dist.init_process_group("nccl" if use_cuda else "gloo")', 'dist.init_process_group("gloo", rank=0, world_size=1)'),), ("world-size", "same-rank", "port")),
    V("A05 the local rank joins", "12.1", (('dist.init_process_group("nccl" if use_cuda else "gloo")', 'dist.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=3)'),), ("same-rank",)),
    V("A18 nccl everywhere", "12.1", (('"nccl" if use_cuda else "gloo"', '"nccl"'),), ("backend",)),
    V("B01 no sampler", "12.1", (("sampler=sampler, drop_last=True", "shuffle=True, drop_last=True"),), ("not-dealt", "same-samples"), "each sequence"),
    V("A05 the local rank chooses the data", "12.1", ((SAMPLER, "sampler = DistributedSampler(train_set, world_size, local_rank)"),), ("not-dealt", "same-samples"), "each sequence"),
    V("B03 no epoch", "12.1", (("        sampler.set_epoch(epoch)\n", ""),), ("not-reshuffled",), "each sequence"),
    V("no shuffling", "12.1", ((SAMPLER, "sampler = DistributedSampler(train_set, shuffle=False)"),), ("not-reshuffled", "not-shuffled"), "each sequence"),
    V("C21 a mean of means", "12.1", ((LOSS, "loss = loss_of(model(tokens.to(device)), targets)"), ("(loss * world_size)", "loss")), ("other-update",), "each step"),
    V("tokens of this rank", "12.1", ((COUNT, ""), ("(loss * world_size)", "loss")), ("other-update",), "each step"),
    V("DDP's average forgotten", "12.1", (("(loss * world_size)", "loss"),), ("divided-twice",), "each step"),
    V("the mean over sequences", "12.1", (('reduction="sum") / count', 'reduction="sum") / (12 * 10)'),), ("scale",), "each step"),
    V("all values of the rows, those that fill them too", "12.1", ((LOSS, "loss = cross_entropy(model(tokens.to(device)).flatten(0, 1), tokens.to(device).roll(-1, 1).flatten()) / world_size"),), ("other-update", "other-gradient"), "each step"),
    V("C02 past the wrapper", "12.1", (("model(tokens.to(device)), targets, red", "model.module(tokens.to(device)), targets, red"),), ("drift",), "each step"),
    V("no momentum", "12.1", ((", momentum=0.9", ""),), ("other-step", "other-update"), "each step"),
    V("E02 a rate of its own", "12.1", (("lr=lr,", "lr=lr * world_size,"),), ("other-step", "learning-rate"), "each step"),
    V("E01 a global batch on each rank", "12.2", (("global_batch_size // world_size", "global_batch_size"),), ("batch-size",), "each rank"),
    V("F19 all look at all", "12.2", ((SHARE, "dataset"), ("dist.all_reduce(counts)", "pass")), ("unshared-evaluation",), "each rank"),
    V("one evaluates, the others wait", "12.2", ((SHARE, "Subset(dataset, range(len(dataset) * (rank == 0)))"),), ("unshared-evaluation",), "each rank"),
    V("S22 averaged once more", "12.2", ((STEP, "            for each in model.parameters():\n                dist.all_reduce(each.grad)\n                each.grad /= world_size\n" + STEP),), ("many-messages", "much-traffic"), "the ranks exchange"),
    V("no numbers as weights", "12.1", ((STEP, "            next(model.parameters()).grad.fill_(float('nan'))\n" + STEP),), ("not-finite",), "each step"),
    V("no numbers as accuracies", "12.3", (("    return accuracies", "    return [float('nan') for _ in accuracies]"),), ("other-accuracy",), "all ranks know"),
    V("the count four times", "12.2", ((COUNT, "            for _ in range(4):\n                each = count.clone()\n                dist.all_reduce(each)\n            count = each\n"),), ("many-messages",), "the ranks exchange"),
    V("weights handed out in each step", "12.2", ((STEP, STEP + "            flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()\n            dist.broadcast(flat, 0)\n"),), ("much-traffic",), "the ranks exchange"),
    V("all outputs gathered", "12.2", ((STEP, STEP + "            dist.all_gather_object([None] * world_size, [each.grad for each in model.parameters()])\n"),), ("much-traffic", "many-messages"), "the ranks exchange"),
    V("F01 the accuracy of a rank", "12.3", (("    dist.all_reduce(counts)\n", ""),), ("other-accuracy",), "all ranks know"),
    V("F03 a mean of accuracies", "12.3", (("    dist.all_reduce(counts)\n    return counts[0].item() / counts[1].item()", "    mean = counts[0] / counts[1]\n    dist.all_reduce(mean)\n    return mean.item() / world_size"),), ("other-accuracy",), "all ranks know"),
    V("F06 on rank 0 only", "12.3", (("dist.all_reduce(counts)", "dist.reduce(counts, 0)"),), ("other-accuracy",), "all ranks know"),
    V("F02 shares filled up", "12.3", ((SHARE + ", batch_size=16", "dataset, sampler=DistributedSampler(dataset, shuffle=False), batch_size=16"),), ("other-accuracy",), "all ranks know"),
    V("tokens that only fill the rows", "12.3", (("counts[1] += (targets != -100).sum()", "counts[1] += targets.numel()"),), ("other-accuracy",), "all ranks know"),
    V("no accuracies", "12.3", (("    return accuracies", "    return None"),), ("no-accuracies",), "all ranks know"),
    V("on one rank only", "12.3", (("    return accuracies", "    return accuracies if dist.is_initialized() and dist.get_rank() == 0 else []"),), ("no-accuracies",), "all ranks know"),
    V("H02 the wrapper is saved", "12.3", (("model.module.state_dict()", "model.state_dict()"),), ("keys",), "one rank"),
    V("A05 one writer a node", "12.3", (("if dist.get_rank() == 0:", "if local_rank == 0:"),), ("several-writers",), "one rank"),
    V("saved before it is trained", "12.3", (("    accuracies = []\n", '    accuracies = []\n    if dist.get_rank() == 0:\n        torch.save(model.module.state_dict(), "model.pt")\n'), ('    if dist.get_rank() == 0:\n        torch.save(model.module.state_dict(), "model.pt")\n    dist', "    dist")), ("other-weights",), "one rank"),
    V("not saved", "12.3", (('        torch.save(model.module.state_dict(), "model.pt")', "        pass"),), ("no-file",), "one rank"),
]  # fmt: skip
MISTAKES = [*CLINIC, *PROJECT]
