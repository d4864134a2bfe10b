# SPDX-License-Identifier: Apache-2.0
"""How long boxes (``BoxKind.max_residence_ns``) and latency classes may hold packets."""

from atoll_core.experiment.experiment import Chain, Experiment
from atoll_core.experiment.tunnels import pairs_of
from atoll_core.lab.network import Network


def residence_ns(network: Network, experiment: Experiment, chain: Chain) -> int:
    """The longest time for which all boxes of a chain but its links hold a packet. A pair of boxes counts once."""
    used = experiment.as_used(network)
    settings = {configuration.box: dict(configuration.settings) for configuration in experiment.boxes}
    times = {box.name: box.max_residence_ns(settings.get(box.name, {})) for box in used.boxes if box.name in chain.hops}
    for world, island in pairs_of(used, chain):
        times[island.name] = max(times.pop(world.name), times[island.name])
    return sum(times.values())


def longest_residence_ns(network: Network, experiment: Experiment) -> int:
    """The longest time for which the boxes of any chain of any version hold a packet."""
    return max((residence_ns(network, experiment, chain) for chain in experiment.all_chains), default=0)


def longest_terrestrial_ns(network: Network, experiment: Experiment, host: str | None = None) -> int:
    """The longest terrestrial RTT of any version with its jitter, of one world host or of all."""
    used = {
        name for version in experiment.versions for server, name in version.latency if host is None or server == host
    }
    classes = [latency for box in network.delay_boxes for latency in box.classes if latency.name in used]
    return max((latency.rtt.ns + 2 * latency.jitter.ns for latency in classes), default=0)
