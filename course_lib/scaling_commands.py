"""The commands that look beyond this machine: `ddp-course calibrate` and `ddp-course predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from course_lib.config import CHOICES, SIMULATED, RunConfig
from course_lib.console import Screen
from course_lib.errors import ConfigError
from course_lib.options import PROFILE, Json, Model, Scaling, choice, one, path, several
from course_lib.runs.plan import SCALINGS, THIS_MACHINE
from course_lib.signals import load_torch

if TYPE_CHECKING:
    from course_lib.runs.profiles import Profile
    from course_lib.scaling.step_time import StepTimeModel

DEFAULTS = RunConfig()
GPUS = "1,2,4,8,16,32,64,128,256,512,1024"
LEGEND = "compute, waiting for the slowest GPU, and exchanging gradients: their shares of a step."


def calibrate(
    context: typer.Context,
    model: Model = DEFAULTS.model,
    device: Annotated[str, choice("What to measure; auto prefers GPUs", ("auto", "cuda", "cpu"))] = DEFAULTS.device,
    out: Annotated[Path, path("The profile to write.", "FILE")] = Path(THIS_MACHINE),
    json: Json = False,
) -> int:
    """Measure this machine in 20 seconds, for predict and for simulated runs."""
    screen: Screen = context.obj
    with screen.err.status("Loading PyTorch…") as status:
        from course_lib.runs.launch import warm_up

        warm_up()
        load_torch()
        from course_lib.runs.calibrate import calibrate as measure
        from course_lib.runs.profiles import check_writable

        check_writable(out)  # sooner than after 20 seconds
        profile = measure(model, device, lambda what: status.update(f"{what}…"))
    file = profile.save(out)
    found = {"hardware": profile.hardware.title, "flops_per_s": profile.hardware.flops_per_s}
    measured = profile.measured.to_dict("records")
    content = {"profile": str(file), **found, "sources": profile.hardware.sources, "measured": measured}
    screen.result(content, _profile_summary(profile, file))
    return 0


def predict(
    context: typer.Context,
    model: Model = DEFAULTS.model,
    hardware: Annotated[str | None, typer.Option(help=f"On which GPUs: {PROFILE}", metavar="NAME")] = None,
    runs: Annotated[Path | None, path("Predict from the runs in this folder, instead of a profile.")] = None,
    num_gpus: Annotated[Any, several(int, "GPUs, of all nodes together.")] = GPUS,
    batch_size: Annotated[int, one(int, "Per GPU; of all together in strong scaling.")] = DEFAULTS.batch_size,
    precision: Annotated[str, choice("Of the forward pass", CHOICES["precision"])] = DEFAULTS.precision,
    scaling: Scaling = "weak",
    json: Json = False,
) -> int:
    """Say how fast a model would train on many GPUs: time of a step, images/s, speedup, and where the time goes.

    A prediction, not a measurement.
    """
    screen: Screen = context.obj
    # Each number is checked as that of a run would be.
    for gpus in num_gpus:
        DEFAULTS.with_(model=model, num_gpus=gpus, batch_size=batch_size, precision=precision, device=SIMULATED)
    if scaling not in SCALINGS:
        raise ConfigError(f"scaling must be one of {', '.join(SCALINGS)}, not {scaling!r}.")
    with screen.err.status("Loading PyTorch…"):
        load_torch()  # which counts a model's operations
        from course_lib.console import records
        from course_lib.scaling.predictions import predict_scaling

        source, step_times, gpus_per_node = _step_times(hardware, runs, model, precision)
    rows = records(predict_scaling(step_times, num_gpus, gpus_per_node, batch_size, scaling))
    content = {"model": model, "source": source, "timing": "predicted", "scaling": scaling, "rows": rows}
    title = f"Predicted, not measured: {model}, {scaling} scaling, on {source}"
    screen.result(content, Text(title, "bold"), "", _prediction_table(rows), "", Text(LEGEND, "dim"))
    return 0


def _step_times(hardware: str | None, runs: Path | None, model: str, precision: str) -> tuple[str, StepTimeModel, int]:
    """What the prediction goes by: in words, the model of its steps, and how many GPUs a node has."""
    from course_lib.runs import profiles, store
    from course_lib.scaling.step_time import StepTimeModel

    if runs is None:
        profile = profiles.find(hardware)
        node = profile.hardware
        return node.title, profile.step_time_model(model, precision), node.cluster.gpus_per_node
    if hardware is not None:
        raise ConfigError("--hardware and --runs both say what to predict from. Give one of them.")
    frame = store.frame(runs)
    used = profiles.comparable(frame[(frame["model"] == model) & (frame["precision"] == precision)])
    return f"the machine of {runs}", StepTimeModel.fit(profiles.steps_of(used)), int(used["num_gpus"].max())


def _profile_summary(profile: Profile, file: Path) -> Table:
    intra = profile.hardware.cluster.intra
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("Profile", Text(str(file), "bold"))
    table.add_row("Hardware", profile.hardware.title)
    table.add_row("Compute", f"{profile.hardware.flops_per_s / 1e9:,.1f} GFLOP/s on each device, in training")
    table.add_row("Links", f"{intra.bandwidth_bytes_per_s / 1e9:.2f} GB/s, {intra.latency_s * 1e6:,.0f} µs a hop")
    for name, fitted in profile.fitted.items():
        table.add_row("Steps", f"{name}: measured within {fitted.fitted.noise:.0%} of what the model says")
    for source in profile.hardware.sources:
        table.add_row("", Text(source, "dim"))
    return table


def _prediction_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("GPUs", "nodes", "global batch", "step (ms)", "80 % interval", "images/s", "speedup", "efficiency"):
        table.add_column(name, justify="right")
    for name in ("compute", "waiting", "exchange"):
        table.add_column(name, justify="right", style="dim")
    for row in rows:
        table.add_row(
            *(f"{row[name]:,.0f}" for name in ("gpus", "nodes", "global_batch")),
            f"{1e3 * row['step_time_s']:,.2f}",
            f"{1e3 * row['low']:,.2f} - {1e3 * row['high']:,.2f}",
            f"{row['throughput']:,.0f}",
            f"{row['speedup']:,.2f}",
            f"{row['efficiency']:.0%}",
            *(f"{row[part] / row['step_time_s']:.0%}" for part in ("compute_s", "straggler_s", "communication_s")),
        )
    return table
