# SPDX-License-Identifier: Apache-2.0
"""Model values to JSON and back: one codec for plan, manifest and the protocols between processes."""

import dataclasses
import types
import typing
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
            return getattr(thing, "base")
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

    Raises TypeError, KeyError or ValueError when ``data`` is not such a value.
    """
    return cast(T, _structure(cls, data))


_JSON_SCALARS = (str, int, float, bool)
_TAGGED = frozenset({"Output", "PushVlan", "PopVlan"})  # members of flow.Action


def _is_quantity(cls: type[Any]) -> bool:
    return hasattr(cls, "UNITS")


def _structure(hint: Any, data: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _structure_union(typing.get_args(hint), data)
    if origin is tuple:
        members = typing.get_args(hint)
        if len(members) == 2 and members[1] is Ellipsis:
            return tuple(_structure(members[0], item) for item in data)
        return tuple(_structure(member, item) for member, item in zip(members, data, strict=True))
    if origin is dict:
        return dict(cast("dict[str, Any]", data))
    if hint is Any:
        return data
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if _is_quantity(hint):
            return cast(Any, hint)(_structure(int, data))
        hints = typing.get_type_hints(hint)
        return hint(
            **{f.name: _structure(hints[f.name], data[f.name]) for f in dataclasses.fields(hint) if f.name in data}
        )
    if hint in _JSON_SCALARS:
        if type(data) is not hint:
            msg = f"{data!r} is not {hint.__name__}"
            raise TypeError(msg)
        return data
    return cast(Any, hint)(data)  # an Enum or an address


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
        except (TypeError, ValueError, KeyError):
            continue
    msg = f"{data!r} is none of {members}"
    raise TypeError(msg)
