# SPDX-License-Identifier: Apache-2.0
"""The text of each event for people: of terminal, live page, metrics and Grafana alike. Pure.

Events are JSON objects here, as a run directory or the API has them, also those of other versions.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from atoll_core.experiment.experiment import ONLY_TRANSFER
from atoll_core.plural import counted

_Fields = Mapping[str, Any]

_SAMPLES = frozenset({"hello", "points", "counters", "live"})
_NOT_IN_TEXT = frozenset({"type", "t_ns", "seq"})
_NOTABLE_STEP_NS = 5_000_000  # of this machine's clock during a measurement

_STEP_TEXTS = {
    "daemon": "starting the process that owns the lab",
    "namespaces": "creating the lab's namespaces",
    "controller and agent": "starting both inside the lab",
    "virtual kernel": "starting it; its clock stops while a program computes",
    "apply": "configuring switches, hosts and boxes according to the plan",
    "check": "pinging the paths of every host, then filling the links for a moment",
    "settings": "setting TCP parameters on the hosts",
    "captures": "starting the captures, the island's side first",
    "servers": "starting the servers",
    "clients": "starting the load",
    "measure": "the load is running",
    "stop": "stopping the load",
    "drain": "waiting until the links are empty",
    "record": "reading flow tables and their counters",
    "analyse": "making tables, verdict and report",
    "down": "taking the lab down",
}


_Text = tuple[str, Literal["info", "warning"]]


def event_text(event: _Fields) -> _Text | None:
    """The text of an event, a line for people, and its severity; None for samples.

    An event of an unknown type, or of another version without the keys for its text, has the text
    ``type: key value, key value``.
    """
    kind = str(event["type"])
    if kind in _SAMPLES:
        return None
    try:
        text = _TEXTS[kind](event)
    except (AttributeError, KeyError, TypeError):
        text = _generic_text(kind, event)
    return text if isinstance(text, tuple) else (str(text), "info")


def step_text(step: str) -> str:
    """A step of a run or of a lab's start with its explanation; other texts are returned unchanged."""
    return f"{step}: {_STEP_TEXTS[step]}" if step in _STEP_TEXTS else step


def _warning(text: str, *, if_: bool = True) -> _Text:
    return text, "warning" if if_ else "info"


def _message_text(event: _Fields) -> str:
    return str(event["message"])


def _reason_text(event: _Fields) -> str:
    return f": {event['message']}" if event.get("message") else ""


def _transfer_text(event: _Fields) -> _Text:
    name = event.get("transfer", ONLY_TRANSFER)
    label = name if name == ONLY_TRANSFER else f"transfer {name}"
    return _warning(f"{label} {event['state']}{_reason_text(event)}")


def _lab_text(event: _Fields) -> _Text:
    states = {"up": "is up", "down": "has been taken down", "failed": "has failed"}
    return _warning(f"lab {event['lab']} {states[event['state']]}{_reason_text(event)}", if_=event["state"] != "up")


def _work_text(event: _Fields) -> _Text:
    verdict, state = event.get("verdict"), event["state"]
    outcome = _verdict_with_reasons(event) if verdict else {"begin": "begun", "end": "done"}.get(state, state)
    is_bad = state == "failed" or verdict == "invalid"
    return _warning(f"{event['what']} {event['about']}: {outcome}{_reason_text(event)}", if_=is_bad)


def _verdict_text(event: _Fields) -> _Text:
    return _warning(f"verdict: {_verdict_with_reasons(event)}", if_=event["verdict"] == "invalid")


def _verdict_with_reasons(event: _Fields) -> str:
    reasons = "; ".join(event.get("reasons") or event.get("caveats") or ())
    return f"{event['verdict']}: {reasons}" if reasons else str(event["verdict"])


def _step_text(event: _Fields) -> str | _Text:
    step = event["step"]
    match event.get("state", "begin"):
        case "begin":
            return step_text(step)
        case "failed":
            cancelled = event.get("message") == "cancelled"
            return _warning(f"step {step} cancelled" if cancelled else f"step {step} failed{_reason_text(event)}")
        case _:
            return f"step {step} done"


def _applied_text(event: _Fields) -> str:
    changes = counted(event["changes"], "change") if "changes" in event else ""
    if "experiment" not in event:
        return f"applied: {changes}" if changes else "applied"
    chain = " \u2192 ".join(event.get("chain", ()))
    return f"{event['experiment']} applied: {chain}{', ' if changes else ''}{changes}"


def _start_text(event: _Fields) -> str:
    clocks = len(event.get("clocks") or ())
    clocks_text = f", {counted(clocks, 'clock')} compared" if clocks else ""
    return f"the load begins in {(event['at_ns'] - event['t_ns']) / 1e9:.1f} s{clocks_text}"


def _clocks_text(event: _Fields) -> _Text:
    step_ns = event["step_ns"]
    text = f"clocks compared; this machine's was set by {step_ns / 1e6:.3f} ms during the measurement"
    return _warning(text, if_=abs(step_ns) > _NOTABLE_STEP_NS)


def _change_text(event: _Fields) -> _Text:
    state = event["state"]
    text = ", ".join(event.get("what") or ()) or {"end": "active"}.get(state, state)
    return _warning(f"change {event['change']}: {text}{_reason_text(event)}", if_=state == "failed")


def _swap_text(event: _Fields) -> str | _Text:
    match event["state"]:
        case "begin":
            moved = f"; moves {', '.join(event['moved'])}" if event.get("moved") else ""
            parts = len(event.get("parts", ()))
            return f"swap{f' in {parts} parts' if parts > 1 else ''}: {', '.join(event['stages'])}{moved}"
        case "stage":
            return str(event["text"])
        case "turned":
            return "swap: packets now take the new chain"
        case "connections":
            return _connections_text(event)
        case "undone":
            return _warning(f"swap rolled back: {event['reason']}")
        case "end":
            total_ms, beyond_drain_ms = event["duration_ns"] / 1e6, event["beyond_drain_ns"] / 1e6
            return f"swapped in {total_ms:.0f} ms ({total_ms - beyond_drain_ms:.0f} ms of it draining)"
        case _:
            raise KeyError


def _connections_text(event: _Fields) -> str | _Text:
    if event["how"] == "failed":
        return _warning(
            "connections through boxes that are no longer in use could not be reset and will time out: "
            f"{event['reason']}"
        )
    boxes = ", ".join(f"{box} ({count})" if count else box for box, count in event["boxes"].items())
    return {
        "reset": f"connections reset in {boxes}",
        "restart": f"connections ended by restarting the program of {boxes}",
        "limit": f"connections still open after the limit in {boxes}",
        "time-out": f"connections through {boxes} cannot be reset from here and will time out",
    }[event["how"]]


def _outcome_text(event: _Fields) -> _Text:
    outcome = str(event["outcome"])  # its reason is that of the step
    return _warning(f"outcome: {outcome.partition(': ')[0]}", if_=outcome != "completed")


def _switch_text(event: _Fields) -> str | _Text:
    is_down = event["state"] == "down"
    return _warning(f"switch {event['switch']} is {'not ' if is_down else ''}connected", if_=is_down)


def _terrestrial_text(event: _Fields) -> str:
    measured, configured = event["measured_ns"] / 1e6, event["configured_ns"] / 1e6
    return f"{event['server']}: terrestrial RTT {measured:.2f} ms, configured {configured:g} ms"


_TEXTS: dict[str, Callable[[_Fields], str | _Text]] = {
    "applied": _applied_text,
    "base_rtt": lambda event: f"base RTT {event['rtt_ns'] / 1e6:.2f} ms",
    "change": _change_text,
    "check_off": lambda event: _warning(f"test {event['attempt']}: {event['message']}"),
    "clocks": _clocks_text,
    "drained": lambda _: "the link has drained",
    "gap": lambda event: _warning(f"events {event['from']} to {event['to']} are missing from the log"),
    "lab": _lab_text,
    "listener_dropped": _message_text,
    "not_collected": lambda event: _warning(_message_text(event)),
    "note": _message_text,
    "outcome": _outcome_text,
    "progress": lambda event: str(event["text"]),
    "run": lambda event: f"run {event['run']}",
    "start": _start_text,
    "step": _step_text,
    "swap": _swap_text,
    "switch": _switch_text,
    "terrestrial": _terrestrial_text,
    "trace_start": lambda event: f"the trace of {', '.join(event['boxes'])} begins",
    "transfer": _transfer_text,
    "verdict": _verdict_text,
    "whistle": lambda event: f"whistle {event['what']}",
    "window": lambda event: f"measured for {(event['end_ns'] - event['start_ns']) / 1e9:g} s",
    "work": _work_text,
}


def _generic_text(kind: str, event: _Fields) -> str:
    plain = ", ".join(f"{key} {_value_text(part)}" for key, part in event.items() if key not in _NOT_IN_TEXT)
    return f"{kind}: {plain}" if plain else kind


def _value_text(part: object) -> str:
    match part:
        case dict():
            return "; ".join(f"{key} {_value_text(inner)}" for key, inner in part.items()) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list() | tuple():
            return "; ".join(map(_value_text, part)) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return str(part)
