"""The learning rate during a run: the scaling rule, the warm-up and what follows."""

from __future__ import annotations

import pandas as pd

from course_lib.config import CHOICES, RunConfig
from course_lib.lab.pages import template
from course_lib.lab.style import PALETTE
from course_lib.lab.svg import Scale, axes, picture
from course_lib.lab.widgets.lesson import Lesson, choice, number, whole_number
from course_lib.runs.schedule import lr_curve

IMAGES = 60_000  # of Fashion-MNIST
TITLE = "Learning rate of each step"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 310, 52, 84, 26, 272  # pixels
POINTS = 400  # of the curve at most: more than pixels can show would only take time
FEW, SOME = 60, 150  # steps that have a mark each, and steps that are seen as such
RULES = {"none": "", "linear": " × {} ranks", "sqrt": " × √{} ranks"}


_CURVE = template("""\
<text x="0" y="16" font-size="14" font-weight="600">{{ title }}</text>
{{ axes | safe }}
<path d="M{{ left }} {{ base }}H{{ right }}" fill="none" stroke="currentColor" stroke-width="1.5" \
stroke-dasharray="6 4"/>
<text x="{{ right + 6 }}" y="{{ base + 4 }}">{{ base_name }}</text>
<path d="{{ curve }}" fill="none" stroke="{{ color }}" stroke-width="2.5"/>
{% for x, y in marks %}
<circle cx="{{ x }}" cy="{{ y }}" r="3.5" fill="{{ color }}"/>
{% endfor %}
<text x="{{ peak[0] }}" y="{{ peak[1] - 7 }}" text-anchor="{{ side }}">{{ peak_name }}</text>
""")


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
        super().__init__(controls, height=HEIGHT, lines=4)

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
        curve = lr_curve(config, IMAGES, POINTS)
        sentences = _in_words(config, curve)
        return picture(TITLE, sentences, WIDTH, HEIGHT, _drawing(config, curve)), sentences

    def _limit_warmup(self, epochs: int) -> None:
        """Keep the warm-up within the run; a longer one becomes as long as it."""
        self.warmup_epochs.max = epochs


def _in_words(config: RunConfig, curve: pd.DataFrame) -> list[str]:
    peak, first, last = (float(rate) for rate in (curve["lr"].max(), curve["lr"].iloc[0], curve["lr"].iloc[-1]))
    steps = int(curve["step"].iloc[-1] + 1) // config.epochs
    factor = RULES[config.lr_rule].format(config.world_size)
    end = "close to 0" if last < 0.01 * peak else f"at {_rate(last)}"
    texts = [
        f"Peak learning rate: {f'{config.lr:g}{factor} = ' if factor else ''}{_rate(peak)} (rule: {config.lr_rule}).",
        f"A step takes {config.world_size} × {config.batch_size} = {config.global_batch_size:,} images, which makes "
        f"{_times(steps, 'step')} an epoch: {IMAGES:,} images in each of {_times(config.epochs, 'epoch')}.",
    ]
    if config.warmup_epochs:
        over = _times(config.warmup_epochs, "epoch")
        texts.append(f"The rate rises from {_rate(first)} over {over}, and ends {end}.")
    elif config.lr_rule != "none" and config.world_size > 1:
        texts.append(f"The rate starts at its peak, {peak / config.lr:.3g} times the base, and ends {end}: bold.")
    else:
        texts.append(f"The rate starts at {_rate(first)}, and ends {end}.")
    return texts


def _drawing(config: RunConfig, curve: pd.DataFrame) -> str:
    top = int(curve["lr"].argmax())
    peak = float(curve["lr"].iloc[top])
    x, y = Scale(0, config.epochs, LEFT, WIDTH - RIGHT), Scale(0, 1.15 * max(peak, config.lr), BOTTOM, TOP)
    points = list(zip(x(curve["epoch"]).tolist(), y(curve["lr"]).tolist(), strict=True))
    return _CURVE.render(
        title=TITLE,
        axes=axes(x, y, "epoch", x.ticks(10), y.ticks(6)),
        left=LEFT,
        right=WIDTH - RIGHT,
        base=float(y(config.lr)),
        base_name=f"base {config.lr:g}",
        curve=_path(points),
        color=PALETTE[0],
        marks=points if len(points) < FEW else [],
        peak=points[top],
        peak_name=f"peak {_rate(peak)}",
        side="start" if points[top][0] < 0.7 * WIDTH else "end",
    )


def _path(points: list[tuple[float, float]]) -> str:
    """A rate holds until the next step; where there are many, it is seen as a line."""
    to = "H{}V{}" if len(points) < SOME else "L{} {}"
    return f"M{LEFT} {points[0][1]}" + "".join(to.format(*point) for point in points) + f"H{WIDTH - RIGHT}"


def _rate(value: float) -> str:
    """A learning rate to three figures."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _times(count: float, thing: str) -> str:
    return f"{count:,g} {thing}" if count == 1 else f"{count:,g} {thing}s"
