# SPDX-License-Identifier: Apache-2.0
"""The figures of a run by name, as comparisons, studies and scripts show them."""

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from atoll_analysis.figures.losses import CAUSES
from atoll_analysis.figures.traffic_figures import TRAFFIC_FIGURES
from atoll_analysis.summary import Summary
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import RunError, shown
from atoll_core.plural import first_of

RATE = "Mbit/s"
_MOST_SUGGESTED = 8


def measured(path: Path, summary: Summary) -> dict[str, float | None]:
    """All figures of the run at ``path``; None: not measured. Raises RunError if an older version analysed it."""
    try:
        return {name: _number(read(summary)) for name, (_, _, read) in FIGURES.items()}
    except KeyError as missing:
        msg = (
            f"{path}: analysed by an older version that did not compute {missing}; "
            f"run `atoll report {path}` to analyse it again"
        )
        raise RunError(msg) from None


def limits(summary: Summary) -> dict[str, tuple[float, float]]:
    """The least and the most that figures can be which a run does not measure: of a transfer that did not finish."""
    size, room_s = summary.get("transfer_bytes"), summary.get("transfer_room_s") or 0.0  # absent in old summaries
    if size is None or summary.get("transfer_complete") is not False:
        return {}
    rate = 8 * size / room_s / 1e6 if room_s else math.inf
    return {"transfer time": (room_s, math.inf), "transfer rate": (-math.inf, rate)}


OF_TRANSFERS = ("transfer time", "transfer rate")
"""Figures that have limits if a transfer did not finish."""


def _number(found: float | None) -> float | None:
    return None if found is None else round(float(found), 9)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number / factor


def _terrestrial_error_ms(summary: Summary) -> float | None:
    return max(
        (abs(rtt["measured"] - rtt["configured"]) for rtt in summary["terrestrial_rtt_ms"].values()), default=None
    )


def _beyond_drain_ms(summary: Summary) -> float | None:
    """Return the time that the slowest scheduled change took beyond the drain of the previous version."""
    return max((c["beyond_drain_ms"] for c in summary["changes"] if c["beyond_drain_ms"] is not None), default=None)


_Read = Callable[[Summary], float | None]


def _udp(figure: str) -> _Read:
    """Return a figure of the UDP traffic; None without such traffic, or if an older version analysed the run."""
    return lambda summary: cast("dict[str, float | None]", summary.get("udp") or {}).get(figure)


def _longest_wait_ms(summary: Summary) -> float | None:
    return summary.get("longest_wait_ms")


def _of_slowest(summary: Summary, name: str) -> dict[str, Any]:
    """Return figures of the slowest link by the name of their part; empty if not measured."""
    link = cast("dict[str, Any]", summary["links"].get(summary["bottleneck"] or "") or {})
    return cast("dict[str, Any]", link.get(name) or {})


def _queue_sojourn(figure: str) -> _Read:
    """Return the sojourn time in the queue of the slowest link; None if the backend does not measure it."""
    return lambda summary: _of_slowest(summary, "sojourn").get(figure)


_UNKNOWN = {"packets": None}


def _lost(cause: str, direction: str) -> _Read:
    """Return the packets that the slowest link lost by a cause; None if the backend does not count it."""
    return lambda summary: _of_slowest(summary, direction).get(cause, _UNKNOWN)["packets"]


LOSSES: dict[str, tuple[str, int, _Read]] = {
    f"{where}, {words}": ("packets", 0, _lost(cause, direction))
    for direction, where in (("losses", "lost"), ("losses_to_world", "lost to the world"))
    for cause, words in CAUSES.items()
}
"""Of these, causes for which no run lost anything are left out."""

FIGURES: dict[str, tuple[str, int, _Read]] = {
    "base RTT": ("ms", 3, lambda s: s["base_rtt_ms"]),
    "terrestrial RTT off by": ("ms", 3, _terrestrial_error_ms),
    "queue sojourn mean": ("ms", 2, _queue_sojourn("mean_ms")),
    **{f"queue sojourn p{percent}": ("ms", 2, _queue_sojourn(f"p{percent}_ms")) for percent in (50, 95, 99)},
    "queue sojourn at most": ("ms", 2, _queue_sojourn("max_ms")),
    "largest ping sojourn": ("ms", 2, lambda s: s["sojourn_max_ms"]),
    "sojourn bound": ("ms", 2, lambda s: s["sojourn_bound_ms"]),
    "queue at most": ("kB", 2, lambda s: _scaled(s["queue_max_bytes"], 1e3)),
    "queue full": ("s", 1, lambda s: s["queue_full_s"]),
    "goodput": (RATE, 3, lambda s: s["goodput_mbit_s"]),
    "throughput": (RATE, 3, lambda s: s["throughput_mbit_s"]),
    "utilisation": ("%", 2, lambda s: _percent(s["utilisation"])),
    "loss": ("%", 3, lambda s: _percent(s["loss_fraction"])),
    **LOSSES,
    "bytes lost": ("kB", 1, lambda s: _scaled(s["loss_bytes_link"], 1e3)),
    "pings lost": ("", 0, lambda s: s["ping_lost"] if s["ping_sent"] else None),
    "flows completed": ("", 0, lambda s: s["flows_completed"] if s["channels"] else None),
    "mean flow": ("kB", 1, lambda s: _scaled(s["mean_flow_bytes"], 1e3)),
    # An index without a longest wait is of an older version, and could only be 1.
    "fairness": ("", 3, lambda s: s["fairness"] if _longest_wait_ms(s) is not None else None),
    "longest wait of a channel": ("ms", 2, _longest_wait_ms),
    "transfer received": ("MB", 2, lambda s: _scaled(s["transfer_received_bytes"], 1e6)),
    "transfer time": ("s", 2, lambda s: s["transfer_s"]),
    "transfer rate": (RATE, 3, lambda s: s["transfer_mbit_s"]),
    "UDP sent": (RATE, 3, _udp("sent_mbit_s")),
    "UDP received": (RATE, 3, _udp("received_mbit_s")),
    "UDP lost": ("%", 3, lambda s: _percent(_udp("loss_fraction")(s))),
    "UDP out of order": ("", 0, _udp("reordered_packets")),
    "UDP jitter": ("ms", 3, _udp("jitter_ms")),
    "UDP jitter at most": ("ms", 3, _udp("jitter_max_ms")),
    **TRAFFIC_FIGURES,
    "changes beyond the drain": ("ms", 2, _beyond_drain_ms),
    "lateness at most": ("ms", 3, lambda s: s["lateness_max_ms"]),
}
"""By name: unit, digits after the point, and how it is read from the summary."""


def suggest_figure(given: str, known: Iterable[str]) -> str:
    """Return the figures that have all words of ``given``, otherwise the most similar one, and where all are listed."""
    names = list(known)
    words = re.findall(r"[a-z0-9]+", given.lower())
    meant = [name for name in names if words and all(word in name.lower() for word in words)]
    near = (
        f"did you mean {first_of([shown(each) for each in meant], _MOST_SUGGESTED)}?"
        if meant
        else suggest(given, names, "figures", _MOST_SUGGESTED)
    )
    return f"{near}; `atoll results` lists all {len(names)}"
