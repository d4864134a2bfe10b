# SPDX-License-Identifier: Apache-2.0
"""Model values to JSON and back: one codec for plan, manifest and the protocols between processes.

    dataclass               object of its fields; one of several (an Action, a Loss) also has its tag as "kind"
    Rate, Duration, Size    integer: bit/s, nanoseconds, bytes
    Enum, address, network  text
    BoxKind                 text: its name; read, the registered kind of that name
    tuple                   list
    None, str, int, bool    as they are

``from_json(T, json.loads(json.dumps(to_json(value)))) == value`` for every value of a model type ``T``.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from enum import Enum
from ipaddress import IPv4Address, IPv4Network
from typing import Any, TypeVar, Union, cast

from atoll_core.units import Duration, Rate, Size

T = TypeVar("T")
_Converter = Callable[[Any], Any]

_TAGS: dict[type[Any], str] = {}
_FINDERS_BY_TYPE: dict[type[Any], Callable[[str], Any]] = {}


def tagged(tag: str) -> Callable[[type[T]], type[T]]:
    """Decorate a dataclass of a union with others: its JSON has the tag as "kind"."""

    def with_tag(cls: type[T]) -> type[T]:
        _TAGS[cls] = tag
        return cls

    return with_tag


def register_by_name(cls: type[T], find: Callable[[str], T]) -> None:
    """Write values of a class as their ``name``, and read them by ``find``, which raises ValueError."""
    _FINDERS_BY_TYPE[cls] = find


def to_json(value: Any) -> Any:
    """A JSON-able copy of a model value: dataclasses become objects, tuples lists, quantities integers."""
    return _writer(cast(Any, type(value)))(value)


def from_json(cls: type[T], data: Any) -> T:
    """The value of type ``cls`` that ``to_json`` made ``data`` from.

    ``data`` is as ``json.loads`` gives it. A field left out takes its default, or the value of its metadata
    ``unrecorded`` if data made before the field existed meant another one. Text in the place of an object is the value
    of its field with the metadata ``alone``: data made before it had others. Keys unknown to ``cls`` are ignored.
    Raises TypeError or ValueError when ``data`` is not such a value.
    """
    return cast(T, _reader(cls)(data))


_JSON_SCALARS = (str, int, float, bool)
_UNCHANGED_TYPES = frozenset({*_JSON_SCALARS, type(None)})
_QUANTITIES = frozenset({Rate, Duration, Size})


# Plans have ten thousand entries: each type is inspected once, and its converter is cached.


@functools.cache
def _writer(cls: type[Any]) -> _Converter:
    """The function that converts values of this class to JSON."""
    if cls in _FINDERS_BY_TYPE:
        return lambda value: value.name
    if cls in _QUANTITIES:
        return lambda value: value.base
    if dataclasses.is_dataclass(cls):
        return _object_writer(cls)
    if issubclass(cls, Enum):
        return lambda value: value.value
    if issubclass(cls, (IPv4Address, IPv4Network)):
        return functools.lru_cache(maxsize=65536)(str)
    if issubclass(cls, (list, tuple)):
        return lambda value: [to_json(item) for item in value]
    if issubclass(cls, dict):
        return lambda value: {str(key): to_json(item) for key, item in value.items()}
    return lambda value: value


def _object_writer(cls: type[Any]) -> _Converter:
    names = [field.name for field in dataclasses.fields(cls)]
    tag = {"kind": _TAGS[cls]} if cls in _TAGS else {}

    def write(value: Any) -> dict[str, Any]:
        data: dict[str, Any] = dict(tag)
        for name in names:
            part = getattr(value, name)
            data[name] = part if type(part) in _UNCHANGED_TYPES else to_json(part)
        return data

    return write


@functools.cache
def _reader(hint: Any) -> _Converter:
    """The function that converts JSON to values of this type; it raises TypeError or ValueError."""
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union_reader(typing.get_args(hint))
    if origin is tuple:
        return _tuple_reader(typing.get_args(hint))
    if origin is dict:
        return functools.partial(_expect, dict)
    if hint is Any:
        return lambda data: data
    if hint in _JSON_SCALARS:
        return functools.partial(_expect, hint)
    if hint in _FINDERS_BY_TYPE:
        return lambda data: _FINDERS_BY_TYPE[hint](_expect(str, data))
    if hint in _QUANTITIES:
        return lambda data: hint(_expect(int, data))
    if dataclasses.is_dataclass(hint):
        return _object_reader(cast("type[Any]", hint))
    from_text: _Converter = functools.lru_cache(maxsize=65536)(hint)  # an Enum or an address: they never change
    return lambda data: from_text(_expect(str, data))


def _expect(cls: type[Any], data: Any) -> Any:
    """``data``, if it is exactly a ``cls``: ``true`` is not accepted as a number, nor ``"false"`` as false."""
    if type(data) is not cls:
        msg = f"{data!r} is not {cls.__name__}"
        raise TypeError(msg)
    return data


def _object_reader(cls: type[Any]) -> _Converter:
    hints, fields = typing.get_type_hints(cls), dataclasses.fields(cls)
    readers = {field.name: _reader(hints[field.name]) for field in fields}
    unrecorded = {field.name: field.metadata["unrecorded"] for field in fields if "unrecorded" in field.metadata}
    text_field = next((field.name for field in fields if "alone" in field.metadata), None)

    def read(data: Any) -> Any:
        content: dict[str, Any] = {text_field: data} if text_field and isinstance(data, str) else _expect(dict, data)
        parts = {name: reader(content[name]) for name, reader in readers.items() if name in content}
        return cls(**unrecorded | parts if unrecorded else parts)

    return read


def _tuple_reader(members: tuple[Any, ...]) -> _Converter:
    if len(members) == 2 and members[1] is Ellipsis:
        read_item = _reader(members[0])
        return lambda data: tuple([read_item(item) for item in _expect(list, data)])
    readers = [_reader(member) for member in members]
    return lambda data: tuple(reader(item) for reader, item in zip(readers, _expect(list, data), strict=True))


def _union_reader(members: tuple[Any, ...]) -> _Converter:
    optional = type(None) in members
    readers = [(member, _reader(member)) for member in members if member is not type(None)]  # int before an Enum of str

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        tag = cast("dict[str, Any]", data).get("kind") if isinstance(data, dict) else None
        for member, reader in readers:
            if tag is not None and _TAGS.get(member, tag) != tag:  # a class without a tag may have a field of that name
                continue
            try:
                return reader(data)
            except (TypeError, ValueError):
                continue
        msg = f"{data!r} is none of {', '.join(getattr(member, '__name__', str(member)) for member, _ in readers)}"
        raise TypeError(msg)

    return read
