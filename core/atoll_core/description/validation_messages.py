# SPDX-License-Identifier: Apache-2.0
"""Validate a document against a raw model, and report mistakes in the words of the descriptions, with remedies.

All mistakes of form come before any of meaning. A description of the right form is resolved (``resolve_*``), which
reports those of meaning: names that do not exist, values that contradict each other.
"""

import difflib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from atoll_core.description.raw_types import PORT_EXAMPLE, PORT_MAX, Raw
from atoll_core.description.yaml_document import Document, KeyPath
from atoll_core.errors import DescriptionError, Diagnostic, shown
from atoll_core.lab.box_kind import BoxKind

ENTRY_NOUNS = {  # sections whose keys are names, and the noun for one entry
    "switches": "switch",
    "learning_switches": "learning switch",
    "hosts": "host",
    "boxes": "box",
    "delay_boxes": "delay box",
    "classes": "class",
    "taps": "tap",
    "links": "link",
    "branches": "branch",
    "latency": "latency of",
    "servers": "server",
    "transfers": "transfer",
    "groups": "group",
    "machines": "machine",
    "interfaces": "interface",
}
_MAX_NAMES = 20
_MIN_SIMILARITY = 0.6  # difflib's default for a close match
_MIN_LETTERS = 3  # letters
_SYNONYMS = {"kind": {"satellite": "link", "emulator": "link", "modem": "external"}}
_LAB_NAME_KEYS = ("chain", "links", "branches", "changes", "latency", "servers")  # keys that name things of the lab
_MAX_COMPARED_CHARACTERS = 100  # characters; the comparison takes quadratic time
_PORT = re.compile(r"\b([a-z][a-z0-9-]*)/[0-9]+\b")
_PORT_PLACEHOLDER = "switch/number"
_MAX_EXAMPLE_PORTS = 2  # ports of one switch
_NUMBERS = re.compile("[0-9]+")
_BOUNDS = ("ge", "le")  # of a whole number, as annotated-types has them

Ports = Mapping[str, Sequence[str]]

M = TypeVar("M", bound=Raw)


class Mistakes:
    """The mistakes of meaning in a document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.diagnostics: list[Diagnostic] = []

    def note(self, key_path: KeyPath, message: str) -> None:
        """Note a mistake."""
        name = entry_name(key_path)
        self.diagnostics.append(self.document.mistake(key_path, f"{name}: {message}" if name else message))

    def note_in_file(self, key_path: KeyPath, mistakes: Iterable[Diagnostic]) -> None:
        """Note those of a file that is named at ``key_path``. One of the file as a whole is reported there."""
        for mistake in mistakes:
            if mistake.line:
                self.diagnostics.append(mistake)
            else:
                self.note(key_path, f"{mistake.file}: {mistake.message}; the path is relative to this file")


def parse(model: type[M], document: Document, examples: Mapping[str, str] = MappingProxyType({})) -> M:
    """Validate ``document`` against ``model``. Raises DescriptionError with all mistakes of YAML and of form.

    ``examples``: by key, for messages, instead of those of the model.
    """
    mistakes = list(document.mistakes)
    if document.tree is not None:
        try:
            raw = model.model_validate(document.tree)
        except ValidationError as error:
            details = error.errors(include_url=False)
            ports = _free_ports(document.tree)
            # A key that is missing because it is misspelt is reported once, as the misspelling.
            suggested = {
                (*key_path[:-1], _suggest_key(model, key_path)) for key_path in map(_key_path, details) if key_path
            }
            mistakes += [
                document.mistake(_key_path(detail), error_message(model, detail, ports, examples))
                for detail in details
                if detail["type"] != "missing" or _key_path(detail) not in suggested
            ]
        else:
            if not mistakes:
                return raw
    raise DescriptionError(mistakes)


def _key_path(error: ErrorDetails) -> KeyPath:
    return tuple(key for key in error["loc"] if key != "[key]")


def error_message(
    model: type[Raw],
    error: ErrorDetails,
    ports: Ports = MappingProxyType({}),
    examples: Mapping[str, str] = MappingProxyType({}),
    base_path: KeyPath = (),
) -> str:
    """The message for one of pydantic's errors in a description: the error and the remedy.

    ``ports``: free ones of each switch of the lab that is described.
    ``examples``: by key, in place of the model's.
    ``base_path``: the key path of the model in the description.
    """
    key_path = _key_path(error)
    outer, inner = _prefix(entry_name((*base_path, *key_path[:-1]))), _prefix(entry_name((*base_path, *key_path)))
    key, value = str(key_path[-1]) if key_path else "", error.get("input")
    field = field_at(model, key_path)
    match error["type"]:
        case "missing":
            return f"{outer}{key} is missing; add {_example(key, field, ports, examples)}"
        case "extra_forbidden":
            keys = sorted(_keys(model_at(model, key_path[:-1])))
            return f"{outer}unknown key {shown(key)}; {suggest(key, keys, 'keys')}"
        case "value_error":
            reason = str(cast(Any, error)["ctx"]["error"])
            return f"{inner}{reason.replace(PORT_EXAMPLE, _port_example(value, ports))}"
        case "enum" | "literal_error":
            remedy = suggest(value, _choices(field), f"{key.rstrip('s')}s", synonyms=_SYNONYMS.get(key, {}))
            return f"{inner}unknown {key} {shown(value)}; {remedy}"
        case "int_type" | "greater_than_equal" | "less_than_equal":
            return f"{inner}{shown(value)} is not a whole number{_range(model, key_path)}"
        case "bool_type":
            return f"{inner}{shown(value)} is neither true nor false; write one of them without quotes"
        case "string_type":
            return f"{inner}expected text{_such_as(key, field, ports, examples)}; found {shown(value)}"
        case "list_type":
            return f"{inner}expected a list{_such_as(key, field, ports, examples)}; found {shown(value)}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{inner}expected keys{_such_as(key, field, ports, examples)}; found {shown(value)}"
        case _:
            return f"{inner}{shown(value)} is not valid here{_such_as(key, field, ports, examples)}"


def entry_name(key_path: KeyPath) -> str:
    """The name of a key path in messages: ``("hosts", "w1", "ip")`` is "host 'w1': ip"."""
    parts: list[str] = []
    section = ""
    for key in key_path:
        if isinstance(key, int):
            parts.append(
                {"trunks": "trunk", "chain": "chain hop", "changes": "change"}.get(section, "entry") + f" {key + 1}"
            )
        elif section in ENTRY_NOUNS:
            parts.append(f"{ENTRY_NOUNS[section]} {shown(key)}")
        elif key not in {*ENTRY_NOUNS, "trunks", "chain", "changes"} or key == key_path[-1]:
            parts.append(key)
        section = str(key) if section not in ENTRY_NOUNS else ""
    return ": ".join(parts)


def on_line(line: int) -> str:
    """`` (line 12)``; empty for line 0, which means no line."""
    return f" (line {line})" if line else ""


def suggest(
    word: object, words: Iterable[str], nouns: str, limit: int = _MAX_NAMES, synonyms: Mapping[str, str] | None = None
) -> str:
    """The remedy for an unknown word: the most similar known one, and the first ``limit`` of them.

    ``synonyms``: synonyms of known words.
    """
    names, synonyms = list(words), synonyms or {}
    if not names:
        return f"there are no known {nouns}"
    best = nearest(str(word), [*names, *synonyms])
    best = synonyms.get(best, best) if best else None
    listed = ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")
    return f"did you mean {shown(best)}? known {nouns}: {listed}" if best else f"known {nouns}: {listed}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The known word of which ``word`` is probably a misspelling; the first of several.

    Words that differ in a number alone are not misspellings of each other: rtt-60 does not suggest rtt-20.
    """
    similarity = {name: _similarity(word[:_MAX_COMPARED_CHARACTERS], name) for name in words}
    best = max(similarity, key=lambda name: similarity[name], default="")
    return best if similarity.get(best, 0) >= _MIN_SIMILARITY and not _differ_in_number(word, best) else None


def _similarity(word: str, name: str) -> float:
    """The similarity of two words, from 0 to 1. A word that begins with the other counts as similar."""
    is_prefix = min(len(word), len(name)) >= _MIN_LETTERS and (word.startswith(name) or name.startswith(word))
    return max(difflib.SequenceMatcher(None, word, name).ratio(), _MIN_SIMILARITY if is_prefix else 0)


def _differ_in_number(a: str, b: str) -> bool:
    numbers = [[number.lstrip("0") for number in _NUMBERS.findall(word)] for word in (a, b)]
    return _NUMBERS.sub("0", a) == _NUMBERS.sub("0", b) and numbers[0] != numbers[1]


def _suggest_key(model: type[Raw], key_path: KeyPath) -> str | None:
    """The known key of which the key at ``key_path`` is probably a misspelling; None if it is a known key."""
    keys = _keys(model_at(model, key_path[:-1]))
    return None if key_path[-1] in keys else nearest(str(key_path[-1]), keys)


def _prefix(name: str) -> str:
    return f"{name}: " if name else ""


def _keys(model: type[Raw] | None) -> dict[str, FieldInfo]:
    if model is None:
        return {}
    return {field.alias or name: field for name, field in model.model_fields.items()}


def field_at(model: type[Raw], key_path: KeyPath) -> FieldInfo | None:
    """The field at ``key_path``; None for an entry of a list or of named entries, and for an unknown key."""
    owner = model_at(model, key_path[:-1])
    return _keys(owner).get(str(key_path[-1])) if key_path else None


def model_at(model: type[Raw], key_path: KeyPath) -> type[Raw] | None:
    """The raw model of the mapping at ``key_path``."""
    node: Any = model
    for key in key_path:
        if isinstance(node, type) and issubclass(node, Raw):
            field = _keys(node).get(str(key))
            node = without_none(field.annotation) if field else None
        else:  # an entry of dict[str, X] or list[X]
            node = without_none(typing.get_args(node)[-1]) if typing.get_args(node) else None
    return node if isinstance(node, type) and issubclass(node, Raw) else None


def without_none(hint: Any) -> Any:
    """The type ``X`` of ``X | None``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return next(member for member in typing.get_args(hint) if member is not type(None))
    return hint


def _choices(field: FieldInfo | None) -> list[str]:
    hint = without_none(field.annotation) if field else None
    if hint is BoxKind:
        return list(BoxKind.registered)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(member.value) for member in hint]
    return [str(choice) for choice in typing.get_args(hint)] if typing.get_origin(hint) is Literal else []


def _range(model: type[Raw], key_path: KeyPath) -> str:
    """The least and the largest whole number that can be at ``key_path``."""
    field = field_at(model, key_path) or field_at(model, key_path[:-1])  # an entry's range is in the type of its list
    bounds = _bounds((field.annotation, *field.metadata)) if field else {}
    return f" from {bounds['ge']} to {bounds['le']}" if len(bounds) == len(_BOUNDS) else ""


def _bounds(hints: Iterable[Any]) -> dict[str, int]:
    """The bounds among the parts of a type."""
    bounds: dict[str, int] = {}
    for hint in hints:
        bounds |= {bound: getattr(hint, bound) for bound in _BOUNDS if hasattr(hint, bound)}
        bounds |= _bounds((*getattr(hint, "metadata", ()), *typing.get_args(hint)))
    return bounds


def lab_examples(lab: Mapping[str, Any]) -> dict[str, str]:
    """Examples for the keys of an experiment that name parts of its lab, as far as the lab's tree has them."""
    boxes, hosts, delays = (_entries(lab, section) for section in ("boxes", "hosts", "delay_boxes"))
    links = {kind.name for kind in BoxKind.registered.values() if kind.is_link}
    link = next((name for name, box in boxes.items() if box.get("kind") in links), None)
    server = next((name for name, host in hosts.items() if host.get("role") == "world-server"), None)
    latency = next((name for box in delays.values() for name in _entries(box, "classes")), None)
    examples: dict[str, str] = dict.fromkeys(_LAB_NAME_KEYS if lab else (), "...") | {"carries": "{protocol: udp}"}
    if link:
        taps = list(_entries(lab, "taps"))
        chain = f"[{', '.join([*taps[:1], link, *taps[1:][-1:]])}]"
        settings = "{to_island: &d {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}, to_world: *d}"
        examples |= {"chain": chain, "links": f"{{{link}: {settings}}}", "changes": f"[{{at: 20 s, chain: {chain}}}]"}
        examples["branches"] = f"{{other: {{carries: {examples['carries']}, chain: {chain}}}}}"
    if server:
        examples["servers"] = f"{{{server}: hybla}}"
    if server and latency:
        examples["latency"] = f"{{{server}: {latency}}}"
    return examples


def _entries(tree: Mapping[str, Any], section: str) -> dict[str, dict[str, Any]]:
    """The entries of a section by name, as written; an entry that is not a mapping becomes an empty one."""
    entries: object = tree.get(section)
    named = cast("dict[Any, Any]", entries) if isinstance(entries, dict) else {}
    return {
        str(name): cast("dict[str, Any]", entry) if isinstance(entry, dict) else {} for name, entry in named.items()
    }


def _example(key: str, field: FieldInfo | None, ports: Ports, examples: Mapping[str, str]) -> str:
    if key in examples:
        return f"'{key}: {examples[key]}'"
    return f"'{key}: {_with_ports(str(field.examples[0]), ports)}'" if field and field.examples else f"'{key}: ...'"


def _such_as(key: str, field: FieldInfo | None, ports: Ports, examples: Mapping[str, str]) -> str:
    return f", such as {_example(key, field, ports, examples)}" if field and field.examples else ""


def _with_ports(example: str, ports: Ports) -> str:
    """An example with its ports replaced by free ports of the lab's switches; without a switch, by words."""
    switches: dict[str, str] = {}
    free = {switch: iter(numbers) for switch, numbers in ports.items()}

    def free_port(match: re.Match[str]) -> str:
        switch = switches.setdefault(match[1], list(ports)[min(len(switches), len(ports) - 1)] if ports else "")
        return next(free.get(switch, iter(())), _PORT_PLACEHOLDER)

    return _PORT.sub(free_port, example)


def _port_example(value: object, ports: Ports) -> str:
    """A free port of a switch of this lab, if possible of the switch that ``value`` resembles."""
    switch = nearest(str(value).partition("/")[0], ports) or next(iter(ports), "")
    return next(iter(ports.get(switch, ())), _PORT_PLACEHOLDER)


def _free_ports(tree: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Some free ports of every switch of a lab: ports that are nowhere in its tree."""
    used = set(_texts(tree))
    return {
        switch: tuple(islice((port for port in _ports_of(switch) if port not in used), _MAX_EXAMPLE_PORTS))
        for switch in _entries(tree, "switches")
    }


def _ports_of(switch: str) -> Iterator[str]:
    return (f"{switch}/{number}" for number in range(1, PORT_MAX + 1))


def _texts(tree: object) -> Iterator[str]:
    """Every text value in a tree."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, (list, dict)):
        for part in cast("dict[Any, Any]", tree).values() if isinstance(tree, dict) else cast("list[Any]", tree):
            yield from _texts(part)
