# SPDX-License-Identifier: Apache-2.0
"""Capability profiles: what each kind of switch does in hardware, and the refusal of what it would not.

Profiles are data: ``switch-configs/<driver>/profile.toml``, to which ``configs`` beside this module is a symbolic link,
followed when a wheel is built.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from atoll.model.errors import PlanError
from atoll.model.flow import FlowEntry, Match, Output, Vlan
from atoll.model.network import Network

_CONFIGS = Path(__file__).parent / "configs"
_FIELDS = ("in_port", "eth_type", "ipv4_src", "ipv4_dst", "ip_proto", "l4_src", "l4_dst")


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of switch: how many entries fit, and what it matches and does at line rate.

    ``table``: where entries go if the switch itself does not tell (see ``placement``).
    """

    driver: str
    title: str
    table: int
    max_entries: int
    matches: frozenset[str]
    actions: frozenset[str]
    remedies: dict[str, str]


@cache
def profile(driver: str) -> Profile:
    """The profile of a driver.

    Raises PlanError, naming the known drivers, when there is none.
    """
    if driver in drivers():
        return _read(tomllib.loads((_CONFIGS / driver / "profile.toml").read_text(encoding="utf-8")))
    msg = f"no switch driver is called {driver!r}; known drivers: {', '.join(drivers())}"
    raise PlanError(msg)


def drivers() -> tuple[str, ...]:
    """The names of all drivers."""
    return tuple(sorted(path.parent.name for path in _CONFIGS.glob("*/profile.toml")))


def refuse_unsupported(network: Network, entries: Iterable[FlowEntry]) -> None:
    """Check that each switch can hold its entries in hardware.

    Raises PlanError with everything it can't, a line each, and what would help.
    """
    profiles = {switch.name: profile(switch.driver) for switch in network.switches}
    count: Counter[str] = Counter()
    refused: dict[str, None] = {}
    for entry in entries:
        count[entry.switch] += 1
        known = profiles[entry.switch]
        for need in _needs(entry):
            if need not in known.matches and need not in known.actions:
                remedy = known.remedies.get(need, "choose another driver or another port for what is attached here")
                refused[
                    f"{entry.switch} ({known.title}) cannot do {need} in hardware, wanted for '{entry.why}'; {remedy}"
                ] = None
    for switch, number in count.items():
        known = profiles[switch]
        if number > known.max_entries:
            refused[f"{switch} ({known.title}) holds {known.max_entries} entries, the plan has {number}"] = None
    if refused:
        raise PlanError("\n".join(refused))


def _needs(entry: FlowEntry) -> Iterator[str]:
    match: Match = entry.match
    yield from (name for name in _FIELDS if getattr(match, name) is not None)
    if match.vlan is not None:
        yield "untagged" if match.vlan is Vlan.UNTAGGED else "vlan"
    yield from dict.fromkeys(type(action).__name__ for action in entry.actions)
    if sum(isinstance(action, Output) for action in entry.actions) > 1:
        yield "several-outputs"


def _read(data: dict[str, Any]) -> Profile:
    return Profile(
        driver=data["driver"],
        title=data["title"],
        table=data["table"],
        max_entries=data["max_entries"],
        matches=frozenset(data["matches"]),
        actions=frozenset(data["actions"]),
        remedies=data["remedies"],
    )
