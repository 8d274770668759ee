"""How far a run or a sweep of the command line is, on standard error, and how it is stopped."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from course_lib.config import RunConfig
from course_lib.console import PROGRAM, Screen, clock, number, percent
from course_lib.errors import CourseError, RunStopped

if TYPE_CHECKING:
    from course_lib.grading.batch import Progress as GradingProgress
    from course_lib.runs.run import Run
    from course_lib.runs.sweep import Progress as SweepProgress
    from course_lib.runs.torchrun import JoinedRun

SECONDS_BETWEEN_LOOKS = 0.25


class RunProgress:
    """A bar over all steps of a run, and a line for each epoch that is over."""

    def __init__(self, screen: Screen, config: RunConfig, steps: int) -> None:
        self._console = screen.err
        self._epochs = config.epochs
        self._accuracy = ""
        self._speed = "images/s simulated" if config.simulated else "images/s"
        self._bar = _bar(screen.err)
        ranks = f"{config.world_size} ranks" if config.world_size > 1 else "1 rank"
        self._task = self._bar.add_task(f"starting {ranks}", total=steps, start=False, figures="", left="")

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, events: list[dict[str, Any]]) -> None:
        """Take in new events of the run."""
        steps = [event for event in events if event["kind"] == "step" and event.get("rank") == 0]
        if steps:
            self._show_steps(steps)
        for event in events:
            if event["kind"] == "epoch":
                self._show_epoch(event)
        self._bar.refresh()

    def _show_steps(self, steps: list[dict[str, Any]]) -> None:
        last = steps[-1]
        rate = sum(step["samples"] for step in steps) / sum(step["seconds"] for step in steps)
        self._bar.start_task(self._task)
        self._bar.update(
            self._task,
            completed=last["step"],
            description=f"epoch {last['epoch']}/{self._epochs}",
            figures=f"{rate:,.0f} {self._speed}  loss {number(last['loss'], '.3f')}{self._accuracy}",
            left=_left(self._bar.tasks[0].time_remaining),
        )

    def _show_epoch(self, event: dict[str, Any]) -> None:
        self._accuracy = f"  accuracy {percent(event['val_accuracy'])}"
        self._console.print(
            f"epoch {event['epoch']}/{self._epochs}  training loss {number(event['train_loss'], '.3f')}  "
            f"accuracy {percent(event['val_accuracy'])}  {event['images_per_sec']:,.0f} {self._speed}"
        )


class SweepBar:
    """A bar over all runs of a sweep.

    Attributes:
        failed: how many of the runs that are over did not finish.
    """

    def __init__(self, screen: Screen) -> None:
        self._console = screen.err
        self._bar = _bar(screen.err)
        self._task = self._bar.add_task("starting", total=None, figures="", left="")
        self._said = 0
        self.failed = 0

    def __enter__(self) -> SweepBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: SweepProgress) -> None:
        """Take in how far the sweep is."""
        self.failed = progress.failed
        failed = f"  {progress.failed} failed" if progress.failed else ""
        self._bar.update(
            self._task,
            total=progress.total,
            completed=progress.done + progress.fraction,
            description=f"run {min(progress.done + 1, progress.total)}/{progress.total}",
            figures=f"{progress.current or ''}{failed}",
            left=_left(progress.seconds_left),
        )
        self._bar.refresh()
        if progress.done > self._said and not self._console.is_terminal:
            self._said = progress.done
            left = f", {_left(progress.seconds_left)}" if progress.seconds_left else ""
            self._console.print(f"{progress.done} of {progress.total} runs are over{failed}{left}")


class GradingBar:
    """A bar over all submissions of a grading."""

    def __init__(self, screen: Screen) -> None:
        self._console = screen.err
        self._bar = _bar(screen.err)
        self._task = self._bar.add_task("starting", total=None, figures="", left="")

    def __enter__(self) -> GradingBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: GradingProgress) -> None:
        """Take in how far the grading is."""
        done = f"{progress.done} of {progress.total} submissions"
        notes = [f"{progress.kept} graded before"] * bool(progress.kept)
        notes += [f"{progress.troubled} not judged"] * bool(progress.troubled)
        said, left = "  ".join(notes), _left(progress.seconds_left)
        self._bar.update(
            self._task, total=progress.total, completed=progress.done, description=done, figures=said, left=left
        )
        self._bar.refresh()
        if not self._console.is_terminal:
            self._console.print(", ".join(filter(None, (f"{done} are graded", *notes, left))))


def follow(run: Run | JoinedRun, progress: RunProgress) -> Any:
    """Show a run until it ends, and return what it did; Ctrl-C stops it.

    Raises:
        CourseError: it failed or was stopped; notes say where its recorded part is.
    """
    try:
        while True:
            progress.show(run.events())
            with suppress(TimeoutError):
                value = run.wait(SECONDS_BETWEEN_LOOKS)
                progress.show(run.events())
                return value
    except KeyboardInterrupt as interrupt:
        run.stop()
        try:
            return run.wait()  # it may have finished just before
        except RunStopped as stopped:
            _say_where(run, stopped)
            raise stopped from interrupt
    except CourseError as error:
        _say_where(run, error)
        raise
    finally:
        run.stop()


class _Left(ProgressColumn):
    """The time left, as the task's field says it."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["left"], "cyan")


def _bar(console: Console) -> Progress:
    """A bar that takes what room the words leave; redrawn only on request, since a timer would take the ranks' time."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[figures]}", markup=False),
        _Left(),
        console=console,
        auto_refresh=False,
        transient=True,
        expand=True,
        disable=not console.is_terminal,
    )


def _say_where(run: Run | JoinedRun, error: CourseError) -> None:
    """Note where the recorded part of a run is, and how to go on from it."""
    if str(run.path) not in str(error):
        error.add_note(f"What was recorded is in {run.path}.")
    if run.folder.checkpoint.exists():
        error.add_note(f"To go on from its last whole epoch: {PROGRAM} train --resume-from {run.path}")


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f"{clock(seconds)} left"
