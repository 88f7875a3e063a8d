"""What is written from the models: Pulumi.yaml's config block and the tables of docs/config.md."""

import json
import re
from pathlib import Path
from typing import get_args

import config_tables
import generate
import pytest
import yaml

from trainium_eks.model.config.stack_config import StackConfig, load
from trainium_eks.model.outputs import StackOutputs

ROOT = Path(__file__).resolve().parents[4]
BLOCK = yaml.safe_load(config_tables.pulumi_yaml())["config"]
NULLABLE = {field.alias for field in StackConfig.model_fields.values() if type(None) in get_args(field.annotation)}


def fits(kind, items, value):
    """Whether the CLI takes a value for a declared type (pulumi's workspace.ValidateConfigValue)."""
    if kind == "array":
        return isinstance(value, list) and items is not None and all(fits(items["type"], None, each) for each in value)
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, str) and value.isdigit())
    return isinstance(value, {"string": str, "boolean": bool, "object": dict}[kind])


def test_declared_types_are_those_the_cli_reads():
    fields = {field.alias: field for field in StackConfig.model_fields.values()}
    assert set(BLOCK) == set(fields) - NULLABLE
    for key in NULLABLE:
        assert f"  # {key}: " in config_tables.pulumi_yaml()
    for key, declaration in BLOCK.items():
        assert set(declaration) <= {"type", "items", "description", "default"}, key
        assert declaration["type"] in {"string", "integer", "boolean", "array", "object"}
        assert ("items" in declaration) == (declaration["type"] == "array")
        assert declaration["description"].endswith(".")
        assert "``" not in declaration["description"]
        assert ("default" not in declaration) == fields[key].is_required(), "the CLI asks every stack for those"
    assert {key for key, field in fields.items() if field.is_required()} == {"region", "owner"}
    # The CLI hands every default over as if the stack had set it.
    values = {"region": "us-west-2", "owner": "me"}
    given = {key: declaration["default"] for key, declaration in BLOCK.items() if "default" in declaration}
    text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    assert load(values | text) == load(values)


@pytest.mark.parametrize("environment", ["dev", "prod", "gpu"])
def test_the_environments_of_the_repository_fit_the_declared_types(environment):
    config = yaml.safe_load((ROOT / f"Pulumi.{environment}.yaml").read_text())["config"]
    for key, value in config.items():
        declaration = BLOCK.get(key.partition(":")[2])
        if declaration is not None:
            assert fits(declaration["type"], declaration.get("items"), value), key


def cells(table):
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]


def test_config_table_uses_the_files_spelling_and_names_variants():
    assert re.findall(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`", config_tables.markdown()) == [], "Python's spelling"
    lines = [line for line in cells(config_tables.markdown()) if line[0] == "`nodeGroups[].capacity.zoneId`"]
    assert [line[3].split(".")[0] for line in lines] == ["With `type: reservation`", "With `type: capacity-block`"]
    # Outputs are those of the model.
    names = {line[0].strip("`").split(".")[0].split("[")[0] for line in cells(config_tables.outputs_markdown())}
    assert names == {field.alias for field in StackOutputs.model_fields.values()}


def test_generated_part_replaces_only_the_text_between_its_marks(tmp_path):
    project = tmp_path / "Pulumi.yaml"
    project.write_text("name: x\n# config:begin (from the models)\nold: true\n# config:end\nlast: true\n")
    read = yaml.safe_load(generate._with(project, config=config_tables.pulumi_yaml()))
    assert (read["name"], read["last"], "old" in read, len(read["config"])) == ("x", True, False, len(BLOCK))
    project.write_text("nothing\n")
    with pytest.raises(ValueError, match="no marks config:begin"):
        generate._with(project, config="")
