# SPDX-License-Identifier: Apache-2.0
"""The jobs of a calibration: pings, paced UDP and its receiver (docs/contracts.md).

They are not part of the plan, which does not depend on tests.
"""

from typing import Any

from atoll_controller.planner.traffic_jobs import host_job
from atoll_core.lab.box_kind import CALIBRATION_PORT
from atoll_core.lab.network import Host
from atoll_core.plan.plan import JobSpec, Phase

IP_UDP_HEADERS = 28
PING_PACKET = 84  # IP bytes of a ping with the usual payload of 56

_PING_IDENTIFIER = 0xA7C0
_PING_PAYLOAD = 56


def ping(source: Host, target: Host, *, interval_ns: int, start_at_ns: int, timeout_ns: int) -> JobSpec:
    """Pings until stopped."""
    config: dict[str, Any] = {
        "targets": [{"name": target.name, "address": str(target.address)}],
        "interval_ns": interval_ns,
        "count": None,
        "timeout_ns": timeout_ns,
        "size_bytes": _PING_PAYLOAD,
        "identifier": _PING_IDENTIFIER,
        "payload": "atoll calibrate",
        "start_at_ns": start_at_ns,
    }
    return host_job(f"calibrate-ping-{source.name}", source.name, Phase.CHECK, "ping", config)


def udp_receive(host: Host, *, each: bool) -> JobSpec:
    """The receiver of a stream; ``each``: it reports every packet."""
    config = {"role": "receive", "listen": f"{host.address}:{CALIBRATION_PORT}", "each": each}
    return host_job(f"calibrate-receive-{host.name}", host.name, Phase.CHECK, "udp", config)


def udp_send(
    source: Host, target: Host, *, rate_bit_s: int, packet_bytes: int, start_at_ns: int, duration_ns: int
) -> JobSpec:
    """A stream of packets of ``packet_bytes`` IP bytes."""
    config = {
        "role": "send",
        "connect": f"{target.address}:{CALIBRATION_PORT}",
        "rate_bit_s": rate_bit_s,
        "payload_bytes": packet_bytes - IP_UDP_HEADERS,
        "start_at_ns": start_at_ns,
        "duration_ns": duration_ns,
    }
    return host_job(f"calibrate-send-{source.name}", source.name, Phase.CHECK, "udp", config)
