# SPDX-License-Identifier: Apache-2.0
"""The packet of ``atoll trace --packet``: layers as in Scapy, hexadecimal digits, or a capture file of one packet.

Scapy builds and reads the bytes. It is an optional dependency, loaded here alone (docs/decisions/0043). The layers are
parsed, never evaluated: known names, and numbers and text as values.
"""

import ast
import re
import struct
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from atoll_controller.tracing.table_model import Frame
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import MachineError, UsageError, plain

_LAYERS = ("Ether", "Dot1Q", "IP", "ICMP", "TCP", "UDP", "Raw")
_ADDRESS_FIELDS = {"IP": ("src", "dst"), "ICMP": ("gw", "addr_mask")}  # as text Scapy would look it up in the DNS
_NO_MAC = "00:00:00:00:00:00"  # no flow entry matches MAC addresses; without one Scapy would send ARP requests
_MAX_LAYERS = 32
_HEX = re.compile(r"(0x)?([0-9a-fA-F]{2}[\s:]*)+")
_REMEDY = 'give layers, such as IP(dst="10.20.0.1")/UDP(dport=53), hexadecimal digits, or a capture file of one packet'


def read_packet(text: str, src: IPv4Address | None = None, dst: IPv4Address | None = None) -> Frame:
    """The parts of a packet that flow entries can match. ``src``, ``dst``: addresses if layers give none.

    Raises UsageError, in one line, for a text that is no IPv4 packet; MachineError if Scapy is not installed.
    """
    scapy = _load_scapy()
    if _is_file(text):
        packet = _read_capture(scapy, text)
    elif _HEX.fullmatch(text.strip()):
        packet = _parse_bytes(scapy, bytes.fromhex(re.sub(r"^0x|[\s:]", "", text.strip())))
    else:
        packet = _parse_bytes(scapy, _encode(scapy, text, {"src": src, "dst": dst}))
    return _parse_frame(scapy, packet)


def _load_scapy() -> SimpleNamespace:
    """The layers."""
    try:
        from scapy.layers.inet import ICMP, IP, TCP, UDP
        from scapy.layers.l2 import Dot1Q, Ether
        from scapy.packet import Raw
    except ImportError:
        raise MachineError("--packet needs Scapy; `pip install 'atoll[scapy]'` installs it") from None
    return SimpleNamespace(Ether=Ether, Dot1Q=Dot1Q, IP=IP, ICMP=ICMP, TCP=TCP, UDP=UDP, Raw=Raw)


def _packet_error(message: str) -> UsageError:
    return UsageError(f"--packet: {message}")


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or a NUL in it
        return False


def _read_capture(scapy: Any, file: str) -> Any:
    from scapy.error import Scapy_Exception
    from scapy.utils import PcapReader

    try:
        with PcapReader(file) as reader:
            first, second = reader.read_packet(), next(iter(reader), None)
    except EOFError:
        raise _packet_error(f"{file} has no packet") from None
    except (OSError, Scapy_Exception, struct.error) as error:
        raise _packet_error(f"{file} cannot be read as a capture file: {_error_text(error)}") from None
    if second is not None:
        raise _packet_error(f"{file} has several packets; give a file of one")
    return first if scapy.Ether in first else scapy.Ether() / first[scapy.IP] if scapy.IP in first else first


def _parse_bytes(scapy: Any, content: bytes) -> Any:
    is_ip = content[0] >> 4 == 4 and int.from_bytes(content[2:4]) == len(content)  # an IPv4 header has the length
    try:
        return scapy.Ether() / scapy.IP(content) if is_ip else scapy.Ether(content)
    except struct.error:
        raise _packet_error(f"{len(content)} bytes are no Ethernet frame") from None


def _encode(scapy: Any, text: str, addresses: dict[str, IPv4Address | None]) -> bytes:
    """The bytes of layers: ``Ether()/IP(dst="10.20.0.1")/UDP(dport=53)``."""
    layers = _parse_layers(scapy, text)
    if layers[0][0] != "Ether":
        layers.insert(0, ("Ether", {}))
    packet, content = None, b""
    for name, values in layers:
        defaults: dict[str, Any] = {}
        if name == "Ether":
            defaults = {"src": _NO_MAC, "dst": _NO_MAC}
        if name == "IP":
            defaults = {field: str(address) for field, address in addresses.items() if address is not None}
            missing = next((field for field in addresses if field not in defaults | values), None)
            if missing is not None:
                raise _packet_error(f"IP has no {missing}; give {missing}=..., or the host")
        try:
            layer = getattr(scapy, name)(**defaults | values)
            _require_encodable(layer, values)
            packet = layer if packet is None else packet / layer
            content = bytes(packet)
        except (ValueError, TypeError, KeyError, OSError, OverflowError, struct.error) as error:
            raise _packet_error(f"{name}: {_error_text(error)}") from None
    return content


def _require_encodable(layer: Any, values: dict[str, int | str | bytes]) -> None:
    """Refuse numbers that the bytes of a layer do not have. Raises ValueError."""
    parsed = type(layer)(bytes(layer))
    for field, value in values.items():
        if isinstance(value, int) and parsed.getfieldval(field) != value:
            msg = f"{field}={value} is not possible; the packet would have {field}={parsed.getfieldval(field)}"
            raise ValueError(msg)


def _parse_layers(scapy: Any, text: str) -> list[tuple[str, dict[str, int | str | bytes]]]:
    """The layers of an expression, outermost first, with the values of their fields."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _packet_error(f"{plain(repr(text), 40)} is no packet; {_REMEDY}") from None
    calls: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        calls.append(node.right)
        node = node.left
    if len(calls) >= _MAX_LAYERS:
        raise _packet_error(f"{len(calls) + 1} layers: too many; give at most {_MAX_LAYERS}")
    try:
        return [_parse_layer(scapy, call) for call in (node, *reversed(calls))]
    except RecursionError:  # of showing what is wrong
        raise _packet_error(f"{plain(repr(text), 40)} is no packet; {_REMEDY}") from None


def _parse_layer(scapy: Any, call: ast.expr) -> tuple[str, dict[str, int | str | bytes]]:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
        raise _packet_error(f"{plain(ast.unparse(call), 40)} is no layer; {_REMEDY}")
    name = call.func.id
    if name not in _LAYERS:
        raise _packet_error(f"no layer {name!r}; {suggest(name, _LAYERS, 'layers')}")
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise _packet_error(f"{name} takes its values by name, such as {name}({_field_names(scapy, name)[0]}=...)")
    return name, {_field_name(scapy, name, keyword): _parse_value(name, keyword) for keyword in call.keywords}


def _field_name(scapy: Any, layer: str, keyword: ast.keyword) -> str:
    fields = _field_names(scapy, layer)
    if keyword.arg not in fields:
        raise _packet_error(f"{layer} has no field {keyword.arg!r}; {suggest(keyword.arg, fields, 'fields')}")
    return keyword.arg


def _field_names(scapy: Any, layer: str) -> list[str]:
    return [field.name for field in getattr(scapy, layer).fields_desc]


def _parse_value(layer: str, keyword: ast.keyword) -> int | str | bytes:
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    if not isinstance(value, (int, str, bytes)) or isinstance(value, bool):
        text = plain(ast.unparse(keyword.value), 40)
        raise _packet_error(f"{layer}: {keyword.arg}={text} is neither a number nor a text in quotes")
    if keyword.arg in _ADDRESS_FIELDS.get(layer, ()):
        try:
            return str(IPv4Address(value))
        except AddressValueError:
            raise _packet_error(f"{layer}: {keyword.arg}={value!r} is not an IPv4 address") from None
    return value


def _parse_frame(scapy: Any, packet: Any) -> Frame:
    vlan: int | None = None
    layer = packet.payload
    if type(layer) is scapy.Dot1Q:
        vlan, layer = layer.vlan, layer.payload
    if type(layer) is not scapy.IP or layer.version != 4:
        raise _packet_error(
            "this is not an IPv4 packet with at most one VLAN tag; flow entries of a plan match no other packets"
        )
    return Frame(IPv4Address(layer.src), IPv4Address(layer.dst), vlan, layer.proto)


def _error_text(error: Exception) -> str:
    """An error of Scapy in one line."""
    lines = [line for line in str(error).splitlines() if not line.startswith("To inject")]
    return f"unknown name {error}" if isinstance(error, KeyError) else " ".join(lines) or type(error).__name__
