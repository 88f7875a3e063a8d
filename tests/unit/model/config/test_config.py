"""The config of an environment: each key required or with its documented default, each wrong type and value told."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml

from trainium_eks.model.config import stack_config as model
from trainium_eks.model.config.schema import ConfigKind, kind_of, rows
from trainium_eks.model.config.stack_config import StackConfig, load, validate
from trainium_eks.model.validation import limits
from trainium_eks.model.validation.config_model import ConfigModel, ConfigModelError
from trainium_eks.model.validation.limits import Bounds, Choices, Length
from trainium_eks.model.validation.problems import Severity, config_path

GROUP: dict[str, Any] = {
    "name": "train",
    "instanceType": "trn1.32xlarge",
    "minSize": 1,
    "maxSize": 4,
    "desiredSize": 2,
    "capacity": {"type": "on-demand"},
    "zoneId": "usw2-az4",
    "interfaceLayout": "efa-only",
    "placementGroup": "none",
    "rootVolumeGib": 200,
    "localStorage": "none",
    "labels": {"team": "a"},
    "maxUnavailable": 2,
    "ignoreDesiredSize": True,
    "hugepages2Mi": 5,
    "installLustreClient": True,
    "releaseVersion": "1.35.3-20260709",
    "kubernetesVersion": "1.35",
}
CPU_NODES = {"instanceType": "m6i.2xlarge", "minSize": 1, "maxSize": 2, "desiredSize": 2, "rootVolumeGib": 50}
CPU_POOL = {**CPU_NODES, "ignoreDesiredSize": True}
KEY = "arn:aws:kms:us-west-2:111122223333:key/0123"
SUBNETS = [
    {"id": "subnet-0a1b2c3d4e5f60711", "zoneId": "usw2-az4", "cidrBlock": "10.64.0.0/18"},
    {"id": "subnet-0a1b2c3d4e5f60712", "zoneId": "usw2-az1", "cidrBlock": "10.64.64.0/18"},
]
GIVEN: dict[str, Any] = {
    "region": "us-west-2",
    "owner": "ml-platform",
    "costCenter": "models",
    "production": False,
    "allowedAccountIds": ["111122223333"],
    "tags": {"Team": "a"},
    "network": {
        "cidrBlock": "10.1.0.0/16",
        "zoneIds": ["usw2-az4", "usw2-az1"],
        "natGateways": "per-zone",
        "interfaceEndpoints": ["sts"],
        "flowLogRetentionDays": 30,
        "peerCidrBlocks": ["10.2.0.0/16"],
    },
    "existingNetwork": None,
    "permissionsBoundary": "arn:aws:iam::111122223333:policy/bounds",
    "keptKeyArn": "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
    "cluster": {
        "kubernetesVersion": "1.35",
        "endpoint": {"publicAccessCidrs": ["203.0.113.7/32"], "privateAccessVia": "peers"},
        "adminPrincipals": ["arn:aws:iam::111122223333:role/admins"],
        "serviceCidrBlock": "172.21.0.0/16",
        "logRetentionDays": 30,
        "supportType": "EXTENDED",
        "deletionProtection": True,
        "systemNodes": {**CPU_NODES, "minSize": 2},
        "cpuNodes": CPU_POOL,
        "addons": {
            "snapshot-controller": {
                "version": "v8.3.0-eksbuild.1",
                "settings": {"replicas": 2},
                "identity": {
                    "serviceAccount": "snapshots",
                    "namespace": "snapshots",
                    "policies": {"snapshots": "arn:aws:iam::111122223333:policy/snapshots"},
                },
            }
        },
    },
    "nodeGroups": [GROUP],
    "instanceTypes": {"trn3.48xlarge": {"like": "trn2.48xlarge", "accelerator": "Trainium3"}},
    "fileSystem": {
        "storageCapacityGib": 4800,
        "deploymentType": "PERSISTENT_2",
        "throughputPerTib": 1000,
        "durability": {"type": "backup", "retentionDays": 3},
        "metadataIops": 6000,
        "efaEnabled": True,
        "onDemand": True,
        "zoneId": "usw2-az4",
        "protect": True,
    },
    "volcano": {
        "replicas": 3,
        "scaleFromZero": True,
        "reclaim": False,
        "rendezvous": "etcd",
        "imageRegistry": "docker.io/hub",
    },
    "queues": [
        {
            "name": "test",
            "weight": 2,
            "capability": {"aws.amazon.com/neuron": 64},
            "deserved": {"aws.amazon.com/neuron": 32},
            "guarantee": {"aws.amazon.com/neuron": 16},
            "reclaimable": False,
            "parent": "root",
        }
    ],
    "namespaces": [
        {
            "name": "training",
            "queues": ["test"],
            "principals": ["arn:aws:iam::111122223333:role/researchers"],
            "resourceQuota": {"pods": "100"},
            "dataBucket": "my-data",
            "dataBucketKeyArn": KEY,
            "trainingUserId": 1001,
            "priorityClasses": ["training-normal"],
        }
    ],
    "training": {"checkpointGigabytes": 24.5, "failuresPerNodeYear": 2.4},
    "imageRepository": {
        "name": "team/images",
        "keptImages": 5,
        "untaggedDays": 1,
        "baseImages": {"trn2": "public.ecr.aws/team/torchneuron:2.14"},
    },
    "neuronAddons": {"schedulerExtension": False, "monitor": False, "neuronValues": {"npd": {"enabled": False}}},
    "gpuAddons": {"trainers": ["v2"], "dcgmExporter": False, "nvidiaValues": {"gfd": {"enabled": True}}},
    "autoscaling": {
        "clusterAutoscaler": {"acceleratorGroups": ["train"]},
        "karpenter": {
            "cpuLimit": 0,
            "instanceTypes": ["m6i.xlarge"],
            "rootVolumeGib": 50,
            "consolidateMinutes": 10,
            "expireAfterHours": 24,
            "acceleratorPools": [
                {
                    "name": "single",
                    "instanceType": "trn1n.32xlarge",
                    "maxNodes": 2,
                    "zoneId": "usw2-az4",
                    "capacityReservationIds": ["cr-0123456789abcdef0"],
                }
            ],
            "acceleratorEmptyMinutes": 30,
            "replicas": 1,
        },
    },
    "observability": {
        "metrics": {
            "retentionDays": 30,
            "volumeGib": 100,
            "scrapeIntervalSeconds": 60,
            "managedPrometheus": True,
            "alerts": {
                "topicArn": "arn:aws:sns:us-west-2:111122223333:oncall",
                "topicKeyArn": "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d",
            },
            "thresholds": {"hardwareXids": [48, 79], "runbookUrl": "https://example.com/alerts.md"},
            "values": {"fullnameOverride": "metrics"},
        },
        "grafana": {"inCluster": False, "volumeGib": 20, "managed": {"authentication": "SAML"}},
        "logs": {"retentionDays": 365, "system": True},
    },
    "budget": {"hourlyUsd": 500, "nodes": 64, "alert": {"monthlyUsd": 9000, "emails": ["ops@example.com"]}},
    "idleGuard": {"warnAfterMinutes": 10, "removeAfterMinutes": 20},
    "sageMaker": {
        "bucket": "my-jobs",
        "bucketKeyArn": KEY,
        "prefix": "runs",
        "logRetentionDays": 30,
        "servingTypes": ["ml.inf2.xlarge"],
    },
    "sageMakerEndpoints": [
        {
            "name": "reviews",
            "model": "runs/reviews/model.tar.gz",
            "image": "111122223333.dkr.ecr.us-west-2.amazonaws.com/training:1",
            "instanceType": "ml.inf2.xlarge",
            "instances": 2,
            "maxInstances": 4,
            "callsPerMinute": 90,
            "capturePercent": 10,
            "mostErrors": 9,
            "logRetentionDays": 731,
        }
    ],
    "fabricGate": {"images": {"trn1": "123456789012.dkr.ecr.us-west-2.amazonaws.com/training:trn1-1"}},
    "waivers": {"R06": {"reason": "torn down every night", "expires": "2027-03-31"}},
}
"""Keys whose type does not say which values are good, each with one that is not its default, and nothing wrong."""

Path = tuple[str | int, ...]

VARIANTS: dict[Path, Any] = {
    ("existingNetwork",): {
        "vpcId": "vpc-0a1b2c3d4e5f60718",
        "cidrBlock": "10.64.0.0/16",
        "privateSubnets": SUBNETS,
        "publicSubnets": [{"id": "subnet-0a1b2c3d4e5f60713", "zoneId": "usw2-az4", "cidrBlock": "10.64.128.0/24"}],
        "peerCidrBlocks": ["10.2.0.0/16"],
    },
    ("nodeGroups", 0, "capacity"): {
        "type": "reservation",
        "id": "cr-0123456789abcdef0",
        "zoneId": "usw2-az4",
        "placementGroup": "mine",
    },
    ("fileSystem", "durability"): {
        "type": "s3",
        "bucket": "my-data",
        "bucketKeyArn": KEY,
        "prefix": "set",
        "fileSystemPath": "/data",
    },
}
"""What :data:`FULL` cannot hold beside itself: the other arm of a union, a network instead of the other."""


def another(spec: type[ConfigModel], name: str) -> Any:
    """Return a value of a field that is within its limits and not its default.

    Raises:
        LookupError: for text with a form (a bound of its length is none), lists and mappings: give a value in
            :data:`GIVEN`.
    """
    own, annotation = limits.declared(spec)[name]
    default = spec.model_fields[name].default
    words = [
        word for arm in (annotation, *get_args(annotation)) if get_origin(arm) is Literal for word in get_args(arm)
    ]
    sections = list(shapes(annotation))
    if kind_of(annotation) is ConfigKind.OBJECT and len(sections) == 1:
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
        raise LookupError(f"{spec.__name__}.{name}: no value can be derived from its type; give one in GIVEN")
    return good[0]


def filled(data: Mapping[str, Any], spec: type[ConfigModel]) -> dict[str, Any]:
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


def put(data: Any, path: Path, value: Any) -> Any:
    changed = copy.deepcopy(data)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed


def without(data: Any, path: Path) -> Any:
    changed = copy.deepcopy(data)
    at = changed
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return changed


def holders() -> Iterator[dict[str, Any]]:
    yield FULL
    for path, value in VARIANTS.items():
        yield put(FULL, path, value)


def fields(
    data: Mapping[str, Any], spec: type[ConfigModel], path: Path = ()
) -> Iterator[tuple[Path, type[ConfigModel], str]]:
    """Every field of a config's models: its place in the data, the model that holds it, its name there."""
    for name, field in spec.model_fields.items():
        here = (*path, field.alias or name)
        yield here, spec, name
        for step, entry in entries(field.annotation, data[field.alias or name]):
            if isinstance(entry, dict) and (model_of := chosen(field.annotation, entry)):
                yield from fields(entry, model_of, (*here, *step))


def entries(annotation: Any, value: Any) -> list[tuple[Path, Any]]:
    """What a field holds, with the step that leads to it: a list's entries, a mapping's, or the value itself."""
    if isinstance(value, list):
        return [((index,), entry) for index, entry in enumerate(value)]
    if get_origin(annotation) is dict and any(shapes(annotation)):
        return [((key,), entry) for key, entry in value.items()]
    return [((), value)]


def chosen(annotation: Any, entry: Mapping[str, Any]) -> type[ConfigModel] | None:
    """The model of an entry, by its tag where there are several."""
    models = list(shapes(annotation))
    if len(models) > 1:
        return next(each for each in models if each.model_fields["type"].default == entry["type"])
    return models[0] if models else None


def shapes(annotation: Any) -> Iterator[type[ConfigModel]]:
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from shapes(part)


FULL = filled(GIVEN, StackConfig)
"""Every key with a value that is not its default, and nothing wrong."""


def text(data: Mapping[str, Any]) -> dict[str, str]:
    """A config as Pulumi hands it over."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}


def spelled(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def documented(place: str) -> str:
    """A place as the table of inputs has it, which stands for every entry."""
    return (
        re.sub(r"\[\d+\]", "[]", place)
        .replace("addons.snapshot-controller", "addons.<name>")
        .replace(".R06", ".<name>")
    )


def faults(data: Mapping[str, Any]) -> dict[str, str]:
    """Every fault of shape: path as the config file spells it, and reason."""
    with pytest.raises(ConfigModelError) as caught:
        load(text(data))
    return {config_path(problem.path): problem.reason for problem in caught.value.problems}


def tagged(path: Path) -> bool:
    return path[-1] == "type"


FIELDS = {
    (spelled(path), spec.__name__): (path, spec, name, data)
    for data in holders()
    for path, spec, name in fields(data, StackConfig)
}
EVERY = [pytest.param(*each, id=f"{key[0]}-{key[1]}") for key, each in FIELDS.items()]
REQUIRED = [param for param in EVERY if param.values[1].model_fields[param.values[2]].is_required()]
OPTIONAL = [param for param in EVERY if param not in REQUIRED and not tagged(param.values[0])]


def test_the_full_config_is_sound_and_has_every_key() -> None:
    full = load(text(FULL))
    assert [problem for problem in validate(full) if problem.severity is not Severity.WARN] == []
    written = {documented(path) for path, _ in FIELDS}
    assert written >= {row.path for row in rows(StackConfig)}


@pytest.mark.parametrize(("path", "spec", "name", "data"), REQUIRED)
def test_a_required_key_that_is_missing_is_named(
    path: Path, spec: type[ConfigModel], name: str, data: dict[str, Any]
) -> None:
    assert "required and missing" in faults(without(data, path))[spelled(path)]


@pytest.mark.parametrize(("path", "spec", "name", "data"), OPTIONAL)
def test_an_optional_key_that_is_missing_has_its_documented_default(
    path: Path, spec: type[ConfigModel], name: str, data: dict[str, Any]
) -> None:
    loaded: Any = load(text(without(data, path)))
    same = loaded == load(text(data)) and data_at(data, path) is not None
    assert same == (spelled(path) in AS_DEFAULT), "the full config should not hold the default here"
    value = loaded
    for step in path:
        value = value[step] if isinstance(value, tuple | dict) else getattr(value, of_alias(value, str(step)))
    assert value == spec.model_fields[name].get_default(call_default_factory=True, validated_data={})
    place = documented(spelled(path))
    defaults = {row.default for row in rows(StackConfig) if row.path == place}
    assert plain(value) in [undocumented(default) for default in defaults]


def data_at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def of_alias(value: ConfigModel, alias: str) -> str:
    return next(name for name, field in type(value).model_fields.items() if alias in (field.alias, name))


def plain(value: Any) -> Any:
    if isinstance(value, ConfigModel):
        data = value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {"type": value.type} | data if hasattr(value, "type") else data
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def undocumented(default: str) -> Any:
    """A default as the table writes it, read back."""
    if default in ("none", "as below"):
        return {"none": None, "as below": {}}[default]
    read = yaml.safe_load(default.strip("`"))
    return default.strip("`") if isinstance(read, float) else read


AS_DEFAULT = {
    "production",
    "cluster.kubernetesVersion",
    "nodeGroups[0].capacity",
    "fileSystem.deploymentType",
    "volcano.reclaim",
    "neuronAddons.schedulerExtension",
}
"""What the full config leaves as it is, because anything else is a problem or a warning there."""

WRONG: dict[ConfigKind, tuple[Any, ...]] = {
    ConfigKind.STRING: ([1], {"a": 1}, 2.5),
    ConfigKind.INTEGER: ("three", True, 2.5, [1], "3"),
    ConfigKind.NUMBER: ("three", "nan", True, [1], "1e9"),
    ConfigKind.BOOLEAN: ("maybe", 1, [True], "false"),
    ConfigKind.ARRAY: ("text", 5, {"a": 1}),
    ConfigKind.OBJECT: ("text", 5, [1]),
}


@pytest.mark.parametrize(("path", "spec", "name", "data"), EVERY)
def test_a_key_of_the_wrong_type_is_named(path: Path, spec: type[ConfigModel], name: str, data: dict[str, Any]) -> None:
    kind = kind_of(spec.model_fields[name].annotation)
    top_level = len(path) == 1
    for value in WRONG[kind]:
        if top_level and (kind is ConfigKind.STRING or (value in ("false", "3"))):
            continue  # Pulumi keeps plain values as text: every value of such a key is text, and "3" is 3
        named = faults(put(data, path, value))
        assert any(place == spelled(path) or place.startswith(f"{spelled(path)}.") for place in named), (value, named)
        assert all("Input should" not in reason for reason in named.values()), "pydantic's words, not ours"


@pytest.mark.parametrize(("path", "spec", "name", "data"), EVERY)
def test_a_misspelt_key_is_named_with_the_one_that_was_meant(
    path: Path, spec: type[ConfigModel], name: str, data: dict[str, Any]
) -> None:
    key = str(path[-1])
    wrong = (*path[:-1], f"{key}X")
    assert spelled(wrong) in faults(put(data, wrong, data_at(data, path)))


def test_text_that_is_broken_json_says_where_it_breaks() -> None:
    assert faults(FULL | {"nodeGroups": '[{"name": "a",'})["nodeGroups"].startswith("not JSON: ")


def test_a_null_section_is_no_section_however_the_cli_writes_it() -> None:
    for none in ("null", ""):
        config = load(text(FULL | {"fileSystem": none, "imageRepository": none}))
        assert (config.file_system, config.image_repository) == (None, None)
        assert [each for each in validate(config) if each.severity is not Severity.WARN] == []


def test_numbers_that_the_cli_stores_for_text_are_read_as_text() -> None:
    config = load(text(FULL | {"allowedAccountIds": [111122223333], "tags": {"Number": 12, "Flag": True}}))
    assert config.allowed_account_ids == ("111122223333",)
    assert config.tags == {"Number": "12", "Flag": "true"}


def test_zones_come_from_the_network_or_the_region() -> None:
    config = load(text(FULL))
    assert (model.zone_ids(config), model.accelerator_zone(config)) == (("usw2-az4", "usw2-az1"), "usw2-az4")
    assert model.zone_ids(load({"region": "us-east-1", "owner": "me"})) == ("use1-az6", "use1-az5")
    assert model.accelerator_zone(load({"region": "eu-west-1", "owner": "me"})) == ""
    existing = load(text(put(FULL, ("existingNetwork",), VARIANTS[("existingNetwork",)])))
    assert model.zone_ids(existing) == ("usw2-az4", "usw2-az1")
    assert model.vpc_cidr(existing) == "10.64.0.0/16"


@pytest.mark.parametrize(("nodes", "fits"), [(11, True), (12, False)])
def test_a_subnet_is_large_enough_up_to_its_last_address(nodes: int, fits: bool) -> None:
    """A /24 has 251: 16 for the control plane, 3 x 23 and 23 for CPU nodes, 11 x 13 for the group."""
    values = {
        "region": "us-west-2",
        "owner": "me",
        "allowedAccountIds": ["123456789012"],
        "fileSystem": None,
        "network": {"cidrBlock": "10.0.0.0/22"},
        "cluster": {"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}, "cpuNodes": {"maxSize": 1}},
        "nodeGroups": [{"name": "train", "instanceType": "trn1.32xlarge", "maxSize": nodes}],
    }
    found = [each.path for each in validate(load(text(values)))]
    assert ("network.cidr_block" not in found) is fits


def test_a_groups_zone_is_its_own_then_its_capacitys_then_the_accelerator_zone() -> None:
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zoneId": "usw2-az1"}
    groups = [
        {"name": "own", "instanceType": "trn1.32xlarge", "zoneId": "usw2-az1"},
        {"name": "block", "instanceType": "trn1.32xlarge", "capacity": block},
        {"name": "plain", "instanceType": "trn1.32xlarge"},
    ]
    config = load(text(FULL | {"nodeGroups": groups}))
    assert [model.group_zone(config, group) for group in config.node_groups] == ["usw2-az1", "usw2-az1", "usw2-az4"]


def test_the_pool_is_every_group_at_its_largest_types_of_the_config_included() -> None:
    groups = [GROUP, {**GROUP, "name": "new", "instanceType": "trn3.48xlarge"}]
    config = load(text(FULL | {"nodeGroups": groups, "autoscaling": {}}))
    assert model.pool(config) == {"aws.amazon.com/neuron": 128, "vpc.amazonaws.com/efa": 96}
    assert model.catalogue(config).find("trn3.48xlarge").accelerator == "Trainium3"


def test_a_fix_inside_a_default_list_says_that_the_list_must_be_written_out() -> None:
    rested = load(text({"region": "us-west-2", "owner": "me", "queues": [{"name": "other"}]}))
    told = next(problem for problem in validate(rested) if problem.path == "namespaces[0].queues[0]")
    assert told.good is None
    assert "write the list out" in told.fix


@pytest.mark.parametrize("environment", ["dev", "prod", "gpu"])
def test_the_environments_in_the_repository_are_sound(environment: str, pytestconfig: pytest.Config) -> None:
    content = yaml.safe_load((pytestconfig.rootpath / f"Pulumi.{environment}.yaml").read_text())["config"]
    config = load(text({key.partition(":")[2]: value for key, value in content.items()}))
    stopping = model.validate(config)
    assert [each for each in stopping if each.rule not in config.waivers and each.severity is not Severity.WARN] == []


class TestBesideABrokenSection:
    """Faults of shape in one section do not keep silent what is wrong in the others."""

    def told(self, **values: str) -> list[str]:
        with pytest.raises(ConfigModelError) as caught:
            load(values)
        return [problem.path for problem in model.problems_beside(values, caught.value.problems)]

    def test_sections_that_have_their_shape_are_judged(self) -> None:
        told = self.told(region="us-west-2", owner="me", nodeGroups="[1]", fileSystem='{"storageCapacityGib": 1300}')
        assert told == ["file_system.storage_capacity_gib"]

    def test_a_missing_region_does_not_hide_the_rest(self) -> None:
        told = self.told(
            owner="me",
            cluster='{"kubernetesVersion": "1.20"}',
            waivers='{"R99": {"reason": "x", "expires": "2027-03-31"}}',
        )
        assert "cluster.kubernetes_version" in told
        assert any(path.startswith("waivers") for path in told)

    def test_a_section_judged_by_a_broken_one_waits(self) -> None:
        queues = '[{"name": "big", "capability": {"aws.amazon.com/neuron": 9999}}]'
        assert self.told(region="us-west-2", owner="me", nodeGroups="[1]", queues=queues) == []
        assert self.told(region="us-west-2", owner="me", fileSystem="1", queues=queues) != []

    def test_defaults_are_not_judged_in_place_of_what_is_broken(self) -> None:
        assert self.told(region="nowhere", owner="me", network="1") == ["region"]


@pytest.mark.parametrize(("written", "read"), [("2.5", 2.5), ("3", 3), (3, 3), (2.5, 2.5), ("0.", 0)])
def test_a_number_that_the_cli_stored_as_text_is_one(written: Any, read: float) -> None:
    """``pulumi config set --path training.failuresPerNodeYear 2.5``."""
    config = load(text(FULL | {"training": {"failuresPerNodeYear": written}}))
    assert config.training.failures_per_node_year == read
