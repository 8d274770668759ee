"""How the gradients of replicas with shards of several sizes make the gradient of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.lab.pages import template
from course_lib.lab.widgets.lesson import choice
from course_lib.lab.widgets.stepped import SteppedLesson
from course_lib.runs.averaging import PARAMETERS, PLAIN, WEIGHTED, WHOLE, averaged_step

# Of about target = 2 input + 1.
POINTS = (
    *((0.2, 1.3), (1.5, 4.1), (0.9, 2.7), (1.1, 3.3), (0.4, 1.9)),
    *((1.8, 4.5), (0.6, 2.1), (1.3, 3.7), (2.0, 5.2), (0.1, 1.0)),
)
LINE, LR = (0.5, 0.0), 0.1
CAPTION = f"Fitted: target = weight × input + bias, from weight {LINE[0]} and bias {LINE[1]}, learning rate {LR}"
SAME = 1e-9  # relative; more than rounding makes
SHARDS = {
    "very uneven": {2: (8, 2), 3: (7, 2, 1), 4: (6, 2, 1, 1)},
    "as even as can be": {2: (5, 5), 3: (4, 3, 3), 4: (3, 3, 2, 2)},
}

_TABLE = template("""\
<div style="font-size:13px;line-height:1.5">{{ caption }}</div>
<div style="overflow-x:auto;font-size:13px;line-height:1.5" tabindex="0" role="region" aria-label="Gradients">
<table aria-label="Gradients of the replicas, and their averages" style="table-layout:fixed;width:1px;
border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:4px 0">
<thead><tr>
{% for column in columns %}
<th scope="col" style="text-align:{{ "left" if loop.first else "right" }};vertical-align:bottom;padding:3px 10px;
width:{{ "8.5em" if loop.first else "5.4em" }};height:3.4em;
border-bottom:1px solid
{%- if column.new %};background:rgba(230,159,0,0.22){% endif %}">
{{- column.title }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr{% if row.first %} style="border-top:1px solid"{% endif %}>
<th scope="row" style="text-align:left;white-space:nowrap;padding:3px 10px;
font-weight:{{ "600" if row.verdict == "right" else "normal" }}">{{ row.name }}
{%- if row.verdict %} {{ "✓" if row.verdict == "right" else "✗" }}{% endif %}</th>
{% for cell in row.cells %}
<td style="text-align:right;padding:3px 10px;white-space:nowrap
{%- if columns[loop.index].new %};background:rgba(230,159,0,0.22){% endif %}
{%- if row.verdict == "right" %};font-weight:600{% endif %}">{{ cell }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody></table>
</div>
""")

Numbers = dict[str, dict[str, float]]  # of `averaged_step`, by row and column


class Column(NamedTuple):
    """A column of the table: from which step on it is there, and what of `averaged_step`."""

    since: int
    title: str
    name: str
    not_of: tuple[str, ...] = ()
    weighed: bool = False


COLUMNS = (
    Column(0, "samples", "samples"),
    Column(1, "mean loss", "loss", not_of=(WEIGHTED, PLAIN)),
    Column(1, "weight gradient", "weight_gradient", not_of=(WEIGHTED,)),
    Column(1, "bias gradient", "bias_gradient", not_of=(WEIGHTED,)),
    Column(2, "share × weight gradient", "weight_gradient", not_of=(WHOLE, PLAIN), weighed=True),
    Column(2, "share × bias gradient", "bias_gradient", not_of=(WHOLE, PLAIN), weighed=True),
    Column(5, "new weight", "weight"),
    Column(5, "new bias", "bias"),
)
AVERAGES = ((2, WEIGHTED, "sum of shares"), (3, WHOLE, "one model on all"), (4, PLAIN, "plain mean"))


class GradientAveraging(SteppedLesson):
    """One step on two to four replicas, in numbers: gradients, their averages, and the weights after it.

    Attributes:
        replicas, shards: the controls: how many replicas, and how the ten samples are dealt to them.
    """

    title = "From the replicas' gradients to one step"

    def __init__(self) -> None:
        self.replicas = choice("Replicas", (2, 3, 4), 2)
        self.shards = choice("Shards", [*SHARDS], "very uneven")
        super().__init__([self.replicas, self.shards], height=290)

    def last(self) -> int:
        """The last step: the weights are changed."""
        return COLUMNS[-1].since

    def sizes(self) -> tuple[int, ...]:
        """How many samples each replica has."""
        return SHARDS[self.shards.value][self.replicas.value]

    def draw(self) -> tuple[str, list[str]]:
        """The table as far as it has come, and how the newest numbers came about."""
        numbers: Numbers = averaged_step(POINTS, self.sizes(), LINE, LR).to_dict("index")  # type: ignore[assignment]
        columns = [column for column in COLUMNS if column.since <= self.place]
        names = {f"replica {replica}": str(replica) for replica in range(self.replicas.value)}
        names |= {title: name for since, name, title in AVERAGES if since <= self.place}
        rows = [
            {
                "name": title,
                "cells": ["" if name in column.not_of else _cell(numbers, name, column) for column in columns],
                "first": name == WEIGHTED,
                "verdict": self._verdict(numbers, name),
            }
            for title, name in names.items()
        ]
        heads = [{"title": column.title, "new": column.since == self.place} for column in columns]
        html = _TABLE.render(caption=CAPTION, columns=[{"title": "", "new": False}, *heads], rows=rows)
        return html, [self._in_words(numbers)]

    def _verdict(self, numbers: Numbers, name: str) -> str:
        """Whether an average is the gradient of the whole batch, once that is there."""
        if name not in (WEIGHTED, PLAIN) or self.place < 3:
            return ""
        return "right" if _error(numbers, name) < SAME else "wrong"

    def _in_words(self, numbers: Numbers) -> str:
        sizes = self.sizes()
        own = [_bracketed(numbers[str(replica)]["weight_gradient"]) for replica in range(len(sizes))]
        whole, plain = (_decimal(numbers[name]["weight_gradient"]) for name in (WHOLE, PLAIN))
        weighted_sum = " + ".join(f"{size} × {each}" for size, each in zip(sizes, own, strict=True))
        off = _error(numbers, PLAIN)
        verdict = (
            f"is another one: {100 * off:.1f} % off. A sample of a small shard counts more in it."
            if off > SAME
            else "is the same, since all shards have the same size."
        )
        texts = [
            f"{len(POINTS)} samples are dealt to {len(sizes)} replicas of one model: {_joined(sizes)}. Before you "
            "press Next: what must be done with their gradients, if they are to take the step that one model would "
            "take on all samples?",
            "each replica computes the mean loss over its own samples, and the gradient of that. The gradients differ, "
            "since the samples do.",
            "each gradient counts by its replica's share of the samples. For the weight: "
            f"({weighted_sum}) / {len(POINTS)} = {whole}.",
            f"that is the gradient that one model computes on all samples, {whole}. Both are means over all of them.",
            f"the plain mean of the gradients, ({' + '.join(own)}) / {len(sizes)} = {plain}, {verdict}",
            f"all replicas take {LR} × the weighted mean off their weights. They stay alike, and where the one model "
            "is. With the plain mean they would stay alike too, so nobody would notice, "
            + ("but elsewhere." if off > SAME else "and here it makes no difference."),
        ]
        return texts[0] if self.place == 0 else f"Step {self.place} of {self.last()}: {texts[self.place]}"


def _cell(numbers: Numbers, name: str, column: Column) -> str:
    """One number of the table; a replica's new weights are those that the weighted mean leads to."""
    replica = name.isdigit()
    if column.name == "samples":
        return f"{numbers[name]['samples']:.0f}"
    if column.name in PARAMETERS and replica:
        return _decimal(numbers[WEIGHTED][column.name])
    share = numbers[name]["samples"] / len(POINTS) if column.weighed and replica else 1.0
    return _decimal(share * numbers[name][column.name])


def _error(numbers: Numbers, name: str) -> float:
    """How far an average is from the gradient of the whole batch, relative to that; the worse of the parameters."""
    gradients = [f"{parameter}_gradient" for parameter in PARAMETERS]
    return max(abs(numbers[name][gradient] / numbers[WHOLE][gradient] - 1) for gradient in gradients)


def _decimal(value: float) -> str:
    return f"{value:.4f}".replace("-", "−")


def _bracketed(value: float) -> str:
    return f"({_decimal(value)})" if value < 0 else _decimal(value)


def _joined(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:-1])) + f" and {sizes[-1]}"
