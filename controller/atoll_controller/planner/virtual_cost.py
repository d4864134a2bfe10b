# SPDX-License-Identifier: Apache-2.0
"""The time and the memory that a run in virtual time takes of the machine, and the disk space of any run. Pure.

Wall time is spent by system calls (docs/virtual-time.md, "Where the time goes"), so it grows with flows and packets.
Memory is that of sockets, programs and captures' rings. The constants are fitted to the runs of the tables there,
"How long a run takes" and "How much memory", and meet each to a factor of two.
"""

from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.traffic import FlowDirection, Load
from atoll_core.experiment.trunk_load import time_between_flows
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.plural import significant
from atoll_core.units import Duration, Size

_START_S, _MACHINE_S = 8.0, 0.25  # kernel and controller; set-up and test of a machine
_IDLE_SHARE = 0.02  # of virtual time in which nothing but counters and pings happens
_FLOW_S = 0.7e-3  # a connection at both ends
_CROWD_CHANNELS = 40_000  # channels with which a flow costs twice as much
_PACKET_S = {Backend.TC: 15e-6, Backend.ENGINE: 40e-6}  # over the link, captured and analysed

_FLOW_BYTES = 700  # on the link besides the payload: handshake, acknowledgements, repetitions
_FLOW_PACKETS = 10
_PACKET_BYTES, _ACKS_PER_PACKET = 1500, 0.5
_UNBOUNDED_BIT_S = 10**9  # of a chain without a link
_SAMPLES = 200  # of the flow sizes

_START_BYTES, _MACHINE_BYTES = 190e6, 2e6  # kernel, controller and the run itself; the programs of a machine
_CHANNEL_BYTES = 10e3  # a socket at either end
_RUN_BYTES, _RECORD_BYTES = 0.9e6, 55  # of disk: report and logs; a packet in a capture, compressed, and its tables

_PACKET_COPIES = 3  # of bytes in flight: at the sender, on the link, and the kernel's overhead of a packet


def wall_time(network: Network, experiment: Experiment, backend: Backend) -> Duration:
    """The estimated wall time of the whole run: set-up, load and analysis; as if its costliest version lasted."""
    wall_s = _START_S + _MACHINE_S * len(network.machines) + _IDLE_SHARE * experiment.duration.s
    wall_s += max(_load_s(state, backend) for state in experiment.states)
    return Duration(round(wall_s * 1e9))


def _load_s(experiment: Experiment, backend: Backend) -> float:
    """The wall time that flows and packets take."""
    flows, packets = _flows_and_packets(experiment)
    return _PACKET_S[backend] * packets + _FLOW_S * (1 + experiment.traffic.total_channels / _CROWD_CHANNELS) * flows


def disk(network: Network, experiment: Experiment) -> Size:
    """The estimated size of the run directory once it is analysed; as if the version with most packets lasted."""
    packets = max(_flows_and_packets(state)[1] for state in experiment.states)
    hops = {hop for chain in experiment.all_chains for hop in chain.hops}
    directions = sum(1 if tap.to_island_only else 2 for tap in network.taps if tap.name in hops)
    directions += (2 if experiment.has_uploads else 1) * len(experiment.links)
    captures = directions / 2
    return Size(round(_RUN_BYTES + _RECORD_BYTES * captures * packets))


def memory(network: Network, experiment: Experiment) -> Size:
    """The estimated memory that the kernel has in use at most, but for files that it keeps while there is room."""
    hops = {hop for chain in experiment.all_chains for hop in chain.hops}
    captures = len(hops & {tap.name for tap in network.taps}) + len(experiment.links)
    directions = [d for link in experiment.links_over_time for d in (link.to_island, link.to_world)]
    in_flight = sum(d.rate.bit_s * d.delays[1].s / 8 + d.queue.bytes for d in directions)
    total = _START_BYTES + _MACHINE_BYTES * len(network.machines) + captures * experiment.captures.buffer.bytes
    total += _CHANNEL_BYTES * experiment.max_channels + _PACKET_COPIES * in_flight
    return Size(round(total))


def rough_size(size: Size) -> str:
    """An estimated size with two digits: ``1.3 GB``."""
    if size.bytes >= 1e9:
        return f"{significant(size.bytes / 1e9, 2)} GB"
    return f"{significant(size.bytes / 1e6, 2)} MB"


def _flows_and_packets(experiment: Experiment) -> tuple[float, float]:
    """The number of connections during the run, and of packets over the links."""
    duration_s = experiment.duration.s
    numbers = [_flows_and_packets_of(experiment, direction) for direction in FlowDirection]
    flows, packets = map(sum, zip(*numbers, strict=True))
    if experiment.udp:
        packets += experiment.udp.rate.bit_s * duration_s / 8 / experiment.udp.packet.bytes
    return flows, packets + 2 * duration_s / experiment.ping.interval.s


def _flows_and_packets_of(experiment: Experiment, direction: FlowDirection) -> tuple[float, float]:
    """The number of connections whose payload has this direction, and of their packets over the links."""
    duration_s = experiment.duration.s
    rate_bit_s = sum(getattr(link, direction.of_link).rate.bit_s for link in experiment.links) or _UNBOUNDED_BIT_S
    loads = [load for load in experiment.traffic.loads if load.channels and load.direction is direction]
    closed_channels = sum(load.channels for load in loads if load.flows_per_s is None)
    numbers = [
        _flows_and_payload(
            experiment, load, rate_bit_s * (1 if load.flows_per_s is not None else load.channels / closed_channels)
        )
        for load in loads
    ]
    flows, payload = map(sum, zip((0.0, 0.0), *numbers, strict=True))
    transfers = [each for each in experiment.all_transfers if each.direction is direction]
    payload += sum(transfer.size.bytes * transfer.starts(experiment.duration) for transfer in transfers)
    data_packets = min(payload, rate_bit_s * duration_s / 8) / _PACKET_BYTES
    return flows, data_packets * (1 + _ACKS_PER_PACKET) + _FLOW_PACKETS * flows


def _flows_and_payload(experiment: Experiment, load: Load, rate_bit_s: float) -> tuple[float, float]:
    """The number of connections during the run, and their payload in bytes.

    In a closed loop a channel takes two round trips for a flow, its pause, and its size at a fair share of the rate; a
    flow that is larger than the run is long is cut.
    """
    duration_s = experiment.duration.s
    sizes = [load.distribution.quantile((sample + 0.5) / _SAMPLES) for sample in range(_SAMPLES)]
    max_flows = rate_bit_s * duration_s / 8 / _FLOW_BYTES
    if load.flows_per_s is not None:
        flows = min(load.flows_per_s * duration_s, max_flows)
        return flows, flows * load.distribution.mean_bytes
    s_per_byte = 8 * load.channels / rate_bit_s
    if load.write_rate:
        s_per_byte = max(s_per_byte, 8 / load.write_rate.bit_s)
    pause_s = time_between_flows(experiment, load).s
    flow_times_s = [min(pause_s + (size + _FLOW_BYTES) * s_per_byte, duration_s) for size in sizes]
    flows = min(load.channels * (1 + duration_s * _SAMPLES / sum(flow_times_s)), max_flows)
    return flows, flows * sum(min(size, duration_s / s_per_byte) for size in sizes) / _SAMPLES
