"""The widgets of the lessons say and draw what is so, whatever their controls stand at."""

from __future__ import annotations

import threading
from html.parser import HTMLParser

import pytest
from ipywidgets import Button
from matplotlib.colors import to_rgb
from processes import eventually

from course_lib.lab import widgets
from course_lib.lab.widgets import stepped
from course_lib.lab.widgets.lesson import RANK_COLORS, Lesson, ink
from course_lib.runs.dealing import dealt

ALL = [getattr(widgets, name) for name in widgets.__all__]


class Page(HTMLParser):
    """What a piece of HTML says: tags with their attributes, and text; refuses tags that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []  # of tables
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("img", "br"):
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += [data.strip()] if data.strip() else []
        if {"td", "th"} & {*self._open[-2:]}:
            self.rows[-1][-1] += data.strip()


def picture(lesson: Lesson) -> Page:
    return Page(lesson.draw()[0])


@pytest.mark.parametrize("kind", ALL)
def test_each_says_what_it_shows_where_no_kernel_runs(kind):
    lesson = kind()
    bundle = lesson._repr_mimebundle_()
    assert bundle["text/plain"] == repr(lesson)
    assert repr(lesson).startswith(kind.title)
    assert all(sentence in repr(lesson) for sentence in lesson.draw()[1])
    assert len(bundle["text/html"]) < 200_000
    page = Page(bundle["text/html"])
    assert any(attributes.get("role") == "status" for _, attributes in page.tags)
    pictures = [attributes for tag, attributes in page.tags if tag == "img" or attributes.get("role") == "img"]
    assert all(attributes.get("alt") or attributes.get("aria-label") for attributes in pictures)
    named = [
        tag for tag, attributes in page.tags if tag == "caption" or (tag == "table" and "aria-label" in attributes)
    ]
    assert pictures or named


@pytest.mark.parametrize("kind", ALL)
def test_each_control_has_a_name_and_can_be_moved_there_and_back(kind):
    lesson = kind()
    words = repr(lesson)
    controls = [control for control in lesson.children[1].children if not isinstance(control, Button)]
    values = [control.value for control in controls]
    for control, value in zip(controls, values, strict=True):
        assert control.description
        control.value = _another(control)
        assert control.value != value
        assert all(lesson.sentences)
    for control, value in zip(controls, values, strict=True):
        control.value = value
    assert repr(lesson) == words


def _another(control):
    if hasattr(control, "options"):
        return next(value for _, value in control._options_full if value != control.value)
    if isinstance(control.value, bool):
        return not control.value
    return control.min if control.value != control.min else control.max


def luminance(color: str) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


@pytest.mark.parametrize("color", RANK_COLORS)
def test_numbers_on_the_colours_of_ranks_can_be_read(color):
    low, high = sorted((luminance(color), luminance(ink(color))))
    assert (high + 0.05) / (low + 0.05) >= 4.5


# Shards


def test_shard_viewer_shows_each_sample_with_its_rank():
    viewer = widgets.ShardViewer()
    text = picture(viewer).text
    frame = dealt(30, 4, 3, 4)
    in_steps = text[text.index("rank 0") : text.index("All epochs: the number of the rank that takes each sample")]
    assert [int(word) for word in in_steps if word.isdigit()] == list(frame[frame["epoch"] == 1]["sample"])
    last = text[text.index("epoch 4") + 1 :]
    assert [int(word) for word in last] == list(frame[frame["epoch"] == 4].sort_values("sample")["rank"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "3 steps an epoch, of 12 samples, the last one of 6. Every sample is taken once."),
        ({"samples": 25}, "In the last one 3 ranks have none left"),
        ({"dealing": "padded"}, "2 samples are taken twice"),
        ({"dealing": "dropped"}, "2 samples are left out"),
        ({"dealing": "dropped", "set_epoch": False}, "2 samples are never seen at all."),
        ({"set_epoch": False}, "Without set_epoch all epochs are alike: rank 0 sees the same 8 samples each time"),
        ({"ranks": 1}, "Each epoch has an order of its own."),
    ],
)
def test_shard_viewer_says_what_comes_of_the_rest(changes, said):
    assert said in repr(moved(widgets.ShardViewer(), changes))


def moved(lesson: Lesson, changes: dict[str, object]) -> Lesson:
    """The lesson with these controls at these values."""
    for name, value in changes.items():
        getattr(lesson, name).value = value
    return lesson


# The ring


@pytest.mark.parametrize(("ranks", "sent"), [(2, 100), (4, 150), (5, 160)])
def test_ring_counts_bytes_as_the_formula_does(ranks, sent):
    ring = moved(widgets.RingAllReduce(), {"ranks": ranks})
    ring.go(ring.last())
    assert f"= {sent} MB, of 2 (N − 1) / N × S" in repr(ring)
    assert f"× 100 = {sent} MB." in repr(ring)
    assert sum(word.endswith("✓") for word in picture(ring).text) == ranks**2


def test_steps_go_forwards_and_back_between_the_first_and_the_last():
    ring = widgets.RingAllReduce()
    assert (ring.back.disabled, ring.next.disabled) == (True, False)
    for _ in range(20):
        ring.next.click()
    assert ring.place == ring.last() == 6
    assert (ring.back.disabled, ring.next.disabled) == (False, True)
    ring.back.click()
    assert repr(ring).startswith("A ring all_reduce, round by round. Round 5 of 6, handing out")
    ring.ranks.value = 2
    assert (ring.place, ring.last()) == (0, 2)


def test_playing_ends_at_the_last_step(monkeypatch):
    monkeypatch.setattr(stepped, "SECONDS_A_STEP", 0.001)
    ring = widgets.RingAllReduce()
    ring.play.click()
    assert eventually(lambda: not playing())
    assert (ring.place, ring.play.description) == (ring.last(), "Play")
    monkeypatch.setattr(stepped, "SECONDS_A_STEP", 1000)
    ring.play.click()
    assert (ring.place, ring.play.description) == (0, "Stop")
    assert len(playing()) == 1
    ring.play.click()
    assert (ring.place, ring.play.description) == (0, "Play")
    assert eventually(lambda: not playing())


STOPS = {
    "its buttons": lambda ring: ring.next.click(),
    "its controls": lambda ring: setattr(ring.ranks, "value", 3),
    "its cell, which is run again": lambda ring: widgets.RingAllReduce(),
    "another lesson that plays": lambda ring: widgets.GradientAveraging().play.click(),
    "its end": lambda ring: ring.close(),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_of_a_lesson_that_plays_no_thread_is_left(stop, monkeypatch):
    monkeypatch.setattr(stepped, "SECONDS_A_STEP", 1000)
    ring = widgets.RingAllReduce()
    for _ in range(21):
        ring.play.click()
    assert eventually(lambda: len(playing()) == 1)
    (thread,) = playing()
    stop(ring)
    assert eventually(lambda: not thread.is_alive())
    assert ring.play.description == "Play" or ring.comm is None
    stepped.stop_all()
    assert eventually(lambda: not playing())


def test_a_step_that_comes_too_late_is_not_shown():
    ring = widgets.RingAllReduce()
    over = threading.Event()
    over.set()
    assert not ring.play_on(over)
    assert ring.place == 0


def playing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, stepped.Player)]


# Averages of gradients


@pytest.mark.parametrize("replicas", [2, 3, 4])
@pytest.mark.parametrize("shards", ["very uneven", "as even as can be"])
def test_gradient_averaging_ends_where_one_model_does(replicas, shards):
    lesson = moved(widgets.GradientAveraging(), {"replicas": replicas, "shards": shards})
    lesson.go(lesson.last())
    head, *rows = picture(lesson).rows
    cells = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    even = len(set(lesson.sizes())) == 1
    assert {"sum of shares ✓", "one model on all", "plain mean ✓" if even else "plain mean ✗"} < set(cells)
    news = {name: (cell["new weight"], cell["new bias"]) for name, cell in cells.items()}
    wrong = news.pop("plain mean ✗", None)
    assert len(set(news.values())) == 1
    assert wrong not in set(news.values())


# Buckets


def test_bucket_timeline_says_what_is_exposed():
    lesson = widgets.BucketTimeline()
    timeline = lesson.timeline()
    exposed = 1000 * timeline["end_s"].iloc[-1] - 100
    assert len(timeline) == 5
    assert f"{exposed:.3g} ms exposed" in repr(lesson)
    (drawn,) = [attributes for tag, attributes in picture(lesson).tags if tag == "svg"]
    assert f"{exposed:.3g} ms exposed" in str(drawn["aria-label"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "The network keeps up: only the last bucket is exposed"),
        ({"bandwidth": 0.1}, "The network cannot keep up"),
        ({"bucket": 1, "latency": 1000}, "So many small buckets pay the latency over and over."),
        ({"bucket": 200}, "buckets of this size make no difference."),
        ({"ranks": 1}, "One rank has nothing to exchange: the step waits for backward only, 100 ms."),
    ],
)
def test_bucket_timeline_says_why(changes, said):
    assert said in repr(moved(widgets.BucketTimeline(), changes))


# The learning rate


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "Peak learning rate: 0.05 × 8 ranks = 0.4 (rule: linear)."),
        ({"rule": "sqrt", "ranks": 4}, "Peak learning rate: 0.05 × √4 ranks = 0.1 (rule: sqrt)."),
        ({"rule": "none"}, "Peak learning rate: 0.05 (rule: none)."),
        ({"warmup_epochs": 0}, "The rate starts at its peak, 8 times the base, and ends close to 0: bold."),
        ({"schedule": "constant"}, "and ends at 0.4."),
        ({"epochs": 1}, "over 1 epoch, and ends"),
    ],
)
def test_schedule_viewer_says_the_peak_and_how_it_gets_there(changes, said):
    assert said in repr(moved(widgets.ScheduleViewer(), changes))


# BatchNorm


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "What tells the classes apart is the mean of a rank, and local BatchNorm takes that away."),
        ({"batch_size": 2}, "Of two values, local BatchNorm leaves only which one is larger"),
    ],
)
def test_batchnorm_viewer_says_what_is_lost(changes, said):
    lesson = moved(widgets.BatchNormViewer(), changes)
    assert said in repr(lesson)
    lesson.dealt.value = "shuffled"
    assert "What tells the classes apart" not in repr(lesson)
