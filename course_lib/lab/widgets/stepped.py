"""Lessons that are told step by step, and that play by themselves."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ipywidgets import Button, Layout, Widget

from course_lib.lab.widgets.lesson import Lesson

SECONDS_A_STEP = 1.2  # while a lesson plays


class SteppedLesson(Lesson):
    """A lesson that is told step by step, with buttons to go on, to go back and to play.

    One plays at a time: where another is made or begins to play, as when its cell is run again, it stops.

    Attributes:
        place: the step that is shown, from 0 on.
        back, next, play: the buttons.
    """

    def __init__(self, controls: Sequence[Widget], height: int, lines: int = 3) -> None:
        stop_all()
        self.place = 0
        self.back, self.next, self.play = (_button(name) for name in ("Back", "Next", "Play"))
        self.back.on_click(lambda _: self.go(self.place - 1))
        self.next.on_click(lambda _: self.go(self.place + 1))
        self.play.on_click(lambda _: self.start_or_stop())
        for control in controls:  # before it is drawn anew
            control.observe(lambda _: self.go(0), "value")
        super().__init__([*controls, self.back, self.next, self.play], height, lines)

    def last(self) -> int:
        """The last step."""
        raise NotImplementedError

    def show(self) -> None:
        """Draw what the controls say, and offer only the steps that there are."""
        with self._lock:
            super().show()
            self.back.disabled = self.place == 0
            self.next.disabled = self.place == self.last()

    def go(self, place: int) -> None:
        """Show step `place`, and play no further."""
        with self._lock:
            for player in players(self):
                player.over.set()
            self.play.description = "Play"
            self.place = min(max(place, 0), self.last())
            self.show()

    def start_or_stop(self) -> None:
        """Play from here, or from the start if this is the end; where it plays already, stop."""
        plays = bool(players(self))
        stop_all()
        if not plays:
            with self._lock:
                self.go(0 if self.place == self.last() else self.place)
                self.play.description = "Stop"
                Player(self).start()

    def play_on(self, over: threading.Event) -> bool:
        """Show the next step, unless it is over; whether there are more."""
        with self._lock:
            if over.is_set():
                return False
            if self.place < self.last():
                self.place += 1
                self.show()
            if self.place == self.last():
                self.go(self.place)
            return not over.is_set()

    def close(self) -> None:
        """Play no further, and be gone."""
        for player in players(self):
            player.over.set()
        super().close()


class Player(threading.Thread):
    """Goes on with a lesson, one step after the other, to the last or until it is over."""

    def __init__(self, lesson: SteppedLesson) -> None:
        super().__init__(name=f"play {lesson.title}", daemon=True)
        self.lesson, self.over = lesson, threading.Event()

    def run(self) -> None:
        """Wait, and go on. Thread.start calls this."""
        while not self.over.wait(SECONDS_A_STEP) and self.lesson.play_on(self.over):
            pass


def players(lesson: SteppedLesson | None = None) -> list[Player]:
    """The threads that play this lesson, or any; they are found as threads, which outlive a cell."""
    alive = [thread for thread in threading.enumerate() if isinstance(thread, Player) and not thread.over.is_set()]
    return [player for player in alive if lesson in (None, player.lesson)]


def stop_all() -> None:
    """Have no lesson play."""
    for player in players():
        player.lesson.go(player.lesson.place)


def _button(name: str) -> Button:
    return Button(description=name, layout=Layout(width="5em"))
