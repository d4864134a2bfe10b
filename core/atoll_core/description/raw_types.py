# SPDX-License-Identifier: Apache-2.0
"""Field types of the raw descriptions: text from YAML becomes a quantity, an address, a port, or a reason why not.

Every type here carries its JSON Schema, so that an editor refuses what ``atoll check`` refuses. The messages of the
ValueErrors are read by users, after the name of the field (see ``validation_messages``).
"""

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, WithJsonSchema, model_validator
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from atoll_core.described import percent
from atoll_core.errors import shown
from atoll_core.lab.port_ref import PortRef
from atoll_core.units import Duration, Rate, Size

PORT_MAX = 65279  # OFPP_MAX of OpenFlow 1.3 is 0xffffff00; OVS and 1.0 hardware end at 0xfeff
INTERFACE_NAME_MAX = 15  # IFNAMSIZ less the terminating zero, linux/if.h
RESERVED_INTERFACES = ("all", "default", "lo")  # loopback, and two folders of net.ipv4.conf: sysctl there concerns all

PORT_EXAMPLE = "sw-c/11"
"""A placeholder in messages, which is replaced by a port of the described lab."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_INTERFACE = re.compile(rf"[a-z][a-z0-9.-]{{0,{INTERFACE_NAME_MAX - 1}}}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_PORT = re.compile(r"([a-z][a-z0-9-]*)/([0-9]{1,5})")
_CONGESTION_CONTROL = re.compile(r"[a-z][a-z0-9_]{0,14}")  # TCP_CA_NAME_MAX is 16 with the terminating zero
_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_SHARE_LENGTH_MAX = 30  # characters
_UNUSABLE_NETWORKS = (
    (IPv4Network("0.0.0.0/8"), "'this network' (RFC 1122)"),
    (IPv4Network("127.0.0.0/8"), "loopback"),
    (IPv4Network("224.0.0.0/3"), "multicast or reserved"),
)


def refusal(value: Any, reason: str) -> ValueError:
    """The error about a value; pydantic reports ValueErrors, and a TypeError would end the program."""
    return ValueError(f"{shown(value)} {reason}")


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings of a model's fields: literals that follow them in its class, or in one that it extends."""
    texts: dict[str, str] = {}
    for base in reversed(model.mro()):
        if issubclass(base, Raw):
            (definition,) = cast("list[ast.ClassDef]", ast.parse(inspect.getsource(base)).body)
            for field, text in itertools.pairwise(definition.body):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                        texts[name] = inspect.cleandoc(value)
                    case _:
                        pass
    return texts


class Raw(BaseModel):
    """Base of all raw mappings: no unknown keys, no conversion between YAML's types. A key's docstring describes it."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe each key by its docstring, which pydantic itself would look up at each start of a program."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _docstrings(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = text
        return schema

    @classmethod
    def expanded(cls, value: Any) -> Any:
        """Expand a short form to its mapping; return anything else unchanged."""
        return value

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        return cls.expanded(value)


class BoxSettings(Raw):
    """Base of the settings of a box kind (``BoxKind.settings``). Their values are numbers, texts or quantities.

    ``SAME_IN_PAIR``: settings that must be the same at both boxes of a pair; so must ``mode`` if it encapsulates.
    """

    SAME_IN_PAIR: ClassVar[tuple[str, ...]] = ()

    mode: Literal["on", "off"] = "on"
    """off: the program of the box is not started, it only forwards; default on."""

    @classmethod
    def described(cls, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Settings in base units as in a description. Those that the kind does not declare stay as they are."""
        return {**recorded, **cls.model_construct(**recorded).model_dump(exclude_unset=True)}


class ShortForm(Raw):
    """A mapping with a short form: plain text is the value of its key ``_SHORT``."""

    _SHORT: ClassVar[str]

    @classmethod
    def expanded(cls, value: Any) -> Any:
        return cast(Any, value) if isinstance(value, dict) else {cls._SHORT: value}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(core, handler))
        value_schema = mapping["properties"][cls._SHORT]
        pattern = next(
            (form["pattern"] for form in (value_schema, *value_schema.get("anyOf", ())) if "pattern" in form), None
        )
        text = {"type": "string"} | ({"pattern": pattern} if pattern else {})
        return {"anyOf": [text, mapping]}


@dataclass(frozen=True, slots=True)
class Between:
    """Annotation of a quantity: text is parsed, and refused outside ``low`` to ``high``."""

    kind: type[Rate | Duration | Size]
    low: str
    high: str
    low_reason: str = ""  # the reason for the lower bound, read after it

    def read(self, text: object) -> Rate | Duration | Size:
        """Parse the quantity; ValueError with the reason if ``text`` is not one."""
        quantity = self.kind.parse(text)
        if quantity.base < self.kind.parse(self.low).base:
            raise refusal(text, f"is too small; it must be at least {self.low}{self.low_reason}")
        if quantity.base > self.kind.parse(self.high).base:
            raise refusal(text, f"is too large; it must be at most {self.high}")
        return quantity

    def write(self, base: int) -> str:
        """The text of a quantity in base units."""
        return str(self.kind(base))

    def __get_pydantic_core_schema__(self, _kind: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(self.read, self.write)

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": rf"^\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(self.kind.UNITS)})\s*$"}


@dataclass(frozen=True, slots=True)
class Share:
    """Annotation of a probability or another share, written in per cent."""

    low: str = "0 %"

    def read(self, text: object) -> float:
        """The share, from 0.0 to 1.0; ValueError with the reason if ``text`` is not one."""
        share = _parse_percent(text)
        if share is None:
            remedy = "decimals follow a point, as in" if "," in str(text) else "write a number and %, such as"
            raise refusal(text, f"is not a share; {remedy} '0.1 %'")
        if share < (_parse_percent(self.low) or 0):
            raise refusal(text, f"is too small; it must be at least {self.low}")
        if share > 100:
            raise refusal(text, "is too large; it must be at most 100 %")
        return float(share / 100)

    def __get_pydantic_core_schema__(self, _kind: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return _schema(self.read, percent)

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^{_SHARE.pattern}$"}


def _schema(read: Callable[[object], Any], write: Callable[[Any], str]) -> CoreSchema:
    """Validate by ``read``; dump what a run has recorded by ``write``."""
    dump = core_schema.plain_serializer_function_ser_schema(
        lambda recorded, _info: write(recorded), info_arg=True, when_used="unless-none"
    )  # with info, so that JSON Schemas keep their defaults
    return core_schema.no_info_plain_validator_function(read, serialization=dump)


def _parse_percent(text: object) -> Decimal | None:
    match = _SHARE.fullmatch(text) if isinstance(text, str) and len(text) <= _SHARE_LENGTH_MAX else None
    return Decimal(match[1]) if match else None


def _from_text(read: Callable[[str], Any], noun: str, example: str) -> Callable[[object], Any]:
    """Wrap ``read`` so that values of YAML that are not text are refused, with the same message everywhere."""

    def read_text(value: object) -> Any:
        if not isinstance(value, str):
            quotes = "; put it in quotes" if isinstance(value, (int, float)) else ""
            raise refusal(value, f"is not {noun}, such as '{example}'{quotes}")
        return read(value)

    return read_text


def _parse_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise refusal(
            text, "is not a name; write a small letter, then small letters, digits and '-' (at most 63 in all)"
        )
    return text


def _parse_interface(text: str) -> str:
    if not _INTERFACE.fullmatch(text):
        raise refusal(
            text, f"is not an interface name; write 1 to {INTERFACE_NAME_MAX} small letters, digits, '-', '.'"
        )
    if text in RESERVED_INTERFACES:
        raise refusal(text, f"is reserved by Linux ({', '.join(RESERVED_INTERFACES)}); choose a name such as 'eth0'")
    return text


def _parse_mac(text: str) -> str:
    mac = text.lower()
    if not _MAC.fullmatch(mac):
        raise refusal(text, "is not a MAC address; write six bytes such as '02:00:00:00:00:01'")
    if mac == "00:00:00:00:00:00":
        raise refusal(text, "is no machine's address; write six bytes such as '02:00:00:00:00:01'")
    if int(mac[:2], 16) & 1:
        raise refusal(text, "is a group (multicast) MAC address; make its first byte even, such as '02'")
    return mac


def _parse_port(text: str) -> PortRef:
    match = _PORT.fullmatch(text)
    if not match:
        raise refusal(text, f"is not a switch port; write switch/number, such as '{PORT_EXAMPLE}'")
    number = int(match[2])
    if not 1 <= number <= PORT_MAX:
        msg = f"{shown(text)}: OpenFlow ports have numbers from 1 to {PORT_MAX}"
        raise ValueError(msg)
    return PortRef(match[1], number)


def _parse_address(text: str) -> IPv4Address:
    try:
        address = IPv4Address(text)
    except AddressValueError:
        raise refusal(text, "is not an IPv4 address; write four numbers from 0 to 255, such as '10.10.0.1'") from None
    for network, reason in _UNUSABLE_NETWORKS:
        if address in network:
            raise refusal(text, f"is {reason}; choose an address that a host can have, such as '10.10.0.1'")
    return address


def parse_network(text: str) -> IPv4Network:
    """An IPv4 network of hosts; ValueError with the reason if ``text`` is not one."""
    try:
        network = IPv4Network(text, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise refusal(text, "is not an IPv4 network; write address/prefix length, such as '10.10.0.0/16'") from None
    if str(network) != text:
        raise refusal(text, f"has host bits set; write '{network}'")
    for block, reason in _UNUSABLE_NETWORKS:
        if network.overlaps(block):
            raise refusal(text, f"overlaps {block}, which is {reason}; choose a private network such as '10.10.0.0/16'")
    return network


@dataclass(frozen=True, slots=True)
class Positive:
    """Annotation of a number above 0, and at most ``high``. ``reason``: what is said of others."""

    high: int
    reason: str

    def _read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= self.high:
            raise refusal(value, self.reason)
        return float(value)

    def __get_pydantic_core_schema__(self, _kind: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": self.high}


def _check_congestion_control(value: object) -> str:
    if not isinstance(value, str) or not _CONGESTION_CONTROL.fullmatch(value):
        raise refusal(value, "is not a congestion control; write the kernel's name for it, such as cubic, bbr or reno")
    return value


def _pattern(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


Name = Annotated[str, PlainValidator(_from_text(_parse_name, "a name", "sw-1")), _pattern(_NAME.pattern)]
Key = Annotated[str, AfterValidator(_parse_name), _pattern(_NAME.pattern)]
"""A name where it is the key of a mapping (there YAML's text is all there is)."""
InterfaceName = Annotated[
    str, PlainValidator(_from_text(_parse_interface, "an interface name", "eth0")), _pattern(_INTERFACE.pattern)
]
Mac = Annotated[
    str,
    PlainValidator(_from_text(_parse_mac, "a MAC address", "02:00:00:00:00:01")),
    _pattern("[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}"),
]
Port = Annotated[
    PortRef,
    PlainValidator(_from_text(_parse_port, "a switch port", PORT_EXAMPLE)),
    _pattern("[a-z][a-z0-9-]*/[1-9][0-9]{0,4}"),
]
Address = Annotated[
    IPv4Address,
    PlainValidator(_from_text(_parse_address, "an IPv4 address", "10.10.0.1")),
    WithJsonSchema({"type": "string", "format": "ipv4"}),
]
Prefix = Annotated[
    IPv4Network,
    PlainValidator(_from_text(parse_network, "an IPv4 network", "10.10.0.0/16")),
    _pattern(r"([0-9]{1,3}\.){3}[0-9]{1,3}/[0-9]{1,2}"),
]
Capacity = Annotated[
    float, Positive(1_000_000, "is not a capacity; write a number above 0 and up to 1000000, such as 1 or 0.5")
]
"""The capacity of a client, relative to the other clients."""
CongestionControl = Annotated[str, PlainValidator(_check_congestion_control), _pattern(_CONGESTION_CONTROL.pattern)]
FileSize = Annotated[Size, Between(Size, "1 MB", "64 GB")]
BufferSize = Annotated[Size, Between(Size, "4096 B", "1 GB")]
