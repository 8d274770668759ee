"""netcl's data-parallel step on PoCL devices, started by replicas_speed.py as a process of its own.

The network, the batch and the optimizer are those of replicas_speed.py. netcl finds one device by itself, so the
devices are named; and its parameters take part in the step as leaves that ask for a gradient, biases too.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise

import numpy as np
import pyopencl
from netcl import autograd
from netcl.core.tensor import Tensor
from netcl.distributed import trainer
from netcl.distributed.device_manager import DeviceManager
from netcl.optim import AdamW

from benchmarks.turns import Baton

SIZES = (784, 256, 128, 10)


def main(address: str, world_size: int, batch_size: int, steps: int) -> None:
    """Take turns of so many steps until nobody hands one out any more."""
    baton = Baton(address)
    devices = [device for platform in pyopencl.get_platforms() for device in platform.get_devices()]
    queues = DeviceManager(devices[:world_size]).get_queues()
    rng = np.random.default_rng(0)
    shapes = [shape for ends in pairwise(SIZES) for shape in (ends, ends[1:])]
    host = [(rng.standard_normal(shape) / 28).astype(np.float32) for shape in shapes]
    replicas = trainer.prepare_replicas([Tensor.from_host(queues[0], each) for each in host], queues)
    optimizers = [AdamW(params) for params in replicas]
    images = rng.standard_normal((batch_size, SIZES[0])).astype(np.float32)
    labels = np.eye(SIZES[-1], dtype=np.float32)[rng.integers(0, SIZES[-1], batch_size)]
    while True:
        baton.take()
        start = time.perf_counter()
        for _ in range(steps):
            trainer.data_parallel_step(forward, replicas, optimizers, (images, labels))
        for queue in queues:
            queue.finish()
        baton.pass_on(batch_size * steps / (time.perf_counter() - start))


def forward(queue, images, labels, params):
    """The loss of the network on a shard, and the tape that can go back from it."""
    tape = autograd.Tape()
    for param in params:
        param.requires_grad = True
    leaves = [autograd.tensor(param, requires_grad=True) for param in params]
    hidden = autograd.tensor(Tensor.from_host(queue, np.ascontiguousarray(images)))
    for place in range(0, len(leaves), 2):
        hidden = autograd.matmul_op(hidden, leaves[place], tape=tape)
        hidden = autograd.bias_add(hidden, leaves[place + 1], tape=tape)
        if place + 2 < len(leaves):
            hidden = autograd.relu(hidden, tape=tape)
    target = autograd.tensor(Tensor.from_host(queue, np.ascontiguousarray(labels)))
    return autograd.cross_entropy(hidden, target, tape=tape), tape


if __name__ == "__main__":
    address, *numbers = sys.argv[1:]
    main(address, *map(int, numbers))
