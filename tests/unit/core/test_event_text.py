# SPDX-License-Identifier: Apache-2.0
"""The one text of each event, which terminal, live page, metrics and Grafana show; also of other versions' events."""

from typing import Any

import pytest

from atoll_core.events.event_text import event_text, step_text
from atoll_core.events.events import Counters, Live, Note, Progress, StepBegun, SwapEvent, with_text

T_NS = 1_800_000_000_000_000_000

TEXTS: list[tuple[str, dict[str, Any]]] = [
    ("events 3 to 9 are missing from the log", {"type": "gap", "from": 3, "to": 9}),
    ("lab island is up", {"type": "lab", "lab": "island", "state": "up"}),
    (
        "lab island has failed: the lab ended",
        {"type": "lab", "lab": "island", "state": "failed", "message": "the lab ended"},
    ),
    ("run geo: begun", {"type": "work", "what": "run", "about": "geo", "state": "begin"}),
    ("run geo: failed: no", {"type": "work", "what": "run", "about": "geo", "state": "failed", "message": "no"}),
    (
        "run geo: invalid: late; short",
        {
            "type": "work",
            "what": "run",
            "about": "geo",
            "state": "end",
            "verdict": "invalid",
            "reasons": ["late", "short"],
        },
    ),
    (
        "run geo: valid",
        {"type": "work", "what": "run", "about": "geo", "state": "end", "verdict": "valid", "reasons": []},
    ),
    ("check: pinging the paths of every host, then filling the links for a moment", {"type": "step", "step": "check"}),
    ("step check done", {"type": "step", "step": "check", "state": "end"}),
    ("step check failed: off", {"type": "step", "step": "check", "state": "failed", "message": "off"}),
    ("step check cancelled", {"type": "step", "step": "check", "state": "failed", "message": "cancelled"}),
    ("sw-c lost its control channel", {"type": "note", "message": "sw-c lost its control channel"}),
    (
        "the load begins in 1.0 s, 1 clock compared",
        {"type": "start", "at_ns": T_NS + 980_000_000, "clocks": {"i1": {"offset_ns": 0, "bound_ns": 0}}},
    ),
    ("measured for 60 s", {"type": "window", "start_ns": 1, "end_ns": 60_000_000_001}),
    ("base RTT 500.40 ms", {"type": "base_rtt", "rtt_ns": 500_400_000}),
    (
        "w1: terrestrial RTT 5.10 ms, configured 5 ms",
        {"type": "terrestrial", "server": "w1", "configured_ns": 5_000_000, "measured_ns": 5_100_000},
    ),
    ("applied: 85 changes", {"type": "applied", "changes": 85}),
    (
        "geo applied: tap-w \u2192 sat, 1 change",
        {"type": "applied", "experiment": "geo", "chain": ["tap-w", "sat"], "changes": 1},
    ),
    (
        "change 1: chain tap-w sat, latency w1",
        {"type": "change", "change": 1, "state": "begin", "what": ["chain tap-w sat", "latency w1"]},
    ),
    ("change 1: active", {"type": "change", "change": 1, "state": "end", "drain_ns": 0}),
    (
        "change 2: failed: a probe was lost",
        {"type": "change", "change": 2, "state": "failed", "message": "a probe was lost"},
    ),
    ("the link has drained", {"type": "drained"}),
    ("the trace of sat begins", {"type": "trace_start", "boxes": ["sat"]}),
    ("test 1: w1 to i1: off by 2 ms", {"type": "check_off", "attempt": 1, "message": "w1 to i1: off by 2 ms"}),
    ("transfer failed: reset by peer", {"type": "transfer", "state": "failed", "message": "reset by peer"}),
    (
        "swap: chains install, chains probe; moves pep-w",
        {"type": "swap", "state": "begin", "stages": ["chains install", "chains probe"], "moved": ["pep-w"]},
    ),
    (
        "chains: drain 551 ms (15 probes)",
        {"type": "swap", "state": "stage", "text": "chains: drain 551 ms (15 probes)"},
    ),
    ("swap: packets now take the new chain", {"type": "swap", "state": "turned"}),
    (
        "connections reset in pep-w (12)",
        {"type": "swap", "state": "connections", "how": "reset", "boxes": {"pep-w": 12}},
    ),
    (
        "connections through modem cannot be reset from here and will time out",
        {"type": "swap", "state": "connections", "how": "time-out", "boxes": {"modem": None}},
    ),
    (
        "connections through boxes that are no longer in use could not be reset and will time out: no ss there",
        {"type": "swap", "state": "connections", "how": "failed", "reason": "no ss there"},
    ),
    (
        "swapped in 727 ms (402 ms of it draining)",
        {"type": "swap", "state": "end", "duration_ns": 727_000_000, "drain_ns": 5, "beyond_drain_ns": 325_000_000},
    ),
    ("swap rolled back: a probe was lost", {"type": "swap", "state": "undone", "reason": "a probe was lost"}),
    ("switch sw-w is not connected", {"type": "switch", "switch": "sw-w", "state": "down"}),
    ("rack-3 kept logs/x", {"type": "not_collected", "message": "rack-3 kept logs/x"}),
    ("outcome: failed at step check", {"type": "outcome", "outcome": "failed at step check: no"}),
    (
        "clocks compared; this machine's was set by -7.000 ms during the measurement",
        {"type": "clocks", "step_ns": -7_000_000},
    ),
    ("a client stopped reading", {"type": "listener_dropped", "message": "a client stopped reading"}),
    ("run geo-1", {"type": "run", "run": "geo-1", "run_dir": "runs/geo/1"}),
    ("whistle start", {"type": "whistle", "what": "start"}),
]

WARNINGS = {
    "events 3 to 9",
    "lab island has failed",
    "run geo: failed",
    "run geo: invalid",
    "step check failed",
    "step check cancelled",
    "change 2: failed",
    "test 1:",
    "transfer failed",
    "connections through boxes that are no longer in use",
    "swap rolled back",
    "switch sw-w is not connected",
    "rack-3 kept",
    "outcome: failed",
    "clocks compared; this machine's was set by -7",
}


@pytest.mark.parametrize(("text", "event"), TEXTS, ids=lambda part: part if isinstance(part, str) else "")
def test_each_event_has_one_text(text: str, event: dict[str, Any]) -> None:
    found = event_text({"t_ns": T_NS, **event})
    assert found is not None
    assert found[0] == text
    assert (found[1] == "warning") == text.startswith(tuple(WARNINGS))


@pytest.mark.parametrize("kind", ["hello", "points", "counters", "live"])
def test_samples_have_no_text(kind: str) -> None:
    assert with_text({"type": kind, "t_ns": T_NS}) == {"type": kind, "t_ns": T_NS}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"type": "applied"}, "applied"),
        ({"type": "change", "state": "begin"}, "change: state begin"),
        ({"type": "start"}, "start"),
        ({"type": "trace_start", "at_ns": 5}, "trace_start: at_ns 5"),
        ({"type": "window", "end_ns": 5}, "window: end_ns 5"),
        ({"type": "swap", "state": "paused"}, "swap: state paused"),
        ({"type": "step", "step": 7}, "7"),
        (
            {"type": "eclipse", "seq": 1, "of": "sun", "seen": {"i1": 3}, "by": []},
            "eclipse: of sun, seen i1 3, by none",
        ),
    ],
)
def test_events_of_other_versions_have_their_fields_as_text(event: dict[str, Any], text: str) -> None:
    found = event_text(event)
    assert found is not None
    assert found[0] == text


def test_published_events_have_the_json_of_the_contracts_and_their_text() -> None:
    assert StepBegun("measure").to_line() == {
        "type": "step",
        "step": "measure",
        "text": "measure: the load is running",
        "severity": "info",
    }
    assert (
        Progress("namespaces").to_line()["text"]
        == step_text("namespaces")
        == "namespaces: creating the lab's namespaces"
    )
    assert Note("a remark").to_json() == {"type": "note", "message": "a remark"}
    swap = SwapEvent(T_NS, "undone", {"reason": "lost", "duration_ns": 5})
    assert swap.to_json() == {"type": "swap", "t_ns": T_NS, "state": "undone", "reason": "lost", "duration_ns": 5}
    assert Live(1.0, 60.0, dropped_packets=0).to_line() == {
        "type": "live",
        "elapsed_s": 1.0,
        "duration_s": 60.0,
        "dropped_packets": 0,
    }
    assert Counters("sat", {"type": "counters", "t_ns": 7}).to_json() == {"type": "counters", "box": "sat", "t_ns": 7}
