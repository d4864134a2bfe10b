# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Text for entries that no plan uses, by the framework's parser."""

from typing import Any

from atoll_controller.openflow import runtime_adapter
from atoll_core.openflow_wire import encoder
from atoll_core.openflow_wire.flow_stats import EntryStats, action_lists
from atoll_core.plan.flow_entry import UnmanagedEntry

_ofp = runtime_adapter.module("ofproto.ofproto_v1_3")
_parser = runtime_adapter.module("ofproto.ofproto_v1_3_parser")
_RESERVED_PORTS = {
    getattr(_ofp, f"OFPP_{name}"): name
    for name in ("IN_PORT", "TABLE", "NORMAL", "FLOOD", "ALL", "CONTROLLER", "LOCAL", "ANY")
}


def foreign(record: EntryStats, switch: str, table: int) -> UnmanagedEntry:
    """A record as an entry that can be shown and deleted. ``table``: the plan's."""
    place = "" if record.table == table else f"table {record.table}, "
    return UnmanagedEntry(
        switch, record.priority, record.cookie, record.oxm.hex(), place + _words(record), record.table
    )


def _words(record: EntryStats) -> str:
    try:
        action_lists(record.instructions)  # the framework's parser does not end at an action of no length
        return _described(_parser.OFPFlowStats.parser(record.whole, 0))
    except encoder.MalformedError as error:
        return f"its instructions are malformed: {error}"


def _described(stats: Any) -> str:
    fields = ", ".join(
        f"{name} {'/'.join(map(str, field)) if isinstance(field, tuple) else field}"
        for name, field in stats.match.items()
    )
    done: list[str] = []
    for instruction in stats.instructions:
        if isinstance(instruction, _parser.OFPInstructionActions):
            done += [_action_words(action) for action in instruction.actions]
        else:
            done.append(type(instruction).__name__.removeprefix("OFPInstruction"))
    times = ((stats.idle_timeout, "idle"), (stats.hard_timeout, "hard"))
    limits = "".join(f", {name} time-out {seconds} s" for seconds, name in times if seconds)
    return f"{fields or 'any frame'}: {', '.join(done) or 'drop'}{limits}"


def _action_words(action: Any) -> str:
    if isinstance(action, _parser.OFPActionOutput):
        return f"port {_RESERVED_PORTS.get(action.port, action.port)}"
    return type(action).__name__.removeprefix("OFPAction").removeprefix("NXAction")
