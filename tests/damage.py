"""What may stand in the files of a run after somebody edited them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from course_lib.config import RunConfig

LEAVES = [None, True, 0, -1, 7, 0.5, 1e308, 2**64, 10**400, float("nan"), float("inf"), "", "x", "7", "\ud800"]
json_values = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
CONFIG = [("config", name) for name in RunConfig.__dataclass_fields__]
ENVIRONMENT = ("timing", "hostname", "cpu", "cores", "devices", "backend", "torch", "python", "course", "platform")
RESULT = ("images_per_sec", "step_seconds", "time_split", "seconds", "val_accuracy", "steps", "timed_steps")
EVENT = ("kind", "rank", "time", "epoch", "step", "loss", "samples", "start", "seconds", "val_accuracy", "forward")
# Of each file, where in its JSON a value may be put; () is the whole of it.
PLACES: dict[str, list[tuple[str, ...]]] = {
    "config.json": [(), ("format",), ("config",), ("labels",), *CONFIG, *(("labels", x) for x in ("sweep", "scaling"))],
    "environment.json": [(), *((name,) for name in ENVIRONMENT)],
    "caveats.json": [(), ("speed_caveats",)],
    "result.json": [(), ("value",), ("seconds",), *(("value", name) for name in RESULT)],
    "failure.json": [(), ("type",), ("message",), ("rank",)],
    "error-rank0.json": [(), ("type",), ("message",), ("time",), ("from_peer",)],
    "events-rank0.jsonl": [(), *((name,) for name in EVENT)],
}
places = st.sampled_from([(name, place) for name, places in PLACES.items() for place in places])


@st.composite
def damages(draw: Callable[..., Any]) -> Callable[[Path], None]:
    """Damages to one file of the run in a folder."""
    (name, place), value = draw(places), draw(json_values)

    def damage(run: Path) -> None:
        path = run / name
        lines = path.read_text().splitlines() if path.exists() else ["{}"]
        content = [json.loads(line) for line in lines] if name.endswith(".jsonl") else json.loads("\n".join(lines))
        changed = [put(each, place, value) for each in content] if isinstance(content, list) else None
        text = "\n".join(map(json.dumps, changed)) + "\n" if changed else json.dumps(put(content, place, value))
        path.write_text(text)

    return damage


def put(content: Any, place: tuple[str, ...], value: Any) -> Any:
    """The content with the value in that place."""
    if not place:
        return value
    name, *rest = place
    around = content if isinstance(content, dict) else {}  # what was damaged before
    return {**around, name: put(around.get(name), tuple(rest), value)}
