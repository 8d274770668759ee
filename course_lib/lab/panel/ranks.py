"""The ranks of runs that go on: bar, speed and time left of each, what they printed, and the first culprit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from course_lib.lab.live import COLORS, LiveRun, left_in_words
from course_lib.lab.pages import template
from course_lib.runs.folder import FAILED, FINISHED, RUNNING
from course_lib.runs.pace import Pace

MOST_BARS = 16  # ranks of a run that have one: more would hide what is below
LOG_BYTES = 8_000  # that are shown of what a rank printed

_RANKS = template("""\
<div style="margin:4px 0">
<div role="heading" aria-level="4" style="font-weight:600">{{ title }}</div>
<div>{{ state }}</div>
{% if caveats %}
<div style="font-size:92%">Not a speed measurement: {{ caveats }}</div>
{% endif %}
<div style="display:grid;grid-template-columns:max-content minmax(40px,1fr) minmax(0,16em);gap:3px 10px;\
align-items:center;margin-top:4px;font-variant-numeric:tabular-nums;font-size:92%">
{% for bar in bars %}
<span>{{ bar.name }}</span>
<div role="progressbar" aria-label="{{ bar.name }}" aria-valuemin="0" aria-valuemax="100" \
aria-valuenow="{{ bar.percent }}" aria-valuetext="{{ bar.percent }} %, {{ bar.figures }}" \
style="height:12px;border-radius:6px;background:rgba(128,128,128,0.3);overflow:hidden">
<div style="height:100%;width:{{ bar.percent }}%;background:{{ color }}"></div></div>
<span>{{ bar.figures }}</span>
{% endfor %}
</div>
{% if more %}
<div style="font-size:92%">{{ more }}</div>
{% endif %}
{% if error %}
<pre role="alert" tabindex="0" style="max-height:22em;border-left:4px solid #D55E00;margin:6px 0">{{ error }}</pre>
{% endif %}
</div>
""")
_LOG = template("""\
<pre tabindex="0" role="region" aria-label="{{ label }}" style="max-height:16em;\
border:1px solid rgba(128,128,128,0.4);margin:2px 0">{{ text }}</pre>
""")


class Bar(NamedTuple):
    """One progress bar: what it is called, how far it is, and its figures in words."""

    name: str
    percent: int
    figures: str


def ranks_html(live: LiveRun, name: str) -> str:
    """The ranks of a run, and why it failed if it did; `name` is what people know it by."""
    bars = list(_bars(live))
    return _RANKS.render(
        title=f"{name}: {live.title}",
        state=live.state_in_words(),
        caveats=live.caveats,
        bars=bars[:MOST_BARS],
        more=_others(bars[MOST_BARS:]),
        color=COLORS[live.status],
        error=live.error if live.status == FAILED else "",
    )


def log_html(live: LiveRun, rank: int) -> str:
    """What a rank printed last."""
    size, text = 0, ""
    try:
        with live.run.folder.log(rank).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:  # it has printed nothing yet, or the folder is gone
        pass
    if not text:
        text = "This rank has printed nothing. What a training function prints is shown here."
    elif size > LOG_BYTES:
        text = f"… ({size - LOG_BYTES:,} bytes before)\n{text.partition(chr(10))[2] or text}"
    return _LOG.render(label=f"What rank {rank} printed", text=text)


def _bars(live: LiveRun) -> Iterator[Bar]:
    config = live.run.config
    for pace in live.paces:
        name = f"Ranks 0–{config.world_size - 1}" if config.simulated and config.world_size > 1 else f"Rank {pace.rank}"
        percent = 100 if live.status == FINISHED else int(100 * pace.fraction)
        yield Bar(name, percent, _figures(pace, live))


def _figures(pace: Pace, live: LiveRun) -> str:
    if not pace.started:
        return "starting" if live.status == RUNNING else "never started"
    words = []
    # Simulated ranks are computed together.
    rate = pace.images_per_sec if live.run.config.simulated else pace.own_images_per_sec
    if rate is not None:
        words.append(f"{rate:,.0f} images/s")
    if live.status == RUNNING and pace.seconds_left is not None:
        words.append(left_in_words(pace.seconds_left))
    return ", ".join(words) or live.status


def _others(bars: list[Bar]) -> str:
    if not bars:
        return ""
    least, most = min(bar.percent for bar in bars), max(bar.percent for bar in bars)
    return f"And {len(bars)} more ranks, at {least} %" + (f" to {most} %" if most > least else "")
