# SPDX-License-Identifier: Apache-2.0
"""`atoll latencies import`: make latency classes of world servers from RTTs to real servers."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from atoll_cli.terminal.options import Json, PlainArguments, PlotFile, number_option
from atoll_cli.terminal.output import IMAGE_ENDINGS, refuse_overwriting, require_ending, write_file
from atoll_core.errors import DescriptionError, Diagnostic, UsageError

_HIGHEST_VLAN = 4094  # IEEE 802.1Q, table 9-2

latencies = typer.Typer(
    help="Import latencies of world servers from RTTs.", no_args_is_help=True, rich_markup_mode=None
)


@latencies.callback()
def _group() -> None:  # pyright: ignore[reportUnusedFunction] (with a callback, a lone command keeps its name)
    """Import latencies of world servers from RTTs to real servers."""


@latencies.command(
    "import",
    cls=PlainArguments,
    epilog="Example: atoll latencies import pings.txt --servers 6 --out latencies.yaml --plot rtts.png",
)
def import_(
    files: Annotated[list[Path], typer.Argument(help="output of ping, or lists of RTTs in ms", metavar="FILE...")],
    out: Annotated[Path, typer.Option("--out", help="YAML file to write", metavar="FILE")],
    servers: Annotated[int, number_option("--servers", "number of world servers", 1, 1000, kind=int)] = 6,
    first_vlan: Annotated[
        int, number_option("--first-vlan", "VLAN id of the first class", 1, _HIGHEST_VLAN, kind=int)
    ] = 101,
    plot: PlotFile = None,
    as_json: Json = False,
) -> None:
    """Sort targets by RTT and divide them into groups of equal size; each server gets the median of a group."""
    from atoll_analysis.importers.rtt_lists import FEW_TARGETS, read_rtts, server_rtts
    from atoll_core.description.yaml_document import label, read_text

    require_ending("--plot", plot, IMAGE_ENDINGS)
    refuse_overwriting({"--out": out, "--plot": plot}, files)
    last_vlan = first_vlan + servers - 1
    if last_vlan > _HIGHEST_VLAN:
        classes = f"{servers} classes from {first_vlan} on end at VLAN id {last_vlan}"
        raise UsageError(f"--first-vlan: {classes}; write at most {_HIGHEST_VLAN - servers + 1}")
    texts = [(label(path), read_text(path, "text", 64_000_000)) for path in files]
    read_mistakes = [text for _, text in texts if isinstance(text, Diagnostic)]
    rtts = read_rtts((name, text) for name, text in texts if isinstance(text, str))
    targets = len(rtts.rtts_ms)
    mistakes = [*read_mistakes, *rtts.mistakes]
    if not mistakes and targets < servers:
        message = f"has RTTs of {targets} targets; {servers} servers need at least {servers}"
        mistakes = [Diagnostic(label(files[-1]), 0, message)]
    if mistakes:
        raise DescriptionError(mistakes)
    is_few = targets < FEW_TARGETS * servers
    if is_few:
        count = f"{targets} targets are {targets / servers:.1f} per server"
        print(f"{count}; with fewer than {FEW_TARGETS} targets a median depends on single ones", file=sys.stderr)
    rtt_by_server = [(f"w{number}", rtt) for number, rtt in enumerate(server_rtts(rtts.rtts_ms, servers), start=1)]
    command = f"atoll latencies import {' '.join(path.name for path in files)} --servers {servers}"
    write_file("--out", out, _yaml(rtt_by_server, first_vlan, f"made by: {command} ({targets} targets)"))
    if plot:
        from atoll_dashboards.report.input_plots import draw_rtts

        write_file("--plot", plot, draw_rtts(rtts.rtts_ms, rtt_by_server, plot.suffix.lower()))
    if as_json:
        print(json.dumps({"file": str(out), "targets": targets, "few": is_few, "rtt_ms": dict(rtt_by_server)}))
        return
    print(f"{out}: {targets} targets, {', '.join(f'{name} {rtt:g} ms' for name, rtt in rtt_by_server)}")


def _yaml(rtt_by_server: list[tuple[str, float]], first_vlan: int, remark: str) -> str:
    """The classes of a delay box, and the class of each server, as YAML."""
    lines = [f"# {remark}", "", "# of a delay box in lab.yaml", "classes:"]
    for vlan, (name, rtt) in enumerate(rtt_by_server, start=first_vlan):
        lines.append(f"  rtt-{name}: {{vlan: {vlan}, rtt: {f'{rtt:.3f}'.rstrip('0').rstrip('.')} ms}}")
    lines += ["", "# in experiment.yaml", "latency:"]
    lines += [f"  {name}: rtt-{name}" for name, _ in rtt_by_server]
    return "\n".join(lines) + "\n"
