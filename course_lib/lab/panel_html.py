"""The HTML of the Scaling Lab's head: how it looks, what follows from the choices, and what goes on."""

from __future__ import annotations

from pathlib import Path

from course_lib.lab.choices import GIB, Choices, Consequences
from course_lib.lab.interaction import SHARED_STYLE
from course_lib.lab.live import duration
from course_lib.lab.pages import template
from course_lib.lab.series import number
from course_lib.runs.estimates import Estimate, Memory

# Labels stand above their inputs.
STYLE = """\
<style>
.scaling-lab .widget-label { text-align: left !important; white-space: nowrap; }
.scaling-lab .widget-text, .scaling-lab .widget-dropdown { margin: 2px 0; min-width: 0; }
.scaling-lab .widget-text input, .scaling-lab .widget-dropdown select { flex: 0 0 auto; min-width: 0; height: 28px; }
.scaling-lab .widget-html-content { line-height: 1.4; }
.scaling-lab .widget-html { overflow: visible; }
</style>
"""

_HEADING = template("""\
<div role="heading" aria-level="3" style="font-size:120%;font-weight:600">Scaling Lab</div>
<div style="font-size:92%;overflow-wrap:anywhere">Runs are kept in {{ folder }}</div>
""")
_STATUS = template("""\
<div role="status" style="line-height:1.4;min-height:1.4em;white-space:pre-wrap"><strong>{{ text }}</strong></div>
""")
_FACTS = template("""\
<div style="border:1px solid rgba(128,128,128,0.4);border-radius:4px;padding:6px 12px;margin:4px 0">
<div style="display:flex;flex-wrap:wrap;gap:2px 28px">
{% for name, value, more in facts %}
<div><div style="font-size:92%">{{ name }}</div>
<strong style="font-variant-numeric:tabular-nums">{{ value }}</strong>
{%- if more %} <span style="font-size:92%">{{ more }}</span>{% endif %}</div>
{% endfor %}
</div>
{% for note in notes %}
<div style="font-size:92%;line-height:1.35">{{ note }}</div>
{% endfor %}
</div>
""")


def heading_html(folder: Path) -> str:
    """The title of the panel, its style, and what keeps its keys from JupyterLab."""
    return SHARED_STYLE + STYLE + _HEADING.render(folder=folder)


def status_html(text: str) -> str:
    """The line that says what goes on; a screen reader reads it out when it changes."""
    return _STATUS.render(text=text)


def facts_html(choices: Choices, known: Consequences, baseline_first: bool) -> str:
    """What follows from the choices; a dash where a problem keeps it from being known."""
    nodes = f"= {choices.num_nodes} x {choices.num_gpus}" if choices.num_nodes > 1 else ""
    batch = f"= {known.config.world_size} x {known.config.batch_size}" if known.config else ""
    by_rule = known.config is not None and known.peak_lr != known.config.lr
    facts = [
        ("World size", _number(known.world_size), nodes),
        ("Global batch", _number(known.global_batch_size), batch),
        ("Steps per epoch", _number(known.steps_per_epoch), f"of {known.images:,} images" if known.images else ""),
        ("Peak learning rate", _number(known.peak_lr), "after the rule" if by_rule else ""),
    ]
    if known.simulated_seconds is not None:
        facts.append(("Simulated time", duration(known.simulated_seconds), "in all"))
    facts += [("One run takes here", *_time(known.seconds)), ("Memory", *_memory(known.memory))]
    notes = [*known.notes] if known.possible else ["This cannot be run: see what is marked above."]
    if baseline_first:
        notes.append("The same on one rank is run first, to compare with.")
    return _FACTS.render(facts=facts, notes=notes)


def _number(value: float | None) -> str:
    return "–" if value is None else number(value)


def _time(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "–", ""
    low, high = duration(estimate.low), duration(estimate.high)
    return f"about {duration(estimate.seconds)}", f"({low} to {high}, {estimate.basis})"


def _memory(memory: Memory | None) -> tuple[str, str]:
    if memory is None:
        return "–", ""
    return f"{memory.bytes / GIB:.1f} GiB", f"of {memory.capacity / GIB:,.1f} on {memory.device}"
