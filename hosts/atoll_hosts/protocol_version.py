# SPDX-License-Identifier: Apache-2.0
"""Which versions of the agents' protocol this program speaks, and which of them it has in common with an agent.

The rule is in docs/contracts.md. The agent applies it too (hosts/crates/agent/src/protocol_version.rs), and the
examples in tests/data/contract/agent-versions.jsonl hold both to the same outcomes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

ProtocolVersion = tuple[int, int]
"""Major and minor. A major version is one language; a minor one adds to it what others may ignore."""

SPEAKS: tuple[ProtocolVersion, ...] = ((1, 4),)
"""The highest minor version of each major one."""

LIMITS_AND_METRICS: ProtocolVersion = (1, 1)
"""Since when there are ``limits`` of jobs and ``measure``."""

SAMPLES: ProtocolVersion = (1, 2)
"""Since when there is ``sample``, and metrics tell what was dropped."""


def agreed(ours: Iterable[ProtocolVersion], theirs: Iterable[ProtocolVersion]) -> ProtocolVersion | None:
    """The highest major version that both speak, in the lower of both minor ones; None if there is none."""
    known = list(theirs)
    common = [(major, min(minor, other)) for major, minor in ours for theirs_, other in known if major == theirs_]
    return max(common, default=None)


def spoken(hello: Mapping[str, Any]) -> tuple[ProtocolVersion, ...]:
    """What an agent says that it speaks; those of 1.0 named their major version only. Nothing, if that is not ours."""
    try:
        return tuple((int(major), int(minor)) for major, minor in hello.get("speaks") or [(hello["protocol"], 0)])
    except (KeyError, TypeError, ValueError):
        return ()


def words(versions: Iterable[ProtocolVersion]) -> str:
    """As people write them: ``1.1``, ``1.0 and 2.3``."""
    return " and ".join(f"{major}.{minor}" for major, minor in versions) or "no version"
