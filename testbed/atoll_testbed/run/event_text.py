# SPDX-License-Identifier: Apache-2.0
"""An event of a run (docs/contracts.md) as a line for people. Pure."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from atoll_core.plural import counted

_Fields = Mapping[str, Any]

_TEXT_KEYS = ("message", "what", "text", "stages", "step", "switch", "outcome")
"""Keys with the text of an event; the first one that exists is used."""

_STATES_IN_TEXT = frozenset({"stage", "connections", "undone"})
"""States of a swap that the text already contains."""


def event_line(kind: str, fields: _Fields) -> str:
    """An event in a line: type, text, state. ``fields``: the event's.

    The text is that of the event itself, else that of the table below for its type, else all fields as ``key value``.
    """
    values = {key: part for key, part in fields.items() if key not in ("type", "t_ns", "state")}
    state = str(fields.get("state", ""))
    words = _words(kind, values)
    if words is None:
        plain = ", ".join(f"{key} {_plain(part)}" for key, part in values.items())
        kind, words = f"{kind}:" if plain else kind, plain
    return " ".join(part for part in (kind, words, state) if part and part not in _STATES_IN_TEXT)


def _words(kind: str, values: _Fields) -> str | None:
    words = next((values[key] for key in _TEXT_KEYS if values.get(key)), None)
    if words is not None:
        return ", ".join(map(str, words)) if isinstance(words, list) else str(words)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    try:
        return _WORDS[kind](values)
    except KeyError:  # a type without a text, or an event of another version without the fields for it
        return None


def _start(values: _Fields) -> str:
    at = datetime.fromtimestamp(values["at_ns"] / 1e9, UTC)
    return f"at {at:%H:%M:%S}.{at.microsecond // 1000:03} UTC"


def _swap(values: _Fields) -> str:
    change = [str(values["change"])] if "change" in values else []
    match values:
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


_WORDS: dict[str, Callable[[_Fields], str]] = {
    "applied": lambda values: counted(values["changes"], "change"),
    "clocks": lambda values: f"compared; this machine's was set by {values['step_ns'] / 1e6:g} ms meanwhile",
    "change": lambda values: str(values["change"]),
    "start": _start,
    "swap": _swap,
    "trace_start": lambda values: "of " + ", ".join(values["boxes"]),
    "window": lambda values: f"of {(values['end_ns'] - values['start_ns']) / 1e9:g} s",
}


def _plain(part: object) -> str:
    match part:
        case dict():
            return "; ".join(f"{key} {_plain(each)}" for key, each in part.items()) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list():
            return "; ".join(map(_plain, part)) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return str(part)
