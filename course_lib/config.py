"""What one training run is: checked once, when it is made, and passed on explicitly."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields, replace
from sys import float_info
from typing import Any

from course_lib.errors import ConfigError

MODELS = ("mlp", "small_cnn", "wrn-16-4", "wrn-40-4")
CHOICES = {
    "model": MODELS,
    "optimizer": ("sgd", "adamw"),
    "lr_rule": ("none", "linear", "sqrt"),
    "schedule": ("constant", "one_cycle"),
    "device": ("auto", "cuda", "cpu", "simulated"),
    "precision": ("fp32", "bf16", "fp16"),
    "data": ("auto", "full", "subset"),
}
# The learning rate for one rank that suits each optimizer; 0.05 is far too bold for AdamW.
SUITABLE_LR = {"sgd": 0.05, "adamw": 0.001}
# How the times of a run came about. No plot, table or file mixes them without saying so.
MEASURED_ON_GPUS = "measured on GPUs"
MEASURED_ON_CPU_RANKS = "measured on CPU ranks"
SIMULATED = "simulated"
AT_LEAST_ONE = ("num_gpus", "num_nodes", "batch_size", "accumulation_steps", "epochs", "threads_per_rank")
MAX_WORLD_SIZE = 1024
MAX_SIMULATED_WORLD_SIZE = 4096
MAX_EPOCHS = 1_000_000  # years of training, and steps that can be counted
MAX_SEED = 2**63 - 1 - MAX_SIMULATED_WORLD_SIZE  # each rank adds its number, and seeds and tables take 63 bits
# The first steps load kernels, fill caches and let the allocator grow: every figure of a run leaves them out.
WARMUP_STEPS = 10


def untimed_steps(steps: int) -> int:
    """How many of a run's `steps` its figures leave out: the first ten, or the first half of a short run."""
    return min(WARMUP_STEPS, steps // 2)


@dataclass(frozen=True)
class RunConfig:
    """One training run.

    `batch_size` is what one rank takes through the model at a time. A step of the optimizer sees
    `global_batch_size = batch_size * accumulation_steps * world_size` images, and
    `world_size = num_gpus * num_nodes` processes take part, one for each GPU (or CPU rank). Simulated ranks are
    computed by one process, whatever their number.

    Fields:
        model: one of `MODELS`.
        num_gpus: GPUs on each node; on a machine without, CPU ranks.
        num_nodes: nodes; `launch` plays several nodes on one machine.
        batch_size: images per rank and forward pass.
        accumulation_steps: forward and backward passes before each step of the optimizer.
        lr: the learning rate that suits one rank; `lr_rule` scales it to the global batch.
        lr_rule: "none", "linear" or "sqrt" (see training/schedules.py).
        warmup_epochs: epochs over which the learning rate rises to its full value.
        schedule: what follows the warm-up: "constant", or "one_cycle" (a cosine down to zero).
        epochs: passes over the training set.
        optimizer: "sgd" (Nesterov momentum 0.9) or "adamw".
        weight_decay: the optimizer's weight decay.
        clip_norm: largest norm of the whole gradient, or None.
        seed: seeds the weights, the order of the data and dropout.
        device: "auto" takes CUDA where there is a GPU; "simulated" plays GPUs that are not there: what is learned is
            real, the times are those of the scaling model.
        hardware: the name of the profile (see scaling/hardware.py) of the simulated GPUs; None for the usual one.
        precision: "fp32", or autocast to "bf16" or "fp16" where the device has it.
        channels_last: keep images as NHWC in memory, which convolutions are faster with.
        compile: train through torch.compile (not simulated, since no time of it would show).
        sync_batchnorm: BatchNorm over the batch of all ranks (GPUs, simulated ones too).
        train_samples: train on this many images, the same number of each class; None for all.
        data: "auto" (the whole data set if it is found, else the subset), "full" or "subset".
        threads_per_rank: CPU threads of each rank. The same for every world size, so that one CPU
            rank is the same device whether it is alone or not. A simulated run takes all cores.
        collective_timeout: seconds that a rank waits in a collective for the others.
        checkpoint: write a checkpoint after each epoch.

    Raises:
        ConfigError: names the field, its value and what is allowed.
    """

    model: str = "small_cnn"
    num_gpus: int = 1
    num_nodes: int = 1
    batch_size: int = 64
    accumulation_steps: int = 1
    lr: float = SUITABLE_LR["sgd"]
    lr_rule: str = "linear"
    warmup_epochs: float = 0.5
    schedule: str = "one_cycle"
    epochs: int = 3
    optimizer: str = "sgd"
    weight_decay: float = 5e-4
    clip_norm: float | None = None
    seed: int = 0
    device: str = "auto"
    hardware: str | None = None
    precision: str = "fp32"
    channels_last: bool = True
    compile: bool = False
    sync_batchnorm: bool = False
    train_samples: int | None = None
    data: str = "auto"
    threads_per_rank: int = 1
    collective_timeout: float = 30.0
    checkpoint: bool = True

    def __post_init__(self) -> None:
        _check_types(self)
        _check_values(self)

    @property
    def world_size(self) -> int:
        """Number of ranks over all nodes."""
        return self.num_gpus * self.num_nodes

    @property
    def simulated(self) -> bool:
        """Whether its ranks are simulated."""
        return self.device == SIMULATED

    @property
    def processes(self) -> int:
        """Number of processes that it takes: one a rank, or one in all where the ranks are simulated."""
        return 1 if self.simulated else self.world_size

    @property
    def global_batch_size(self) -> int:
        """Images that one step of the optimizer sees, over all ranks."""
        return self.batch_size * self.accumulation_steps * self.world_size

    def with_(self, **changes: Any) -> RunConfig:
        """A copy with some fields changed, checked again."""
        _refuse_unknown(changes)
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON can hold them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunConfig:
        """The config that `to_dict` wrote.

        Raises:
            ConfigError: a field is unknown, or its value is wrong.
        """
        _refuse_unknown(values)
        return cls(**values)


def _refuse_unknown(values: dict[str, Any]) -> None:
    unknown = sorted(set(values) - {field.name for field in fields(RunConfig)})
    if unknown:
        raise ConfigError(f"RunConfig has no field {', '.join(map(repr, unknown))}.")


def _check_types(config: RunConfig) -> None:
    for field in fields(config):
        value = getattr(config, field.name)
        assert field.default is not MISSING
        optional = "None" in str(field.type)
        kinds: Any = {"int": int, "float": (int, float), "str": str, "bool": bool}[str(field.type).split(" ")[0]]
        if optional and value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise ConfigError(f"{field.name} must be {field.type}, not {value!r}.", field.name)
        if kinds == (int, float) and not abs(value) <= float_info.max:
            raise ConfigError(f"{field.name} must be a finite number, not {value!r}.", field.name)


def _check_values(config: RunConfig) -> None:
    for name, allowed in CHOICES.items():
        value = getattr(config, name)
        if value not in allowed:
            raise ConfigError(f"{name} must be one of {', '.join(allowed)}, not {value!r}.", name)
    for name in AT_LEAST_ONE:
        if getattr(config, name) < 1:
            raise ConfigError(f"{name} must be at least 1, not {getattr(config, name)}.", name)
    for name in ("lr", "collective_timeout"):
        if getattr(config, name) <= 0:
            raise ConfigError(f"{name} must be above 0, not {getattr(config, name)}.", name)
    for name in ("weight_decay", "warmup_epochs", "seed"):
        if getattr(config, name) < 0:
            raise ConfigError(f"{name} must be 0 or more, not {getattr(config, name)}.", name)
    if config.seed > MAX_SEED:
        raise ConfigError(f"seed must be at most {MAX_SEED}, not {config.seed}.", "seed")
    if config.epochs > MAX_EPOCHS:
        raise ConfigError(f"epochs must be at most {MAX_EPOCHS:,}, not {config.epochs}.", "epochs")
    if config.clip_norm is not None and config.clip_norm <= 0:
        raise ConfigError(f"clip_norm must be above 0, not {config.clip_norm}; leave it out not to clip.", "clip_norm")
    if config.train_samples is not None and config.train_samples < 1:
        raise ConfigError(
            f"train_samples must be at least 1, not {config.train_samples}; leave it out for all.", "train_samples"
        )
    if config.warmup_epochs > config.epochs:
        raise ConfigError(
            f"warmup_epochs ({config.warmup_epochs}) must not be above epochs ({config.epochs}).", "warmup_epochs"
        )
    _check_ranks(config)


def _check_ranks(config: RunConfig) -> None:
    most = MAX_SIMULATED_WORLD_SIZE if config.simulated else MAX_WORLD_SIZE
    if config.world_size > most:
        can = "can be simulated" if config.simulated else f"can start, and {MAX_SIMULATED_WORLD_SIZE} be simulated"
        more = "num_gpus" if config.num_gpus >= config.num_nodes else "num_nodes"
        raise ConfigError(f"num_gpus x num_nodes is {config.world_size}; at most {most} ranks {can}.", more)
    if config.hardware is not None and not config.simulated:
        raise ConfigError(
            f"hardware names what is simulated, and device is {config.device!r}. Leave hardware ({config.hardware!r}) "
            "out, or ask for device 'simulated'.",
            "hardware",
        )
    if config.compile and config.simulated:
        raise ConfigError("compile makes steps faster, which a simulated run would not show. Leave it out.", "compile")
