# SPDX-License-Identifier: Apache-2.0
"""The results of ``--fairness`` as Markdown."""

from collections.abc import Iterable, Mapping

from benchkit.markdown import markdown_table
from trafficbench.fairness import LOOPBACK, SHARES, SUSTAINED, Outcome

_SHARES_HEAD = (
    "channels, client",
    "where",
    "flows a channel",
    "channels without any",
    "Jain's index",
    "longest wait",
    "link used",
)
_SUSTAINED_HEAD = (
    "4000 channels: queue of the link, clock",
    "time",
    "served in each 10 s, least",
    "link used",
    "packets lost",
    "flows a channel",
    "Jain's index",
    "longest wait",
    "of a core",
    "wall",
)


def tables(known: Mapping[str, Outcome], machine: Mapping[str, str]) -> str:
    """Two tables: shares on loopback and over the link, and four thousand channels."""
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}, load average {machine['load_average']}"
    shares = [
        [name, "loopback" if group == LOOPBACK else f"MEO link, {one.seconds} s of virtual time", *_shares(one)]
        for group in (LOOPBACK, SHARES)
        for name, one in _of(known, group)
    ]
    sustained = [_sustained(name, one) for name, one in _of(known, SUSTAINED)]
    parts = [
        f"Flows of 10 kB, equal RTTs; {where}.",
        markdown_table([_SHARES_HEAD, *shares]),
        markdown_table([_SUSTAINED_HEAD, *sustained]),
    ]
    return "\n\n".join(parts)


def _of(known: Mapping[str, Outcome], group: str) -> Iterable[tuple[str, Outcome]]:
    return ((key.removeprefix(f"{group}: "), one) for key, one in known.items() if key.startswith(f"{group}: "))


def _shares(one: Outcome) -> list[str]:
    return [f"{one.least} to {one.most}", str(one.starved), f"{one.jain:.5f}", _wait(one), _percent(one.utilisation)]


def _sustained(name: str, one: Outcome) -> list[str]:
    return [
        name,
        f"{one.seconds} s",
        _percent(min(one.served, default=None), 2),
        _percent(one.utilisation),
        _percent(one.lost),
        f"{one.least} to {one.most}",
        f"{one.jain:.3f}",
        _wait(one),
        _percent(one.core),
        f"{one.wall_s:.0f} s",
    ]


def _wait(one: Outcome) -> str:
    return "" if one.longest_wait_s is None else f"{one.longest_wait_s * 1e3:.1f} ms"


def _percent(share: float | None, digits: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{digits}f} %"
