# SPDX-License-Identifier: Apache-2.0
"""HTML pages from their templates: each stands alone, text is escaped, a name that is not there is an error."""

from typing import Any


def rendered(template: str, **given: Any) -> str:
    """The page that a template makes of what it is given."""
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
