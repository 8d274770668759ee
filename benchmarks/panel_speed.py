"""What the Scaling Lab costs and how soon it shows what happens, in a real JupyterLab and a real browser.

The panel reads its runs from their folder, so training is started here and watched there.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Row, compare, figure, passed, skipped
from benchmarks.store_speed import make_runs
from course_lib.config import RunConfig
from course_lib.runs import store
from course_lib.runs.launch import launch
from course_lib.training import ddp

if TYPE_CHECKING:
    from playwright.sync_api import Page

TESTS = Path(__file__).parents[1] / "tests"  # they know how to start a JupyterLab and a browser
SLOWED = 0.99  # of the speed without the panel, at least
BLOCKED, LATENCY, FIRST_PROGRESS, OPENED = 0.050, 0.5, 1.0, 2.0  # seconds
UPDATES, KERNEL_GROWTH, HEAP_GROWTH = 500, 20.0, 30.0  # MB
NOTEBOOK = 1.0  # MB
RUNS = 1_000
PAIRS, SETTLE, WINDOW = 40, 1.5, 4.0  # windows of so many seconds, with and without the panel; the first are left out
CLICKS, EPOCHS, FIGURES = 7, 20, 20

LONG = RunConfig(num_gpus=2, device="cpu", data="subset", epochs=100_000, checkpoint=False)
EPOCHS_RUN = LONG.with_(model="mlp", epochs=EPOCHS)
OPEN = """\
from course_lib.lab.panel import ScalingLab
panel = ScalingLab()
panel"""
CLOSE = "panel.retire()"
# How long the kernel is kept from its own work while the panel draws: it looks at the clock as often as it can.
WATCH_REDRAWS = """\
import json, threading, time
def redraws(draw, times, pause=0.2):
    "Of each of some drawings in a thread, as the panel draws: how long it took, and how long it held the kernel."
    found = []
    for _ in range(times):
        thread = threading.Thread(target=draw)
        last, held, began = time.perf_counter(), 0.0, time.perf_counter()
        thread.start()
        drawing = True
        while drawing:
            drawing = thread.is_alive()
            time.sleep(0.0005)
            now = time.perf_counter()
            held, last = max(held, now - last), now
        found.append((last - began, held))
        time.sleep(pause)
    return found
def redraw_live():
    panel.live.update((), now=True)
def redraw_figure():
    panel.figures.draw(panel.table.rows())
"""
PRINT_REDRAWS = "print(json.dumps([redraws(redraw_live, {times}), redraws(redraw_figure, {times})]))"
UPDATE = """\
import gc, psutil, time
def resident():
    gc.collect()
    return psutil.Process().memory_info().rss / 1e6
def update(times):
    "Everything that is live is drawn anew, each time against the other axis."
    for place in range(times):
        panel.live.axis.value = ("seconds", "epochs")[place % 2]
        time.sleep(0.05)
update(60)
"""
PRINT_GROWTH = "before = resident(); update({times}); print(resident() - before)"
PROGRESS = """run => {
    const panel = document.querySelector(".scaling-lab");
    window.clickedAt = Date.now();
    window.shown = new Promise(resolve => {
        const seen = () => panel.innerText.includes(run) && panel.querySelector("[role=progressbar]");
        const observer = new MutationObserver(() => { if (seen()) { observer.disconnect(); resolve(Date.now()); } });
        observer.observe(panel, {childList: true, subtree: true, characterData: true});
    });
    [...panel.querySelectorAll("button")].find(button => button.innerText === "Run").click();
}"""
POINTS = """() => {
    window.points = [];
    const panel = document.querySelector(".scaling-lab");
    let last = "";
    new MutationObserver(() => {
        const chart = panel.querySelector("svg[aria-label^='Validation accuracy']");
        const label = chart ? chart.getAttribute("aria-label") : "";
        if (label !== last) window.points.push([Date.now() / 1000, last = label]);
    }).observe(panel, {childList: true, subtree: true, attributes: true});
}"""


def measure(quick: bool) -> list[Row]:
    """The lines of the panel, where there is a browser."""
    sys.path[:0] = [str(TESTS), str(TESTS / "browser")]
    from jupyter_lab import Lab, find_browser, opened, write_notebook

    if find_browser() is None:
        return [skipped("the Scaling Lab in a browser", "no Chromium here: apt-get install chromium")]
    with tempfile.TemporaryDirectory(prefix="ddp-course-benchmark-") as scratch:
        home = Path(scratch)
        lab = Lab(home)
        try:
            lab.wait_until_up()
            cells = [OPEN, CLOSE, WATCH_REDRAWS, UPDATE, "", 'ScalingLab("many")']
            write_notebook(lab.root / "panel.ipynb", *cells)
            with opened(lab, "panel.ipynb", home / "page.png") as notebook:
                bench = Bench(notebook.page, lab.root, quick)
                return [
                    *first_progress(bench),
                    *latency(bench),
                    *redraws(bench),
                    *growth(bench),
                    *many_runs(bench),
                    *notebook_size(bench),
                    *slowed(bench),
                ]
        finally:
            lab.shut_down()


class Bench:
    """A notebook in a browser, whose cells are run one at a time."""

    def __init__(self, page: Page, root: Path, quick: bool) -> None:
        self.page, self.root, self.quick = page, root, quick
        self.run(OPEN)
        self.page.get_by_text("Steps per epoch").wait_for()

    def run(self, source: str) -> str:
        """Run a cell by what it contains, or this in the empty one, and wait; what it printed."""
        return self.page.evaluate(
            """async source => {
                const {shell, commands} = window.jupyterapp;
                const notebook = shell.currentWidget.content;
                const cells = [...notebook.widgets];
                let index = cells.findIndex(cell => cell.model.sharedModel.getSource() === source);
                if (index < 0) {
                    index = 4;
                    cells[index].model.sharedModel.setSource(source);
                }
                notebook.activeCellIndex = index;
                await commands.execute("notebook:run-cell");
                return cells[index].model.toJSON().outputs.map(output => output.text ?? "").join("");
            }""",
            source,
        )

    @contextmanager
    def training(self, config: RunConfig) -> Iterator[Any]:
        """A run in the folder that the panel shows."""
        run = launch(ddp.train, config, self.root / "runs" / f"run-{time.time_ns()}")
        try:
            yield run
        finally:
            run.stop()

    def fewer(self, count: int) -> int:
        """In a quick run hardly any."""
        return 2 if self.quick else count

    def line(self, **line: float) -> dict[str, Any]:
        """No line in a quick run."""
        return {} if self.quick else line


def first_progress(bench: Bench) -> list[Row]:
    """From a click on Run to the first bar of that run."""
    page, taken = bench.page, []
    for label, value in {"Epochs": "1", "GPUs per node": "2", "Share of data (%)": "10"}.items():
        page.get_by_label(label, exact=True).fill(value)
        page.keyboard.press("Tab")
    for number in range(bench.fewer(CLICKS)):
        page.wait_for_function(
            "[...document.querySelectorAll('.scaling-lab button')].some(b => b.innerText === 'Run' && !b.disabled)"
        )
        page.wait_for_timeout(1000)
        # The first click also makes the run on one rank, which the others are compared with.
        page.evaluate(PROGRESS, f"Run {number + 1 + (number > 0)}:")
        taken.append(page.evaluate("window.shown.then(at => at - window.clickedAt)") / 1000)
        page.get_by_role("status").filter(has_text="finished").wait_for()
    return [figure("click on Run to first progress, warm", "s", taken[1:], **bench.line(at_most=FIRST_PROGRESS))]


def latency(bench: Bench) -> list[Row]:
    """From the end of an epoch to its point in the chart."""
    bench.page.evaluate(POINTS)
    with bench.training(EPOCHS_RUN.with_(epochs=bench.fewer(EPOCHS))) as run:
        run.wait()
    bench.page.wait_for_timeout(2000)
    shown = [(at, _last_epoch(label)) for at, label in bench.page.evaluate("window.points")]
    reported = store.epochs(run.path)[["epoch", "time"]].itertuples(index=False)
    taken = [min(at for at, last in shown if at > time and last >= epoch) - time for epoch, time in reported]
    return [figure("an epoch's end to its point in the chart", "s", taken, **bench.line(at_most=LATENCY))]


def _last_epoch(label: str) -> float:
    """The last point of the last curve, of what a chart says in words."""
    _, known, words = label.rstrip(".").rpartition(" after ")
    return float(words.split()[0]) if known else 0.0


def redraws(bench: Bench) -> list[Row]:
    """How long the kernel's own work has to wait while the panel draws."""
    import json

    bench.run(WATCH_REDRAWS)
    times = bench.fewer(FIGURES)
    with bench.training(LONG) as run:
        _wait_for_steps(run)
        found = json.loads(bench.run(PRINT_REDRAWS.format(times=times)))
    rows = []
    for name, drawings in zip(("bars and live charts", "plot of all runs"), found, strict=True):
        took = statistics.median(taken for taken, _ in drawings)
        held = [longest for _, longest in drawings]
        note = f"the drawing takes {1000 * took:.0f} ms, in which others get their turns"
        line = bench.line(at_most=BLOCKED)
        rows.append(figure(f"kernel blocked by a redraw: {name}", "s", held, **line, note=note))
    return rows


def growth(bench: Bench) -> list[Row]:
    """What hundreds of redraws leave in the kernel and in the browser."""
    times = 20 if bench.quick else UPDATES
    with bench.training(LONG) as run:
        _wait_for_steps(run)
        bench.run(UPDATE)
        before = _heap(bench.page)
        kernel = float(bench.run(PRINT_GROWTH.format(times=times)))
        heap = _heap(bench.page) - before
    return [
        figure(f"kernel's memory after {times} redraws", "MB more", [kernel], **bench.line(at_most=KERNEL_GROWTH)),
        figure(f"browser's heap after {times} redraws", "MB more", [heap], **bench.line(at_most=HEAP_GROWTH)),
    ]


def _heap(page: Page) -> float:
    """What the page's JavaScript holds, in MB."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 1e6


def many_runs(bench: Bench) -> list[Row]:
    """From running the cell to the table, in a folder with many runs."""
    count = 50 if bench.quick else RUNS
    make_runs(bench.root / "many", count)
    page = bench.page
    taken = []
    for _ in range(bench.fewer(5)):
        began = time.perf_counter()
        bench.run('ScalingLab("many")')
        page.get_by_text(f"of {count} runs").last.wait_for()
        taken.append(time.perf_counter() - began)
        page.evaluate("window.jupyterapp.commands.execute('notebook:clear-cell-output')")
    return [figure(f"a folder of {count:,} runs opened and shown", "s", taken, **bench.line(at_most=OPENED))]


def notebook_size(bench: Bench) -> list[Row]:
    """What Lab saves, with a panel of many runs in it and its results."""
    bench.run("display(panel.results())")
    bench.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    size = (bench.root / "panel.ipynb").stat().st_size / 1e6
    return [figure("saved notebook", "MB", [size], at_most=NOTEBOOK), passed("the panel's plot is in it", size > 0.01)]


def slowed(bench: Bench) -> list[Row]:
    """Steps a second of one run, in windows with and without a panel that shows it."""
    pairs, window = (1, 1.0) if bench.quick else (PAIRS, WINDOW)
    bench.run(CLOSE)
    with bench.training(LONG) as run:
        _wait_for_steps(run)
        spans: dict[str, list[tuple[float, float]]] = {OPEN: [], CLOSE: []}
        for pair in range(pairs):
            for source in (OPEN, CLOSE)[:: -1 if pair % 2 else 1]:
                # What is as it should be is done again, so that each window has the same before it.
                bench.run(source)
                time.sleep(SETTLE)
                began = time.time()
                time.sleep(window)
                spans[source].append((began, time.time()))
        ends = sorted(event["time"] for event in run.events() if event["kind"] == "step" and event["rank"] == 0)
    batch = run.config.global_batch_size
    rates = {
        source: [batch * sum(low < end <= high for end in ends) / (high - low) for low, high in each]
        for source, each in spans.items()
    }
    line = bench.line(at_least=SLOWED)
    name = "training on 2 ranks while a panel shows it"
    return [compare(name, "images/s", rates[OPEN], rates[CLOSE], "no panel", **line)]


def _wait_for_steps(run: Any, count: int = 20) -> list[dict[str, Any]]:
    """Wait until a run has begun in earnest; what it reported until then."""
    events: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while len(events) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the run did not begin: {run.log(0)}")
        time.sleep(0.1)
        events += run.events()
    return events
