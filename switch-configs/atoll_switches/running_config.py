# SPDX-License-Identifier: Apache-2.0
"""Compare the configuration that a switch needs with the one that it runs, as ``show running-config`` prints it. Pure.

Both are read as commands in their contexts (``vlan 2``, ``openflow``, ``instance aggregate``). Port lists are compared
port by port. Names, and settings of the switch that have nothing to do with the lab, are ignored.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from atoll_core.errors import PlanError
from atoll_switches.configuration import port_ranges

_CONTEXTS = re.compile(r"(vlan \d+|openflow|instance .+)$")
_PORTS = re.compile(r"(?P<how>untagged|tagged) (?P<ports>\S+)$")
_PORT_RANGE = re.compile(r"([A-Z]?)(\d+)(?:-([A-Z]?)(\d+))?$")
_NAMES = ("hostname", "name")  # commands whose words are the user's own

# What running-config leaves out, as it is the default: the command that would be there instead.
_DEFAULTS = {
    "no spanning-tree": "spanning-tree",
    "connection-interruption-mode fail-secure": "connection-interruption-mode fail-standalone",
}

_Context = tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class ConfigDifference:
    """A command that the switch has to get (``missing``), or one that it has and should not have."""

    context: _Context
    command: str
    missing: bool

    def __str__(self) -> str:
        where = f"{' / '.join(self.context)}: " if self.context else ""
        return f"{'+' if self.missing else '-'} {where}{self.command}"


def config_differences(wanted: str, running: str) -> tuple[ConfigDifference, ...]:
    """The differences that matter to the lab, by context.

    Raises PlanError for a text that is no configuration, and for ports with the letters of a chassis, whose numbers in
    OpenFlow only the switch knows.
    """
    needed, held = (
        {each for each in _commands(text) if each[1].split()[0] not in _NAMES} for text in (wanted, running)
    )
    if not any(command.startswith("vlan ") for _, command in held):
        raise PlanError("no VLAN was found: this is not what `show running-config` of a ProCurve prints")
    if lettered := sorted({command for _, command in held if re.match(r"(un)?tagged [A-Z]", command)}):
        raise PlanError(
            f"its ports have letters ({lettered[0].split()[1]}), and their numbers in OpenFlow are not in its "
            "configuration: replace them by the numbers of `show openflow instance aggregate port-statistics`, then "
            "compare again"
        )
    missing = {ConfigDifference(*each, missing=True) for each in needed - held if not _is_default(*each, held)}
    return tuple(sorted(_joined(missing | set(_contradicting(needed, held)))))


def _joined(found: Iterable[ConfigDifference]) -> Iterator[ConfigDifference]:
    """The differences with the ports of each kind in one list, as switches write it."""
    ports: dict[tuple[_Context, str, bool], list[int]] = {}
    for each in found:
        how, _, number = each.command.partition(" ")
        if _PORTS.match(each.command) and number.isdecimal():
            ports.setdefault((each.context, how, each.missing), []).append(int(number))
        else:
            yield each
    for (context, how, missing), numbers in ports.items():
        yield ConfigDifference(context, f"{how} {port_ranges(sorted(numbers))}", missing)


def _is_default(context: _Context, command: str, held: set[tuple[_Context, str]]) -> bool:
    return command in _DEFAULTS and (context, _DEFAULTS[command]) not in held


def _contradicting(needed: set[tuple[_Context, str]], held: set[tuple[_Context, str]]) -> Iterator[ConfigDifference]:
    """Commands of the switch that disturb: in a context of the lab, or about one of its ports."""
    contexts = {context for context, _ in needed if context}
    ports = {command.split()[1] for _, command in needed if _PORTS.match(command)}
    for context, command in held - needed:
        words = command.split()
        about_port = bool(_PORTS.match(command)) and words[1] in ports
        opposite = (context, command) in {(where, _DEFAULTS[each]) for where, each in needed if each in _DEFAULTS}
        of_lab = context in contexts and context[0] != "openflow"
        of_openflow = context in contexts and context[0] == "openflow" and not _adds(context, command, needed)
        if about_port or opposite or of_lab or of_openflow:
            yield ConfigDifference(context, command, missing=False)


def _adds(context: _Context, command: str, needed: Iterable[tuple[_Context, str]]) -> bool:
    """Whether a command only adds to those of the lab's contexts: none of them begins with its first word."""
    return not any(where == context and each.split()[0] == command.split(maxsplit=1)[0] for where, each in needed)


def _commands(text: str) -> Iterator[tuple[_Context, str]]:
    """Each command with its context; contexts end by ``exit``, or by a command at the depth of an outer one."""
    inside: list[tuple[int, str]] = []
    for line in text.splitlines():
        words = " ".join(line.split())
        if not words or words.startswith(";") or words == "Running configuration:":
            continue
        depth = len(line) - len(line.lstrip())
        if words == "exit":
            if inside:
                inside.pop()
            continue
        while inside and depth <= inside[-1][0]:
            inside.pop()
        context = tuple(name for _, name in inside)
        if _CONTEXTS.match(words):
            yield context, words
            inside.append((depth, words))
            continue
        yield from ((context, command) for command in _by_port(_unquoted(words)))


def _unquoted(words: str) -> str:
    first, _, rest = words.partition(" ")
    return f"{first} {rest.strip(chr(34))}".strip()


def _by_port(command: str) -> Iterator[str]:
    found = _PORTS.match(command)
    if found is None:
        yield command
        return
    for part in found["ports"].split(","):
        run = _PORT_RANGE.match(part)
        if run is None:  # a trunk, Trk1
            yield f"{found['how']} {part}"
            continue
        for number in range(int(run[2]), int(run[4] or run[2]) + 1):
            yield f"{found['how']} {run[1]}{number}"
