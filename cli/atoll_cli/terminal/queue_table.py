# SPDX-License-Identifier: Apache-2.0
"""The recommended capacity of a queue at the terminal, with the figures that it rests on."""

import math
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from atoll_core.plural import listed
from atoll_dashboards.report.number_format import NOT_MEASURED, figure, octets, percent
from atoll_studies.results.queue_capacity import QueueAdvice, QueueLevel


def print_queue_advice(advice: Sequence[QueueAdvice]) -> None:
    """Print a table of capacities for each combination of the other factors, and the recommended one."""
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    for each in advice:
        table = Table(box=None, pad_edge=False, title=_title(each), title_justify="left", title_style="bold")
        for heading in ("queue", "transfer", "utilisation", "full and empty", "standing", "voice, one way", "regime"):
            table.add_column(heading, justify="right", no_wrap=heading != "regime")
        table.add_column("not met", overflow="fold")
        for level in each.levels:
            table.add_row(*_row(level))
        console.print(table)
        console.print(_sentence(each), style="dim", soft_wrap=True)
        console.print()


def _title(advice: QueueAdvice) -> str:
    others = ", ".join(f"{factor} {level}" for factor, level in advice.others.items())
    return f"queue capacity ({others})" if others else "queue capacity"


def _row(level: QueueLevel) -> tuple[str, ...]:
    transfer = "not finished" if level.transfer_s == math.inf else figure(level.transfer_s, "s", 1)
    voice = figure(level.voice_ms, "ms", 0) + (" (marginal)" if level.is_marginal_for_voice else "")
    shares = (percent(share) for share in (level.utilisation, level.swinging, level.standing))
    regimes = listed([name for name, _ in level.regimes]) if level.regimes else NOT_MEASURED
    return (octets(level.queue_bytes), transfer, *shares, voice, regimes, ", ".join(level.unmet))


def _sentence(advice: QueueAdvice) -> str:
    best = advice.recommended
    unmet = (
        f", which does not meet {listed(best.unmet)}"
        if best.unmet
        else ", the smallest capacity that meets all criteria"
    )
    rules = ""
    if advice.product_bytes is not None:
        rules = f"; bandwidth-delay product (BDP) {octets(advice.product_bytes)}"
    if advice.root_bytes is not None:
        rules += f"; BDP / sqrt({figure(advice.long_flows, '', 1)} long flows) = {octets(advice.root_bytes)}"
    return f"recommended: {octets(best.queue_bytes)}{unmet}{rules}"
