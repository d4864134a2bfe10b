# SPDX-License-Identifier: Apache-2.0
"""`atoll code-design`: which network code would have recovered the losses of a run."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from atoll_analysis.figures.code_design import TARGETS, TIMEOUT_MARGIN_S, CodeDesign, CodeDesigns, designs_of_run
from atoll_analysis.run_directory import RunDir
from atoll_core.plural import counted

_JSON_KEYS = {"total": "came", "spare_share": "spare"}  # of the answer, where those of CodeDesigns differ


def show_code_designs(run: Path, link: str | None, *, as_json: bool) -> None:
    """Print the designs for the losses of a link in a run."""
    designs = designs_of_run(RunDir.open(run), link)
    if as_json:
        best = {f"{target:g}": asdict(design) for target in TARGETS if (design := designs.best(target))}
        content = {_JSON_KEYS.get(key, key): value for key, value in asdict(designs).items()}
        print(json.dumps({**content, "best": best}))
        return
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    cut_text = f", the first of {designs.total}" if designs.total > designs.packets else ""
    packets = f"{counted(designs.packets, 'packet')} to the island{cut_text}, {designs.lost} lost"
    console.print(f"{designs.link}: {packets}", soft_wrap=True)
    if not designs.lost:
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("recovers", "n", "w", "interleaving", "overhead", "recovered", "time", "in time", "cap"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = [designs.best(target) for target in TARGETS]
    for design in designs.designs:
        table.add_row(*_row(design), style="bold" if design in best else None)
    console.print(table)
    for target in TARGETS:
        console.print(_best_design_text(designs, target), style="dim", soft_wrap=True)


def _row(design: CodeDesign) -> tuple[str, ...]:
    return (
        f"{100 * design.target:g} %",
        str(design.packets),
        str(design.repairs),
        str(design.interleaving),
        f"{100 * design.overhead:.1f} %",
        f"{100 * design.recovered:.2f} %",
        "-" if design.span_s is None else f"{1000 * design.span_s:.0f} ms",
        {True: "yes", False: "no", None: "-"}[design.in_time],
        f"{design.cap_bit_s / 1e6:.2f} Mbit/s",
    )


def _best_design_text(designs: CodeDesigns, target: float) -> str:
    design = designs.best(target)
    if design is None:
        return f"{100 * target:g} %: no code with w up to n recovers so much"
    text = f"{100 * target:g} %: n {design.packets}, w {design.repairs}, interleaving {design.interleaving}"
    if design.in_time is False:
        text += f"; later than TCP's time-out, which is {1000 * TIMEOUT_MARGIN_S:.0f} ms above the RTT at least"
    if designs.spare_share is not None and designs.exceeds_spare(design):
        unused = f"the {100 * designs.spare_share:.1f} % of the rate that were not used"
        text += f"; its repair packets need more than {unused}, so they would cause losses of their own"
    return text
