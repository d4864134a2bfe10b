# SPDX-License-Identifier: Apache-2.0
"""Render self-contained HTML pages from templates. Text is escaped; an undefined name is an error."""

from typing import Any


def rendered(template: str, **given: Any) -> str:
    """Render a template with values."""
    import jinja2

    from atoll_dashboards.report import number_format

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("atoll_dashboards"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "octets": number_format.octets,
        "percent": number_format.percent,
        "count": number_format.count,
        "figure": number_format.figure,
    }
    return environment.get_template(template).render(**given)
