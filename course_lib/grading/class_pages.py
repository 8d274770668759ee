"""The HTML of the feedback and of the overview. What is put in is escaped; no page needs another file or a network."""

from __future__ import annotations

from jinja2 import DictLoader, Environment, StrictUndefined

from course_lib.grading.feedback import with_code

_BASE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark;
  --text: #1b1b1b; --back: #ffffff; --soft: #5a5a5a; --line: #d5d5d5; --band: #f5f6f8;
  --good: #0a6b3d; --good-back: #e3f4ea; --bad: #a4320b; --bad-back: #fcebe4; --some: #745300; --some-back: #fbf1d3;
  --bar: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --back: #17191c; --soft: #ababab; --line: #43474d; --band: #202328;
    --good: #7fd8a6; --good-back: #16301f; --bad: #ffab8c; --bad-back: #3a2018; --some: #e9c766; --some-back: #332a12;
    --bar: #56b4e9; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: {% block width %}48rem{% endblock %}; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 0.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.2rem 0 0.6rem; overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 0; overflow-wrap: anywhere; }
p { margin: 0.4rem 0; }
a { color: inherit; }
.soft { color: var(--soft); }
.note { background: var(--some-back); border-left: 4px solid var(--some); padding: 0.5rem 0.9rem; margin: 0.6rem 0;
  overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); } .some { color: var(--some); }
.bar { height: 0.6rem; border-radius: 0.3rem; background: var(--line); overflow: hidden; margin: 0.5rem 0; }
.bar div { height: 100%; background: var(--bar); }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); font-size: 0.9rem; color: var(--soft); }
{% block style %}{% endblock %}
@media print {
  :root { --text: #000; --back: #fff; --soft: #444; --line: #bbb; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  section, tr, article { break-inside: avoid; }
}
</style>
</head>
<body>
{% block body %}{% endblock %}
<footer><p>{{ isolation }} Graded with version {{ version }} of the course.</p></footer>
</body>
</html>
"""

_FEEDBACK = """\
{% extends "base" %}
{% block style %}
article { border: 1px solid var(--line); border-radius: 8px; padding: 0.7rem 1rem; margin: 0.7rem 0; }
article header { display: flex; gap: 0.8rem; align-items: baseline; }
article header .state { white-space: nowrap; font-weight: 600; }
article header h3 { flex: 1; }
article ul { list-style: none; padding: 0; margin: 0.5rem 0 0; }
article li { padding: 0.35rem 0; border-top: 1px solid var(--line); }
.check { display: flex; gap: 0.8rem; } .check span:first-child { flex: 1; overflow-wrap: anywhere; }
.finding { background: var(--bad-back); border-left: 4px solid var(--bad); padding: 0.4rem 0.8rem; margin: 0.3rem 0;
  overflow-wrap: anywhere; white-space: pre-line; }
code { font-family: ui-monospace, monospace; font-size: 0.92em; }
.idea { display: block; font-style: italic; }
{% endblock %}
{% block body %}
<header>
<h1>{{ title }}</h1>
<p><strong>{{ total }} points.</strong> {{ summary }}</p>
<div class="bar" aria-hidden="true"><div style="width:{{ percent }}%"></div></div>
</header>
<main>
{% for exercise in exercises %}
<section>
<h2>{{ exercise.title }}: {{ exercise.points }} points</h2>
<p class="soft">{{ exercise.notebook }}, graded on {{ exercise.when }}</p>
{% for note in exercise.notes %}
<p class="note">{{ note }}</p>
{% endfor %}
{% for part in exercise.parts %}
<article>
<header><h3>{{ part.name }} {{ part.title }}</h3>
<span class="state {{ part.kind }}">{{ part.state }}</span><span class="number">{{ part.points }}</span></header>
<ul>
{% for check in part.checks %}
<li><div class="check"><span>{{ check.sign }} {{ check.title | with_code }}</span>
<span class="number">{{ check.points }}</span></div>
{% for finding in check.findings %}
{% if finding.idea %}
<div class="finding">{{ finding.seen | with_code }}<span class="idea">{{ finding.idea | with_code }}</span></div>
{% else %}
<div class="soft">{{ finding.seen | with_code }}</div>
{% endif %}
{% endfor %}
</li>
{% endfor %}
</ul>
</article>
{% endfor %}
</section>
{% endfor %}
</main>
{% endblock %}
"""

_OVERVIEW = """\
{% extends "base" %}
{% block width %}76rem{% endblock %}
{% block style %}
.scroll { overflow: auto; max-height: 80vh; width: fit-content; max-width: 100%;
  border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: separate; border-spacing: 0; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding: 0.4rem 0.6rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); }
thead th { position: sticky; top: 0; background: var(--band); vertical-align: bottom; }
.grades tbody th { position: sticky; left: 0; background: var(--back); min-width: 7rem; max-width: 16rem;
  overflow-wrap: anywhere; }
.grades thead th:first-child { left: 0; z-index: 1; }
.grades td { text-align: center; white-space: nowrap; }
td.good { background: var(--good-back); } td.bad { background: var(--bad-back); }
td.some { background: var(--some-back); }
td.first, th.first { border-left: 2px solid var(--line); }
.unit { display: block; white-space: nowrap; font-weight: normal; color: var(--soft); }
.faults td:nth-child(3) { min-width: 15rem; overflow-wrap: anywhere; white-space: pre-line; }
summary { cursor: pointer; white-space: nowrap; }
details p { max-width: 20rem; overflow-wrap: anywhere; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; } svg rect { fill: var(--bar); }
svg line { stroke: var(--line); }
{% endblock %}
{% block body %}
<header>
<h1>{{ title }}</h1>
<p>{{ summary }}</p>
<p class="soft">For other programs: <a href="grades.csv">grades.csv</a> and <a href="grades.json">grades.json</a>.</p>
{% for warning in warnings %}
<p class="note">{{ warning }}</p>
{% endfor %}
</header>
<main>
<section>
<h2>How many students have how many points</h2>
<svg viewBox="0 0 620 190" width="620" style="max-width:100%" role="img" aria-label="{{ histogram_in_words }}">
<line x1="10" x2="610" y1="160" y2="160"/>
{% for bin in histogram %}
<rect x="{{ bin.x }}" y="{{ 160 - bin.height }}" width="54" height="{{ bin.height }}" rx="2"/>
{% if bin.count %}
<text x="{{ bin.x + 27 }}" y="{{ 154 - bin.height }}" text-anchor="middle">{{ bin.count }}</text>
{% endif %}
<text x="{{ bin.x + 27 }}" y="178" text-anchor="middle">{{ bin.label }}</text>
{% endfor %}
</svg>
</section>
<section>
<h2>Students and parts</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Table of students and parts">
<table class="grades">
<caption>Points; a tick where all checks of a part passed. A name leads to the student's feedback.</caption>
<thead><tr><th scope="col">Student</th><th scope="col">Points<span class="unit">of {{ max_points }}</span></th>
{% for head in heads %}
<th scope="col"{% if head.first %} class="first"{% endif %} title="{{ head.title }}">{{ head.name }}
<span class="unit">of {{ head.points }}</span></th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr><th scope="row"><a href="{{ row.link }}">{{ row.student }}</a></th><td><strong>{{ row.points }}</strong></td>
{% for cell in row.cells %}
<td class="{{ cell.kind }}{% if cell.first %} first{% endif %}">{{ cell.text }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
<section>
<h2>What was found most often</h2>
{% if faults %}
<div class="scroll" tabindex="0" role="region" aria-label="Table of faults">
<table class="faults">
<thead><tr><th scope="col">Students</th><th scope="col">Parts</th>
<th scope="col">Seen at the first of them</th></tr></thead>
<tbody>
{% for fault in faults %}
<tr><td><details><summary>{{ fault.students | length }}</summary><p>{{ fault.students | join(", ") }}</p></details></td>
<td>{{ fault.parts | join(", ") }}</td><td>{{ fault.seen | with_code }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
{% else %}
<p>Nothing: all that was handed in passed, or nothing could be judged.</p>
{% endif %}
</section>
{% if notes %}
<section>
<h2>Worth a look</h2>
{% for student, said in notes %}
<h3>{{ student }}</h3>
<ul>{% for note in said %}<li>{{ note }}</li>{% endfor %}</ul>
{% endfor %}
</section>
{% endif %}
{% if ignored %}
<section>
<h2>Notebooks that were not graded</h2>
<p class="soft">They are no exercise of the course, there is a newer one of the same student, or they are links to
folders, which are not followed.</p>
<ul>{% for path in ignored %}<li>{{ path }}</li>{% endfor %}</ul>
</section>
{% endif %}
</main>
{% endblock %}
"""

_ENVIRONMENT = Environment(
    loader=DictLoader({"base": _BASE, "feedback": _FEEDBACK, "overview": _OVERVIEW}),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["with_code"] = with_code
FEEDBACK, OVERVIEW = _ENVIRONMENT.get_template("feedback"), _ENVIRONMENT.get_template("overview")
