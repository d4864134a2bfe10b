# SPDX-License-Identifier: Apache-2.0
"""`atoll latencies`: choose servers to ping from flow records, and make latency classes of world servers from RTTs."""

import json
import random
import sys
from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from atoll_cli.terminal.flow_records import AUTO, RecordsFile, RecordsFormat, read_flow_records
from atoll_cli.terminal.options import CommandGroup, Json, PlotFile, number_option
from atoll_cli.terminal.output import IMAGE_ENDINGS, refuse_overwriting, require_ending, write_file
from atoll_core.errors import DescriptionError, Diagnostic, UsageError
from atoll_core.units import Size

_HIGHEST_VLAN = 4094  # IEEE 802.1Q, table 9-2

latencies = CommandGroup(help="Choose servers to ping, and import latencies of world servers from RTTs.")


@latencies.command(
    epilog="Example: atoll latencies from-flows flows.csv --to 10.20.0.0/16 --out targets.txt --weights draws.csv",
)
def from_flows(
    records: RecordsFile,
    to: Annotated[str, typer.Option(help="addresses of the island", metavar="PREFIX")],
    out: Annotated[Path, typer.Option("--out", help="file for the addresses, one a line", metavar="FILE")],
    weights: Annotated[Path | None, typer.Option(help="CSV file for how often each was drawn", metavar="FILE")] = None,
    form: RecordsFormat = AUTO,
    draws: Annotated[int, number_option("--draws", "number of draws", 1, 1_000_000, kind=int)] = 1000,
    seed: Annotated[int, number_option("--seed", "seed of the draws", 0, 2**63 - 1, kind=int)] = 1,
    as_json: Json = False,
) -> None:
    """Draw servers with the probability of the bytes that they sent to the island, for ping, fping or scamper."""
    from atoll_analysis.importers.rtt_lists import DRAWS_HEADER
    from atoll_core.description.raw_types import parse_network

    refuse_overwriting({"--out": out, "--weights": weights}, [records])
    flows = read_flow_records(records, form, to)
    island = parse_network(to)
    senders = sorted(
        (address, sent) for address, sent in flows.bytes_by_source.items() if ip_address(address) not in island
    )
    if not senders:
        raise DescriptionError([Diagnostic(str(records), 0, f"all flows to {island} come from {island} itself")])
    addresses, sent_bytes = zip(*senders, strict=True)
    drawn = Counter(random.Random(seed).choices(addresses, sent_bytes, k=draws)).most_common()  # noqa: S311 (no secret)
    comment = f"# made by: atoll latencies from-flows {records.name} --to {island} --draws {draws} --seed {seed}"
    write_file("--out", out, "".join(f"{line}\n" for line in (comment, *(address for address, _ in drawn))))
    if weights:
        rows = (f"{address},{count}" for address, count in drawn)
        write_file("--weights", weights, "".join(f"{line}\n" for line in (comment, DRAWS_HEADER, *rows)))
    if as_json:
        facts = {"file": str(out), "weights": weights and str(weights), "addresses": len(drawn)}
        print(json.dumps({**facts, "draws": draws, "senders": len(senders), "bytes": sum(sent_bytes)}))
        return
    print(f"{out}: {len(drawn)} addresses in {draws} draws from {len(senders)} that sent {Size(sum(sent_bytes))}")
    print(f"ping them, for example: fping -C 5 -q -f {out} 2> pings.txt")


@latencies.command(
    "import",
    epilog="Example: atoll latencies import pings.txt --servers 6 --out latencies.yaml --plot rtts.png",
)
def import_(
    files: Annotated[
        list[Path], typer.Argument(help="output of ping, fping or scamper, or lists of RTTs in ms", metavar="FILE...")
    ],
    out: Annotated[Path, typer.Option("--out", help="YAML file to write", metavar="FILE")],
    servers: Annotated[int, number_option("--servers", "number of world servers", 1, 1000, kind=int)] = 6,
    first_vlan: Annotated[
        int, number_option("--first-vlan", "VLAN id of the first class", 1, _HIGHEST_VLAN, kind=int)
    ] = 101,
    weights: Annotated[
        Path | None, typer.Option(help="CSV file of from-flows: a target counts as often as drawn", metavar="FILE")
    ] = None,
    plot: PlotFile = None,
    as_json: Json = False,
) -> None:
    """Sort targets by RTT and divide them into groups of equal size; each server gets the median of a group."""
    from atoll_analysis.importers.rtt_lists import FEW_TARGETS, read_draws, read_rtts, server_rtts
    from atoll_core.description.yaml_document import label, read_text

    require_ending("--plot", plot, IMAGE_ENDINGS)
    refuse_overwriting({"--out": out, "--plot": plot}, [*files, *([weights] if weights else [])])
    last_vlan = first_vlan + servers - 1
    if last_vlan > _HIGHEST_VLAN:
        classes = f"{servers} classes from {first_vlan} on end at VLAN id {last_vlan}"
        raise UsageError(f"--first-vlan: {classes}; write at most {_HIGHEST_VLAN - servers + 1}")
    texts = {label(path): read_text(path, "text", 64_000_000) for path in (*files, *([weights] if weights else []))}
    mistakes = [text for text in texts.values() if isinstance(text, Diagnostic)]
    draws_text = texts.pop(label(weights)) if weights else None
    rtts = read_rtts((name, text) for name, text in texts.items() if isinstance(text, str))
    draws = read_draws(label(weights), draws_text) if weights and isinstance(draws_text, str) else None
    rtts_ms = rtts.sorted_ms(draws)
    targets = len(rtts.without_target) + len(rtts.by_target) if draws is None else len(rtts.by_target.keys() & draws)
    mistakes += rtts.mistakes
    if draws is not None and rtts.without_target:
        mistakes.append(Diagnostic(label(files[-1]), 0, "has RTTs without targets; --weights needs TARGET,612.3"))
    if not mistakes and len(rtts_ms) < servers:
        message = f"has RTTs of {targets} targets; {servers} servers need at least {servers}"
        mistakes = [Diagnostic(label(files[-1]), 0, message)]
    if mistakes:
        raise DescriptionError(mistakes)
    if draws and (missing := draws.keys() - rtts.by_target.keys()):
        share = 100 * sum(draws[target] for target in missing) / sum(draws.values())
        print(f"{len(missing)} of {len(draws)} targets have no RTT, {share:.1f} % of the draws", file=sys.stderr)
    is_few = targets < FEW_TARGETS * servers
    if is_few:
        count = f"{targets} targets are {targets / servers:.1f} per server"
        print(f"{count}; with fewer than {FEW_TARGETS} targets a median depends on single ones", file=sys.stderr)
    rtt_by_server = [(f"w{number}", rtt) for number, rtt in enumerate(server_rtts(rtts_ms, servers), start=1)]
    command = f"atoll latencies import {' '.join(path.name for path in files)} --servers {servers}"
    command += f" --weights {weights.name}" if weights else ""
    write_file("--out", out, _yaml(rtt_by_server, first_vlan, f"made by: {command} ({targets} targets)"))
    if plot:
        from atoll_dashboards.report.input_plots import draw_rtts

        write_file("--plot", plot, draw_rtts(rtts_ms, rtt_by_server, plot.suffix.lower()))
    if as_json:
        print(json.dumps({"file": str(out), "targets": targets, "few": is_few, "rtt_ms": dict(rtt_by_server)}))
        return
    print(f"{out}: {targets} targets, {', '.join(f'{name} {rtt:g} ms' for name, rtt in rtt_by_server)}")


def _yaml(rtt_by_server: list[tuple[str, float]], first_vlan: int, comment: str) -> str:
    """The classes of a delay box, and the class of each server, as YAML."""
    lines = [f"# {comment}", "", "# of a delay box in lab.yaml", "classes:"]
    for vlan, (name, rtt) in enumerate(rtt_by_server, start=first_vlan):
        lines.append(f"  rtt-{name}: {{vlan: {vlan}, rtt: {f'{rtt:.3f}'.rstrip('0').rstrip('.')} ms}}")
    lines += ["", "# in experiment.yaml", "latency:"]
    lines += [f"  {name}: rtt-{name}" for name, _ in rtt_by_server]
    return "\n".join(lines) + "\n"
