# SPDX-License-Identifier: Apache-2.0
"""The figures of a run by name, as comparisons, studies and scripts show them."""

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from atoll_analysis.figures.flows import CLASS_BOUNDS_BYTES
from atoll_analysis.figures.losses import CAUSES
from atoll_analysis.figures.transfers import TransferFigures
from atoll_analysis.summary import Summary
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import RunError, shown
from atoll_core.experiment.experiment import MAIN, ONLY_TRANSFER, Experiment
from atoll_core.plural import first_of
from atoll_core.units import Size

RATE_UNIT = "Mbit/s"
_MOST_SUGGESTED = 8


def measured_figures(path: Path, summary: Summary) -> dict[str, float | None]:
    """All figures of the run at ``path``; None: not measured. Raises RunError if an older version analysed it."""
    try:
        values = {name: read(summary) for name, (_, _, read) in FIGURES.items()}
        values |= _figures_of_transfers(summary) | _figures_of_groups(summary) | _figures_to_world(summary)
    except KeyError as missing:
        msg = (
            f"{path}: analysed by an older version that did not compute {missing}; "
            f"run `atoll report {path}` to analyse it again"
        )
        raise RunError(msg) from None
    return {name: None if value is None else round(float(value), 9) for name, value in values.items()}


def figure_limits(summary: Summary) -> dict[str, tuple[float, float]]:
    """Limits of figures that a run could not measure, because a transfer did not finish: least and most."""
    limits = _limits_of_transfer("", summary.get("transfer_bytes"), summary.get("transfer_room_s"))  # None if absent
    limits = limits if summary.get("transfer_complete") is False and summary["transfer_s"] is None else {}
    for name, transfer in _named_transfers(summary).items():
        if transfer["complete"] is False and transfer["seconds"] is None:
            limits |= _limits_of_transfer(f" of {name}", transfer["bytes"], transfer["room_s"])
    return limits


def _limits_of_transfer(of: str, size: int | None, room_s: float | None) -> dict[str, tuple[float, float]]:
    if size is None:
        return {}
    rate = 8 * size / room_s / 1e6 if room_s else math.inf
    return {f"transfer time{of}": (room_s or 0.0, math.inf), f"transfer rate{of}": (-math.inf, rate)}


TRANSFER_FIGURES = ("transfer time", "transfer rate")
"""Figures that have limits if a transfer did not finish."""

CLASSES = (*(f"to {Size(bound)}" for bound in CLASS_BOUNDS_BYTES), f"over {Size(CLASS_BOUNDS_BYTES[-1])}")
"""The classes of flow sizes."""

FIGURES_BY_TRANSFER = ("transfer received", *TRANSFER_FIGURES)
"""Figures that each transfer has."""
FIGURES_BY_GROUP = (
    *("goodput", "flows completed", "mean flow"),
    *(f"flow time p{percent}, {sizes}" for sizes in CLASSES for percent in (50, 95)),
)
"""Figures that each group of clients has."""
FIGURES_BY_DIRECTION = (
    *("queue sojourn mean", "queue sojourn p50", "queue sojourn p95", "queue sojourn p99", "queue sojourn at most"),
    *("queue at most", "queue full", "goodput", "throughput", "utilisation", "loss", "bytes lost"),
    *("standing queue", "standing queue height", "queue full and empty", "losses in bursts", "longest loss burst"),
    *("mean packet", "long flows", "goodput of the main chain", "goodput of branches"),
)
"""Figures of the direction to the island that runs with uploads also have of the direction to the world."""

_NAME = "([a-z][a-z0-9-]*)"
_OF_TRANSFER = re.compile(rf"({'|'.join(FIGURES_BY_TRANSFER)}) of {_NAME}")
_TO_WORLD = re.compile(rf"({'|'.join(FIGURES_BY_DIRECTION)}) to the world")
_OF_GROUP = re.compile(rf"({'|'.join(FIGURES_BY_GROUP)}) of group {_NAME}")


def is_figure(name: str) -> bool:
    """Whether a run can have this figure.

    One of FIGURES, or ``transfer time of coded``, ``goodput of group plain``, ``goodput to the world``.
    """
    return general_figure(name) in FIGURES


def general_figure(name: str) -> str:
    """Return the figure without the name of the transfer or group, or the direction."""
    of_part = _OF_TRANSFER.fullmatch(name) or _OF_GROUP.fullmatch(name) or _TO_WORLD.fullmatch(name)
    return of_part[1] if of_part else name


def group_of_figure(name: str) -> str | None:
    """Return the group of clients that a figure is of; None: of the whole run or a transfer."""
    of_group = _OF_GROUP.fullmatch(name)
    return of_group[2] if of_group else None


def is_to_world(name: str) -> bool:
    """Return whether a figure is one of the direction to the world, which only runs with uploads have."""
    return _TO_WORLD.fullmatch(name) is not None


def unit_and_digits(name: str) -> tuple[str, int]:
    """Return the unit of a figure and its digits after the point."""
    unit, digits, _ = FIGURES[general_figure(name)]
    return unit, digits


def figure_names(figures: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of all figures of some runs: FIGURES in their order, each with those of parts and directions."""
    by_part = sorted({name for names in figures for name in names} - FIGURES.keys())
    return [name for general in FIGURES for name in (general, *_of(general, by_part))]


def figures_of(experiment: Experiment) -> list[str]:
    """Return the names of all figures that runs of an experiment can have, in the order of :func:`figure_names`."""
    transfers = [f"{figure} of {each.name}" for each in experiment.transfers for figure in FIGURES_BY_TRANSFER]
    groups = [f"{figure} of group {load.name}" for load in experiment.traffic.groups for figure in FIGURES_BY_GROUP]
    to_world = [f"{figure} to the world" for figure in FIGURES_BY_DIRECTION if experiment.has_uploads]
    return figure_names([transfers, groups, to_world])


def _of(general: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if general_figure(name) == general]


def _named_transfers(summary: Summary) -> dict[str, TransferFigures]:
    transfers = summary.get("transfers") or {}  # absent from older summaries
    return {name: each for name, each in transfers.items() if name != ONLY_TRANSFER}


def _figures_of_transfers(summary: Summary) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for name, transfer in _named_transfers(summary).items():
        figures[f"transfer received of {name}"] = _scaled(transfer["received_bytes"], 1e6)
        figures[f"transfer time of {name}"] = transfer["seconds"]
        figures[f"transfer rate of {name}"] = transfer["mbit_s"]
    return figures


def _figures_of_groups(summary: Summary) -> dict[str, float | None]:
    """Figures of groups, whose keys are those of the whole run."""
    return {
        f"{name} of group {group}": FIGURES[name][2](cast("Summary", figures))
        for group, figures in (summary.get("groups") or {}).items()
        for name in FIGURES_BY_GROUP
    }


def _figures_to_world(summary: Summary) -> dict[str, float | None]:
    """Figures of the direction to the world, whose keys are those of the direction to the island."""
    figures = cast("Summary", summary.get("to_world"))
    return {f"{name} to the world": FIGURES[name][2](figures) for name in FIGURES_BY_DIRECTION if figures}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number / factor


def _terrestrial_error_ms(summary: Summary) -> float | None:
    rtts = summary["terrestrial_rtt_ms"] or {}  # null of an imported run
    return max((abs(rtt["measured"] - rtt["configured"]) for rtt in rtts.values()), default=None)


def _beyond_drain_ms(summary: Summary) -> float | None:
    """Return the time that the slowest scheduled change took beyond the drain of the previous version."""
    return max((c["beyond_drain_ms"] for c in summary["changes"] if c["beyond_drain_ms"] is not None), default=None)


_Reader = Callable[[Summary], float | None]


def _reader(*keys: str | int, factor: float = 1, root: Callable[[Summary], Any] = lambda summary: summary) -> _Reader:
    """Return how to read a figure, by the keys that lead to it, multiplied by a factor; None if one is absent."""

    def read(summary: Summary) -> float | None:
        part = root(summary)
        for key in keys:
            if not part:
                return None
            part = part[key] if isinstance(key, int) else part.get(key)
        return None if part is None else factor * part

    return read


def _slowest(summary: Summary) -> Any:
    """Return the figures of the slowest link; None without a link."""
    return summary["links"].get(summary["bottleneck"] or "")


def _bursts(summary: Summary) -> Any:
    """Return the loss bursts of the slowest link; None if it lost nothing."""
    bursts = (summary.get("loss_bursts") or {}).get(summary["bottleneck"] or "")
    return bursts if bursts and bursts["lost"] else None


def _residual_bursts(summary: Summary) -> Any:
    """Return the bursts of packets that stayed lost behind coders, of the chain that comes first."""
    return next(iter((summary.get("residual_bursts") or {}).values()), None)


LOSS_FIGURES: dict[str, tuple[str, int, _Reader]] = {
    f"{where}, {text}": ("packets", 0, _reader(direction, cause, "packets", root=_slowest))
    for direction, where in (("losses", "lost"), ("losses_to_world", "lost to the world"))
    for cause, text in CAUSES.items()
}
"""Of these, causes for which no run lost anything are left out."""


def _goodput_of_chains(*, main: bool) -> _Reader:
    """Return how to read the goodput of the main chain, or of all branches; None in a run without branches."""

    def read(summary: Summary) -> float | None:
        chains = (summary.get("chains") or {}).items()
        goodput = [chain["goodput_mbit_s"] for name, chain in chains if (name == MAIN) == main]
        return sum(rate or 0.0 for rate in goodput) if goodput and None not in goodput else None

    return read


def _box_counter(counter: str) -> _Reader:
    """Return how to read a counter, summed over all boxes that have it; None if no box has it."""

    def read(summary: Summary) -> float | None:
        counts = [box[counter] for box in (summary.get("boxes") or {}).values() if counter in box]
        return sum(counts) if counts else None

    return read


_PACKET_FIGURES = (
    ("packets per flow p50", "packets", 1, "packets_p50", 1),
    ("packets per flow p95", "packets", 1, "packets_p95", 1),
    ("time between packets p50", "ms", 2, "gap_p50_ms", 1),
    ("time between packets p95", "ms", 2, "gap_p95_ms", 1),
    ("bytes of flows below 4 Mbit/s", "%", 2, "bytes_below_4_mbit_s_share", 100),
    ("bytes of flows below 8 Mbit/s", "%", 2, "bytes_below_8_mbit_s_share", 100),
    ("peak rate of a flow", RATE_UNIT, 3, "peak_mbit_s", 1),
)
"""Name, unit, digits, key of FlowPackets, and factor."""

TRAFFIC_FIGURES: dict[str, tuple[str, int, _Reader]] = {
    **{f"ping sojourn p{percent}": ("ms", 2, _reader("ping_sojourn", f"p{percent}_ms")) for percent in (50, 95, 99)},
    "standing queue": ("%", 2, _reader("standing_queue", "share", factor=100)),
    "standing queue height": ("ms", 2, _reader("standing_queue", "mean_ms")),
    "queue full and empty": ("%", 2, _reader("regime", "swinging_share", factor=100)),
    "losses in bursts": ("%", 1, _reader("burst_share", factor=100, root=_bursts)),
    "longest loss burst": ("packets", 0, _reader("longest", root=_bursts)),
    **{
        f"flow time p{percent}, {sizes}": ("s", 3, _reader("flow_classes", number, "completion_s", f"p{percent}"))
        for number, sizes in enumerate(CLASSES)
        for percent in (50, 95)
    },
    **{
        f"flow rate p50, {sizes}": (RATE_UNIT, 3, _reader("flow_classes", number, "rate_mbit_s", "p50"))
        for number, sizes in enumerate(CLASSES)
    },
    "flows in the initial window": ("%", 2, _reader("initial_window", "flows_share", factor=100)),
    "bytes in the initial window": ("%", 2, _reader("initial_window", "bytes_share", factor=100)),
    **{
        f"{text}{scope}": (unit, digits, _reader("flow_packets", key, column, factor=factor))
        for key, scope in (("all", ""), ("to 40 MB", ", flows to 40 MB"))
        for text, unit, digits, column, factor in _PACKET_FIGURES
    },
    "mean packet": ("B", 1, _reader("mean_packet_bytes", root=_slowest)),
    "open flows": ("", 1, _reader("concurrency", "mean")),
    "long flows": ("", 2, _reader("long_flows_mean")),
    "goodput of the main chain": (RATE_UNIT, 3, _goodput_of_chains(main=True)),
    "goodput of branches": (RATE_UNIT, 3, _goodput_of_chains(main=False)),
    "repair packets sent": ("packets", 0, _box_counter("repair_packets")),
    "repair packets useful": ("packets", 0, _box_counter("useful_repair_packets")),
    "repair packets dropped": ("packets", 0, _box_counter("dropped_repair_packets")),
    "packets recovered": ("packets", 0, _box_counter("recovered_packets")),
    "packets lost behind coders": ("packets", 0, _reader("lost", root=_residual_bursts)),
    "longest burst behind coders": ("packets", 0, _reader("longest", root=_residual_bursts)),
}
"""Of these, none is in the summary of a run that an older version analysed. Classes are those of flow sizes."""

FIGURES: dict[str, tuple[str, int, _Reader]] = {
    "base RTT": ("ms", 3, lambda s: s["base_rtt_ms"]),
    "terrestrial RTT off by": ("ms", 3, _terrestrial_error_ms),
    "queue sojourn mean": ("ms", 2, _reader("sojourn", "mean_ms", root=_slowest)),
    **{
        f"queue sojourn p{percent}": ("ms", 2, _reader("sojourn", f"p{percent}_ms", root=_slowest))
        for percent in (50, 95, 99)
    },
    "queue sojourn at most": ("ms", 2, _reader("sojourn", "max_ms", root=_slowest)),
    "largest ping sojourn": ("ms", 2, lambda s: s["sojourn_max_ms"]),
    "sojourn bound": ("ms", 2, lambda s: s["sojourn_bound_ms"]),
    "queue at most": ("kB", 2, lambda s: _scaled(s["queue_max_bytes"], 1e3)),
    "queue full": ("s", 1, lambda s: s["queue_full_s"]),
    "goodput": (RATE_UNIT, 3, lambda s: s["goodput_mbit_s"]),
    "throughput": (RATE_UNIT, 3, lambda s: s["throughput_mbit_s"]),
    "utilisation": ("%", 2, lambda s: _percent(s["utilisation"])),
    "loss": ("%", 3, lambda s: _percent(s["loss_fraction"])),
    **LOSS_FIGURES,
    "bytes lost": ("kB", 1, lambda s: _scaled(s["loss_bytes_link"], 1e3)),
    "pings lost": ("", 0, lambda s: s["ping_lost"] if s["ping_sent"] else None),
    "flows completed": ("", 0, lambda s: s["flows_completed"] if s["channels"] else None),
    "mean flow": ("kB", 1, lambda s: _scaled(s["mean_flow_bytes"], 1e3)),
    # An index without a longest wait is of an older version, and could only be 1.
    "fairness": ("", 3, lambda s: s["fairness"] if s.get("longest_wait_ms") is not None else None),
    "longest wait of a channel": ("ms", 2, _reader("longest_wait_ms")),
    "transfer received": ("MB", 2, lambda s: _scaled(s["transfer_received_bytes"], 1e6)),
    "transfer time": ("s", 2, lambda s: s["transfer_s"]),
    "transfer time at sender": ("s", 2, _reader("transfers", ONLY_TRANSFER, "sender_seconds")),
    "transfer rate": (RATE_UNIT, 3, lambda s: s["transfer_mbit_s"]),
    "UDP sent": (RATE_UNIT, 3, _reader("udp", "sent_mbit_s")),
    "UDP received": (RATE_UNIT, 3, _reader("udp", "received_mbit_s")),
    "UDP lost": ("%", 3, _reader("udp", "loss_fraction", factor=100)),
    "UDP out of order": ("", 0, _reader("udp", "reordered_packets")),
    "UDP jitter": ("ms", 3, _reader("udp", "jitter_ms")),
    "UDP jitter at most": ("ms", 3, _reader("udp", "jitter_max_ms")),
    **TRAFFIC_FIGURES,
    "changes beyond the drain": ("ms", 2, _beyond_drain_ms),
    "lateness at most": ("ms", 3, lambda s: s["lateness_max_ms"]),
}
"""By name: unit, digits after the point, and how it is read from the summary."""


def suggest_figure(query: str) -> str:
    """Return the figures that have all words of ``query``, otherwise the most similar one, and where all are listed."""
    names = list(FIGURES)
    words = re.findall(r"[a-z0-9]+", query.lower())
    matching = [shown(name) for name in names if words and all(word in name.lower() for word in words)]
    suggestion = suggest(query, names, "figures", _MOST_SUGGESTED)
    if matching:
        suggestion = f"did you mean {first_of(matching, _MOST_SUGGESTED)}?"
    return f"{suggestion}; `atoll results` lists all {len(names)}"
