# SPDX-License-Identifier: Apache-2.0
"""A run's summary on a terminal."""

from typing import TYPE_CHECKING, Any, cast

from atoll_analysis.verdict.findings import Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

    from atoll_analysis.summary import Summary

_COLOURS = {Verdict.VALID: "green", Verdict.CAVEATS: "yellow", Verdict.INVALID: "red"}


def summary_text(summary: dict[str, Any]) -> "RenderableType":
    """Verdict, reasons, caveats, notes, key figures, terrestrial RTTs; at most 100 columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from atoll_dashboards.report.key_figures import key_figures
    from atoll_dashboards.report.number_format import figure

    run = cast("Summary", summary)
    head = Text.assemble(
        (run["experiment"], "bold"),
        ("  seed ", "dim"),
        str(run["seed"]),
        "  ",
        (run["verdict"], f"bold {_COLOURS[Verdict(run['verdict'])]}"),
    )
    remarks = Table.grid(padding=(0, 1))
    remarks.add_column(width=8, justify="right", no_wrap=True)
    remarks.add_column()
    caveats = run.get("caveats", ())  # absent from older summaries
    for kind, lines, style in (
        ("reason", run["reasons"], "red"),
        ("caveat", caveats, "yellow"),
        ("note", run["notes"], "dim"),
    ):
        for line in lines:
            remarks.add_row(Text(kind, style=style), Text(line, style=style))
    figures = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    figures.add_column(style="dim", no_wrap=True)
    figures.add_column(justify="right", no_wrap=True)
    figures.add_column(style="dim")
    for row in key_figures(run):
        figures.add_row(row.name, row.text, row.remark)
    rtts = "  ".join(
        f"{server} {figure(rtt['measured'], '', 1)}/{rtt['configured']:g}"
        for server, rtt in (run["terrestrial_rtt_ms"] or {}).items()
    )
    if rtts:
        figures.add_row("terrestrial RTT", "", f"{rtts}  (measured/configured, ms)")
    return Group(head, *((remarks,) if remarks.rows else ()), figures)
