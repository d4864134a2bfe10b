# SPDX-License-Identifier: Apache-2.0
"""`atoll distributions import|show`: flow-size distributions from flow records, and their statistics."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll_cli.terminal.flow_records import AUTO, RecordsFile, RecordsFormat, read_flow_records
from atoll_cli.terminal.options import CommandGroup, Json, PlotFile, require_one_of
from atoll_cli.terminal.output import IMAGE_ENDINGS, refuse_overwriting, require_ending, write_file
from atoll_core.errors import DescriptionError, Diagnostic, UsageError

if TYPE_CHECKING:
    from atoll_core.experiment.flow_sizes import FlowSizes

distributions = CommandGroup(help="Import or show flow-size distributions.")

_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)


@distributions.command(
    "import",
    epilog="Example: atoll distributions import flows.csv --out sizes.csv --to 10.20.0.0/16 --plot sizes.png",
)
def import_(
    records: RecordsFile,
    out: Annotated[Path, typer.Option("--out", help="CSV file to write", metavar="FILE")],
    form: RecordsFormat = AUTO,
    to: Annotated[
        str | None,
        typer.Option(help="only flows to these addresses [default: all, both directions]", metavar="PREFIX"),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="only tcp, udp or icmp [default: all]", metavar="NAME")] = None,
    plot: PlotFile = None,
    json: Json = False,
) -> None:
    """Count the flows of a file by their size, for flow_sizes of an experiment."""
    from atoll_core.description.flow_size_file import flow_sizes_text
    from atoll_core.experiment.flow_sizes import from_counts

    require_ending("--plot", plot, IMAGE_ENDINGS)
    refuse_overwriting({"--out": out, "--plot": plot}, [records])
    require_one_of("--protocol", protocol, "protocols", ["tcp", "udp", "icmp"])
    flows = read_flow_records(records, form, to, protocol)
    remark = f"made by: atoll distributions import {records.name} --format {flows.file_format}"
    remark += "".join(f" {name} {text}" for name, text in (("--to", to), ("--protocol", protocol)) if text)
    write_file("--out", out, flow_sizes_text(sorted(flows.counts.items()), [remark]))
    facts: dict[str, Any] = {"file": str(out), "format": flows.file_format.value, "records": flows.records}
    facts |= {"flows": flows.counts.total(), "left_out": flows.excluded, "damaged": flows.damaged}
    _report(from_counts(out.name, flows.counts), plot, facts, as_json=json)


@distributions.command(epilog="Example: atoll distributions show published --plot published.png")
def show(
    sizes: Annotated[str, typer.Argument(help="published, one size such as '10 kB', or a file", metavar="SIZES")],
    pro_rate: Annotated[
        str | None, typer.Option(help="merge flows smaller than SIZE into connections of SIZE", metavar="SIZE")
    ] = None,
    plot: PlotFile = None,
    json: Json = False,
) -> None:
    """Print statistics of a distribution: mean, maximum, quantiles."""
    from atoll_core.units import Size

    require_ending("--plot", plot, IMAGE_ENDINGS)
    refuse_overwriting({"--plot": plot}, [Path(sizes)])
    distribution = _read(sizes)
    if pro_rate:
        try:
            distribution = distribution.pro_rated(Size.parse(pro_rate).bytes)
        except ValueError as error:
            raise UsageError(f"--pro-rate: {error}") from None
    _report(distribution, plot, {"distribution": distribution.name}, as_json=json)


def _read(text: str) -> "FlowSizes":
    from atoll_core.description.flow_size_file import read_flow_sizes
    from atoll_core.description.referenced_files import ReferencedFiles
    from atoll_core.experiment.flow_sizes import PUBLISHED, fixed, published
    from atoll_core.units import Size

    if text == PUBLISHED:
        return published()
    try:
        return fixed(text, Size.parse(text).bytes)
    except ValueError:
        parsed = ReferencedFiles(Path()).read(text, read_flow_sizes)
    if parsed.value is None:
        remedy = f"; write {PUBLISHED}, a size such as '10 kB', or a file"
        raise DescriptionError(
            [entry if entry.line else Diagnostic(entry.file, 0, entry.message + remedy) for entry in parsed.mistakes]
        )
    return parsed.value


def _report(sizes: "FlowSizes", plot: Path | None, facts: dict[str, Any], *, as_json: bool) -> None:
    if plot:
        from atoll_dashboards.report.input_plots import draw_flow_sizes

        write_file("--plot", plot, draw_flow_sizes(sizes, plot.suffix.lower()))
    figures = {
        "mean_bytes": round(sizes.mean_bytes, 1),
        "max_bytes": sizes.max_bytes,
        "quantiles": {f"{share:g}": round(sizes.quantile(share)) for share in _SHARES},
        "share_below_40_MB": round(sizes.share_up_to(40e6), 6),
    }
    if as_json:
        print(json.dumps(facts | figures))
        return
    print(", ".join(f"{name.replace('_', ' ')}: {fact}" for name, fact in facts.items()))
    print(f"mean {sizes.mean_bytes:.0f} B, maximum {sizes.max_bytes} B, {sizes.share_up_to(40e6):.4%} up to 40 MB")
    for share in _SHARES:
        print(f"{share:6.1%} of the flows up to {sizes.quantile(share):.0f} B")
