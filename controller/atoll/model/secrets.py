# SPDX-License-Identifier: Apache-2.0
"""The variables that hold a secret of the user's, and the environment of programs that are not to know them."""

from collections.abc import Mapping

TOKEN_VARIABLE = "ATOLL_TOKEN"  # noqa: S105 - the name of it
"""The token of the API over TCP."""

INFLUX_TOKEN_VARIABLE = "ATOLL_INFLUX_TOKEN"  # noqa: S105 - the name of it
"""What opens the database of metrics."""

GRAFANA_TOKEN_VARIABLE = "ATOLL_GRAFANA_TOKEN"  # noqa: S105 - the name of it
"""What opens the Grafana that dashboards are installed on."""

SECRETS = frozenset({TOKEN_VARIABLE, INFLUX_TOKEN_VARIABLE, GRAFANA_TOKEN_VARIABLE})


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment less what is secret: for the lab, its agents and its controller, and all that they start."""
    return {name: text for name, text in environment.items() if name not in SECRETS}
