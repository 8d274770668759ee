"""The report holds every run, shows the frame's figures, and needs nothing but itself."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from damage import damages
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.config import MEASURED_ON_CPU_RANKS, MEASURED_ON_GPUS, SIMULATED, RunConfig
from course_lib.errors import FolderError
from course_lib.lab.report import write_report
from course_lib.runs import store

OUTWARD = {"src", "href", "action", "data", "poster", "srcset", "background"}


class Page(HTMLParser):
    """What a test asks of a page: its elements, and the cells of its tables."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self._rows: list[list[str]] = []
        self._in_cell = False
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self._rows = self.tables.setdefault(dict(attrs)["id"] or "", [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._rows[-1][-1] = " ".join(self._rows[-1][-1].split())
            self._in_cell = False

    def handle_data(self, data):
        self.text += data
        if self._in_cell:
            self._rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def sweep(write_run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    for ranks in (1, 2):
        for lr in (0.05, 0.5):
            for repeat in range(2):
                error = "The loss became nan & <inf> at step 15." if (ranks, lr) == (2, 0.5) else ""
                config = RunConfig(num_gpus=ranks, lr=lr, batch_size=32)
                rate = 1000.0 * ranks + 3 * repeat
                write_run(folder / f"{ranks}-{lr}-{repeat}", config, rate, repeat=repeat, error=error)
    return folder


@pytest.fixture(scope="module")
def page(sweep, tmp_path_factory) -> Page:
    """The report on the sweep."""
    return Page(write_report(sweep, tmp_path_factory.mktemp("report")))


def test_one_row_a_run_with_the_figures_of_the_frame(page, sweep):
    frame = store.frame(sweep)
    head, *rows = page.tables["runs"]
    assert [row[0] for row in rows] == list(frame["run"])
    column = next(place for place, name in enumerate(head) if name.startswith("Throughput"))
    shown = [row[column].replace(",", "") for row in rows]
    assert shown == ["–" if rate != rate else f"{rate:.0f}" for rate in frame["images_per_sec"]]
    assert [row[1] for row in rows] == list(frame["status"])


def test_tables_have_captions_and_scopes(page):
    assert len(page.all("caption")) == len(page.all("table")) == 2
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))


def test_failed_runs_are_listed_with_their_reason(page):
    assert page.text.count("The loss became nan & <inf> at step 15.") == 2
    assert "<inf>" not in page.source
    assert "6 finished, 2 failed" in page.text


def test_nothing_outside_the_file_is_asked_for(page):
    outward = [value or "" for _, found in page.elements for name, value in found.items() if name in OUTWARD]
    assert outward
    assert all(value.startswith("data:image/png;base64,") for value in outward)
    assert not page.all("script")
    assert not page.all("link")
    assert not re.search(r"@import|url\(|https?://", page.source)


def test_each_plot_is_told_in_words(page):
    told = [image["alt"] or "" for image in page.all("img")]
    assert all(len(alt) > 40 for alt in told)
    begun = {alt.split(",")[0].split(".")[0] for alt in told}
    assert {"Speedup", "Scaling efficiency", "Throughput", "Where the time of a step goes"} <= begun
    assert any("2.00 (" in alt or "2.00 on 2" in alt for alt in told)


def test_repeats_have_the_cell_of_their_speedup_together(page):
    head, *rows = page.tables["runs"]
    shown = [len(row) for row in rows]
    # The learning rate does not change the speed, so four runs on one rank are repeats. Two on two ranks failed.
    assert shown == [len(head), *[len(head) - 2] * 3, len(head), len(head) - 2, len(head), len(head) - 2]
    assert [cell["rowspan"] for cell in page.all("td") if "rowspan" in cell] == ["4", "4", *["2"] * 4]


def test_the_table_says_what_its_figures_are(page):
    units = page.tables["runs"][0]
    assert {"Throughput images/s, mean", "Step ms, median"} <= set(units)
    assert "Accuracy is measured on the test set" in page.text
    assert "without its first 10 steps" in page.text
    assert "Speedup and efficiency are those of all repeats of a setting together." in page.text


def test_the_learning_rate_in_use_stands_beside_the_one_that_was_asked_for(page):
    head, *rows = page.tables["runs"]
    asked, used = head.index("Learning rate for one rank"), head.index("Learning rate used")
    ranks = head.index("Ranks")
    assert len(rows) == 8
    assert all(float(row[used]) == float(row[asked]) * int(row[ranks]) for row in rows)


def test_one_learning_rate_needs_one_column(make_run, tmp_path):
    head = Page(write_report(make_run("alone"), tmp_path / "report.html")).tables["runs"][0]
    assert [name for name in head if "rate" in name] == ["Learning rate"]


def test_runs_with_few_steps_are_said_to_say_little_about_speed(page):
    assert "6 of 8 runs: too short to say much about speed." in page.text
    assert "With fewer than 20 steps" in page.text


def test_a_long_run_is_not_said_to_be_short(make_run, tmp_path):
    run = make_run("long")
    result = json.loads((run / "result.json").read_text())
    result["value"]["timed_steps"] = 20
    (run / "result.json").write_text(json.dumps(result))
    assert "too short" not in Page(write_report(run, tmp_path / "report.html")).text


def test_the_best_accuracy_names_its_setting_and_says_who_shares_it(make_run, tmp_path):
    for repeat in range(2):
        make_run(f"one-{repeat}", RunConfig(), accuracy=0.9, repeat=repeat)
        make_run(f"two-{repeat}", RunConfig(num_gpus=2), accuracy=0.8 + repeat / 50, repeat=repeat)
    text = Page(write_report(tmp_path / "runs", tmp_path / "report.html")).text
    assert "Best validation accuracy: 90.00 %, by 2 runs alike, among them one-0 (1 rank, global batch 64" in text


def test_the_accuracy_of_one_epoch_is_not_drawn_against_epochs(make_run, tmp_path):
    run = make_run("short")
    several = Page(write_report(run, tmp_path / "report.html"))
    events = run / "events-rank0.jsonl"
    lines = events.read_text().splitlines()
    events.write_text("\n".join(line for line in lines if '"epoch": 2' not in line and '"epoch":2' not in line) + "\n")
    one = Page(write_report(run, tmp_path / "report.html"))
    titles = [[(image["alt"] or "").split(".")[0] for image in page.all("img")] for page in (several, one)]
    assert ["Validation accuracy against epoch" in each for each in titles] == [True, False]
    assert "Accuracy against epoch is left out" in one.text
    assert "Accuracy against epoch is left out" not in several.text


def test_names_are_escaped(make_run, tmp_path):
    make_run("<script>alert(1)<", RunConfig(num_gpus=2))
    page = Page(write_report(tmp_path / "runs", tmp_path / "report.html"))
    assert "<script" not in page.source.lower()
    assert page.tables["runs"][1][0] == "<script>alert(1)<"


def test_the_machine_and_the_versions_are_there(page):
    head, *machines = page.tables["machines"]
    (machine,) = machines
    told = dict(zip(head, machine, strict=True))
    assert told["Machine"] == "lab-7"
    assert (told["Processor"], told["Cores"], told["Python"]) == ("a processor", "8", "3.12.1")
    assert told["Runs"] == "8"


def test_ways_of_timing_are_told_apart(make_run, tmp_path):
    for place, timing in enumerate((MEASURED_ON_GPUS, MEASURED_ON_CPU_RANKS, SIMULATED)):
        make_run(f"run-{place}", RunConfig(), 1000.0, timing=timing)
    make_run("crowded", RunConfig(num_gpus=4), 1000.0, caveats=("4 ranks share 2 cores",))
    page = Page(write_report(tmp_path / "runs", tmp_path / "report.html"))
    head, *rows = page.tables["runs"]
    shown = {row[0]: row[head.index("Times")] for row in rows}
    assert [shown[f"run-{place}"] for place in range(3)] == [MEASURED_ON_GPUS, MEASURED_ON_CPU_RANKS, SIMULATED]
    assert "1 of 4 runs: not a speed measurement" in page.text
    (crowded,) = [row for row in rows if row[0] == "crowded"]
    assert "1,000*" in crowded


def test_one_run_is_a_report_too(make_run, tmp_path):
    path = make_run("alone", RunConfig(num_gpus=2))
    page = Page(write_report(path, tmp_path / "report.html"))
    assert page.tables["runs"][1][0] == "alone"
    assert "1 run: 1 finished. Validation accuracy: 90.00 %." in page.text
    assert any("What each rank does" in (image["alt"] or "") for image in page.all("img"))


def test_runs_of_which_none_finished(make_run, tmp_path):
    make_run("bad", error="Rank 0 failed.")
    page = Page(write_report(tmp_path / "runs", tmp_path / "report.html"))
    assert "Rank 0 failed." in page.text
    assert not page.all("img")


def test_a_damaged_run_is_a_row_too(make_run, tmp_path):
    make_run("good")
    (make_run("damaged") / "config.json").write_text("{")
    page = Page(write_report(tmp_path / "runs", tmp_path / "report.html"))
    assert [row[1] for row in page.tables["runs"][1:]] == ["unreadable", "finished"]


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(damages(), min_size=2, max_size=4), st.sampled_from(["", "It failed."]))
def test_whatever_stands_in_the_files_of_a_run_it_has_a_row(write_run, damage, error):
    with TemporaryDirectory() as folder:
        write_run(Path(folder, "a"))
        write_run(Path(folder, "b"), RunConfig(num_gpus=2), error=error)
        for each in damage:
            each(Path(folder, "b"))
        page = Page(write_report(folder, Path(folder, "report.html")))
    assert [row[0] for row in page.tables["runs"][1:]] == ["a", "b"]


NO_REPORT = ["config.json", "result.json", "events-rank0.jsonl", "new.json", "page", "x.html.txt"]


@pytest.mark.parametrize("name", NO_REPORT)
def test_the_report_takes_the_place_of_no_other_file(make_run, tmp_path, name):
    run = make_run("one")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(FolderError, match=rf"{name} is none.*ends in \.html"):
        write_report(run, run / name)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_folder_whose_name_is_not_text_has_a_report(make_run, tmp_path):
    odd = make_run("one").rename(tmp_path / "runs" / os.fsdecode(b"\xff"))
    page = Page(write_report(odd, tmp_path / "report.html"))
    assert page.tables["runs"][1][0] == "\\udcff"


def test_how_a_run_ended_that_nobody_watched_is_told(make_run, tmp_path):
    for name in ("lost", "running"):
        (make_run(name) / "result.json").unlink()
    with FileLock(tmp_path / "runs" / "running" / "launcher.lock"):
        page = Page(write_report(tmp_path / "runs", tmp_path / "report.html"))
    assert [row[1] for row in page.tables["runs"][1:]] == ["lost", "running"]
    assert "The program that launched it was killed" in page.text
    assert "No reason" not in page.text


def test_a_folder_takes_the_report_under_its_usual_name(make_run, tmp_path):
    run = make_run("bad", error="Rank 0 failed.")
    assert write_report(run, tmp_path) == tmp_path / "report.html"
    assert write_report(run, tmp_path / "new" / "page.html").is_file()


def test_no_run_says_what_to_do(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match=r"no run in .*ddp-course train"):
        write_report(tmp_path / "empty", tmp_path / "report.html")
    with pytest.raises(FolderError, match="no folder"):
        write_report(tmp_path / "missing", tmp_path / "missing")


def test_a_report_that_cannot_be_written_says_so(make_run, tmp_path):
    run = make_run("bad", error="Rank 0 failed.")
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="Cannot write the report"):
        write_report(run, tmp_path / "file" / "report.html")
