"""What was found out about a part, for the student to read: as HTML for a notebook or a page, and as plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from course_lib.grading.laws.finding import Finding
from course_lib.grading.parts import CheckResult, Part, PartResult

NOT_ISOLATED = (
    "Bubblewrap does not work on this computer, so the program ran with your own rights and not in a sandbox. Its time "
    "and its memory were limited all the same."
)
_ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def with_code(text: str) -> Markup:
    """Escaped text, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(text))))


_ENVIRONMENT.filters["with_code"] = with_code
# Text takes the colour of the theme; what is told by a colour is told by a word too.
_PART = _ENVIRONMENT.from_string("""\
<div style="border-left:4px solid {{ color }};padding:2px 0 2px 12px;margin:6px 0;line-height:1.45;max-width:60em">
<div role="status"><strong>{{ name }} {{ title }}</strong>: {{ points }}</div>
{% for check, findings in checks %}
<div style="display:flex;gap:8px;margin-top:6px">
<span aria-hidden="true" style="flex:none;width:1em;font-weight:700">{{ "✓" if not findings else "✗" }}</span>
<div style="min-width:0;overflow-wrap:anywhere">
<div>{{ "Passed" if not findings else "Not yet" }}: {{ check.title | with_code }}
<span style="opacity:0.75;white-space:nowrap">({{ "%g of %g" | format(check.points, check.max_points) }})</span></div>
{% for finding in findings %}
{% if finding is string %}
<div style="opacity:0.75">{{ finding }}</div>
{% else %}
<div style="white-space:pre-wrap"><span style="opacity:0.75">Seen:</span> {{ finding.seen | with_code }}
<span style="opacity:0.75">Think:</span> <em>{{ finding.idea | with_code }}</em></div>
{% endif %}
{% endfor %}
</div></div>
{% endfor %}
{% for note in notes %}
<div style="margin-top:6px;font-size:92%">{{ note | with_code }}</div>
{% endfor %}
</div>
""")
_LINE = _ENVIRONMENT.from_string("""\
<div role="status" style="display:flex;align-items:center;gap:12px;border-left:4px solid {{ color }};\
padding:2px 0 2px 12px;margin:6px 0;line-height:1.45">
<span>{{ text }}</span>{% if busy %}<progress aria-label="{{ text }}" style="width:120px"></progress>{% endif %}
</div>
""")
_HINTS = _ENVIRONMENT.from_string("""\
<div style="border-left:4px solid {{ color }};padding:2px 0 2px 12px;margin:6px 0;line-height:1.45;max-width:60em">
<div role="status"><strong>{{ part.name }} {{ part.title }}</strong>: hint {{ hints | length }} of \
{{ part.hints | length }}</div>
{% for hint in hints %}
<div style="white-space:pre-wrap;margin-top:4px;overflow-wrap:anywhere">{{ loop.index }}. {{ hint | with_code }}</div>
{% endfor %}
</div>
""")
PASSED, FAILED, NEUTRAL = "#009E73", "#D55E00", "rgba(128,128,128,0.5)"


def as_html(result: PartResult, notes: Sequence[str] = ()) -> str:
    """A part's points, and of each check what was seen; `notes` come last. All text is escaped."""
    color = PASSED if result.passed else FAILED
    shown = {"name": result.name, "title": result.title, "points": _points(result)}
    return _PART.render(color=color, checks=_without_repeats(result), notes=[*_caveats(result), *notes], **shown)


def as_text(result: PartResult, notes: Sequence[str] = ()) -> str:
    """The same as plain text."""
    lines = [f"{result.name} {result.title}: {_points(result)}"]
    for check, findings in _without_repeats(result):
        lines.append(
            f"- {'Not yet' if findings else 'Passed'}: {check.title} ({check.points:g} of {check.max_points:g})"
        )
        for finding in findings:
            said = [finding] if isinstance(finding, str) else [f"Seen: {finding.seen}", f"Think: {finding.idea}"]
            lines += ["  " + line for text in said for line in text.splitlines()]
    return "\n".join([*lines, *_caveats(result), *notes])


def hints_html(part: Part, hints: Sequence[str]) -> str:
    """The hints that were taken so far."""
    return _HINTS.render(part=part, hints=hints, color=NEUTRAL)


def hints_text(part: Part, hints: Sequence[str]) -> str:
    """The same as plain text."""
    head = f"{part.name} {part.title}: hint {len(hints)} of {len(part.hints)}"
    return "\n".join([head, *(f"{number}. {hint}" for number, hint in enumerate(hints, 1))])


def line_html(text: str, busy: bool = False) -> str:
    """One line that says what goes on."""
    return _LINE.render(text=text, busy=busy, color=NEUTRAL)


def _points(result: PartResult) -> str:
    if result.trouble:
        return f"not judged. {result.trouble}"
    return f"{'passed, ' if result.passed else ''}{result.points:g} of {result.max_points:g} points"


def _without_repeats(result: PartResult) -> list[tuple[CheckResult, list[Finding | str]]]:
    """Each check with what was found; what stands above already is not said again."""
    said: list[tuple[Finding, ...]] = []
    shown: list[tuple[CheckResult, list[Finding | str]]] = []
    for check in result.checks if not result.trouble else ():
        repeated = bool(check.findings) and check.findings in said
        shown.append((check, ["For the same reason."] if repeated else [*check.findings]))
        said.append(check.findings)
    return shown


def _caveats(result: PartResult) -> list[str]:
    return [] if result.isolated else [NOT_ISOLATED]
