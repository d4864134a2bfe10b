# SPDX-License-Identifier: Apache-2.0
"""Flow records of other programs as an argument of commands."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll_cli.terminal.options import require_one_of
from atoll_core.errors import UsageError

if TYPE_CHECKING:
    from atoll_analysis.importers.flow_records import Import

AUTO = "auto"

RecordsFile = Annotated[
    Path, typer.Argument(help="flow records of nfdump, Argus or Zeek, or a packet capture", metavar="FILE")
]
RecordsFormat = Annotated[
    str, typer.Option("--format", help="nfdump, argus, zeek, pcap, or auto: detect the format", metavar="FORMAT")
]


def read_flow_records(records: Path, form: str, to: str | None, protocol: str | None = None) -> "Import":
    """Import flows by the options of a command, and print what was left out or joined.

    Raises UsageError for a wrong option, DescriptionError when nothing can be read, RunError if captures cannot be
    decoded here.
    """
    from atoll_analysis.importers.flow_records import FlowFilter, Format, import_flows
    from atoll_core.description.raw_types import parse_network
    from atoll_hosts.binary import find_binary

    require_one_of("--format", form, "formats", [AUTO, *Format])
    try:
        flow_filter = FlowFilter(parse_network(to) if to else None, protocol)
    except ValueError as error:
        raise UsageError(f"--to: {error}") from None
    flows = import_flows(records, None if form == AUTO else Format(form), flow_filter, find_binary)
    for warning in flows.warnings:
        print(warning, file=sys.stderr)
    return flows
