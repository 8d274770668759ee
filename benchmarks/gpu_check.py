"""Everything that needs a GPU, in one script that ends within 8 minutes on one GPU.

    python -m benchmarks gpu_check --out gpu.json

Each check stands for itself: one that fails or takes too long says so, and the others go on. The seconds to 92 % and
94 % need the whole data set; on a machine without a network, take its four files along and point $DDP_COURSE_DATA to
their folder. Without a GPU nothing is done. On the CPU, `measure(True, "cpu")` runs the same code to see that it works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks import by_hand
from benchmarks.gpu_replicas import largest_difference
from benchmarks.loop_speed import HAND, SHARE_OF_BY_HAND
from benchmarks.measuring import Row, compare, failed, figure, passed, skipped
from benchmarks.turns import launched, take_turns_by_epoch
from course_lib.config import RunConfig
from course_lib.errors import DataError
from course_lib.runs import devices
from course_lib.runs.folder import read_json
from course_lib.runs.launch import launch
from course_lib.runs.launcher import fork_server
from course_lib.training import ddp, single, sources
from course_lib.training.worker import Worker

ALL_SECONDS = 460.0
ACCURACIES = (0.92, 0.94)
# One epoch of the subset: long enough to learn something, short enough for a check.
SMALL = RunConfig(data="subset", epochs=1, checkpoint=False)
# A run that has learned as much as this has trained.
LEARNED = 0.5
# One training on one GPU by two ways: some of cuDNN's gradients depend on the order of additions.
SAME_ACCURACY = 0.03
WIDE = SMALL.with_(model="wrn-16-4", precision="bf16", channels_last=True, batch_size=256, lr=0.1)
TO_ACCURACY = WIDE.with_(data="full", epochs=16, warmup_epochs=2.0)


@dataclass(frozen=True)
class Done:
    """A run that was made: what rank 0 returned, the events, what was recorded of the machine, and the seconds."""

    value: Any
    events: list[dict[str, Any]]
    backend: str
    device: str
    caveats: str
    seconds: float


class Bench:
    """Makes the runs of the checks on one kind of device, within the time that is left."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device = device
        self.quick = quick
        self.deadline = time.monotonic() + ALL_SECONDS

    @property
    def on_gpu(self) -> bool:
        """Whether this is the real thing."""
        return self.device == "cuda"

    @property
    def seconds_left(self) -> float:
        """Until all must be done."""
        return self.deadline - time.monotonic()

    def learned(self, done: Done) -> bool:
        """Whether a run trained something; a quick one need not."""
        return self.quick or done.value["val_accuracy"] > LEARNED

    def limit(self, seconds: float) -> float:
        """So many seconds, or what is left."""
        return min(seconds, max(1.0, self.seconds_left))

    def prepared(self, config: RunConfig) -> RunConfig:
        """The config on this bench's device, unless it names one or its ranks share one; with few images if quick."""
        if config.device == "auto" and config.num_gpus == 1:
            config = config.with_(device=self.device)
        if self.quick:
            config = config.with_(train_samples=600, batch_size=60, epochs=min(config.epochs, 2), warmup_epochs=0)
        return config

    def run(self, train: Callable[..., Any], config: RunConfig, seconds: float) -> Done:
        """Launch, wait for at most so many seconds, and look at what was recorded."""
        config, limit = self.prepared(config), self.limit(seconds)
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as scratch:
            run = launch(train, config, Path(scratch) / "run", time_limit=limit)
            try:
                value = run.wait()
            finally:
                run.stop()
            made = read_json(run.folder.environment)
            caveats = read_json(run.folder.caveats)["speed_caveats"] if run.folder.caveats.exists() else []
            taken = time.monotonic() - start
            return Done(value, run.events(), made["backend"], made["device"], "; ".join(caveats), taken)


def measure(quick: bool, device: str = "cuda") -> list[Row]:
    """All checks, in an order in which the quick and important ones come first."""
    if device == "cuda" and not devices.gpu_count():
        return [skipped("gpu_check", "there is no GPU here, so nothing was checked")]
    bench = Bench(device, quick)
    rows = []
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        if bench.seconds_left < 5:
            rows.append(skipped(name, f"no time was left of {ALL_SECONDS:.0f} s"))
            continue
        try:
            rows += check(bench)
        except Exception as error:
            rows.append(failed(name, error))
    return rows


def a_fresh_rank_has_not_touched_the_gpu(bench: Bench) -> list[Row]:
    """CUDA is uninitialised in a rank as the server forks it, and usable there."""
    # A CPU rank, since in one with a GPU the worker itself has asked for the GPU's name.
    done = bench.run(partial(use_cuda, bench.device), SMALL.with_(device="cpu"), 60)
    return [passed("CUDA is untouched in a fresh rank, and works there", done.value == "untouched", str(done.value))]


def nccl_with_one_rank_trains_as_single_does(bench: Bench) -> list[Row]:
    """DDP over NCCL, beside `single.train`."""
    alone, together = bench.run(single.train, SMALL, 60), bench.run(ddp.train, SMALL, 60)
    difference = abs(alone.value["val_accuracy"] - together.value["val_accuracy"])
    same = alone.value["fingerprint"] == together.value["fingerprint"]
    backend = "nccl" if bench.on_gpu else "gloo"
    steps = [event for event in alone.events if event["kind"] == "step" and event["epoch"] == 1]
    gaps = [after["start"] - step["start"] - step["seconds"] for step, after in pairwise(steps)]
    return [
        figure("largest gap between two steps of an epoch", "s", [max(map(abs, gaps))], at_most=0.001),
        passed("one rank on one GPU meets over NCCL", together.backend == backend, together.backend),
        passed("a run with a GPU for each rank is a measurement of speed", not together.caveats, together.caveats),
        figure(
            "accuracy of single.train less that of ddp.train, 1 rank",
            "%",
            [100 * difference],
            at_most=100 * SAME_ACCURACY,
            note="the same weights, bit for bit" if same else "weights differ in some bits",
        ),
    ]


def replicas_that_share_a_gpu(bench: Bench) -> list[Row]:
    """Data parallelism by hand, in this process."""
    for_each = {overlap: largest_difference(bench.device, overlap) for overlap in (False, True)}
    how = {False: "after backward", True: "during backward"}
    name = "3 replicas on one device less plain training, gradients exchanged"
    return [figure(f"{name} {how[overlap]}", "", [apart], at_most=1e-6) for overlap, apart in for_each.items()]


def ranks_that_share_a_gpu(bench: Bench) -> list[Row]:
    """One rank more than there are GPUs: gloo on tensors of the GPU, with a caveat."""
    ranks = devices.gpu_count() + 1 if bench.on_gpu else 2
    done = bench.run(ddp.train, SMALL.with_(num_gpus=ranks), 90)
    there = done.device.startswith(bench.device) and done.backend == "gloo"
    said = f"{done.backend} on {done.device}, accuracy {done.value['val_accuracy']:.3f}"
    return [
        passed(f"{ranks} ranks share what there is, over gloo, and learn", there and bench.learned(done), said),
        passed("such a run says so, as a caveat", "share" in done.caveats or not bench.on_gpu, done.caveats),
    ]


def launch_after_the_parent_used_the_gpu(bench: Bench) -> list[Row]:
    """With the server that is there, and with one that is started afterwards."""
    (torch.ones(1000, device=bench.device) * 2).sum().item()
    rows: list[Row] = []
    for what in ("a server from before", "a server started after it"):
        if rows:
            _end_server()
        done = bench.run(single.train, SMALL, 60)
        note = f"accuracy {done.value['val_accuracy']:.3f}, {done.seconds:.1f} s"
        rows.append(passed(f"launch after CUDA was used in the parent, {what}", bench.learned(done), note))
    return rows


def the_server_has_not_touched_the_gpu(bench: Bench) -> list[Row]:
    """After a run on the GPU, the server is no process of the GPU's."""
    bench.run(single.train, SMALL, 60)
    pid = fork_server().pid
    signs = signs_of_cuda(pid)
    return [passed("the preloaded server has no CUDA context", not signs, "; ".join(signs) or f"process {pid}")]


def bf16(bench: Bench) -> list[Row]:
    """Autocast to bf16 learns as much as fp32."""
    full, half = bench.run(single.train, SMALL, 60), bench.run(single.train, SMALL.with_(precision="bf16"), 60)
    lost = full.value["val_accuracy"] - half.value["val_accuracy"]
    return [figure("accuracy of fp32 less that of bf16", "%", [100 * lost], at_most=100 * SAME_ACCURACY)]


def fp16(bench: Bench) -> list[Row]:
    """Autocast to fp16, with its scaler."""
    if not bench.on_gpu:
        return [skipped("fp16", "only on a GPU")]
    done = bench.run(single.train, SMALL.with_(precision="fp16"), 60)
    return [passed("fp16 learns", bench.learned(done), f"accuracy {done.value['val_accuracy']:.3f}")]


def images_per_second_of_a_small_network(bench: Bench) -> list[Row]:
    """The trainers beside the loops written by hand, where each report is felt most."""
    return _against_by_hand(bench, SMALL, 20, 30.0)


def images_per_second_of_a_wide_network(bench: Bench) -> list[Row]:
    """The same where the GPU has more to do."""
    return _against_by_hand(bench, WIDE, 6, 45.0)


def compiled(bench: Bench) -> list[Row]:
    """torch.compile, under DDP."""
    done = bench.run(ddp.train, SMALL.with_(compile=True, epochs=2), 100)
    note = f"accuracy {done.value['val_accuracy']:.3f}, {done.seconds:.0f} s with compiling"
    return [passed("torch.compile under DDP learns", bench.learned(done), note)]


def seconds_to_accuracy(bench: Bench) -> list[Row]:
    """WRN-16-4 on the whole data set until its test accuracy is there; the clock counts training and evaluation."""
    config = TO_ACCURACY.with_(data="subset") if bench.quick else TO_ACCURACY
    try:
        sources.locate(config.data)
    except DataError as error:
        return [skipped(f"seconds to an accuracy, {config.model}", str(error))]
    done = bench.run(ddp.train, config, 150)
    epochs = [event for event in done.events if event["kind"] == "epoch"]
    best = max(event["val_accuracy"] for event in epochs)
    rows = []
    for accuracy in ACCURACIES:
        name = f"seconds to {accuracy:.0%}, {config.model}, 1 GPU"
        times = [event["seconds"] for event in epochs if event["val_accuracy"] >= accuracy]
        note = f"best {best:.2%} in {config.epochs} epochs, {done.value['images_per_sec']:,.0f} images/s"
        rows.append(
            figure(name, "s", times[:1], note=note) if times else passed(name, bench.quick, f"not reached: {note}")
        )
    return rows


CHECKS: tuple[Callable[[Bench], list[Row]], ...] = (
    a_fresh_rank_has_not_touched_the_gpu,
    nccl_with_one_rank_trains_as_single_does,
    ranks_that_share_a_gpu,
    the_server_has_not_touched_the_gpu,
    launch_after_the_parent_used_the_gpu,
    replicas_that_share_a_gpu,
    bf16,
    fp16,
    seconds_to_accuracy,
    images_per_second_of_a_small_network,
    images_per_second_of_a_wide_network,
    compiled,
)


def use_cuda(device: str, config: RunConfig, worker: Worker) -> str:
    """Whether CUDA was initialised before this function was called, which then uses it."""
    answer = "initialised" if torch.cuda.is_initialized() else "untouched"
    torch.ones(1000, device=device).sum().item()
    return answer


def signs_of_cuda(pid: int) -> list[str]:
    """What says that a process uses CUDA: the driver's own list, and on Linux the device that every context opens."""
    signs = []
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.split()
        if str(pid) in listed:
            signs.append("nvidia-smi lists it")
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = os.readlink(descriptor)
        except OSError:  # closed in the meantime
            continue
        if target.startswith("/dev/nvidia-uvm"):
            signs.append(f"it holds {target} open")
    return signs


def _against_by_hand(bench: Bench, config: RunConfig, turns: int, seconds: float) -> list[Row]:
    turns = 1 if bench.quick else turns
    config = bench.prepared(config.with_(epochs=turns + 1))
    rows = []
    for name, train, loop in (("single.train", single.train, by_hand.single), ("ddp.train", ddp.train, by_hand.ddp)):
        limit = bench.limit(seconds)
        rates = take_turns_by_epoch([launched(name, train, config, limit), launched(HAND, loop, config, limit)], turns)
        what = f"{name}, {config.model} in {config.precision}, 1 rank"
        rows.append(compare(what, "images/s", rates[name], rates[HAND], HAND, at_least=SHARE_OF_BY_HAND))
    return rows


def _end_server() -> None:
    """End the fork server; the next launch starts another."""
    server = fork_server()
    server.close()
    while server.alive:
        time.sleep(0.01)
