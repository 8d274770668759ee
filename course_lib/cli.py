"""The door: `ddp-course doctor | train | sweep | report | calibrate | predict | check | grade`.

What takes long to import is imported in the commands, so that --help answers at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, fields
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer

from course_lib.config import CHOICES, SUITABLE_LR, RunConfig
from course_lib.console import PROGRAM, Screen, prepare_streams
from course_lib.errors import CourseError, RunStopped, UsageError
from course_lib.grading_commands import check, grade
from course_lib.options import (
    Device,
    Epochs,
    Hardware,
    Json,
    LrRule,
    Model,
    NumNodes,
    Optimizer,
    RunsFolder,
    Scaling,
    SweepFolder,
    TrainSamples,
    choice,
    one,
    path,
    several,
)
from course_lib.runs.plan import Sweep
from course_lib.scaling_commands import calibrate, predict
from course_lib.signals import exit_code, load_torch, sigterm_interrupts

DEFAULTS = RunConfig()
ADAMW_LR = f"With adamw {SUITABLE_LR['adamw']:g} by default."
RANKS = ",".join(map(str, Sweep.num_gpus))
LISTS = ("num_gpus", "batch_size", "lr", "seed")  # what a sweep takes several values of

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="From one GPU to many: train, measure, compare.",
)


@app.command()
def doctor(
    context: typer.Context,
    out: Annotated[Path, path("Where runs will be recorded.")] = Path("runs"),
    json: Json = False,
) -> int:
    """Say what can run here, why not the rest, and what to do."""
    screen: Screen = context.obj
    from course_lib.console import findings_table
    from course_lib.runs.doctor import can_run, examine
    from course_lib.runs.launch import warm_up

    with screen.err.status("Looking at this machine…"):
        warm_up()
        with suppress(ImportError, OSError):  # it is what the doctor looks at first, and tells
            load_torch()
        findings = list(examine(out))
    able = can_run(findings)
    verdict = "The course can run here." if able else "The course cannot run here until the problems are solved."
    content = {"can_run": able, "findings": [asdict(finding) for finding in findings]}
    screen.result(content, findings_table(findings), "", verdict)
    return 0 if able else 1


@app.command()
def train(
    context: typer.Context,
    model: Model = DEFAULTS.model,
    num_gpus: Annotated[int, one(int, "GPUs on each node, or CPU ranks.")] = DEFAULTS.num_gpus,
    num_nodes: NumNodes = DEFAULTS.num_nodes,
    batch_size: Annotated[int, one(int, "Images that each rank takes at a time.")] = DEFAULTS.batch_size,
    lr: Annotated[float, one(float, f"Learning rate that suits one rank. {ADAMW_LR}")] = DEFAULTS.lr,
    lr_rule: LrRule = DEFAULTS.lr_rule,
    epochs: Epochs = DEFAULTS.epochs,
    optimizer: Optimizer = DEFAULTS.optimizer,
    train_samples: TrainSamples = DEFAULTS.train_samples,
    data: Annotated[str, choice("Which images; auto is full where found", CHOICES["data"])] = DEFAULTS.data,
    device: Device = DEFAULTS.device,
    hardware: Hardware = DEFAULTS.hardware,
    precision: Annotated[str, choice("Of the forward pass", CHOICES["precision"])] = DEFAULTS.precision,
    seed: Annotated[int, one(int, "For the weights and the order of the images.")] = DEFAULTS.seed,
    out: Annotated[Path | None, path("A new folder for this run.", show_default="one in runs/")] = None,
    resume_from: Annotated[Path | None, path("Go on from the last epoch of this run, with its settings.")] = None,
    time_limit: Annotated[float | None, one(float, "Stop the run after so many seconds.")] = None,
    json: Json = False,
) -> int:
    """Train a model on Fashion-MNIST, on one rank or on many."""
    screen: Screen = context.obj
    from course_lib.console import records, run_summary
    from course_lib.progress import RunProgress, follow
    from course_lib.runs import store
    from course_lib.runs.launch import launch
    from course_lib.training import sources

    config = _train_config(context, resume_from)
    train_size = sources.check(config).train_size
    images = config.train_samples or train_size
    with RunProgress(screen, config, steps=config.epochs * ceil(images / config.global_batch_size)) as progress:
        run = launch(_trainer(config), config, out, resume_from=resume_from, time_limit=time_limit)
        screen.facts["run_dir"] = str(run.path)
        value = follow(run, progress)
    if screen.silent:
        return 0
    row = records(store.frame(run.path))[0]
    told = ("world_size", "global_batch_size", "val_accuracy", "images_per_sec", "timing", "speed_caveats", "seconds")
    screen.result({"run_dir": str(run.path), **value, **{name: row[name] for name in told}}, run_summary(row))
    return 0


@app.command()
def sweep(
    context: typer.Context,
    model: Model = DEFAULTS.model,
    num_gpus: Annotated[Any, several(int, "GPUs on each node, or CPU ranks.")] = RANKS,
    num_nodes: NumNodes = DEFAULTS.num_nodes,
    batch_size: Annotated[Any, several(int, "Per rank; global in strong scaling.")] = DEFAULTS.batch_size,
    lr: Annotated[Any, several(float, f"Learning rates that suit one rank. {ADAMW_LR}")] = DEFAULTS.lr,
    lr_rule: LrRule = DEFAULTS.lr_rule,
    epochs: Epochs = DEFAULTS.epochs,
    optimizer: Optimizer = DEFAULTS.optimizer,
    train_samples: TrainSamples = DEFAULTS.train_samples,
    device: Device = DEFAULTS.device,
    hardware: Hardware = DEFAULTS.hardware,
    seed: Annotated[Any, several(int, "For the weights and the order of the images.")] = DEFAULTS.seed,
    scaling: Scaling = Sweep.scaling,
    repeats: Annotated[int, one(int, "How often to run all; 3 give an interval.")] = Sweep.repeats,
    out: SweepFolder = None,
    json: Json = False,
) -> int:
    """Train once for each combination of the lists, and compare.

    A sweep that was interrupted goes on where it stopped when it is asked for again with the same --out.
    """
    screen: Screen = context.obj
    from course_lib.console import records, sweep_remarks, sweep_table
    from course_lib.progress import SweepBar
    from course_lib.runs.sweep import run_sweep

    given = _given(context)
    base = _with_suitable_lr({name: value for name, value in given.items() if name not in LISTS})
    plan = Sweep(base, num_gpus, batch_size, lr if "lr" in given else (), seed, scaling, repeats)
    folder = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-sweep-{model}"
    screen.facts["out"] = str(folder)
    largest = base.with_(num_gpus=max(plan.num_gpus))
    with SweepBar(screen) as bar:
        try:
            frame = run_sweep(_trainer(largest), plan, folder, bar.show)
        except KeyboardInterrupt as interrupt:
            raise RunStopped(
                f"The sweep was stopped. What it recorded is in {folder}; the same command with --out {folder} goes on "
                "from there."
            ) from interrupt
    total = len(plan.plan(""))
    content = {"out": str(folder), "runs": total, "finished": total - bar.failed, "failed": bar.failed}
    called = sys.argv[0] if Path(sys.argv[0]).name == PROGRAM else PROGRAM  # where it is, if it is not on the PATH
    hint = f"To see it drawn: {called} report {folder}"
    screen.result({**content, "rows": records(frame)}, sweep_table(frame), "", *sweep_remarks(frame), hint)
    return 1 if bar.failed else 0


@app.command()
def report(
    context: typer.Context,
    folder: RunsFolder,
    out: Annotated[Path | None, path("The HTML file.", "FILE", show_default="report.html in FOLDER")] = None,
    json: Json = False,
) -> int:
    """Write a report on a run, or on all runs in a folder: one HTML file."""
    screen: Screen = context.obj
    from course_lib.lab.report import write_report
    from course_lib.runs.folder import RunFolder

    run = RunFolder(folder)
    if run.config.exists():
        run.read_config()  # among other runs a damaged one is a row in the report; alone it is an error
    file = write_report(folder, out or folder)
    screen.result({"report": str(file)}, str(file))
    return 0


app.command()(calibrate)
app.command()(predict)
app.command()(check)
app.command()(grade)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; `arguments` are the program's own by default.

    Returns:
        The exit code: 0, 1 for a failure, 2 for a mistake in what was asked, 130 and 143 after SIGINT and SIGTERM.
    """
    prepare_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    under_torchrun = _started_by_torchrun()
    screen = Screen(as_json="--json" in given, silent=under_torchrun and os.environ["RANK"] != "0")
    try:
        # Under torchrun the rank is busy in this process, and must go at once.
        with nullcontext() if under_torchrun else sigterm_interrupts():
            code = _run_command(given, screen)
            sys.stdout.flush()
            return code
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # `| head` has read enough
            screen.failed(CourseError(f"{error.strerror}: {error.filename}" if error.filename else str(error)))
        # What could not be written is still there, and would be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as interrupt:
        screen.failed(RunStopped("Stopped."))
        return exit_code(interrupt)


def _run_command(arguments: list[str], screen: Screen) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context(PROGRAM, arguments, obj=screen) as context:
            from course_lib.runs.folder import working_folder

            working_folder()  # without one, torch cannot even be loaded, and says nothing that helps
            code: int = command.invoke(context)
            return code
    except typer.Exit as end:  # --help
        return end.exit_code
    except typer.TyperException as error:
        if message := error.format_message():  # empty where the help was shown instead
            where = getattr(error, "ctx", None)
            program = where.command_path if where else PROGRAM
            screen.failed(UsageError(f"{message.rstrip('.')}. See {program} --help."))
        return UsageError.exit_code
    except RunStopped as error:
        screen.failed(error)
        return exit_code(error.__cause__)
    except CourseError as error:
        screen.failed(error)
        return error.exit_code


def _started_by_torchrun() -> bool:
    if "RANK" not in os.environ:
        return False
    from course_lib.runs.torchrun import started_by_torchrun

    return started_by_torchrun()


def _given(context: typer.Context) -> dict[str, Any]:
    """The fields of a config that options were given for."""
    sources = {field.name: context.get_parameter_source(field.name) for field in fields(RunConfig)}
    return {name: context.params[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _with_suitable_lr(given: dict[str, Any]) -> RunConfig:
    """The defaults with what was given; where no learning rate was, the one that suits the optimizer."""
    suitable = SUITABLE_LR.get(given.get("optimizer", DEFAULTS.optimizer), DEFAULTS.lr)
    return DEFAULTS.with_(**{"lr": suitable, **given})


def _train_config(context: typer.Context, resume_from: Path | None) -> RunConfig:
    """What was asked for, on top of the config of the run to go on from."""
    from course_lib.runs.folder import RunFolder
    from course_lib.runs.torchrun import as_started

    given = _given(context)
    config = RunFolder(resume_from).read_config()[0].with_(**given) if resume_from else _with_suitable_lr(given)
    return as_started(config) if _started_by_torchrun() else config


def _trainer(config: RunConfig) -> Callable[..., Any]:
    """The trainer for as many ranks. Loads torch, while a server that is started here loads the ranks' own."""
    from course_lib.runs.launch import warm_up

    if not _started_by_torchrun():
        warm_up()
    load_torch()
    from course_lib.training import ddp, single

    return ddp.train if config.world_size > 1 or config.simulated else single.train


if __name__ == "__main__":
    sys.exit(main())
