# SPDX-License-Identifier: Apache-2.0
"""An event of a run (docs/contracts.md) as a line for people. Pure."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from atoll_core.plural import counted

_Told = Mapping[str, Any]

_SAYING = ("message", "what", "text", "stages", "step", "switch", "outcome")
"""Keys whose text is the event's, the first of them that there is."""

_SAID = frozenset({"stage", "connections", "undone"})
"""States of a swap that its words tell."""


def event_line(kind: str, fields: _Told) -> str:
    """An event in a line: its type, what it tells, its state. ``fields``: the event's.

    What it tells is what it says itself, else what the table below has of its type, else every field as ``key value``.
    """
    told = {key: part for key, part in fields.items() if key not in ("type", "t_ns", "state")}
    state = str(fields.get("state", ""))
    words = _words(kind, told)
    if words is None:
        plain = ", ".join(f"{key} {_plain(part)}" for key, part in told.items())
        kind, words = f"{kind}:" if plain else kind, plain
    return " ".join(part for part in (kind, words, state) if part and part not in _SAID)


def _words(kind: str, told: _Told) -> str | None:
    words = next((told[key] for key in _SAYING if told.get(key)), None)
    if words is not None:
        return ", ".join(map(str, words)) if isinstance(words, list) else str(words)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    try:
        return _WORDS[kind](told)
    except KeyError:  # a type that has no words, or an event of another version, without what they are of
        return None


def _start(told: _Told) -> str:
    at = datetime.fromtimestamp(told["at_ns"] / 1e9, UTC)
    return f"at {at:%H:%M:%S}.{at.microsecond // 1000:03} UTC"


def _swap(told: _Told) -> str:
    change = [str(told["change"])] if "change" in told else []
    match told:
        case {"how": how, **rest}:
            boxes: Mapping[str, int | None] = rest.get("boxes", {})
            held = [box if count is None else f"{box} {count}" for box, count in boxes.items()]
            return " ".join([*change, f"connections {how}:", rest.get("reason") or ", ".join(held)])
        case {"reason": reason, **_rest}:
            return " ".join([*change, "undone:", str(reason)])
        case {"duration_ns": took_ns, **_rest}:
            return " ".join([*change, f"in {took_ns / 1e6:.0f} ms"])
        case _:
            return " ".join(change)


_WORDS: dict[str, Callable[[_Told], str]] = {
    "applied": lambda told: counted(told["changes"], "change"),
    "clocks": lambda told: f"compared; this machine's was set by {told['step_ns'] / 1e6:g} ms meanwhile",
    "change": lambda told: str(told["change"]),
    "start": _start,
    "swap": _swap,
    "trace_start": lambda told: "of " + ", ".join(told["boxes"]),
    "window": lambda told: f"of {(told['end_ns'] - told['start_ns']) / 1e9:g} s",
}


def _plain(part: object) -> str:
    match part:
        case dict():
            return "; ".join(f"{key} {_plain(each)}" for key, each in part.items()) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list():
            return "; ".join(map(_plain, part)) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return str(part)
