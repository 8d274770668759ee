"""What ranks exchanged, as the probes `group` and `traffic` told it: messages, and how much went each way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

BARRIERS = {"barrier", "monitored_barrier"}
ONE_WAY = {
    *("reduce", "reduce_scatter", "reduce_scatter_tensor", "gather", "gather_object", "send", "isend", "recv", "irecv"),
    *("broadcast", "broadcast_object_list", "scatter", "scatter_object_list", "all_gather", "all_gather_into_tensor"),
}
INTO_OTHERS = {"all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor"}


def is_message(event: dict[str, Any]) -> bool:
    """Whether something was exchanged: a collective, a message, or a bucket of DDP's."""
    return event["kind"] in ("sent", "collective") and event.get("name") not in BARRIERS


def exchanged(event: dict[str, Any]) -> float:
    """The bytes of a message, so that all ways to a mean count alike: an all_reduce is a way there and a way back.

    On two ranks all have the same from an all_reduce, from a reduce and a broadcast, or from an all_gather.
    """
    name, count = event.get("name", ""), event["bytes"]
    if name in INTO_OTHERS:
        values = [prod(shape) for shape in event["shapes"]]
        count -= count * min(values) / max(1, sum(values)) if len(values) > 1 else 0
    return count / 2 if name in ONE_WAY else count


def messages_of_steps(events: Sequence[dict[str, Any]]) -> Iterator[int]:
    """How many messages there were from a step to the next, where nothing was evaluated between them."""
    messages, evaluated = 0, False
    for event in events:
        messages += is_message(event)
        evaluated |= event["kind"] == "forward" and not event["training"]
        if event["kind"] == "step":
            if not evaluated:
                yield messages
            messages, evaluated = 0, False
