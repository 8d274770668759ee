"""Which sample goes to which rank, in each step and each epoch."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import pandas as pd

from course_lib.lab.pages import template
from course_lib.lab.widgets.lesson import RANK_COLORS, Lesson, choice, ink, whole_number, yes_or_no
from course_lib.runs.dealing import DEALINGS, dealt

EPOCHS = 4

_GRIDS = template("""\
{% macro chip(sample) -%}
<span style="display:inline-block;width:1.75em;text-align:center;border-radius:3px;margin:1px 2px;line-height:1.5;
{%- if sample.counts %}background:{{ sample.color }};color:{{ sample.ink }};
box-shadow:0 0 0 1px rgba(128,128,128,0.7);border:2px
{%- if sample.repeated %} dashed currentColor{% else %} solid {{ sample.color }}{% endif %}
{%- else %}border:2px dotted currentColor{% endif %}">{{ sample.number }}</span>
{%- endmacro %}
<div style="overflow-x:auto;margin:6px 0" tabindex="0" role="region" aria-label="Samples of each step">
<table style="border-collapse:collapse;font-size:12px;font-variant-numeric:tabular-nums">
<caption style="text-align:left;white-space:nowrap">
Epoch {{ epoch }}: the number of each sample that a rank takes, step by step</caption>
<thead><tr><th></th>
{% for step in steps %}
<th scope="col" style="text-align:left;padding:2px 10px;font-weight:normal">step {{ step }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for rank, row in rows %}
<tr><th scope="row" style="text-align:right;white-space:nowrap;padding:2px 6px">rank {{ rank }}</th>
{% for samples in row %}
<td style="white-space:nowrap;padding:1px 10px;border-left:1px solid rgba(128,128,128,0.5)">
{%- for sample in samples %}{{ chip(sample) }}{% endfor %}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table>
</div>
<div style="overflow-x:auto;margin:6px 0" tabindex="0" role="region" aria-label="Ranks of each sample">
<table style="border-collapse:separate;border-spacing:1px;font-size:11px;font-variant-numeric:tabular-nums">
<caption style="text-align:left;white-space:nowrap">All epochs: the number of the rank that takes each sample</caption>
<thead><tr><th scope="row" style="text-align:right;white-space:nowrap;padding:0 6px;font-weight:normal">sample</th>
{% for sample in range(samples) %}
<th scope="col" style="min-width:{{ width }}px;text-align:center;padding:0;font-size:10px;font-weight:normal">
{{- sample }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for epoch, row in epochs %}
<tr><th scope="row" style="text-align:right;white-space:nowrap;padding:0 6px">epoch {{ epoch }}</th>
{% for takers in row %}
<td style="text-align:center;padding:0;height:2.5em;line-height:1.2">
{%- for taker in takers %}<span style="display:block;border-radius:2px;
box-shadow:0 0 0 1px rgba(128,128,128,0.7);padding:
{{- "0" if takers | length > 1 else "0.6em 0" }};background:{{ taker.color }};color:{{ taker.ink }}">
{{- taker.rank }}</span>
{%- else %}<span title="left out">–</span>{% endfor %}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table>
</div>
""")


class ShardViewer(Lesson):
    """Which sample goes to which rank, with and without `set_epoch`; in steps for one epoch, and over several.

    Attributes:
        ranks, samples, batch_size, dealing, set_epoch, epoch: the controls.
    """

    title = "Which sample goes to which rank"

    def __init__(self) -> None:
        self.ranks = whole_number("Ranks", 4, 1, 8)
        self.samples = whole_number("Samples", 30, 24, 60)
        self.batch_size = whole_number("Batch per rank", 3, 1, 16)
        self.dealing = choice("Dealt", [*DEALINGS], "like cards")
        self.set_epoch = yes_or_no("set_epoch is called before each epoch", True)
        self.epoch = whole_number("Epoch shown in steps", 1, 1, EPOCHS)
        controls = [self.ranks, self.samples, self.batch_size, self.dealing, self.set_epoch, self.epoch]
        super().__init__(controls, height=450)

    def draw(self) -> tuple[str, list[str]]:
        """Both grids, and what is to be seen in them."""
        frame = dealt(
            self.samples.value,
            self.ranks.value,
            self.batch_size.value,
            EPOCHS,
            set_epoch=self.set_epoch.value,
            dealing=self.dealing.value,
        )
        colors = {rank: {"color": color, "ink": ink(color)} for rank, color in enumerate(RANK_COLORS)}
        of_epoch = partial(_takers, frame, self.samples.value)
        shown = frame[frame["epoch"] == self.epoch.value]
        html = _GRIDS.render(
            epoch=self.epoch.value,
            samples=self.samples.value,
            width=max(15, min(24, 800 // self.samples.value)),
            steps=sorted(shown["step"].unique()),
            rows=[(rank, _steps(rows, colors[rank])) for rank, rows in shown.groupby("rank")],
            epochs=[
                (epoch, [[{"rank": rank, **colors[rank]} for rank in ranks] for ranks in of_epoch(epoch)])
                for epoch in range(1, EPOCHS + 1)
            ],
        )
        return html, [self._in_steps(shown), self._over_epochs(frame)]

    def _in_steps(self, shown: pd.DataFrame) -> str:
        """How large the steps of an epoch are, and what comes of the samples that are left over."""
        counted = shown[shown["counts"]]
        sizes = counted.groupby("step").size()
        text = f"{self.samples.value} samples on {self.ranks.value} ranks: {len(sizes)} steps an epoch"
        if sizes.iloc[-1] < sizes.iloc[0]:
            text += f", of {sizes.iloc[0]} samples, the last one of {sizes.iloc[-1]}"
        else:
            text += f" of {sizes.iloc[0]} samples"
        twice = int(counted["repeated"].sum()) // 2
        left_out = self.samples.value - counted["sample"].nunique()
        if twice:
            return f"{text}. {_samples(twice)} taken twice (dashed), so that all ranks have equally many."
        if left_out:
            return f"{text}. {_samples(left_out)} left out (–), so that all ranks have equally many."
        idle = shown.loc[~shown["counts"], "rank"].nunique()
        if idle:
            text += f". In the last one {idle} ranks have none left, and take one along that does not count (dotted)"
        return f"{text}. Every sample is taken once."

    def _over_epochs(self, frame: pd.DataFrame) -> str:
        """Whether the epochs differ, and what that means for one rank."""
        own = frame[(frame["rank"] == 0) & frame["counts"]]
        seen, each = own["sample"].nunique(), int((own["epoch"] == 1).sum())
        if not self.set_epoch.value:
            text = (
                f"Without set_epoch all epochs are alike: rank 0 sees the same {seen} samples each time, in one order."
            )
            never = self.samples.value - frame["sample"].nunique()
            return f"{text} {_samples(never)} never seen at all." if never else text
        if self.ranks.value == 1:
            return "Each epoch has an order of its own."
        return (
            f"Each epoch has an order of its own, the same on all ranks: of {each} samples an epoch, rank 0 has seen "
            f"{seen} different ones after {EPOCHS} epochs."
        )


def _steps(rows: pd.DataFrame, look: dict[str, str]) -> list[list[dict[str, object]]]:
    """What one rank takes, step by step."""
    steps: dict[int, list[dict[str, object]]] = defaultdict(list)
    names = ("step", "sample", "counts", "repeated")
    for step, sample, counts, repeated in zip(*(rows[name].tolist() for name in names), strict=True):
        steps[step].append({"number": sample, "counts": counts, "repeated": repeated, **look})
    return [steps[step] for step in sorted(steps)]


def _takers(frame: pd.DataFrame, samples: int, epoch: int) -> list[list[int]]:
    """For each sample the ranks that take it in an epoch, where it counts."""
    counted = frame[(frame["epoch"] == epoch) & frame["counts"]]
    takers: list[list[int]] = [[] for _ in range(samples)]
    for sample, rank in zip(counted["sample"].tolist(), counted["rank"].tolist(), strict=True):
        takers[sample].append(rank)
    return takers


def _samples(count: int) -> str:
    return "1 sample is" if count == 1 else f"{count} samples are"
