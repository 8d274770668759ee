"""A ring all_reduce, round by round: who sends which chunk to whom, and how many bytes that is."""

from __future__ import annotations

import numpy as np

from course_lib.lab.pages import template
from course_lib.lab.svg import picture
from course_lib.lab.widgets.lesson import RANK_COLORS, whole_number
from course_lib.lab.widgets.stepped import SteppedLesson
from course_lib.runs.ring import Round, Transfer, ring_rounds

TITLE = "The chunks of each rank, from chunk 0 on"
CELL, GAP, ROW, LEFT, TOP = 84, 46, 46, 112, 26  # pixels

_RING = template("""\
{% for x, name in ranks %}
<text x="{{ x }}" y="16" text-anchor="middle" font-weight="600">{{ name }}</text>
{% endfor %}
{% for y, name in chunks %}
<text x="0" y="{{ y }}">{{ name }}</text>
{% endfor %}
{% for cell in cells %}
<rect x="{{ cell.x }}" y="{{ cell.y }}" width="{{ cell_width }}" height="36" rx="4"
{% if cell.complete %} fill="#009E73"{% else %} fill="none"{% endif %}
{% if cell.arrived %} stroke="#D55E00" stroke-width="4"{% else %} stroke="currentColor" stroke-opacity="0.5"{% endif %}>
</rect>
<text x="{{ cell.x + cell_width / 2 }}" y="{{ cell.y + 19 }}" text-anchor="middle"
{% if cell.complete %} fill="black" font-weight="600"{% endif %}>{{ cell.text }}</text>
{% for share in cell.shares %}
<rect x="{{ share.x }}" y="{{ cell.y + 25 }}" width="8" height="6"
{% if share.color %} fill="{{ share.color }}"{% else %} fill="none"{% endif %}
 stroke="{% if cell.complete %}black{% else %}currentColor{% endif %}" stroke-width="0.8"></rect>
{% endfor %}
{% endfor %}
{% for arrow in arrows %}
<path d="M{{ arrow.x }} {{ arrow.y - 1 }}h{{ gap - 18 }}v-6l12 7-12 7v-6h-{{ gap - 18 }}z"></path>
{% if arrow.text %}
<text x="{{ arrow.x + (gap - 10) / 2 }}" y="{{ arrow.y - 8 }}" text-anchor="middle" font-size="11">
{{- arrow.text }}</text>
{% endif %}
{% endfor %}
""")


class RingAllReduce(SteppedLesson):
    """A ring all_reduce over two to six ranks, forwards and backwards, with what each rank has sent.

    Attributes:
        ranks, megabytes: the controls: how many ranks, and the size of the tensor of each.
    """

    title = "A ring all_reduce, round by round"

    def __init__(self) -> None:
        self.ranks = whole_number("Ranks", 4, 2, 6)
        self.megabytes = whole_number("Tensor (MB)", 100, 1, 10_000)
        super().__init__([self.ranks, self.megabytes], height=TOP + 6 * ROW, lines=5)

    def last(self) -> int:
        """The last round: 2 (N - 1)."""
        return 2 * (self.ranks.value - 1)

    def rounds(self) -> list[Round]:
        """The start and each round. The tens of what a rank brings are its number + 1, the ones that of the chunk."""
        ranks = np.arange(self.ranks.value)
        return ring_rounds(10 * (ranks[:, None] + 1) + ranks)

    def draw(self) -> tuple[str, list[str]]:
        """All chunks of all ranks after a round, with an arrow for each one that was sent in it."""
        now = self.rounds()[self.place]
        return _drawing(now), self._in_words(now)

    def _in_words(self, now: Round) -> list[str]:
        size, megabytes = self.ranks.value, self.megabytes.value
        chunk = megabytes / size
        if self.place == 0:
            return [
                f"{size} ranks have a tensor of {megabytes} MB each, cut into {size} chunks of {chunk:.4g} MB. "
                "In the end all are to hold the sum. The squares of a chunk say whose shares are in it.",
                "Before you press Next: how many megabytes must each rank send at least?",
            ]
        half = "adding up (reduce-scatter)" if self.place < size else "handing out (all-gather)"
        sends = ", ".join(f"{each.source} sends chunk {each.chunk} to {each.target}" for each in now.transfers)
        total = 2 * (size - 1) / size * megabytes
        sentences = [
            f"Round {self.place} of {self.last()}, {half}: rank {sends}, all at the same time.",
            f"Sent by each rank so far: {self.place} × {chunk:.4g} = {self.place * chunk:.4g} MB, of "
            f"2 (N − 1) / N × S = 2 × {size - 1} / {size} × {megabytes} = {total:.4g} MB.",
        ]
        if self.place == size - 1:
            sentences.append("Each rank now holds one chunk of the sum: that of its own number.")
        if self.place == self.last():
            sentences.append(
                f"All hold the sum. More ranks would send hardly more: less than {2 * megabytes} MB each. If all sent "
                f"to rank 0, it would receive {(size - 1) * megabytes} MB, and send as many."
            )
        return sentences


def _drawing(now: Round) -> str:
    size = len(now.held)
    arrived = {(each.target, each.chunk) for each in now.transfers}
    cells = [
        _cell(now.held[rank, chunk], rank, chunk, (rank, chunk) in arrived) for rank, chunk in np.ndindex(size, size)
    ]
    drawn = _RING.render(
        gap=GAP,
        cell_width=CELL,
        ranks=[(_left(rank) + CELL / 2, f"rank {rank}") for rank in range(size)],
        chunks=[(TOP + chunk * ROW + 22, f"chunk {chunk}") for chunk in range(size)],
        cells=cells,
        arrows=[arrow for each in now.transfers for arrow in _arrows(each, size)],
    )
    return picture(TITLE, _in_words(now), LEFT + size * (CELL + GAP), TOP + size * ROW, drawn)


def _cell(shares: np.ndarray, rank: int, chunk: int, arrived: bool) -> dict[str, object]:
    """A chunk as one rank holds it: its value, and a square for each rank whose share is in it."""
    x, complete = _left(rank), bool(shares.all())
    first = x + (CELL - 11 * len(shares)) / 2 + 1
    squares = [
        {"x": first + 11 * number, "color": RANK_COLORS[number] if share else ""} for number, share in enumerate(shares)
    ]
    text = f"{shares.sum():.0f}{' ✓' if complete else ''}"
    return {"x": x, "y": TOP + chunk * ROW, "text": text, "complete": complete, "arrived": arrived, "shares": squares}


def _arrows(transfer: Transfer, size: int) -> list[dict[str, object]]:
    """From rank to rank; the last one's leaves the picture, and enters it at rank 0."""
    y = TOP + transfer.chunk * ROW + 18
    leaving = {"x": _left(transfer.source) + CELL + 3, "y": y, "text": ""}
    if transfer.target > transfer.source:
        return [leaving]
    return [{**leaving, "text": "to 0"}, {"x": _left(0) - GAP + 3, "y": y, "text": f"from {size - 1}"}]


def _left(rank: int) -> int:
    return LEFT + rank * (CELL + GAP)


def _in_words(now: Round) -> list[str]:
    """What each rank holds, in words."""
    size = len(now.held)
    texts = []
    for rank, chunks in enumerate(now.held):
        values = [f"{shares.sum():.0f} from {np.count_nonzero(shares)}" for shares in chunks]
        texts.append(f"Rank {rank} holds {', '.join(values)} of {size} ranks.")
    return texts
