# SPDX-License-Identifier: Apache-2.0
"""Versions of the agents' protocol, and the choice of the common version with an agent.

The rule is in docs/contracts.md. The agent applies it, too (hosts/crates/agent/src/protocol_version.rs); tests of both
use the examples in tests/data/contract/agent-versions.jsonl.
"""

from collections.abc import Iterable, Mapping
from typing import Any

ProtocolVersion = tuple[int, int]
"""Major and minor version. Major versions are incompatible; a minor version adds parts that others may ignore."""

SPEAKS: tuple[ProtocolVersion, ...] = ((2, 2),)
"""The highest minor version of each major one."""


def agreed(ours: Iterable[ProtocolVersion], theirs: Iterable[ProtocolVersion]) -> ProtocolVersion | None:
    """The highest common major version with the lower of both minor versions; None if there is none."""
    known = list(theirs)
    common = [(major, min(minor, other)) for major, minor in ours for theirs_, other in known if major == theirs_]
    return max(common, default=None)


def spoken(hello: Mapping[str, Any]) -> tuple[ProtocolVersion, ...]:
    """The versions in an agent's greeting; agents of 1.0 named their major version only. Empty if it is invalid."""
    try:
        return tuple((int(major), int(minor)) for major, minor in hello.get("speaks") or [(hello["protocol"], 0)])
    except (KeyError, TypeError, ValueError):
        return ()


def words(versions: Iterable[ProtocolVersion]) -> str:
    """Versions as text: ``1.1``, ``1.0 and 2.3``."""
    return " and ".join(f"{major}.{minor}" for major, minor in versions) or "no version"
