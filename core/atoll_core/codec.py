# SPDX-License-Identifier: Apache-2.0
"""Model values to JSON and back: one codec for plan, manifest and the protocols between processes.

    dataclass               object of its fields; one of several (an Action, a Loss) also has its class name as "kind"
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

T = TypeVar("T")


def to_json(thing: Any) -> Any:
    """A JSON-able copy of a model value: dataclasses become objects, tuples lists, quantities integers.

    A dataclass that is a member of a union with other dataclasses (an Action, say) carries its class name as "kind".
    """
    return _writer(cast(Any, type(thing)))(thing)


def from_json(cls: type[T], data: Any) -> T:
    """The value of type ``cls`` that ``to_json`` made ``data`` from.

    ``data`` is as ``json.loads`` gives it. A field left out takes its default, or the value of its metadata
    ``unrecorded`` if data made before the field existed meant another one. Text in the place of an object is the value
    of its field with the metadata ``alone``: data made before it had others. Keys unknown to ``cls`` are ignored.
    Raises TypeError or ValueError when ``data`` is not such a value.
    """
    return cast(T, _reader(cls)(data))


_JSON_SCALARS = (str, int, float, bool)
_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})
_TAGGED = frozenset(
    {
        *("Output", "PushVlan", "PopVlan"),  # members of flow.Action
        *("Bernoulli", "BitError", "GilbertElliott", "LossTrace"),  # of experiment.Loss
        *("Codel", "Red"),  # of experiment.Aqm
    }
)


# Plans have ten thousand entries: each type is inspected once, and its converter is cached.

_Convert = Callable[[Any], Any]


@functools.cache
def _writer(kind: type[Any]) -> _Convert:
    """The function that converts values of this class to JSON."""
    if hasattr(kind, "named"):
        return lambda thing: thing.name
    if dataclasses.is_dataclass(kind):
        if _is_quantity(kind):
            return lambda thing: thing.base
        return _object_writer(kind)
    if issubclass(kind, Enum):
        return lambda thing: thing.value
    if issubclass(kind, (IPv4Address, IPv4Network)):
        return functools.lru_cache(maxsize=65536)(str)
    if issubclass(kind, (list, tuple)):
        return lambda thing: [to_json(item) for item in thing]
    if issubclass(kind, dict):
        return lambda thing: {str(key): to_json(item) for key, item in thing.items()}
    return lambda thing: thing


def _object_writer(kind: type[Any]) -> _Convert:
    names = [field.name for field in dataclasses.fields(kind)]
    first = {"kind": kind.__name__} if kind.__name__ in _TAGGED else {}

    def write(thing: Any) -> dict[str, Any]:
        written: dict[str, Any] = dict(first)
        for name in names:
            part = getattr(thing, name)
            written[name] = part if type(part) in _AS_THEY_ARE else to_json(part)
        return written

    return write


@functools.cache
def _reader(hint: Any) -> _Convert:
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
    if hasattr(hint, "named"):
        return lambda data: hint.named(_expect(str, data))
    if not dataclasses.is_dataclass(hint):  # an Enum or an address: values that never change
        make_of_text: _Convert = functools.lru_cache(maxsize=65536)(hint)
        return lambda data: make_of_text(_expect(str, data))
    make = cast("type[Any]", hint)
    if _is_quantity(make):
        return lambda data: make(_expect(int, data))
    return _object_reader(make)


def _expect(kind: type[Any], data: Any) -> Any:
    """``data``, if it is exactly a ``kind``: ``true`` is not accepted as a number, nor ``"false"`` as false."""
    if type(data) is not kind:
        msg = f"{data!r} is not {kind.__name__}"
        raise TypeError(msg)
    return data


def _object_reader(make: type[Any]) -> _Convert:
    hints = typing.get_type_hints(make)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(make)}
    every = dataclasses.fields(make)
    unrecorded = {field.name: field.metadata["unrecorded"] for field in every if "unrecorded" in field.metadata}

    alone = next((field.name for field in every if "alone" in field.metadata), None)

    def read(data: Any) -> Any:
        fields: dict[str, Any] = {alone: data} if alone and isinstance(data, str) else _expect(dict, data)
        given = {name: reader(fields[name]) for name, reader in readers.items() if name in fields}
        return make(**unrecorded | given if unrecorded else given)

    return read


def _tuple_reader(members: tuple[Any, ...]) -> _Convert:
    if len(members) == 2 and members[1] is Ellipsis:
        one = _reader(members[0])
        return lambda data: tuple([one(item) for item in _expect(list, data)])
    each = [_reader(member) for member in members]
    return lambda data: tuple(reader(item) for reader, item in zip(each, _expect(list, data), strict=True))


def _union_reader(members: tuple[Any, ...]) -> _Convert:
    optional = type(None) in members
    concrete = [member for member in members if member is not type(None)]  # in their order: int before an Enum of str
    readers = [(getattr(member, "__name__", ""), _reader(member)) for member in concrete]

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        kind = cast("dict[str, Any]", data).get("kind") if isinstance(data, dict) else None
        for name, reader in readers:
            if name in _TAGGED and kind not in (None, name):  # others may have a field of that name
                continue
            try:
                return reader(data)
            except (TypeError, ValueError):
                continue
        msg = f"{data!r} has none of the types {', '.join(name for name, _ in readers)}"
        raise TypeError(msg)

    return read


def _is_quantity(cls: type[Any]) -> bool:
    return hasattr(cls, "UNITS")
