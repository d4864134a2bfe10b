# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of a network namespace: interfaces, queueing disciplines, routes and neighbours (rtnetlink)."""

from collections import Counter, defaultdict
from typing import Any

# States of neighbours, <linux/neighbour.h>
_NEIGHBOUR_STATES = {
    0x01: "incomplete",
    0x02: "reachable",
    0x04: "stale",
    0x08: "delay",
    0x10: "probe",
    0x20: "failed",
    0x40: "noarp",
    0x80: "permanent",
}
_MAIN_TABLE = 254  # <linux/rtnetlink.h>, RT_TABLE_MAIN


def network_state() -> dict[str, Any]:
    """The state of the calling thread's namespace as JSON; neighbours as their number by state (ip-neighbour(8)).

    Raises OSError if the kernel refuses to answer.
    """
    from pyroute2 import IPRoute, NetlinkError  # 0.1 s, which few commands need

    kernel: Any = IPRoute()  # its messages have no types
    try:
        with kernel:
            return _read_state(kernel)
    except NetlinkError as error:
        raise OSError(f"the kernel does not show the network: {error}") from error


def _read_state(kernel: Any) -> dict[str, Any]:
    addresses: defaultdict[int, list[str]] = defaultdict(list)
    for address in kernel.get_addr():
        own = address.get_attr("IFA_LOCAL") or address.get_attr("IFA_ADDRESS")  # with a peer the latter is its
        addresses[address["index"]].append(f"{own}/{address['prefixlen']}")
    qdiscs: defaultdict[int, list[str]] = defaultdict(list)
    for qdisc in kernel.get_qdiscs():
        qdiscs[qdisc["index"]].append(qdisc.get_attr("TCA_KIND"))
    interfaces = {
        link["index"]: {
            "name": link.get_attr("IFLA_IFNAME"),
            "mac": link.get_attr("IFLA_ADDRESS"),
            "mtu": link.get_attr("IFLA_MTU"),
            "state": link.get_attr("IFLA_OPERSTATE").lower(),
            "addresses": addresses[link["index"]],
            "qdiscs": qdiscs[link["index"]],
        }
        for link in kernel.get_links()
    }
    routes = [
        {
            "to": f"{route.get_attr('RTA_DST')}/{route['dst_len']}" if route["dst_len"] else "default",
            "via": route.get_attr("RTA_GATEWAY"),
            "interface": interfaces[route.get_attr("RTA_OIF")]["name"],
        }
        for route in kernel.get_routes(table=_MAIN_TABLE)
        if route.get_attr("RTA_OIF") in interfaces
    ]
    states = Counter(_NEIGHBOUR_STATES.get(neighbour["state"], "none") for neighbour in kernel.get_neighbours())
    return {"interfaces": [*interfaces.values()], "routes": routes, "neighbours": dict(sorted(states.items()))}
