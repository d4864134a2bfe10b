# SPDX-License-Identifier: Apache-2.0
"""Choose the table of a switch for entries: its table features against the promises of its profile. Pure."""

from collections.abc import Iterator

from atoll_core.errors import LabError
from atoll_core.plan.switch_features import SwitchFeatures, TableFeatures
from atoll_switches.capability_profile import Profile

_NOT_OF_A_TABLE = {"several-outputs"}  # in profiles, but not in table features


def choose_table(known: Profile, features: SwitchFeatures, switch: str) -> int:
    """The number of the first table with all features of the profile and no further required match fields.

    The profile's for a switch without table features. Raises LabError with the missing features of each table when
    there is none: the driver in lab.yaml is wrong.
    """
    if not features.tables:
        return known.table
    for table in features.tables:
        if not any(_missing(known, table)):
            return table.first
    missing = "; ".join(f"{_numbers(table)} {', '.join(_missing(known, table))}" for table in features.tables)
    model = (
        " ".join(filter(None, (features.description.manufacturer, features.description.hardware))) or "unknown model"
    )
    raise LabError(
        f"{switch} ({model}): no table of this switch has the features of driver {known.driver!r}: {missing}; "
        "correct the driver in lab.yaml"
    )


def room(features: SwitchFeatures, table: int) -> int | None:
    """The capacity of the table in entries; None if it is not reported."""
    for each in features.tables:
        if each.first <= table <= each.last:
            return each.max_entries or None
    return None


def _missing(known: Profile, table: TableFeatures) -> Iterator[str]:
    missing = sorted(known.matches - set(table.matches))
    if missing:
        yield f"does not match {', '.join(missing)}"
    actions = sorted(known.actions - _NOT_OF_A_TABLE - set(table.actions))
    if actions:
        yield f"does not do {', '.join(actions)}"
    if table.required and set(table.required) != {"in_port"}:  # every entry matches its ingress port
        yield f"requires that every entry matches {', '.join(table.required)}"


def _numbers(table: TableFeatures) -> str:
    return f"table {table.first}" if table.first == table.last else f"tables {table.first} to {table.last}"
