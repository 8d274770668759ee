"""Replicas: true copies of a model, one for each device, and what keeps them alike."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from course_lib.errors import OutOfSyncError, ReplicaError
from course_lib.training.collectives import broadcast
from course_lib.training.device_queues import Queue
from course_lib.training.replica_layers import Meeting, SynchronisedBatchNorm, adapt

BATCH_NORMS = ("local", "synchronised")


class Replica:
    """A copy of the model on one device. Call it like the model.

    Attributes:
        number: its number among the replicas.
        queue: where its work is done.
        module: the copy; of a list of parameters, an `nn.ParameterList`.
        meeting: where it exchanges tensors with the other replicas in the middle of a step.
    """

    def __init__(self, number: int, queue: Queue, module: nn.Module, meeting: Meeting) -> None:
        self.number = number
        self.queue = queue
        self.module = module
        self.meeting = meeting
        # To look for them takes longer than some layers do to compute.
        self._named_parameters = list(module.named_parameters())

    def __repr__(self) -> str:
        return f"Replica({self.number}, {self.queue.name!r})"

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """What the copy makes of the inputs."""
        return self.module(*inputs, **named)

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return self.queue.device

    def parameters(self) -> Iterator[nn.Parameter]:
        """Its parameters, as an optimizer takes them."""
        return (parameter for _, parameter in self._named_parameters)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Its parameters with their names."""
        return iter(self._named_parameters)

    def zero_grad(self) -> None:
        """Forget its gradients."""
        for _, parameter in self._named_parameters:
            parameter.grad = None


def prepare_replicas(
    model_or_params: nn.Module | Iterable[Tensor], queues: Sequence[Queue], batch_norm: str = "local"
) -> list[Replica]:
    """Copy a model, or a list of parameters, to the device of each queue, bit for bit.

    Every copy has memory of its own, on one device too. `nn.Dropout` and its variants for channels get a random stream
    for each replica, seeded from torch's seed; what else draws random numbers on the CPU shares one. Make an optimizer
    for each: `[AdamW(replica.parameters()) for replica in replicas]`.

    Args:
        model_or_params: what is trained. It is not changed; `write_back` brings the result into it.
        queues: from `DeviceManager.get_queues()`.
        batch_norm: "local" takes the statistics of a replica's own shard, as DDP does; "synchronised" those of the
            whole batch, as SyncBatchNorm does.

    Raises:
        ReplicaError: there is no queue or no parameter, or BatchNorm cannot be synchronised here.
    """
    if batch_norm not in BATCH_NORMS:
        raise ReplicaError(f"batch_norm must be one of {', '.join(BATCH_NORMS)}, not {batch_norm!r}.")
    if not queues:
        raise ReplicaError("There is no queue: DeviceManager().get_queues() gives one for each device.")
    model = _as_module(model_or_params)
    if next(model.parameters(), None) is None:
        raise ReplicaError("The model has no parameters: there is nothing to train.")
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        raise ReplicaError(
            "The model has lazy layers, and each replica would draw weights of its own. Call it once first."
        )
    meeting = Meeting()
    replicas = []
    for number, queue in enumerate(queues):
        module = copy.deepcopy(model).to(queue.device)
        adapt(module, number, meeting if batch_norm == "synchronised" else None, queue.device)
        replicas.append(Replica(number, queue, module, meeting))
    _check_meeting(replicas)
    return replicas


def broadcast_params(replicas: Sequence[Replica], root: int = 0) -> None:
    """Put the parameters and buffers of replica `root` into all others.

    Raises:
        CollectiveError: the replicas are not alike, or there is none of that number.
    """
    states = [_state(replica.module) for replica in replicas]
    for tensors in zip(*states, strict=True):
        broadcast([tensor for _, tensor in tensors], root)


def broadcast_optimizer(optimizers: Sequence[torch.optim.Optimizer], root: int = 0) -> None:
    """Give every optimizer a copy of the state of optimizer `root`: after it alone was loaded from a checkpoint.

    `load_state_dict` by itself would let optimizers on one device share their moments, and move them twice a step.
    """
    for number, optimizer in enumerate(optimizers):
        if number != root:
            optimizer.load_state_dict(copy.deepcopy(optimizers[root].state_dict()))


def check_in_sync(replicas: Sequence[Replica]) -> None:
    """Compare the parameters of all replicas, bit for bit.

    Raises:
        OutOfSyncError: names the first parameter that drifted, the replica, and by how much at most.
    """
    first, *others = replicas
    for name, expected in first.named_parameters():
        for replica in others:
            found = replica.module.get_parameter(name).detach().to(expected.device)
            if not torch.equal(found, expected):
                apart = (found - expected.detach()).abs().max().item()
                raise OutOfSyncError(
                    f"Parameter {name!r} of replica {replica.number} differs from replica 0's by up to {apart:.3g}. "
                    "They began apart, or something changed it on one replica alone: also an optimizer whose state or "
                    "settings are not the others'. broadcast_params and broadcast_optimizer make all alike."
                )


def write_back(replicas: Sequence[Replica], model_or_params: nn.Module | Iterable[Tensor]) -> None:
    """Bring the parameters and buffers of replica 0 into the model that the replicas were made from.

    Raises:
        ReplicaError: it is another model.
    """
    targets = _state(model_or_params) if isinstance(model_or_params, nn.Module) else list(enumerate(model_or_params))
    sources = _state(replicas[0].module)
    shapes = [[tensor.shape for _, tensor in each] for each in (sources, targets)]
    if shapes[0] != shapes[1]:
        raise ReplicaError("The replicas were made from another model: its parameters have other shapes.")
    with torch.no_grad():
        for (_, source), (_, target) in zip(sources, targets, strict=True):
            target.copy_(source)


def _as_module(model_or_params: nn.Module | Iterable[Tensor]) -> nn.Module:
    if isinstance(model_or_params, nn.Module):
        return model_or_params
    # Whoever lists a tensor here wants it trained; only a Parameter says by itself that it is frozen.
    return nn.ParameterList(
        nn.Parameter(tensor.detach().clone(), tensor.requires_grad or not isinstance(tensor, nn.Parameter))
        for tensor in model_or_params
    )


def _state(module: nn.Module) -> list[tuple[Any, Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _check_meeting(replicas: Sequence[Replica]) -> None:
    """Refuse what would wait for ever: the backward passes of one GPU share a thread."""
    synchronised = any(isinstance(layer, SynchronisedBatchNorm) for layer in replicas[0].module.modules())
    gpus = [replica.device for replica in replicas if replica.device.type == "cuda"]
    if synchronised and len(set(gpus)) < len(gpus):
        raise ReplicaError("BatchNorm cannot be synchronised between replicas that share a GPU. Take one for each GPU.")
