# SPDX-License-Identifier: Apache-2.0
"""Where on a real switch entries go: what its tables say they take, against what its profile promises. Pure."""

from collections.abc import Iterator

from atoll_core.errors import LabError
from atoll_core.plan.switch_features import SwitchFeatures, TableFeatures
from atoll_switches.capability_profile import Profile

_NOT_OF_A_TABLE = {"several-outputs"}  # in profiles, but no table feature tells of it


def choose_table(known: Profile, features: SwitchFeatures, switch: str) -> int:
    """The number of the first table that takes all that the profile promises, without asking for more.

    Of a switch that does not tell what its tables take: the profile's. Raises LabError, naming what each table lacks,
    when there is none: the switch is not what lab.yaml says it is.
    """
    if not features.tables:
        return known.table
    for table in features.tables:
        if not any(_lacks(known, table)):
            return table.first
    lacks = "; ".join(f"{_numbers(table)} {', '.join(_lacks(known, table))}" for table in features.tables)
    make = " ".join(filter(None, (features.description.manufacturer, features.description.hardware))) or "unknown make"
    raise LabError(
        f"{switch} ({make}): no table of it takes what its driver {known.driver!r} promises: {lacks}; "
        "name its real driver in lab.yaml"
    )


def room(features: SwitchFeatures, table: int) -> int | None:
    """How many entries the table says it holds; None if it does not say."""
    for each in features.tables:
        if each.first <= table <= each.last:
            return each.max_entries or None
    return None


def _lacks(known: Profile, table: TableFeatures) -> Iterator[str]:
    missing = sorted(known.matches - set(table.matches))
    if missing:
        yield f"does not match {', '.join(missing)}"
    undone = sorted(known.actions - _NOT_OF_A_TABLE - set(table.actions))
    if undone:
        yield f"does not do {', '.join(undone)}"
    if table.required and set(table.required) != {"in_port"}:  # every entry matches its ingress port
        yield f"wants {', '.join(table.required)} matched by every entry"


def _numbers(table: TableFeatures) -> str:
    return f"table {table.first}" if table.first == table.last else f"tables {table.first} to {table.last}"
