# SPDX-License-Identifier: Apache-2.0
"""`atoll init DIR`: a lab, an experiment and a study to begin with."""

import json
import shlex
from pathlib import Path

from atoll_studies.templates import examples, load_template, template_names, write_template


def list_templates(*, as_json: bool) -> None:
    """Print the templates, and the folder of the examples that they are made of."""
    texts = {name: load_template(name).text for name in template_names()}
    if as_json:
        print(json.dumps({"templates": texts, "examples": str(examples())}))
        return
    for name, text in texts.items():
        print(f"{name:<10} {text}")
    print(f"{'examples':<10} {examples()}")


def initialise(directory: Path, template: str, *, as_json: bool) -> None:
    """Write a template to a new or empty directory. Raises UsageError."""
    files = write_template(directory, template)
    if as_json:
        print(json.dumps({"directory": str(directory), "template": template, "files": files}))
        return
    print(f"{directory}: {', '.join(files)}")
    print("README.md has the commands to try; the first:")
    print(f"cd {shlex.quote(str(directory))} && atoll check lab.yaml experiment.yaml study.yaml")
