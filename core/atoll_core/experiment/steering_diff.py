# SPDX-License-Identifier: Apache-2.0
"""What differs between two versions of an experiment's steering, in words."""

from collections.abc import Iterator

from atoll_core.experiment.experiment import SteeringVersion


def version_differences(before: SteeringVersion, after: SteeringVersion) -> Iterator[str]:
    """What a change changes: ``chain tap-w sat tap-i``, ``w1 rtt-90 instead of rtt-5``."""
    was = {chain.name: chain for chain in (before.chain, *before.branches)}
    now = {chain.name: chain for chain in (after.chain, *after.branches)}
    for name, chain in now.items():
        if was.get(name) != chain:
            title = "chain" if chain is after.chain else f"branch {name} for {chain.carries}:"
            yield f"{title} {' '.join(chain.hops) or 'without boxes'}"
    yield from (f"no branch {name}" for name in was if name not in now)
    held, wanted = dict(before.latency), dict(after.latency)
    for server in dict.fromkeys((*held, *wanted)):
        if held.get(server) != wanted.get(server):
            yield f"{server} {wanted.get(server, 'not delayed')} instead of {held.get(server, 'not delayed')}"
