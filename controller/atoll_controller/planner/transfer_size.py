# SPDX-License-Identifier: Apache-2.0
"""The transfer size and the duration that suit an experiment's slowest link. Pure."""

import math
from dataclasses import dataclass

from atoll_core.experiment.experiment import Experiment, LinkDirection
from atoll_core.experiment.traffic import FlowDirection
from atoll_core.experiment.trunk_load import bandwidth_delay_product
from atoll_core.lab.network import HostRole, Network
from atoll_core.units import Duration, Size

_SLOW_RATE_DIVISOR = 4  # the proposed duration is enough for a transfer at a quarter of the link's rate
_LEAST_RTTS = 30  # of a run, as for the capacity of a queue (docs/regimes.md)


@dataclass(frozen=True, slots=True)
class TransferProposal:
    """Sizes for the transfer over the slowest link in its direction, and a duration."""

    slow_start: Size  # bytes that are sent before the sender can know of a drop
    size: Size  # at least: half of it is sent behind slow start
    duration: Duration  # at least: a transfer of this size ends at a quarter of the link's rate

    def __str__(self) -> str:
        return (
            f"proposed: a transfer of at least {self.size} (slow start sends {self.slow_start}), and a duration of at "
            f"least {self.duration.s:g} s, in which it ends at a quarter of the link's rate"
        )


def propose_transfer(
    network: Network, experiment: Experiment, direction: FlowDirection = FlowDirection.DOWNLOAD
) -> TransferProposal | None:
    """Propose the size of a transfer in a direction, and the duration; None if the chain has no link.

    In slow start (RFC 5681, section 3.1) the window grows by the bytes that are acknowledged. When it fills path and
    queue, the sender has sent twice their capacity; until it learns of the drop, one round trip later, twice as much.
    """
    links = [link for link in experiment.links if link.box in experiment.chain.hops]
    if not links:
        return None
    directions: list[LinkDirection] = [getattr(link, direction.of_link) for link in links]
    slowest = min(directions, key=lambda each: each.rate)
    rtt = _base_rtt(network, experiment)
    in_flight = bandwidth_delay_product(slowest.rate, rtt).bytes + slowest.queue.bytes
    slow_start, size = Size(_two_digits(4 * in_flight)), Size(_two_digits(8 * in_flight))
    start_s = max((transfer.start.s for transfer in experiment.all_transfers), default=0.0)
    transfer_s = _SLOW_RATE_DIVISOR * 8 * size.bytes / slowest.rate.bit_s
    seconds = math.ceil(max(start_s + transfer_s, _LEAST_RTTS * rtt.s))
    return TransferProposal(slow_start, size, Duration(seconds * 10**9))


def _base_rtt(network: Network, experiment: Experiment) -> Duration:
    """The base RTT of the transfer: the links of the chain, and the latency class of the sender."""
    directions = [
        direction
        for link in experiment.links
        if link.box in experiment.chain.hops
        for direction in (link.to_island, link.to_world)
    ]
    senders = {host.name for host in network.with_role(HostRole.WORLD_SPECIAL)}
    used = {latency for host, latency in experiment.latency if host in senders}
    classes = [latency for box in network.delay_boxes for latency in box.classes if latency.name in used]
    return Duration(sum(each.delay.ns for each in directions) + max((each.rtt.ns for each in classes), default=0))


def _two_digits(number: int) -> int:
    """Rounded up to two significant digits."""
    unit = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit
