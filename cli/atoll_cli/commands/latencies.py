# SPDX-License-Identifier: Apache-2.0
"""``atoll latencies import``: RTTs to real servers become the latency classes of world servers."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from atoll_cli.terminal.options import PlainArguments, whole
from atoll_cli.terminal.output_files import PICTURES, require_ending, written
from atoll_core.errors import DescriptionError, Diagnostic

latencies = typer.Typer(
    help="Latencies of world servers: import them from RTTs to real servers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@latencies.callback()
def _verbs() -> None:  # pyright: ignore[reportUnusedFunction] (a lone verb keeps its name only beside a callback)
    """Latencies of world servers: import them from RTTs to real servers."""


@latencies.command(
    "import",
    cls=PlainArguments,
    epilog="Example: atoll latencies import pings.txt --servers 6 --out latencies.yaml --plot rtts.png",
)
def import_(
    files: Annotated[list[Path], typer.Argument(help="output of ping, or lists of RTTs in ms", metavar="FILE...")],
    out: Annotated[Path, typer.Option("--out", help="YAML file to write", metavar="FILE")],
    servers: Annotated[int, whole("--servers", "how many world servers there are", 1, 1000)] = 6,
    first_vlan: Annotated[int, whole("--first-vlan", "VLAN id of the first class", 1, 4000)] = 101,
    plot: Annotated[Path | None, typer.Option("--plot", help="draw it, too", metavar="FILE.png")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Cut targets, sorted by RTT, into parts of equal count: each server has the median of its part."""
    from atoll_analysis.importers.rtt_lists import FEW_TARGETS, read_rtts, server_rtts
    from atoll_core.description.document import label, read_text

    require_ending("--plot", plot, PICTURES)
    texts = [(label(path), read_text(path, "text", 64_000_000)) for path in files]
    unread = [text for _, text in texts if isinstance(text, Diagnostic)]
    found = read_rtts((name, text) for name, text in texts if isinstance(text, str))
    mistakes = [*unread, *found.mistakes]
    if not mistakes and len(found.ms) < servers:
        what = f"holds RTTs of {len(found.ms)} targets, and {servers} servers need at least one each"
        mistakes = [Diagnostic(label(files[-1]), 0, what)]
    if mistakes:
        raise DescriptionError(mistakes)
    few = len(found.ms) < FEW_TARGETS * servers
    if few:
        each = f"{len(found.ms)} targets make {len(found.ms) / servers:.1f} a server"
        print(f"{each}: medians of fewer than {FEW_TARGETS} move with every target", file=sys.stderr)
    named = [(f"w{number}", rtt) for number, rtt in enumerate(server_rtts(found.ms, servers), start=1)]
    command = f"atoll latencies import {' '.join(path.name for path in files)} --servers {servers}"
    written("--out", out, _yaml(named, first_vlan, f"made by: {command} ({len(found.ms)} targets)"))
    if plot:
        from atoll_dashboards.report.import_plots import draw_rtts

        written("--plot", plot, lambda: draw_rtts(found.ms, named, plot))
    if as_json:
        print(json.dumps({"file": str(out), "targets": len(found.ms), "few": few, "rtt_ms": dict(named)}))
        return
    print(f"{out}: {len(found.ms)} targets, {', '.join(f'{name} {rtt:g} ms' for name, rtt in named)}")


def _yaml(named: list[tuple[str, float]], first_vlan: int, remark: str) -> str:
    """The classes of a delay box, and which server has which."""
    lines = [f"# {remark}", "", "# of a delay box in lab.yaml", "classes:"]
    for vlan, (name, rtt) in enumerate(named, start=first_vlan):
        lines.append(f"  rtt-{name}: {{vlan: {vlan}, rtt: {_decimal(rtt)} ms}}")
    lines += ["", "# in experiment.yaml", "latency:"]
    lines += [f"  {name}: rtt-{name}" for name, _ in named]
    return "\n".join(lines) + "\n"


def _decimal(ms: float) -> str:
    """To the microsecond, without zeros that say nothing."""
    return f"{ms:.3f}".rstrip("0").rstrip(".")
