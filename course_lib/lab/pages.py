"""The HTML of the live view and of the report. What is put in is escaped; no page needs another file."""

from __future__ import annotations

from jinja2 import Environment, StrictUndefined, Template

_ENVIRONMENT = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def template(source: str) -> Template:
    """A piece of HTML with places to fill in."""
    return _ENVIRONMENT.from_string(source)


# One run's heading, progress bar, status line and, where there are any, its caveats.
PROGRESS = template("""\
<div style="margin:6px 0 2px;line-height:1.4"><strong>{{ title }}</strong></div>
<div role="progressbar" aria-label="Progress of {{ title }}"
 aria-valuemin="0" aria-valuemax="100" aria-valuenow="{{ percent }}"
 style="height:10px;border-radius:5px;background:rgba(128,128,128,0.3);overflow:hidden">
<div style="height:100%;width:{{ percent }}%;background:{{ color }}"></div></div>
<div role="status" style="margin:2px 0;line-height:1.4;white-space:nowrap;overflow:hidden;text-overflow:ellipsis">
{{- status }}</div>
{% if caveats %}
<div style="margin:2px 0;line-height:1.4;font-size:90%">Not a speed measurement: {{ caveats }}</div>
{% endif %}
""")

# The epochs of one run so far, and why it failed.
EPOCHS = template("""\
<div style="min-height:{{ height }};line-height:1.4">
{% if rows %}
<table style="border-collapse:collapse;font-size:95%;font-variant-numeric:tabular-nums;margin:4px 0">
<caption style="text-align:left;font-size:90%">{{ caption }}</caption>
<thead><tr>
{% for name in head %}
<th scope="col" style="text-align:right;white-space:nowrap;padding:2px 8px;border-bottom:1px solid">{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr><th scope="row" style="text-align:right;padding:2px 8px;font-weight:normal">{{ row[0] }}</th>
{%- for cell in row[1:] %}<td style="text-align:right;padding:2px 8px">{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table>
{% endif %}
{% if error %}
<pre role="alert" style="white-space:pre-wrap;max-height:24em;overflow:auto;border-left:4px solid #D55E00;
padding:6px 10px;margin:6px 0">{{ error }}</pre>
{% endif %}
</div>
""")

IMAGE = template("""\
<img alt="{{ alt }}" src="data:image/png;base64,{{ image }}" width="{{ width }}" height="{{ height }}" \
style="max-width:100%;height:auto;background:white;border-radius:4px">
""")

REPORT = template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark;
  --text: #1b1b1b; --back: #ffffff; --soft: #5a5a5a; --line: #d5d5d5; --band: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --back: #17191c; --soft: #ababab; --line: #43474d; --band: #202328; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 76rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 0.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.6rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: 0.4rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--line); }
thead th { vertical-align: bottom; border-bottom: 2px solid var(--line); }
thead .number { white-space: normal; }
tbody th { font-weight: 600; white-space: nowrap; }
tbody tr:nth-child(even) { background: var(--band); }
td[rowspan] { background: var(--back); }
.number { text-align: right; white-space: nowrap; }
.interval { display: block; color: var(--soft); font-size: 0.9em; }
.unit { display: block; font-weight: normal; color: var(--soft); }
.bad { font-weight: 600; }
img { border: 1px solid var(--line); }
/* An odd number of figures would leave half a row empty: the first one, which matters most, has a row of its own. */
.plots img:first-child:nth-last-child(odd) { grid-column: 1 / -1; justify-self: center; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.82rem; background: var(--band);
  border-left: 4px solid #d55e00; padding: 0.6rem 0.9rem; margin: 0.3rem 0; }
@media print {
  :root { --text: #000; --back: #fff; --soft: #444; --line: #bbb; --band: #fff; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  table { font-size: 7.5pt; } th, td { padding: 0.15rem 0.35rem; }
  .scroll { overflow: visible; }
  .plots { display: block; } img, tr, pre { break-inside: avoid; } h2, h3 { break-after: avoid; }
}
</style>
</head>
<body>
<header>
<h1>{{ title }}</h1>
<p class="soft">Made on
<time datetime="{{ made.isoformat(timespec='seconds') }}">{{ made.strftime('%d %B %Y, %H:%M %Z') }}</time>
with version {{ version }} of the course.</p>
<p>{{ summary }}</p>
</header>
<main>
<section>
<h2>How the times came about</h2>
<ul>
{% for line in timing %}
<li>{{ line }}</li>
{% endfor %}
</ul>
</section>
<section>
<h2>Runs</h2>
{% if same %}
<p class="soft">{{ "The same for all runs" if rows | length > 1 else "Its other settings" }}: {{ same }}.</p>
{% endif %}
<div class="scroll" tabindex="0" role="region" aria-label="Table of runs">
<table id="runs">
<caption>{{ caption }}</caption>
<thead><tr>
{% for column in columns %}
<th scope="col"{% if column.number %} class="number"{% endif %}>{{ column.title }}
{%- if column.unit %} <span class="unit">{{ column.unit }}</span>{% endif %}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr>
{% for column, cell in row %}
{% if loop.first %}
<th scope="row">{{ cell.text }}</th>
{% else %}
<td{% if cell.rows > 1 %} rowspan="{{ cell.rows }}"{% endif %}
{%- if column.number %} class="number"{% elif cell.bad %} class="bad"{% endif %}>{{ cell.text }}
{%- if cell.interval %} <span class="interval">{{ cell.interval }}</span>{% endif %}</td>
{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
{% if failures %}
<section>
<h2>Runs that did not finish</h2>
{% for failure in failures %}
<h3>{{ failure.run }}: {{ failure.status }}</h3>
<pre>{{ failure.error }}</pre>
{% endfor %}
</section>
{% endif %}
{% for heading, images, remark in plots %}
<section>
<h2>{{ heading }}</h2>
{% if remark %}
<p class="soft">{{ remark }}</p>
{% endif %}
<div class="plots">
{% for image in images %}
{{ image | safe }}
{% endfor %}
</div>
</section>
{% endfor %}
<section>
<h2>Machines and versions</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Table of machines">
<table id="machines">
<caption>What the runs ran on, as they recorded it.</caption>
<thead><tr>
{% for name in machine_head %}
<th scope="col">{{ name }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for machine in machines %}
<tr><th scope="row">{{ machine[0] }}</th>{% for cell in machine[1:] %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
</section>
</main>
</body>
</html>
""")
