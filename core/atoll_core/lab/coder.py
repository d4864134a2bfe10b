# SPDX-License-Identifier: Apache-2.0
"""The network coder: a box that carries the packets of its chains in a tunnel with redundancy (docs/coding.md)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from atoll_core.lab.box_kind import CALIBRATION_PORT, BoxKind, BoxUse, Configuration, Forwarding, register
from atoll_core.metrics.metrics_schema import MetricField
from atoll_core.plan.plan import HostSettings, Privilege

_OVERHEAD_BYTES = 44
"""Outer IPv4 (20) and UDP (8), the header of a repair packet (12), and the length within its symbol (2), which
Reed-Solomon rounds up to an even one."""

_COPIED_KEYS = ("scheme", "generation", "interleave", "direction", "low_priority", "signal")


_ROOM_DIVISOR, _MIN_ROOM_BYTES = 10, 3000
"""A tenth of the queue, but two packets of 1500 bytes: docs/decisions/0078-room-of-titrated-repair-packets.md."""

_FEEDBACK_NS = 100 * 10**6
"""Interval of reports if there have to be some."""


def _configuration(use: BoxUse) -> Configuration:
    settings = use.settings
    is_titrated = settings["scheduler"] == "titrated"
    return {
        "pairs": [
            {
                side: {"name": name, "mac": use.macs[name], "mtu": use.leg_mtus[name]}
                for side, name in zip(("world", "island"), pair, strict=True)
            }
            for pair in use.legs
        ],
        "hosts": {
            "world": {str(host): use.macs[str(host)] for host in use.world_hosts},
            "island": {str(host): use.macs[str(host)] for host in use.island_hosts},
        },
        "tunnels": [{**tunnel, "way": tunnel["way"] if is_titrated else 0} for tunnel in use.tunnels],
        **{key: settings[key] for key in _COPIED_KEYS},
        "memory": settings["memory"] or 0,
        **_repair_configuration(settings),
        "flush_ns": settings["flush"],
        "scheduler": _scheduler_configuration(use),
        "stale_ns": settings["stale"],
        "hold_ns": settings["in_order_hold"],
        "small_bytes": settings["small"],
        "flow_threshold_bytes": settings["flow_threshold"],
        "calibration_port": CALIBRATION_PORT,
        "poll_ns": settings["poll"],
    }


def _repair_configuration(settings: Mapping[str, Any]) -> Configuration:
    """The number of repair packets, and the reports by which it is adapted."""
    is_adapted = settings["redundancy"] == "adaptive"
    max_repairs = settings["redundancy_max"] or settings["generation"] // 2
    packets = settings["feedback_packets"]
    every_ns = settings["feedback"] or (_FEEDBACK_NS if is_adapted or packets else None)
    feedback = {"every_ns": every_ns, "packets": packets, "timeout_ns": settings["feedback_timeout"]}
    return {
        "redundancy": settings["redundancy_fallback"] if is_adapted else settings["redundancy"],
        "adaptive": {"most": max_repairs, "residual_loss": settings["residual_loss"]} if is_adapted else None,
        "feedback": feedback if every_ns else None,
    }


def _scheduler_configuration(use: BoxUse) -> Configuration:
    settings = use.settings
    kind = settings["scheduler"] or ("interspersed" if settings["scheme"] == "sliding-window" else "tail")
    if kind == "deferred":
        return {"kind": kind, "after_ns": settings["defer"], "generations": settings["defer_generations"]}
    if kind == "titrated":
        queue = settings["link_queue"]
        room = settings["room"] or min(queue, max(queue // _ROOM_DIVISOR, _MIN_ROOM_BYTES))
        return {"kind": kind, "rate_bit_s": settings["link_rate"], "queue_bytes": queue, "room_bytes": room}
    return {"kind": kind}


def _redundancy_share(settings: Mapping[str, Any]) -> float:
    """Repair packets per packet towards the island; if adapted, of the fallback, as no report exists before the run."""
    repairs = settings["redundancy_fallback"] if settings["redundancy"] == "adaptive" else settings["redundancy"]
    return 0.0 if settings["direction"] == "to_world" else repairs / settings["generation"]


def _max_residence_ns(settings: Mapping[str, Any]) -> int:
    """Until the generation ends, its repair packets leave, and packets behind a missing one no longer wait for it.

    A setting that the manifest of an older run does not have held no packet then.
    """
    stale_ns = settings.get("stale", 0)
    wait_ns = {"deferred": min(settings.get("defer", 0), stale_ns), "titrated": stale_ns}
    return settings.get("flush", 0) + wait_ns.get(settings.get("scheduler", ""), 0) + settings.get("in_order_hold", 0)


def _host_settings(router: HostSettings, use: BoxUse) -> HostSettings:
    """The program takes all packets by packet sockets, so that the kernel forwards none of them."""
    del use
    return replace(router, forwarding=False, legs=())


def _settings() -> type[Any]:
    """Imported when a description is read: the programs of an emulated lab do without pydantic."""
    from atoll_core.description.coder_settings import CoderSettings

    return CoderSettings


CODER = register(
    BoxKind(
        "coder",
        Forwarding.ROUTED,
        subcommand="coder",
        privileges=(Privilege.NET_ADMIN, Privilege.NET_RAW),
        settings=_settings,
        pair="coder",
        encapsulates="udp",
        overhead_bytes=_OVERHEAD_BYTES,
        redundancy=_redundancy_share,
        passes_tests=True,
        configuration=_configuration,
        host_settings=_host_settings,
        max_residence_ns=_max_residence_ns,
        holding=("waiting_repair_packets", "packets_on_hold"),
        counters=(
            MetricField("source_packets", "packets", "packets sent into the tunnel"),
            MetricField("source_bytes", "bytes", "their IP bytes, without those of the tunnel"),
            MetricField("uncoded_packets", "packets", "packets that passed as they were"),
            MetricField("repair_packets", "packets", "repair packets sent"),
            MetricField("repair_bytes", "bytes", "their IP bytes"),
            MetricField("dropped_repair_packets", "packets", "repair packets never sent: too old, or no room to wait"),
            MetricField("encoded_generations", "1", "generations that ended at the encoder; 0 of a sliding window"),
            MetricField("useless_repair_packets", "packets", "never sent: the other coder had all of their packets"),
            MetricField("sent_reports", "packets", "reports sent to the other coder"),
            MetricField("arrived_reports", "packets", "reports of the other coder that arrived"),
            MetricField("redundancy_changes", "1", "changes of the adapted number of repair packets"),
            MetricField("fallbacks", "1", "times that reports ended, so that the fallback came into use"),
            MetricField("held_packets", "packets", "packets that waited for those before them (in_order_hold)"),
            MetricField("held_ns", "ns", "sum of the times for which they waited"),
            MetricField("given_up_packets", "packets", "missing packets for which the others waited no longer"),
            MetricField("arrived_source_packets", "packets", "packets that arrived in the tunnel"),
            MetricField("arrived_repair_packets", "packets", "repair packets that arrived"),
            MetricField("useful_repair_packets", "packets", "repair packets that the decoder could use"),
            MetricField("recovered_packets", "packets", "lost packets that were recovered"),
            MetricField("recovery_delay_ns", "ns", "sum of their delays: from the packet before to the recovery"),
            MetricField("complete_generations", "1", "generations of which no packet was lost"),
            MetricField("lost_generations", "1", "generations of which a packet was lost"),
            MetricField("lost_packets", "packets", "lost for good, known by a later one of the generation or window"),
            MetricField("late_packets", "packets", "packets of closed generations, or behind the window"),
            MetricField("malformed_packets", "packets", "damaged or foreign packets in the tunnel"),
            MetricField("missing_source_packets", "packets", "lost in the tunnel, as counted for reports"),
            MetricField("bursts_of_1", "1", "bursts of one packet among these"),
            MetricField("bursts_of_2", "1", "bursts of 2 packets"),
            MetricField("bursts_of_3_to_4", "1", "bursts of 3 or 4 packets"),
            MetricField("bursts_of_5_to_8", "1", "bursts of 5 to 8 packets"),
            MetricField("longer_bursts", "1", "bursts of 9 and more packets"),
            MetricField("other_version_packets", "packets", "of a coder with other headers, dropped"),
            MetricField("oversize_packets", "packets", "too long for the tunnel, dropped"),
            MetricField("unsent_packets", "packets", "refused by an interface"),
            MetricField("unread_packets", "packets", "lost before the program read them"),
            MetricField("ignored_frames", "packets", "not IPv4, or at the end of their time to live; dropped"),
            MetricField("cpu_ns", "ns", "CPU time of the program; 0 in virtual time, where it is free"),
        ),
        levels=(
            MetricField("waiting_repair_packets", "packets", "repair packets that wait to be sent"),
            MetricField("waiting_repair_bytes", "bytes", "their IP bytes"),
            MetricField("open_generations", "1", "generations of which more packets may come"),
            MetricField("rank_deficit", "packets", "packets that the decoder needs to recover all that are missing"),
            MetricField("redundancy", "packets", "repair packets of a generation or window at present"),
            MetricField("fallback", "1", "1 while the fallback is in use, for want of reports"),
            MetricField("queueing_delay_ns", "ns", "queueing delay towards the other coder, by its last report"),
            MetricField("report_rtt_ns", "ns", "time until that report came, without its wait at the other coder"),
            MetricField("recovery_delay_max_ns", "ns", "largest delay of a recovered packet since the previous point"),
            MetricField("packets_on_hold", "packets", "packets that wait for those before them"),
        ),
    )
)
"""An encoder and a decoder in one program; the two coders of a pair are at the two ends of the satellite link."""
