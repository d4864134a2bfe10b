# SPDX-License-Identifier: Apache-2.0
"""Render self-contained HTML pages from templates. Text is escaped; an undefined name is an error."""

from typing import Any

import jinja2

from atoll_dashboards.report.number_format import count, figure, octets, percent


def rendered(template: str, **values: Any) -> str:
    """Render a template with values."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("atoll_dashboards"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"octets": octets, "percent": percent, "count": count, "figure": figure}
    return environment.get_template(template).render(**values)
