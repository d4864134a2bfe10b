# SPDX-License-Identifier: Apache-2.0
"""The data with which the live page draws a lab: hosts, chains with the kind of each hop, links, latencies. Pure."""

from typing import Any

from atoll_core.experiment.experiment import DIRECTIONS, Chain, Experiment, Link
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import Network
from atoll_daemon.http.experiment_bodies import carries_tree, latency_classes

TAP = "tap"

Picture = dict[str, Any]


def picture(network: Network, experiment: Experiment | None, place: str, run: dict[str, Any] | None = None) -> Picture:
    """The data of a lab, with the applied experiment and the run in progress, if there are any."""
    links = {link.box: link for link in experiment.links} if experiment else {}
    rtts = {each.name: each.rtt.ns for _, each in latency_classes(network)}
    latency = experiment.latency if experiment else ()
    return {
        "lab": network.name,
        "experiment": experiment.name if experiment else None,
        "place": place,
        "hosts": [{"name": host.name, "role": host.role.value, "ip": str(host.address)} for host in network.hosts],
        "chains": [_chain(chain, network) for chain in experiment.chains] if experiment else [],
        "boxes": {
            box.name: {
                "kind": box.kind.name,
                "is_link": box.is_link,
                **_settings(links.get(box.name)),
                **_figures(box.kind),
            }
            for box in network.boxes
        },
        "latencies": {server: {"class": name, "rtt_ns": rtts[name]} for server, name in latency},
        "classes": rtts,
        "run": run,
    }


def _chain(chain: Chain, network: Network) -> dict[str, Any]:
    kinds = {box.name: box.kind for box in network.boxes}
    return {
        "name": chain.name,
        "hops": [
            {"name": hop, "kind": kinds[hop].name, "is_link": kinds[hop].is_link}
            if hop in kinds
            else {"name": hop, "kind": TAP, "is_link": False}
            for hop in chain.hops
        ],
        "carries": carries_tree(chain.carries),
    }


def _figures(kind: BoxKind) -> dict[str, Any]:
    """The metrics that boxes of a kind have of their own; empty for those without any."""
    parts = {"counters": kind.counters, "levels": kind.levels}
    return {
        part: [{"name": each.name, "unit": each.unit, "what": each.what} for each in fields]
        for part, fields in parts.items()
        if fields
    }


def _settings(link: Link | None) -> dict[str, Any]:
    """The configuration of a link by direction; empty for other boxes and for links that no chain contains."""
    if link is None:
        return {}
    ways = {direction: getattr(link, direction) for direction in DIRECTIONS}
    return {
        direction: {"rate_bit_s": way.rate.bit_s, "delay_ns": way.delay.ns, "queue_bytes": way.queue.bytes}
        for direction, way in ways.items()
    }
