# SPDX-License-Identifier: Apache-2.0
"""Model values to JSON and back: one codec for plan, manifest and the protocols between processes.

    dataclass               object of its fields; one of several (an Action, a Loss) also has its class name as "kind"
    Rate, Duration, Size    integer: bit/s, nanoseconds, bytes
    Enum, address, network  text
    tuple                   list
    None, str, int, bool    as they are

``from_json(T, json.loads(json.dumps(to_json(value)))) == value`` for every value of a model type ``T``.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv4Address, IPv4Network
from typing import Any, TypeVar, Union, cast

T = TypeVar("T")


def to_json(thing: Any) -> Any:
    """A JSON-able copy of a model value: dataclasses become objects, tuples lists, quantities integers.

    A dataclass that is a member of a union with other dataclasses (an Action, say) carries its class name as "kind".
    """
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        if _is_quantity(type(thing)):
            return cast(Any, thing).base
        fields = {f.name: to_json(getattr(thing, f.name)) for f in dataclasses.fields(thing)}
        return {"kind": type(thing).__name__, **fields} if type(thing).__name__ in _TAGGED else fields
    if isinstance(thing, Enum):
        return thing.value
    if isinstance(thing, (IPv4Address, IPv4Network)):
        return str(thing)
    if isinstance(thing, (list, tuple)):
        return [to_json(item) for item in cast("list[Any]", thing)]
    if isinstance(thing, dict):
        return {str(key): to_json(item) for key, item in cast("dict[Any, Any]", thing).items()}
    return thing


def from_json(cls: type[T], data: Any) -> T:
    """The value of type ``cls`` that ``to_json`` made ``data`` from.

    ``data`` is as ``json.loads`` gives it. A field left out takes its default; keys unknown to ``cls`` are ignored.
    Raises TypeError or ValueError when ``data`` is not such a value.
    """
    return cast(T, _structure(cls, data))


_JSON_SCALARS = (str, int, float, bool)
_TAGGED = frozenset(
    {
        *("Output", "PushVlan", "PopVlan"),  # members of flow.Action
        *("Bernoulli", "GilbertElliott", "LossTrace"),  # of experiment.Loss
        *("Codel", "Red"),  # of experiment.Aqm
    }
)


def _is_quantity(cls: type[Any]) -> bool:
    return hasattr(cls, "UNITS")


def _structure(hint: Any, data: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _structure_union(typing.get_args(hint), data)
    if origin is tuple:
        return tuple(_structure_items(typing.get_args(hint), _expect(list, data)))
    if origin is dict:
        return _expect(dict, data)
    if hint is Any:
        return data
    if hint in _JSON_SCALARS:
        return _expect(hint, data)
    if not dataclasses.is_dataclass(hint):
        return hint(_expect(str, data))  # an Enum or an address
    make = cast("type[Any]", hint)
    if _is_quantity(make):
        return make(_expect(int, data))
    fields: dict[str, Any] = _expect(dict, data)
    return make(**{name: _structure(hint, fields[name]) for name, hint in _hints(make).items() if name in fields})


def _expect(kind: type[Any], data: Any) -> Any:
    """``data``, if JSON made it a ``kind`` and nothing like it: true is no number, "false" is not false."""
    if type(data) is not kind:
        msg = f"{data!r} is not {kind.__name__}"
        raise TypeError(msg)
    return data


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _structure_items(members: tuple[Any, ...], data: list[Any]) -> Iterator[Any]:
    if len(members) == 2 and members[1] is Ellipsis:
        members = (members[0],) * len(data)
    return (_structure(member, item) for member, item in zip(members, data, strict=True))


def _structure_union(members: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in members:
        return None
    concrete = [member for member in members if member is not type(None)]  # in their order: int before an Enum of str
    if isinstance(data, dict) and "kind" in data:
        kind = cast("dict[str, Any]", data)["kind"]
        concrete = [member for member in concrete if getattr(member, "__name__", "") == kind]
    for member in concrete:
        try:
            return _structure(member, data)
        except (TypeError, ValueError):
            continue
    msg = f"{data!r} is none of {members}"
    raise TypeError(msg)
