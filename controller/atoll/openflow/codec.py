# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportOptionalIterable=false
"""Flow entries to OpenFlow 1.3 messages and back. Section numbers are those of OpenFlow 1.3.5.

os-ken has no type information: what comes from it is Any, and stays within this package's controller side.
"""

from ipaddress import IPv4Network
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from atoll.model.flow import Action, FlowEntry, ForeignEntry, Match, Output, PopVlan, PushVlan, Vlan

_TPID = 0x8100  # 802.1Q
_TCP, _UDP = 6, 17
_L4_FIELDS = {_TCP: ("tcp_src", "tcp_dst"), _UDP: ("udp_src", "udp_dst")}
_RESERVED_PORTS = {
    getattr(ofp, f"OFPP_{name}"): name
    for name in ("IN_PORT", "TABLE", "NORMAL", "FLOOD", "ALL", "CONTROLLER", "LOCAL", "ANY")
}


def add_message(datapath: Any, entry: FlowEntry, table: int) -> Any:
    """The flow-mod that adds the entry, or replaces the one of the same priority and match (6.4)."""
    instructions = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, _actions(entry))] if entry.actions else []
    return parser.OFPFlowMod(
        datapath,
        cookie=entry.cookie,
        table_id=table,
        command=ofp.OFPFC_ADD,
        priority=entry.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=parser.OFPMatch(**_match_fields(entry.match)),
        instructions=instructions,
    )


def delete_message(datapath: Any, entry: FlowEntry | ForeignEntry, table: int) -> Any:
    """The flow-mod that deletes exactly this entry, whatever its actions and cookie (strict: 6.4)."""
    if isinstance(entry, ForeignEntry):
        match = parser.OFPMatch.parser(bytes.fromhex(entry.oxm), 0)
    else:
        match = parser.OFPMatch(**_match_fields(entry.match))
    return parser.OFPFlowMod(
        datapath,
        table_id=table,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=entry.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=match,
    )


def entry_from(stats: Any, switch: str) -> FlowEntry | ForeignEntry:
    """The entry a flow statistics record (7.3.5.2) tells of; foreign if a FlowEntry can't say all of it."""
    oxm = _wire_match(stats.match)
    entry = _understood(stats, switch)
    if entry is not None and _wire_match(parser.OFPMatch(**_match_fields(entry.match))) == oxm:
        return entry
    return ForeignEntry(switch, stats.priority, stats.cookie, oxm.hex(), _words(stats))


def error_words(message: Any) -> str:
    """An error message (7.5.4) in the specification's names: ``OFPET_BAD_ACTION OFPBAC_BAD_OUT_PORT``."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"experimenter error {message.exp_type} of {message.experimenter:#010x}"
    words = (ofp.ofp_error_type_to_str(message.type), ofp.ofp_error_code_to_str(message.type, message.code))
    return " ".join(word.split("(")[0] for word in words)


def _match_fields(match: Match) -> dict[str, Any]:
    fields: dict[str, Any] = {"in_port": match.in_port}
    if match.vlan is Vlan.UNTAGGED:
        fields["vlan_vid"] = ofp.OFPVID_NONE
    elif match.vlan is not None:
        fields["vlan_vid"] = match.vlan | ofp.OFPVID_PRESENT
    if match.eth_type is not None:
        fields["eth_type"] = match.eth_type
    for name, prefix in (("ipv4_src", match.ipv4_src), ("ipv4_dst", match.ipv4_dst)):
        if prefix is not None:
            address = str(prefix.network_address)
            fields[name] = address if prefix.prefixlen == prefix.max_prefixlen else (address, str(prefix.netmask))
    if match.ip_proto is not None:
        fields["ip_proto"] = match.ip_proto
    names = _L4_FIELDS.get(match.ip_proto or 0, ("tcp_src", "tcp_dst"))
    fields |= {name: port for name, port in zip(names, (match.l4_src, match.l4_dst), strict=True) if port is not None}
    return fields


def _actions(entry: FlowEntry) -> list[Any]:
    found: list[Any] = []
    for action in entry.actions:
        match action:
            case Output(port):
                found.append(parser.OFPActionOutput(port))
            case PushVlan(vlan):
                found.append(parser.OFPActionPushVlan(_TPID))
                found.append(parser.OFPActionSetField(vlan_vid=vlan | ofp.OFPVID_PRESENT))
            case PopVlan():
                found.append(parser.OFPActionPopVlan())
    return found


def _understood(stats: Any, switch: str) -> FlowEntry | None:
    actions = _actions_from(stats.instructions)
    if actions is None or stats.idle_timeout or stats.hard_timeout or stats.flags or "in_port" not in stats.match:
        return None
    match = stats.match
    vid = match.get("vlan_vid")
    protocol = match.get("ip_proto")
    source, destination = _L4_FIELDS.get(protocol, ("tcp_src", "tcp_dst"))
    try:
        understood = Match(
            in_port=match["in_port"],
            vlan=None if vid is None else Vlan.UNTAGGED if vid == ofp.OFPVID_NONE else vid & ~ofp.OFPVID_PRESENT,
            eth_type=match.get("eth_type"),
            ipv4_src=_prefix(match.get("ipv4_src")),
            ipv4_dst=_prefix(match.get("ipv4_dst")),
            ip_proto=protocol,
            l4_src=match.get(source),
            l4_dst=match.get(destination),
        )
    except (TypeError, ValueError):  # a masked field: (value, mask) where a number belongs, or a mask that is no prefix
        return None
    numbers = (understood.vlan, understood.eth_type, understood.ip_proto, understood.l4_src, understood.l4_dst)
    if any(isinstance(number, tuple) for number in numbers):
        return None
    return FlowEntry(switch, stats.priority, understood, actions, stats.cookie, "")


def _prefix(field: Any) -> IPv4Network | None:
    if field is None:
        return None
    return IPv4Network("/".join(field) if isinstance(field, tuple) else field)


def _actions_from(instructions: list[Any]) -> tuple[Action, ...] | None:
    """The actions of an entry's only instruction, apply-actions; None if there is more to it."""
    if not instructions:
        return ()
    if len(instructions) > 1 or instructions[0].type != ofp.OFPIT_APPLY_ACTIONS:
        return None
    found: list[Action] = []
    waiting = list(instructions[0].actions)
    while waiting:
        action = waiting.pop(0)
        if isinstance(action, parser.OFPActionOutput) and action.port <= ofp.OFPP_MAX:
            found.append(Output(action.port))
        elif isinstance(action, parser.OFPActionPopVlan):
            found.append(PopVlan())
        elif isinstance(action, parser.OFPActionPushVlan) and action.ethertype == _TPID and _sets_vlan(waiting):
            found.append(PushVlan(waiting.pop(0).value & ~ofp.OFPVID_PRESENT))
        else:
            return None
    return tuple(found)


def _sets_vlan(actions: list[Any]) -> bool:
    return bool(actions) and isinstance(actions[0], parser.OFPActionSetField) and actions[0].key == "vlan_vid"


def _wire_match(match: Any) -> bytes:
    buffer = bytearray()
    parser.OFPMatch(_ordered_fields=sorted(match.items())).serialize(buffer, 0)
    return bytes(buffer)


def _words(stats: Any) -> str:
    fields = ", ".join(
        f"{name} {'/'.join(map(str, field)) if isinstance(field, tuple) else field}"
        for name, field in stats.match.items()
    )
    done: list[str] = []
    for instruction in stats.instructions:
        if isinstance(instruction, parser.OFPInstructionActions):
            done += [_action_words(action) for action in instruction.actions]
        else:
            done.append(type(instruction).__name__.removeprefix("OFPInstruction"))
    times = ((stats.idle_timeout, "idle"), (stats.hard_timeout, "hard"))
    limits = "".join(f", {name} time-out {seconds} s" for seconds, name in times if seconds)
    return f"{fields or 'any frame'}: {', '.join(done) or 'drop'}{limits}"


def _action_words(action: Any) -> str:
    if isinstance(action, parser.OFPActionOutput):
        return f"port {_RESERVED_PORTS.get(action.port, action.port)}"
    return type(action).__name__.removeprefix("OFPAction").removeprefix("NXAction")
