# SPDX-License-Identifier: Apache-2.0
"""The committed JSON Schemas: current, valid, complete in the documentation, and in agreement with the loader."""

import json
import re

import jsonschema
import pytest
from jsonschema.validators import validator_for
from ruamel.yaml import YAML

from atoll_core.description.json_schema import FOLDER, SCHEMAS, schema_text
from atoll_core.description.loader import load_experiment, load_lab
from atoll_core.description.raw_types import Raw


def schema(file: str) -> dict:
    return json.loads((FOLDER / file).read_text(encoding="utf-8"))


def all_models(model: type[Raw] = Raw) -> list[type[Raw]]:
    own = (sub for sub in model.__subclasses__() if sub.__module__.startswith("atoll_"))  # not the kinds of tests
    return [sub for direct in own for sub in (direct, *all_models(direct))]


@pytest.mark.parametrize("file", SCHEMAS)
def test_the_committed_schema_is_the_generated_one(file):
    committed = (FOLDER / file).read_text(encoding="utf-8")
    assert committed == schema_text(SCHEMAS[file]), "run: python -m atoll_core.description.json_schema"


@pytest.mark.parametrize("file", SCHEMAS)
def test_the_schema_is_a_schema(file):
    jsonschema.Draft202012Validator.check_schema(schema(file))


def shipped(project):
    files = dict.fromkeys((project / "emulation/labs").glob("*.yaml"), "lab.schema.json")
    files |= dict.fromkeys((project / "examples/studies").rglob("*.yaml"), "study.schema.json")
    return files | dict.fromkeys((project / "examples").glob("*.yaml"), "experiment.schema.json")


def test_shipped_descriptions_satisfy_their_schema_and_name_it_for_editors(project):
    for file, name in shipped(project).items():
        text = file.read_text(encoding="utf-8")
        jsonschema.validate(YAML(typ="safe", pure=True).load(text), schema(name))
        named = re.search(r"^# yaml-language-server: \$schema=(\S+)$", text, re.MULTILINE)
        assert named, f"{file} names no schema"
        assert (file.parent / named[1]).resolve() == (FOLDER / name).resolve()


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("hosts", "w1", "role"), "server"),
        (("hosts", "w1", "colour"), "red"),
        (("hosts", "W1"), {"role": "world-server", "ip": "10.10.0.9", "port": "sw-w1/9"}),
        (("trunks", 0, "rate"), "1 Gbps"),
        (("boxes", "sat", "world"), {"port": "sw-c/15", "speed": 5}),
        (("delay_boxes", "delay", "classes", "rtt-5", "vlan"), 4095),
    ],
)
def test_an_editor_refuses_what_the_loader_refuses(project, path, wrong):
    tree = YAML(typ="safe", pure=True).load((project / "emulation/labs/island.yaml").read_text(encoding="utf-8"))
    at = tree
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree, schema("lab.schema.json"))


PAGES = ("descriptions", "hardware", "pep", "coding", "studies")


@pytest.mark.parametrize("file", SCHEMAS)
def test_every_key_is_described_in_the_schema(file):
    whole = schema(file)
    for owner in (whole, *whole["$defs"].values()):
        for form in owner.get("anyOf", [owner]):
            for name, part in form.get("properties", {}).items():
                assert part.get("description"), f"{owner.get('description')}: {name} has no description"


def test_the_keys_of_each_object_are_in_one_section_of_the_documentation(project):
    """Many objects have keys of the same names: a key that another section explains does not count."""
    pages = [(project / f"docs/{page}.md").read_text(encoding="utf-8") for page in PAGES]
    sections = [section for page in pages for section in re.split(r"^#+ ", page, flags=re.MULTILINE)]
    mentioned = [set(re.findall(r"`(\w+)(?::[^`]*)?`", section)) for section in sections]
    for model in all_models():
        keys = {field.alias or name for name, field in model.model_fields.items()}
        missing = min((keys - names for names in mentioned), key=len)
        assert not missing, f"{model.__name__}: no section of the documentation has all keys; the best misses {missing}"


def test_every_required_key_has_an_example():
    """Without one the remedy of a missing key would be empty."""
    for model in all_models():
        assert all(field.examples for field in model.model_fields.values() if field.is_required()), model


@pytest.mark.parametrize("file", SCHEMAS)
def test_every_example_satisfies_its_own_schema(file):
    whole = schema(file)
    validator = validator_for(whole)
    validator.check_schema(whole)
    for owner in (whole, *whole["$defs"].values()):
        for form in owner.get("anyOf", [owner]):
            for part in form.get("properties", {}).values():
                for example in part.get("examples", []):
                    validator({**part, "$defs": whole["$defs"]}).validate(example)


def test_the_descriptions_in_the_documentation_are_right(project, tmp_path):
    documentation = (project / "docs/descriptions.md").read_text(encoding="utf-8")
    lab, experiment = re.findall(r"```yaml\n(.*?)```", documentation, re.DOTALL)
    (tmp_path / "lab.yaml").write_text(lab, encoding="utf-8")
    assert load_lab(tmp_path / "lab.yaml").name == "island"
    shipped_lab = str(project / "emulation/labs/island.yaml")
    (tmp_path / "e.yaml").write_text(experiment.replace("../emulation/labs/island.yaml", shipped_lab), encoding="utf-8")
    assert load_experiment(tmp_path / "e.yaml")[1].name == "geo"


def test_every_driver_has_a_profile(project):
    drivers = schema("lab.schema.json")["$defs"]["RawSwitch"]["properties"]["driver"]
    assert [
        name
        for name in drivers.get("enum", [drivers.get("const")])
        if not (project / "switch-configs/atoll_switches/profiles" / f"{name}.toml").is_file()
    ] == []
