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

_CONTEXTS = re.compile(r"(vlan \d+|openflow|instance .+|interface .+)$")
_VLAN_PORTS = re.compile(r"(?P<tagging>untagged|tagged) (?P<ports>\S+)$")
_UNIT = r"(?:\d+/)?[A-Z]?"  # member of a stack, module
_PORT_RANGE = re.compile(rf"(?P<unit>{_UNIT})(?P<first>\d+)(?:-{_UNIT}(?P<last>\d+))?$")
_FIRST_MEMBER = "1/"  # of a stack: its ports have the same numbers in OpenFlow
_NAME_COMMANDS = ("hostname", "name")  # commands whose words are the user's own

# Commands outside `interface` that change how ports work, before the list of the ports.
_PORT_COMMAND = re.compile(
    r"(trunk|lacp|port-security|loop-protect|mirror-port|broadcast-limit|rate-limit|filter source-port"
    r"|aaa port-access( [a-z-]+)?) (?P<ports>[\dA-Z/,-]+)( |$)"
)
# Commands in `interface` that let a port work as it does without them.
_HARMLESS_COMMAND = re.compile(r"name |enable$|speed-duplex auto$|(no )?power-over-ethernet|no (lacp|disable)$")
_VLAN_MEMBERSHIP = re.compile(r"(?P<tagging>untagged|tagged) vlan (?P<vlans>\S+)$")  # of newer switches, in `interface`

# Additions of a terminal to the text: control sequences, its pager, the prompt with a command.
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|-- MORE --[^\x1b\n]*|\r")
_PROMPT = re.compile(r"[^\s\"]+[#>]( |$)")
_REST_OF_PORTS = re.compile(r"(?=.*\d)[\dA-Za-z/,-]+$")  # a list of ports that the terminal wrapped

# Commands that running-config omits as defaults, and the command that would be there instead.
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


def config_differences(required: str, running: str) -> tuple[ConfigDifference, ...]:
    """The differences that matter to the lab, by context.

    Raises PlanError for a text that is no configuration, and where a port of a module or of another member of a stack
    may be one of the lab, as only the switch knows its number in OpenFlow.
    """
    needed, actual = (
        {each for each in _commands(text) if each[1].split()[0] not in _NAME_COMMANDS} for text in (required, running)
    )
    if not any(command.startswith("vlan ") for _, command in actual):
        raise PlanError("no VLAN was found: this is not what `show running-config` of a ProCurve prints")
    missing = {ConfigDifference(*each, missing=True) for each in needed - actual if not _is_default(*each, actual)}
    differences = sorted(missing | set(_disturbing_commands(needed, actual)))
    _refuse_unknown_ports(differences)
    return tuple(sorted(_with_port_lists(differences)))


def _refuse_unknown_ports(differences: Iterable[ConfigDifference]) -> None:
    """Raise PlanError for a VLAN where a port of the lab is missing, and a port is whose number is not known."""
    missing: dict[_Context, str] = {}
    unknown: dict[_Context, str] = {}
    for difference in differences:
        if ports := _VLAN_PORTS.match(difference.command):
            if difference.missing:
                missing.setdefault(difference.context, ports["ports"])
            elif (port_range := _PORT_RANGE.match(ports["ports"])) and port_range["unit"]:
                unknown.setdefault(difference.context, ports["ports"])
    for context in missing.keys() & unknown.keys():
        raise PlanError(
            f"{context[0]}: the number in OpenFlow of port {unknown[context]}, which may be port {missing[context]} of "
            "the lab, is not in the configuration: write there the numbers of `show openflow instance aggregate "
            "port-statistics` instead of such names, then compare again"
        )


def _with_port_lists(differences: Iterable[ConfigDifference]) -> Iterator[ConfigDifference]:
    """The differences with the ports of each kind in one list, as switches write it."""
    ports: dict[tuple[_Context, str, bool, str], list[int]] = {}
    for difference in differences:
        tagging, _, port = difference.command.partition(" ")
        if _VLAN_PORTS.match(difference.command) and (port_range := _PORT_RANGE.match(port)):
            ports.setdefault((difference.context, tagging, difference.missing, port_range["unit"]), []).append(
                int(port_range["first"])
            )
        else:
            yield difference
    for (context, tagging, missing, unit), numbers in ports.items():
        port_list = re.sub(r"\d+", rf"{unit}\g<0>", port_ranges(sorted(numbers)))
        yield ConfigDifference(context, f"{tagging} {port_list}", missing)


def _is_default(context: _Context, command: str, actual: set[tuple[_Context, str]]) -> bool:
    return command in _DEFAULTS and (context, _DEFAULTS[command]) not in actual


def _disturbing_commands(
    needed: set[tuple[_Context, str]], actual: set[tuple[_Context, str]]
) -> Iterator[ConfigDifference]:
    """Commands of the switch that disturb: in a context of the lab, or about one of its ports."""
    contexts = {context for context, _ in needed if context}
    ports = {command.split()[1] for _, command in needed if _VLAN_PORTS.match(command)}
    for context, command in actual - needed:
        parts = command.split()
        about_port = bool(_VLAN_PORTS.match(command)) and parts[1] in ports
        if context and context[0].startswith("interface "):
            about_port = context[0].split()[1] in ports and not _HARMLESS_COMMAND.match(command)
        elif setting := _PORT_COMMAND.match(command):
            about_port = not ports.isdisjoint(_port_names(setting["ports"]))
        is_opposite = (context, command) in {(where, _DEFAULTS[other]) for where, other in needed if other in _DEFAULTS}
        of_lab = context in contexts and context[0] != "openflow"
        of_openflow = context in contexts and context[0] == "openflow" and not _only_adds(context, command, needed)
        if about_port or is_opposite or of_lab or of_openflow:
            yield ConfigDifference(context, command, missing=False)


def _only_adds(context: _Context, command: str, needed: Iterable[tuple[_Context, str]]) -> bool:
    """Whether a command only adds to those of the lab's contexts: none of them begins with its first word."""
    return not any(where == context and other.split()[0] == command.split(maxsplit=1)[0] for where, other in needed)


def _commands(text: str) -> Iterator[tuple[_Context, str]]:
    """Each command with its context; contexts end by ``exit``, or by a command at the depth of an outer one."""
    outer: list[tuple[int, str]] = []
    for line in _lines(text):
        words = " ".join(line.split())
        depth = len(line) - len(line.lstrip())
        if words == "exit":
            if outer:
                outer.pop()
            continue
        while outer and depth <= outer[-1][0]:
            outer.pop()
        context = tuple(name for _, name in outer)
        if _CONTEXTS.match(words):
            if not words.startswith("interface "):
                yield context, words
            outer.append((depth, words))
        elif context and context[0].startswith("interface "):
            for port in _port_names(context[0].split()[1]):
                yield from _interface_command(port, words)
        else:
            yield from ((context, command) for command in _one_per_port(_unquoted(words)))


def _lines(text: str) -> Iterator[str]:
    """The lines of a configuration without additions of a terminal; lists of ports that it wrapped are joined."""
    pending_line = ""
    for line in _TERMINAL.sub("", text).splitlines():
        words = line.strip()
        if not words or words.startswith(";") or words == "Running configuration:" or _PROMPT.match(line):
            continue
        if pending_line and _REST_OF_PORTS.match(line):
            pending_line += f" {words}" if pending_line.endswith("tagged") else words
            continue
        if pending_line:
            yield pending_line
        pending_line = line.rstrip()
    if pending_line:
        yield pending_line


def _interface_command(port: str, command: str) -> Iterator[tuple[_Context, str]]:
    """A command of an interface; that it is in a VLAN is one of the VLAN, too."""
    membership = _VLAN_MEMBERSHIP.match(command)
    if membership is None:
        yield (f"interface {port}",), command
        return
    for vlan in _port_names(membership["vlans"]):
        yield (f"vlan {vlan}",), f"{membership['tagging']} {port}"


def _unquoted(words: str) -> str:
    first, _, rest = words.partition(" ")
    return f"{first} {rest.strip(chr(34))}".strip()


def _one_per_port(command: str) -> Iterator[str]:
    if command == "spanning-tree enable":
        command = "spanning-tree"
    ports = _VLAN_PORTS.match(command)
    yield from (f"{ports['tagging']} {port}" for port in _port_names(ports["ports"])) if ports else (command,)


def _port_names(ports: str) -> Iterator[str]:
    """The ports of a list; names of trunks as they are."""
    for part in ports.split(","):
        port_range = _PORT_RANGE.match(part)
        if port_range is None:
            yield part
            continue
        unit = "" if port_range["unit"] == _FIRST_MEMBER else port_range["unit"]
        for number in range(int(port_range["first"]), int(port_range["last"] or port_range["first"]) + 1):
            yield f"{unit}{number}"
