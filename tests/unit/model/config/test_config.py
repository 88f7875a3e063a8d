"""The config of an environment: each key required or with its documented default, each wrong type and value told."""

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path as File
from typing import Any, Literal, NamedTuple, get_args, get_origin

import pytest
import yaml
from config_tables import ConfigKind, kind_of, rows

from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.stack_config import StackConfig, load, validate
from trainium_eks.model.validation import limits
from trainium_eks.model.validation.config_model import ConfigModel, ConfigModelError
from trainium_eks.model.validation.limits import Bounds, Choices, Length
from trainium_eks.model.validation.problems import Severity, config_path

Path = tuple[str | int, ...]

GIVEN, _OTHER = yaml.safe_load_all(File(__file__).with_name("full_config.yaml").read_text())
VARIANTS = {
    ("existingNetwork",): _OTHER["existingNetwork"],
    ("nodeGroups", 0, "capacity"): _OTHER["capacity"],
    ("fileSystem", "durability"): _OTHER["durability"],
}
"""What :data:`FULL` cannot hold beside itself: the other arm of a union, a network instead of the other."""
ARMS = ((("nodeGroups", 0, "capacity"), _OTHER["block"]), *VARIANTS.items())


def another(spec, name):
    """Return a value of a field that is within its limits and not its default.

    Raises:
        LookupError: for text with a format (more than a maximum length), lists and mappings: give a value in
            ``full_config.yaml``.
    """
    own, annotation = limits.declared(spec)[name]
    default = spec.model_fields[name].default
    words = [
        word for arm in (annotation, *get_args(annotation)) if get_origin(arm) is Literal for word in get_args(arm)
    ]
    if kind_of(annotation) is ConfigKind.OBJECT and len(list(shapes(annotation))) == 1:
        return {}
    if kind_of(annotation) is ConfigKind.BOOLEAN:
        words = [True, False]
    elif any(isinstance(limit, Length) for limit in own):
        words = ["text"]
    elif kind_of(annotation) in (ConfigKind.INTEGER, ConfigKind.NUMBER):
        numbers = [limit.low for limit in own if isinstance(limit, Bounds)] or [0]
        near = [*([default] if isinstance(default, int | float) else []), *numbers]
        words += [each for limit in own if isinstance(limit, Choices) for each in limit.values]
        words += [int(each) + step for each in near for step in (1, -1)]
    good = [word for word in words if word != default and all(limit.problem("", word) is None for limit in own)]
    if not good:
        raise LookupError(f"{spec.__name__}.{name}: no value can be derived from its type; give one")
    return good[0]


def filled(data, spec):
    """Return a section with all its keys: those that are not given have :func:`another` value than their default."""
    whole = dict(data)
    for name, field in spec.model_fields.items():
        key = field.alias or name
        value = whole.get(key, another(spec, name) if key not in whole else None)
        for step, entry in entries(field.annotation, value):
            if isinstance(entry, dict) and (section := chosen(field.annotation, entry)):
                inner = filled(entry, section)
                value = put(value, step, inner) if step else inner
        whole[key] = value
    return whole


def put(data, path, value):
    """Return the data with a value at a place, which is the last key of no new object."""
    changed = copy.deepcopy(data)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def without(data, path):
    changed = copy.deepcopy(data)
    del at(changed, path[:-1])[path[-1]]
    return changed


def at(data, path):
    for step in path:
        data = data[step]
    return data


class Field(NamedTuple):
    """A field of a config's models: its place in the data, the model that holds it, its name there."""

    path: Path
    spec: type[ConfigModel]
    name: str
    data: Mapping[str, Any]
    """A whole config, sound, with the field."""

    @property
    def annotation(self):
        return self.spec.model_fields[self.name].annotation


def fields(whole, data, spec, path=()):
    for name, field in spec.model_fields.items():
        here = (*path, field.alias or name)
        yield Field(here, spec, name, whole)
        for step, entry in entries(field.annotation, data[field.alias or name]):
            if isinstance(entry, dict) and (model_of := chosen(field.annotation, entry)):
                yield from fields(whole, entry, model_of, (*here, *step))


def entries(annotation, value):
    """What a field holds, with the step that leads to it: a list's entries, a mapping's, or the value itself."""
    if isinstance(value, list):
        return [((index,), entry) for index, entry in enumerate(value)]
    if get_origin(annotation) is dict and any(shapes(annotation)):
        return [((key,), entry) for key, entry in value.items()]
    return [((), value)]


def chosen(annotation, entry):
    """The model of an entry, by its tag where there are several."""
    models = list(shapes(annotation))
    if len(models) > 1:
        return next(each for each in models if each.model_fields["type"].default == entry["type"])
    return models[0] if models else None


def shapes(annotation):
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from shapes(part)


def text(data):
    """A config as Pulumi hands it over."""
    return {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in data.items()}


def spelled(path):
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def documented(place):
    """A place as the table of inputs has it, which stands for every entry."""
    entry = re.sub(r"\[\d+\]", "[]", place)
    return entry.replace("addons.snapshot-controller", "addons.<name>").replace(".R06", ".<name>")


def faults(data):
    with pytest.raises(ConfigModelError) as caught:
        load(text(data))
    return {config_path(problem.path): problem.reason for problem in caught.value.problems}


FULL = filled(GIVEN, StackConfig)
"""Every key with a value that is not its default, and nothing wrong."""
FIELDS = {
    (spelled(field.path), field.spec.__name__): field
    for whole in (FULL, *(put(FULL, path, value) for path, value in ARMS))
    for field in fields(whole, whole, StackConfig)
}
EVERY = [pytest.param(each, id="-".join(key)) for key, each in FIELDS.items()]
REQUIRED = [param for param in EVERY if (field := param.values[0]).spec.model_fields[field.name].is_required()]
OPTIONAL = [param for param in EVERY if param not in REQUIRED and param.values[0].path[-1] != "type"]


def test_the_full_config_is_sound_and_has_every_key():
    assert [each for each in validate(load(text(FULL))) if each.severity is not Severity.WARN] == []
    assert {documented(path) for path, _ in FIELDS} >= {row.path for row in rows(StackConfig)}


@pytest.mark.parametrize("field", REQUIRED)
def test_missing_required_key_is_named(field):
    assert "required and missing" in faults(without(field.data, field.path))[spelled(field.path)]


AS_DEFAULT = {
    *("production", "cluster.kubernetesVersion", "nodeGroups[0].capacity"),
    *("fileSystem.deploymentType", "volcano.reclaim", "neuronAddons.schedulerExtension"),
}
"""What the full config leaves as it is, because anything else is a problem or a warning there."""


@pytest.mark.parametrize("field", OPTIONAL)
def test_missing_optional_key_has_its_documented_default(field):
    value = load(text(without(field.data, field.path)))
    same = value == load(text(field.data)) and at(field.data, field.path) is not None
    assert same == (spelled(field.path) in AS_DEFAULT), "the full config should not hold the default here"
    for step in field.path:
        value = value[step] if isinstance(value, tuple | dict) else getattr(value, of_alias(value, str(step)))
    assert value == field.spec.model_fields[field.name].get_default(call_default_factory=True, validated_data={})
    place = documented(spelled(field.path))
    assert plain(value) in [undocumented(row.default) for row in rows(StackConfig) if row.path == place]


def of_alias(value, alias):
    return next(name for name, field in type(value).model_fields.items() if alias in (field.alias, name))


def plain(value):
    if isinstance(value, ConfigModel):
        data = value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {"type": value.type} | data if hasattr(value, "type") else data
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def undocumented(default):
    """A default as the table writes it, read back."""
    if default in ("none", "as below"):
        return {"none": None, "as below": {}}[default]
    read = yaml.safe_load(default.strip("`"))
    return default.strip("`") if isinstance(read, float) else read


WRONG = {
    ConfigKind.STRING: ([1], {"a": 1}, 2.5),
    ConfigKind.INTEGER: ("three", True, 2.5, [1], "3"),
    ConfigKind.NUMBER: ("three", "nan", True, [1], "1e9"),
    ConfigKind.BOOLEAN: ("maybe", 1, [True], "false"),
    ConfigKind.ARRAY: ("text", 5, {"a": 1}),
    ConfigKind.OBJECT: ("text", 5, [1]),
}


@pytest.mark.parametrize("field", EVERY)
def test_a_key_of_the_wrong_type_and_a_misspelt_one_are_named(field):
    place, kind = spelled(field.path), kind_of(field.annotation)
    for value in WRONG[kind]:
        if len(field.path) == 1 and (kind is ConfigKind.STRING or (value in ("false", "3"))):
            continue  # Pulumi keeps plain values as text: every value of such a key is text, and "3" is 3
        named = faults(put(field.data, field.path, value))
        assert any(each == place or each.startswith(f"{place}.") for each in named), (value, named)
        assert all("Input should" not in reason for reason in named.values()), "pydantic's words, not ours"
    wrong = (*field.path[:-1], f"{field.path[-1]}X")
    assert spelled(wrong) in faults(put(field.data, wrong, at(field.data, field.path)))


def test_null_numbers_and_text_are_read_in_every_form_of_the_cli():
    assert faults(FULL | {"nodeGroups": '[{"name": "a",'})["nodeGroups"].startswith("not JSON: ")
    for none in ("null", ""):
        config = load(text(FULL | {"fileSystem": none, "imageRepository": none}))
        assert (config.file_system, config.image_repository) == (None, None)
    config = load(text(FULL | {"allowedAccountIds": [111122223333], "tags": {"Number": 12, "Flag": True}}))
    assert config.allowed_account_ids == ("111122223333",)
    assert config.tags == {"Number": "12", "Flag": "true"}
    for written, read in (("2.5", 2.5), ("3", 3), (3, 3), (2.5, 2.5), ("0.", 0)):
        config = load(text(FULL | {"training": {"failuresPerNodeYear": written}}))
        assert config.training.failures_per_node_year == read


def test_zones_come_from_the_network_or_the_region():
    config = load(text(FULL))
    assert (model.zone_ids(config), model.accelerator_zone(config)) == (("usw2-az4", "usw2-az1"), "usw2-az4")
    assert model.zone_ids(load({"region": "us-east-1", "owner": "me"})) == ("use1-az6", "use1-az5")
    assert model.accelerator_zone(load({"region": "eu-west-1", "owner": "me"})) == ""
    existing = load(text(put(FULL, ("existingNetwork",), VARIANTS[("existingNetwork",)])))
    assert (model.zone_ids(existing), model.vpc_cidr(existing)) == (("usw2-az4", "usw2-az1"), "10.64.0.0/16")
    # A group's zone is its own, then its capacity's, then the accelerator zone.
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zoneId": "usw2-az1"}
    each = [{"zoneId": "usw2-az1"}, {"capacity": block}, {}]
    groups = [{"name": f"g{index}", "instanceType": "trn1.32xlarge", **more} for index, more in enumerate(each)]
    config = load(text(FULL | {"nodeGroups": groups}))
    assert [model.group_zone(config, group) for group in config.node_groups] == ["usw2-az1", "usw2-az1", "usw2-az4"]


def test_pool_is_every_group_at_its_maximum_with_types_of_the_config():
    (group,) = GIVEN["nodeGroups"]
    groups = [group, {**group, "name": "new", "instanceType": "trn3.48xlarge"}]
    config = load(text(FULL | {"nodeGroups": groups, "autoscaling": {}}))
    assert model.pool(config) == {"aws.amazon.com/neuron": 128, "vpc.amazonaws.com/efa": 96}
    assert model.catalogue(config).find("trn3.48xlarge").accelerator == "Trainium3"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"nodeGroups": [1], "fileSystem": {"storageCapacityGib": 1300}}, ["file_system.storage_capacity_gib"]),
        # A section that is judged by a broken one waits, and no default is judged in place of what is broken.
        ({"nodeGroups": [1], "queues": [{"name": "big", "capability": {"aws.amazon.com/neuron": 9999}}]}, []),
        ({"fileSystem": 1, "queues": [{"name": "test", "capability": {"aws.amazon.com/neuron": 9999}}]},
         ['queues[0].capability["aws.amazon.com/neuron"]']),
        ({"region": "nowhere", "network": 1}, ["region"]),
        ({"region": None,
          "cluster": {"kubernetesVersion": "1.20", "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}},
          "waivers": {"R999": {"reason": "x", "expires": "2027-03-31"}}},
         ["waivers.R999", "cluster.kubernetes_version"]),
    ],
)  # fmt: skip
def test_broken_section_does_not_hide_problems_of_other_sections(given, told):
    values = text({key: value for key, value in ({"region": "us-west-2", "owner": "me"} | given).items() if value})
    with pytest.raises(ConfigModelError) as caught:
        load(values)
    assert [problem.path for problem in model.problems_beside(values, caught.value.problems)] == told
