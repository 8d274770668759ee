"""The learning rate during a run: the scaling rule, the warm-up and what follows."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from course_lib.config import CHOICES, RunConfig
from course_lib.lab.display import image_html
from course_lib.lab.style import DPI, GREY, PALETTE, SMALL, finish, label_axes, new_figure
from course_lib.lab.widgets.lesson import SCALE, Lesson, choice, number, whole_number
from course_lib.runs.schedule import lr_curve

IMAGES = 60_000  # of Fashion-MNIST
HEIGHT = 3.4  # inches
RULES = {"none": "", "linear": " × {} ranks", "sqrt": " × √{} ranks"}


class ScheduleViewer(Lesson):
    """The learning rate of each step, and its peak, for any number of ranks and any rule.

    Attributes:
        lr, ranks, batch_size, rule, warmup_epochs, schedule, epochs: the controls.
    """

    title = "The learning rate during a run"

    def __init__(self) -> None:
        usual = RunConfig()
        self.lr = number("Base learning rate", usual.lr, 0.001, 10, 0.01)
        self.ranks = choice("Ranks", [2**power for power in range(11)], 8)
        self.batch_size = choice("Batch per rank", [2**power for power in range(4, 10)], usual.batch_size)
        self.rule = choice("Rule", CHOICES["lr_rule"], usual.lr_rule)
        self.epochs = whole_number("Epochs", 10, 1, 100)
        self.warmup_epochs = number("Warm-up epochs", 2, 0, self.epochs.value, 0.5)
        self.schedule = choice("Then", CHOICES["schedule"], usual.schedule)
        self.epochs.observe(lambda change: self._limit_warmup(change["new"]), "value")
        controls = [self.lr, self.ranks, self.batch_size, self.rule, self.epochs, self.warmup_epochs, self.schedule]
        super().__init__(controls, height=round(HEIGHT * DPI), lines=4)

    def config(self) -> RunConfig:
        """The run that the controls describe."""
        return RunConfig(
            lr=self.lr.value,
            num_gpus=self.ranks.value,
            batch_size=self.batch_size.value,
            lr_rule=self.rule.value,
            warmup_epochs=self.warmup_epochs.value,
            schedule=self.schedule.value,
            epochs=self.epochs.value,
        )

    def draw(self) -> tuple[str, list[str]]:
        """The curve, and its peak in words."""
        config = self.config()
        curve = lr_curve(config, IMAGES)
        sentences = _in_words(config, curve)
        return image_html(_figure(config, curve, sentences), SCALE), sentences

    def _limit_warmup(self, epochs: int) -> None:
        """Keep the warm-up within the run; a longer one becomes as long as it."""
        self.warmup_epochs.max = epochs


def _in_words(config: RunConfig, curve: pd.DataFrame) -> list[str]:
    peak, first, last = (float(rate) for rate in (curve["lr"].max(), curve["lr"].iloc[0], curve["lr"].iloc[-1]))
    steps = len(curve) // config.epochs
    factor = RULES[config.lr_rule].format(config.world_size)
    end = "close to 0" if last < 0.01 * peak else f"at {last:.3g}"
    texts = [
        f"Peak learning rate: {f'{config.lr:g}{factor} = ' if factor else ''}{peak:.4g} (rule: {config.lr_rule}).",
        f"A step takes {config.world_size} × {config.batch_size} = {config.global_batch_size:,} images, which makes "
        f"{_times(steps, 'step')} an epoch: {IMAGES:,} images in each of {_times(config.epochs, 'epoch')}.",
    ]
    if config.warmup_epochs:
        over = _times(config.warmup_epochs, "epoch")
        texts.append(f"The rate rises from {first:.2g} over {over}, and ends {end}.")
    elif config.lr_rule != "none" and config.world_size > 1:
        texts.append(f"The rate starts at its peak, {peak / config.lr:.3g} times the base, and ends {end}: bold.")
    else:
        texts.append(f"The rate starts at {first:.3g}, and ends {end}.")
    return texts


def _figure(config: RunConfig, curve: pd.DataFrame, facts: list[str]) -> Figure:
    figure, (axes,) = new_figure(height=HEIGHT)
    label_axes(axes, "Epoch", "Learning rate")
    axes.plot(curve["epoch"], curve["lr"], color=PALETTE[0], linewidth=2, drawstyle="steps-post")
    if len(curve) < 60:
        axes.plot(curve["epoch"], curve["lr"], "o", color=PALETTE[0], markersize=4)
    axes.axhline(config.lr, color=GREY, linewidth=1.2, linestyle="--")
    peak = float(curve["lr"].max())
    if abs(peak - config.lr) > 0.06 * peak:
        axes.annotate(f"base {config.lr:g}", (config.epochs, config.lr), ha="right", va="bottom", fontsize=SMALL)
    where = float(curve["epoch"].iloc[curve["lr"].argmax()])
    side = "left" if where < 0.7 * config.epochs else "right"
    axes.annotate(f"peak {peak:.4g}", (where, peak), (0, 4), textcoords="offset points", ha=side, fontsize=SMALL)
    axes.set_xlim(0, config.epochs)
    axes.set_ylim(0, 1.15 * max(peak, config.lr))
    return finish(figure, "Learning rate of each step", [], facts)


def _times(count: float, thing: str) -> str:
    return f"{count:,g} {thing}" if count == 1 else f"{count:,g} {thing}s"
