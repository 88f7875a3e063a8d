"""StackConfig: the whole config of an environment in one validated model."""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import pydantic

from trainium_eks.model import node_labels
from trainium_eks.model.catalogue import cached_images as images
from trainium_eks.model.catalogue import compatibility, instance_overrides, regions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue, CatalogueError
from trainium_eks.model.config import (
    addons,
    autoscaling,
    budget,
    cluster,
    cross,
    device_addons,
    fabric_gate,
    idle,
    image_cache,
    karpenter,
    namespaces,
    network,
    node_groups,
    observability,
    repository,
    sagemaker,
    storage,
    waivers,
)
from trainium_eks.model.config.autoscaling import AutoscalingConfig
from trainium_eks.model.config.budget import BudgetConfig
from trainium_eks.model.config.cluster import ClusterConfig
from trainium_eks.model.config.device_addons import GpuAddonsConfig, NeuronAddonsConfig
from trainium_eks.model.config.fabric_gate import FabricGateConfig
from trainium_eks.model.config.idle import IdleGuardConfig
from trainium_eks.model.config.image_cache import ImageCacheConfig
from trainium_eks.model.config.namespaces import NamespaceConfig
from trainium_eks.model.config.network import ExistingNetworkConfig, NetworkConfig
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.config.observability import ObservabilityConfig
from trainium_eks.model.config.repository import ImageRepositoryConfig
from trainium_eks.model.config.sagemaker import SageMakerConfig, SageMakerEndpointConfig
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.config.training import TrainingConfig
from trainium_eks.model.config.waivers import WaiverConfig
from trainium_eks.model.sizing import addresses, queues, quotas
from trainium_eks.model.sizing.queues import QueueConfig, VolcanoConfig
from trainium_eks.model.validation import formats, limits, unseen
from trainium_eks.model.validation.config_model import EXTRA, ConfigModel, ConfigModelError, LooseStr, StrictBool, read
from trainium_eks.model.validation.problems import Problem, Severity, join, nearest, snake, under, with_value


class StackConfig(ConfigModel):
    """One environment. Each field is a key of the stack's config file, in camelCase."""

    region: formats.Region
    """AWS region. us-east-1, us-east-2 and us-west-2 work from defaults; others need ``network.zoneIds``."""
    owner: str
    """Who answers for this environment; tag ``Owner`` on everything."""
    cost_center: str = "training"
    """Tag ``CostCenter`` on everything."""
    production: StrictBool = False
    """True holds the environment to the production rules: deletion protection, ``protect`` on resources with data,
    private endpoint or named ranges, NAT per zone."""
    allowed_account_ids: tuple[LooseStr, ...] = ()
    """The only AWS accounts this environment may be built in (12 digits each). Empty: any, waive R67."""
    permissions_boundary: str | None = None
    """ARN of the IAM policy that bounds every role of this environment; the documented deploy role may make no role
    without it (docs/deploying.md). Unset: no bound."""
    kept_key_arn: formats.KeyArn | None = None
    """ARN of the KMS key that an earlier stack of this name kept, to be used again; `trn check` proposes it. Set it
    before the first ``up`` and leave it there: EKS never takes another key, so `trn plan --against` refuses one, and
    the file system and every volume would be replaced. Unset: the stack makes a key."""
    tags: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """Further tags on everything."""
    network: NetworkConfig = NetworkConfig()
    """The VPC to make; see also ``existing_network``."""
    existing_network: ExistingNetworkConfig | None = None
    """A VPC to use instead of making one."""
    cluster: ClusterConfig = ClusterConfig()
    """Control plane and CPU nodes."""
    node_groups: tuple[NodeGroupConfig, ...] = (
        NodeGroupConfig(name="trn1-32xl-ng1", instance_type="trn1.32xlarge", min_size=0, max_size=4, desired_size=2),
        NodeGroupConfig(name="trn1n-32xl-ng", instance_type="trn1n.32xlarge", min_size=0, max_size=2, desired_size=0),
    )
    """Accelerator node groups."""
    instance_types: dict[str, dict[str, Any]] = pydantic.Field(default_factory=dict)
    """Catalogue entries added or changed: ``{trn3.48xlarge: {…}}`` with the fields of the catalogue."""
    file_system: FileSystemConfig | None = FileSystemConfig()
    """The shared file system; null for none."""
    volcano: VolcanoConfig = VolcanoConfig()
    """Gang scheduler."""
    queues: tuple[QueueConfig, ...] = (QueueConfig(name="test"),)
    """Volcano queues."""
    namespaces: tuple[NamespaceConfig, ...] = (NamespaceConfig(name="training", queues=("test",)),)
    """Team namespaces."""
    image_repository: ImageRepositoryConfig | None = ImageRepositoryConfig()
    """Repository for training images; null for none."""
    image_cache: ImageCacheConfig | None = None
    """ECR's pull-through cache for the images of charts and of the stack's own pods (docs/autoscaling.md, More than a
    hundred nodes); null for none."""
    training: TrainingConfig = TrainingConfig()
    """Assumptions of the plan and `trn train` about jobs: the size of a checkpoint, and how often nodes fail."""
    neuron_addons: NeuronAddonsConfig = NeuronAddonsConfig()
    """Add-ons of Trainium and Inferentia groups; installed when there is such a group."""
    gpu_addons: GpuAddonsConfig = GpuAddonsConfig()
    """Add-ons of GPU groups; installed when there is such a group."""
    autoscaling: AutoscalingConfig = AutoscalingConfig()
    """Controllers that add and remove nodes; none by default."""
    observability: ObservabilityConfig = ObservabilityConfig()
    """Metrics, Grafana and logs; none by default (docs/observability.md)."""
    budget: BudgetConfig = BudgetConfig()
    """Bounds on the environment's size and price (a plan above them fails, rule R72), and recipients of e-mails about
    its cost."""
    idle_guard: IdleGuardConfig | None = None
    """Guard that warns of idle accelerators and removes them; null for none."""
    fabric_gate: FabricGateConfig | None = None
    """Taint on new and rebooted accelerator nodes until the fabric test has passed on them (docs/checks.md); null for
    none."""
    sage_maker: SageMakerConfig | None = None
    """SageMaker training jobs beside the cluster (docs/sagemaker.md); null for none."""
    sage_maker_endpoints: tuple[SageMakerEndpointConfig, ...] = ()
    """SageMaker endpoints of the stack (docs/sagemaker.md)."""
    waivers: dict[str, WaiverConfig] = pydantic.Field(default_factory=dict)
    """Rules that this environment breaks on purpose, each with its reason and its last day:
    ``{R06: {reason: torn down every night, expires: 2027-03-31}}``."""

    def unused(self) -> tuple[str, ...]:
        """Return the section that an adopted network replaces."""
        return () if self.existing_network is None else ("network",)


def decode(values: Mapping[str, str]) -> dict[str, Any]:
    """Return config values from Pulumi's storage (``{"region": "us-west-2", "nodeGroups": "[…]"}``: text, or JSON for
    other types) as plain data. Text that should be JSON and is not stays text: :func:`load` reports the expected
    type."""
    plain = {
        key
        for name, field in StackConfig.model_fields.items()
        if field.annotation is str
        for key in (name, field.alias)
    }
    return {key: text if key in plain else _json(text) for key, text in values.items()}


def problems_beside(values: Mapping[str, str], faults: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems of the well-formed sections of :func:`load`'s argument beside the faults that it raised, so
    that all problems are reported at once. A check that reads a broken section is skipped."""
    broken = {_section(problem) for problem in faults if not problem.reason.startswith(EXTRA)}
    whole = {key: text for key, text in values.items() if snake(key) not in broken}
    stand_ins = {key: text for key, text in (("region", "us-west-2"), ("owner", "-")) if key in broken}
    try:
        config = load({**whole, **stand_ins}, "ignore")
    except ConfigModelError:
        return ()
    given = {snake(key) for key in whole}
    # Not a StackConfig, but it is read like one.
    found = _found(cast(StackConfig, _Unbroken(config, broken)))
    told = unseen.judged(found, config.model_dump())
    return tuple(_settable(config, problem) for problem in told if _section(problem) in given)


class _BrokenSectionError(Exception):
    """A validator read a malformed section."""


class _Unbroken:
    """A config that raises when a malformed section is read."""

    def __init__(self, config: StackConfig, broken: Collection[str]) -> None:
        self._config = config
        self._broken = broken

    def __getattr__(self, name: str) -> object:
        if name in self._broken:
            raise _BrokenSectionError(name)
        return getattr(self._config, name)


def _section(problem: Problem) -> str:
    return re.split(r"[.\[]", problem.path, maxsplit=1)[0]


def load(values: Mapping[str, str], extra: Literal["ignore"] | None = None) -> StackConfig:
    """Return the stack's config from Pulumi's key-to-text map; ``ignore`` leaves out names that it does not have.
    ConfigModelError has every malformed field; values are checked by :func:`validate`."""
    data = decode(values)
    try:
        return read(StackConfig, data, extra=extra)
    except ConfigModelError as error:
        raise ConfigModelError(unseen.shaped(_with_json_faults(error.problems, data), data)) from None


def tags(config: StackConfig, *, environment: str) -> dict[str, str]:
    """Return the tags of all resources of an environment, which has its Pulumi stack's name."""
    own = {"Environment": environment, "Owner": config.owner, "CostCenter": config.cost_center, "ManagedBy": "pulumi"}
    return {**own, **dict(sorted(config.tags.items()))}


OWN_TAGS: Mapping[str, str] = {
    "Environment": "it is the stack's name: remove it",
    "Owner": "set `owner`",
    "CostCenter": "set `cost_center`",
    "ManagedBy": "remove it",
    "Name": "each resource has its own: remove it",
}
"""Tags that the stack sets, each with the remedy for setting it in ``tags``."""


def catalogue(config: StackConfig) -> Catalogue:
    """Return the catalogue with the config's ``instance_types`` merged over it; CatalogueError for entries that
    :func:`validate` refuses."""
    base = Catalogue(CATALOGUE, is_gated=True) if config.fabric_gate else CATALOGUE
    return with_entries(base, config.instance_types) if config.instance_types else base


def zone_ids(config: StackConfig) -> tuple[str, ...]:
    """Return the zones of the private subnets, the accelerator zone first; empty when the region has no default
    zones."""
    if config.existing_network is not None:
        return tuple(dict.fromkeys(subnet.zone_id for subnet in config.existing_network.private_subnets))
    return tuple(dict.fromkeys(config.network.zone_ids)) or regions.default_zones(config.region)


def accelerator_zone(config: StackConfig) -> str:
    """Return the default zone of nodes and file system; empty when :func:`zone_ids` is."""
    return next(iter(zone_ids(config)), "")


def group_zone(config: StackConfig, group: NodeGroupConfig) -> str:
    """Return the zone of a group's nodes: its own, its capacity's, else the accelerator zone."""
    return node_groups.zone_of(group) or accelerator_zone(config)


def rests_at_zero(config: StackConfig) -> bool:
    """Return whether some group may have no node, so that an autoscaler must see pods before a node exists for them."""
    return any(group.min_size == 0 for group in _every_group(config))


def _every_group(config: StackConfig) -> tuple[NodeGroupConfig, ...]:
    """Return the node groups, and Karpenter's accelerator pools, which may have no node."""
    return (*config.node_groups, *karpenter.as_groups(config))


def pool(config: StackConfig) -> dict[str, int]:
    """Return the devices and EFA interfaces of all groups at their largest."""
    return queues.pool(_every_group(config), _catalogue_or_default(config))


def topology_labels(config: StackConfig) -> tuple[str, ...]:
    """Return the node labels that become HyperNodes, the widest first."""
    types = (group.instance_type for group in _every_group(config))
    return node_labels.topology_labels(types, _catalogue_or_default(config))


def room(config: StackConfig) -> dict[str, str]:
    """Return CPU, memory and pods of all nodes for jobs, when every group is at its largest."""
    cpu_nodes = config.cluster.cpu_nodes
    sizes = [(group.instance_type, group.max_size) for group in _every_group(config)]
    return quotas.room([*sizes, (cpu_nodes.instance_type, cpu_nodes.max_size)], _catalogue_or_default(config))


def shared_nodes(config: StackConfig, namespace: NamespaceConfig) -> dict[str, dict[str, str]]:
    """Return each instance type with devices, and the resources that pods can request on one of its nodes; empty where
    the namespace's pods may take any part of them, because it is the only one."""
    if len(config.namespaces) == 1 and namespace.partial_nodes is not False:
        return {}
    catalogue = _catalogue_or_default(config)
    types = dict.fromkeys(group.instance_type for group in _every_group(config))
    return {each: catalogue.allocatable(each) for each in types if each in catalogue and catalogue.taints(each)}


def vpc_cidr(config: StackConfig) -> str:
    """Return the VPC's primary address range."""
    return config.existing_network.cidr_block if config.existing_network else config.network.cidr_block


def private_subnets(config: StackConfig) -> dict[str, str]:
    """Return zone id to the range of its private subnet; empty when the network cannot be planned."""
    if config.existing_network is not None:
        return {subnet.zone_id: subnet.cidr_block for subnet in config.existing_network.private_subnets}
    try:
        return dict(addresses.plan(config.network.cidr_block, zone_ids(config)).private)
    except ValueError:
        return {}


def validate(config: StackConfig) -> tuple[Problem, ...]:
    """Return all problems of the config of one environment, in every section and between sections.

    AWS is not queried, so facts that only AWS knows are not checked. Paths start at the stack's root.
    """
    told = unseen.judged(_found(config), config.model_dump())
    return tuple(_settable(config, _holding(config, problem, told)) for problem in told)


def _holding(config: StackConfig, problem: Problem, told: Iterable[Problem]) -> Problem:
    """Return the problem with a tried fix: with all values that it needs, or without a value that does not suffice."""
    if not problem.is_settable:
        return problem
    known = {(each.path, each.reason[:_BEGINNING]) for each in told}
    try:
        after = _found(read(StackConfig, with_value(config.model_dump(), problem.path, problem.good)))
    except ConfigModelError as error:
        after = list(error.problems)
    new = [each for each in after if (each.path, each.reason[:_BEGINNING]) not in known]
    stopping = [each for each in after if each.severity is not Severity.WARN]
    here = next((each for each in (*new, *stopping) if each.path == problem.path), None)
    if here is not None:
        return replace(problem, good=None, fix=problem.fix or f"{problem.good} would not do: {here.reason}")
    then = "; ".join(f"`{each.path}`: {each.fix or each.good}" for each in new if each in stopping)
    return replace(problem, fix=f"then {then}{f'; {problem.fix}' if problem.fix else ''}") if then else problem


_BEGINNING = 20
"""Letters by which a reason is known again, though its numbers change."""


def _found(config: StackConfig) -> list[Problem]:
    found: list[Problem] = []
    for name in StackConfig.model_fields:
        with contextlib.suppress(_BrokenSectionError):
            if name in config.unused():
                continue
            places = list(limits.walk_field(StackConfig, name, getattr(config, name)))
            found += limits.of_places(places)
            found += formats.arns(places, config.region)
    for judge in _JUDGES:
        with contextlib.suppress(_BrokenSectionError):
            found += judge(config)
    return found


_DEFAULT_LISTS = ("node_groups", "queues", "namespaces")


def _settable(config: StackConfig, problem: Problem) -> Problem:
    """Return the problem with a fix that works: an entry of a default list cannot be set by itself in the stack's
    file."""
    section = next((name for name in _DEFAULT_LISTS if problem.path.startswith(f"{name}[")), None)
    # Pulumi.yaml gives the CLI the same defaults, so whether the field was set proves nothing.
    if section is None or getattr(config, section) != StackConfig.model_fields[section].default:
        return problem
    instead = f"change it in the stack's file; if `{section}` is not there, its default is in use: write the list out"
    return replace(problem, good=None, fix=f"{problem.fix}; {instead}" if problem.fix else instead)


def _json(text: str) -> Any:
    try:
        # An empty value is what the CLI stores for a YAML null.
        return json.loads(text) if text else None
    except ValueError:
        return text


def _with_json_faults(problems: Iterable[Problem], data: Mapping[str, Any]) -> list[Problem]:
    """Return the problems, with the position of the syntax error for invalid JSON: "expected a list" would not help."""
    broken = {snake(key): error for key, value in data.items() if (error := _json_fault(value))}
    return [
        replace(problem, reason=f"not JSON: {broken[problem.path]}", good=None) if problem.path in broken else problem
        for problem in problems
    ]


def _json_fault(value: object) -> str:
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            json.loads(value)
        except ValueError as error:
            return str(error)
    return ""


def _catalogue_or_default(config: StackConfig) -> Catalogue:
    try:
        return catalogue(config)
    except CatalogueError:
        return CATALOGUE


def _own_problems(config: StackConfig) -> list[Problem]:
    """Return the problems of the root's own fields."""
    found: list[Problem] = []
    for field, text in (("owner", config.owner), ("cost_center", config.cost_center)):
        if not text.strip():
            found.append(Problem(field, "it is empty, and it becomes a tag on everything (R66)", good=f"<{field}>"))
        else:
            found += [replace(problem, path=field) for problem in formats.tags("", {field: text})]
    if not config.allowed_account_ids:
        reason = "it is empty: this environment could be built in any account whose credentials happen to be at hand"
        found.append(Problem("allowed_account_ids", reason, rule="R67", good=("<12 digits>",)))
    for index, account in enumerate(config.allowed_account_ids):
        found += formats.account_id(join("allowed_account_ids", index), account)
    if config.permissions_boundary is not None:
        found += formats.policy_arn("permissions_boundary", config.permissions_boundary)
        owner = config.permissions_boundary.split(":")[4:5]
        if not found and config.allowed_account_ids and not {*owner} <= {"aws", *config.allowed_account_ids}:
            reason = "it is a policy of another account, and IAM bounds a role by a policy of its own account"
            fix = f"name the policy of {formats.listed(config.allowed_account_ids, 'or')}"
            found.append(Problem("permissions_boundary", reason, fix, value=config.permissions_boundary))
    found += formats.tags("tags", config.tags, taken=OWN_TAGS)
    found += waivers.validate(config.waivers)
    return found


def _region_problems(config: StackConfig) -> list[Problem]:
    """Return the problem of an unknown region; it is accepted with a warning if its name has a region's form and its
    zones are given."""
    region = config.region
    if region in regions.REGIONS or formats.region("region", region):
        return []
    if zone_ids(config):
        reason = f"{region} is newer than this release, so its zones and EKS' image registry there cannot be checked"
        return [formats.warn("region", reason, "see that the zones are right")]
    good = nearest(region, regions.REGIONS)
    fix = "a region newer than this release needs its zones in `network.zone_ids`"
    known = tuple(regions.REGIONS)
    return [Problem("region", "this release does not know it", fix, value=region, allowed=known, good=good)]


def _instance_type_problems(config: StackConfig) -> list[Problem]:
    try:
        catalogue(config)
        faults: tuple[Problem, ...] = ()
    except CatalogueError as error:
        faults = error.problems
    return instance_overrides.validate(config.instance_types, CATALOGUE, faults)


def _network_problems(config: StackConfig) -> list[Problem]:
    if config.existing_network is None:
        return under("network", network.validate(config.network, region=config.region))
    found = under("existing_network", network.existing_problems(config.existing_network, region=config.region))
    if config.network != NetworkConfig():
        reason = "it is not used, because `existing_network` is given"
        found.append(formats.warn("network", reason, "remove one of the two"))
    return found


def _group_problems(config: StackConfig) -> list[Problem]:
    types = _catalogue_or_default(config)
    found = formats.duplicates("node_groups", [group.name for group in config.node_groups], "name")
    found += under("node_groups", node_groups.of_one_cluster(config.node_groups))
    cni = addons.version(config.cluster.addons, "vpc-cni", config.cluster.kubernetes_version)
    version = config.cluster.kubernetes_version
    for index, group in enumerate(config.node_groups):
        wrong = node_groups.version_problems(group, version)
        own = node_groups.validate(
            group,
            region=config.region,
            catalogue=types,
            vpc_cni_version=cni,
            kubernetes_version=version if wrong else node_groups.version_of(group, version),
        )
        found += under(join("node_groups", index), own + wrong)
    return found


def _namespace_problems(section: tuple[NamespaceConfig, ...], config: StackConfig) -> list[Problem]:
    leaves = queues.leaves(config.queues)
    parents = [queue.name for queue in config.queues if queue.name not in leaves]
    found = namespaces.validate(section, queue_names=leaves, parent_queue_names=parents)
    return found if config.file_system is None else found + namespaces.shared_users(section)


def _cluster_problems(section: ClusterConfig, config: StackConfig) -> list[Problem]:
    types, zones = _catalogue_or_default(config), _zone_count(config)
    return cluster.validate(section, production=config.production, catalogue=types, zones=zones)


def _zone_count(config: StackConfig) -> int:
    """Return the number of the cluster's zones, 1 if the network section is malformed."""
    try:
        return max(len(zone_ids(config)), 1)
    except _BrokenSectionError:
        return 1


def lustre_network(config: StackConfig) -> Literal["none", "tcp", "efa"]:
    """Return how the stack's nodes reach its file system; ``none`` without one."""
    if config.file_system is None:
        return "none"
    return "efa" if config.file_system.efa_enabled else "tcp"


def cached_images(config: StackConfig) -> tuple[str, ...]:
    """Return the images of the environment's charts and pods, without tags, which its cache brings if it can."""
    types = catalogue(config)
    families = {types.find(each.instance_type).family for each in _every_group(config)}
    return tuple(dict.fromkeys(images.used(config.model_dump(by_alias=True), families)))


def _sagemaker_problems(config: StackConfig) -> list[Problem]:
    types, endpoints = _catalogue_or_default(config), config.sage_maker_endpoints
    found = [] if config.sage_maker is None else under("sage_maker", sagemaker.validate(config.sage_maker, types))
    if endpoints and config.sage_maker is None:
        reason = "they need the section `sage_maker`, whose bucket holds the models"
        found.append(Problem("sage_maker_endpoints", reason, "add sageMaker: {}"))
    found += formats.duplicates("sage_maker_endpoints", [each.name for each in endpoints], "name")
    for index, each in enumerate(endpoints):
        found += under(join("sage_maker_endpoints", index), sagemaker.validate_endpoint(each, types))
    return found


def _guarantee_problems(section: tuple[QueueConfig, ...], config: StackConfig) -> list[Problem]:
    present = queues.present(config.node_groups, _catalogue_or_default(config))
    return queues.guarantee_problems(section, present=present)


def _zone_problems(config: StackConfig) -> list[Problem]:
    """Return the problems of zones; none if region or zones themselves are refused, to report one fault once."""
    zones, types = zone_ids(config), _catalogue_or_default(config)
    if config.region not in regions.REGIONS or not network.zones_are_sound(zones, config.region):
        return []
    return [
        *cross.group_zone_problems(config, types, zones),
        *cross.cpu_type_problems(config, types, zones),
        *cross.file_system_zone_problems(config, types, zones),
        *karpenter.zone_problems(config, types, zones),
    ]


def _address_problems(config: StackConfig) -> list[Problem]:
    types = _catalogue_or_default(config)
    return cross.address_problems(config, types, zone_ids(config), private_subnets(config))


def _of_section(
    name: str, judge: Callable[[Any, StackConfig], list[Problem]]
) -> Callable[[StackConfig], list[Problem]]:
    """Return the check of a section by ``judge``; one that the config leaves out has no problems."""

    def problems(config: StackConfig) -> list[Problem]:
        section = getattr(config, name)
        return [] if section is None else under(name, judge(section, config))

    return problems


_JUDGES: tuple[Callable[[StackConfig], list[Problem]], ...] = (
    _region_problems,
    _own_problems,
    _of_section("instance_types", lambda _, config: _instance_type_problems(config)),
    _network_problems,
    _of_section("cluster", _cluster_problems),
    _group_problems,
    _of_section("file_system", lambda section, config: storage.validate(section, production=config.production)),
    _of_section(
        "volcano",
        lambda section, config: queues.volcano_problems(section, rests_at_zero=rests_at_zero(config)),
    ),
    _of_section("queues", lambda section, config: queues.validate(section, pool=pool(config))),
    _of_section("queues", _guarantee_problems),
    _of_section("namespaces", _namespace_problems),
    _of_section("image_repository", lambda section, _: repository.validate(section)),
    _of_section("image_cache", lambda section, config: image_cache.validate(section, config.allowed_account_ids)),
    lambda config: autoscaling.validate(config, _catalogue_or_default(config)),
    _of_section("budget", lambda section, config: budget.validate(section, region=config.region)),
    _of_section(
        "observability",
        lambda section, config: observability.validate(section, region=config.region, production=config.production),
    ),
    _of_section(
        "idle_guard",
        lambda section, config: [*idle.validate(section), *idle.group_problems(section, idle.guarded(config))],
    ),
    _of_section(
        "fabric_gate",
        lambda section, config: fabric_gate.validate(section, {each.instance_type for each in _every_group(config)}),
    ),
    _sagemaker_problems,
    _of_section("neuron_addons", lambda section, _: device_addons.neuron_problems(section)),
    _zone_problems,
    _address_problems,
    lambda config: cross.range_problems(config, vpc_cidr(config)),
    cross.lustre_client_problems,
    lambda config: cross.lustre_efa_problems(config, _catalogue_or_default(config)),
    lambda config: compatibility.validate(config, _catalogue_or_default(config)),
    lambda config: cross.production_problems(config, zone_ids(config)),
    cross.first_up_problems,
    cross.monitoring_problems,
    lambda config: cross.quota_problems(config, _catalogue_or_default(config)),
    cross.principal_problems,
)
"""The checks of a config, in the order of their reports."""
