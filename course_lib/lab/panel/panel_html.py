"""The HTML of the Scaling Lab's head: how it looks, what follows from the choices, and what goes on."""

from __future__ import annotations

from pathlib import Path

from course_lib.lab.interaction import SHARED_STYLE
from course_lib.lab.pages import template
from course_lib.lab.panel.choices import GIB, Choices, Consequences
from course_lib.lab.words import duration, number
from course_lib.runs.estimates import Estimate, Memory

MIB = 2**20

# Labels stand above their inputs. The arrow of ipywidgets' lists is black, which a dark theme hides.
STYLE = """\
<style>
.scaling-lab { padding: 2px; --jp-widgets-dropdown-arrow: url("data:image/svg+xml,%3Csvg \
xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath d='M5 7l4 4 4-4' fill='none' stroke='%23808080' \
stroke-width='2'/%3E%3C/svg%3E"); }
.scaling-lab .jupyter-widgets { margin: 0; min-width: 0; }
.scaling-lab .widget-box { overflow: visible; }
.scaling-lab .widget-label { text-align: left !important; white-space: normal; line-height: 1.4; height: auto; }
.scaling-lab .widget-text input, .scaling-lab .widget-dropdown select { flex: 0 0 auto; min-width: 0; height: 28px; }
.scaling-lab .widget-html-content { line-height: 1.4; }
.scaling-lab .widget-html:has(> .widget-html-content:empty) { display: none; }
.scaling-lab pre { white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; overflow: auto; font-size: 90%;
  line-height: 1.4; padding: 6px 10px; }
.scaling-lab .lab-card { border: 1px solid rgba(128,128,128,0.4); border-radius: 4px; padding: 8px 12px; }
</style>
"""

_HEADING = template("""\
<div role="heading" aria-level="3" style="font-size:125%;font-weight:600">Scaling Lab</div>
<div style="font-size:92%;overflow-wrap:anywhere">Each run is kept in the folder {{ folder }}</div>
""")
# Screen readers read out what changes in an element that is there already: the widget's own, which keeps its role.
_STATUS = template("""\
<style onload="this.parentElement.setAttribute('role', 'status')"></style>
<div style="min-height:1.4em;white-space:pre-wrap{{ ';font-weight:600' if strong }}">{{ text }}</div>
""")
_FACTS = template("""\
<div style="display:grid;grid-template-columns:repeat(auto-fit,minmax(112px,1fr));gap:6px 16px;margin-bottom:6px;\
line-height:1.35;font-variant-numeric:tabular-nums">
{% for name, value, more in facts %}
<div><div style="font-size:92%">{{ name }}</div>
<strong>{{ value }}</strong> <div style="font-size:92%">{{ more }}</div></div>
{% endfor %}
</div>
{% for note in notes %}
<div style="font-size:92%">{{ note }}</div>
{% endfor %}
""")


def heading_html(folder: Path) -> str:
    """The title of the panel, its style, and what keeps its keys from JupyterLab."""
    here = Path.cwd()
    shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
    return SHARED_STYLE + STYLE + _HEADING.render(folder=shown)


def status_html(text: str, strong: bool = True) -> str:
    """The line that says what goes on; a screen reader reads it out when it changes, so it is never left out."""
    return _STATUS.render(text=text, strong=strong)


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
    facts += [("Time for a run", *_time(known.seconds)), ("Memory", *_memory(known.memory))]
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
    return f"about {duration(estimate.seconds)}", f"{low} to {high}, {estimate.basis}"


def _memory(memory: Memory | None) -> tuple[str, str]:
    if memory is None:
        return "–", ""
    text = f"{memory.bytes / GIB:.1f} GiB" if memory.bytes >= GIB / 10 else f"{memory.bytes / MIB:.0f} MiB"
    return text, f"of {memory.capacity / GIB:,.1f} GiB on {memory.device}"
