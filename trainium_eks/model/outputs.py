"""StackOutputs: the outputs of a stack for tools and people, as one versioned model."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic

from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.model.config.training import TrainingConfig
from trainium_eks.model.sizing import priorities
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt, read
from trainium_eks.model.validation.parsing import parse_json


class NodeGroupOutput(ConfigModel):
    """One accelerator node group, with the facts that a launcher needs."""

    name: str
    """Name within the stack (``trn1-32xl-ng1``)."""
    eks_name: str
    """Name in EKS, with Pulumi's suffix."""
    instance_type: str
    """EC2 type."""
    zone_id: str
    """Zone id of its nodes."""
    min_size: StrictInt
    """Fewest nodes."""
    max_size: StrictInt
    """Most nodes."""
    desired_size: StrictInt | None = None
    """Number of nodes that the stack sets; null where an autoscaler or a person decides (`ignoreDesiredSize`)."""
    resources: dict[str, StrictInt]
    """Devices and EFA interfaces of one node: ``{aws.amazon.com/neuron: 16, vpc.amazonaws.com/efa: 8}``."""
    labels: dict[str, str]
    """Labels that select its nodes."""
    capacity: Literal["on-demand", "spot", "reservation", "capacity-block"] = "on-demand"
    """How EC2 provides its instances."""
    reservation: str = ""
    """Its Capacity Block or reservation (``cr-…``), or empty."""
    placement_group: str = ""
    """Name of the cluster placement group of its nodes, or empty."""
    all_or_nothing: StrictBool = False
    """Whether ``trn scale`` and ``trn train`` scale it to all nodes or to none more."""
    starts: str = ""
    """Start of its Capacity Block by the config, RFC 3339; empty where the config does not say."""
    ends: str = ""
    """End of its Capacity Block by the config, RFC 3339, which each namespace has in the ConfigMap ``capacity-blocks``;
    empty where the config does not say."""


class NamespaceOutput(ConfigModel):
    """One team namespace."""

    name: str
    """Name of the namespace."""
    queues: tuple[str, ...]
    """Queues its jobs may use, its own first."""
    service_account: str
    """Service account its jobs run as."""
    claim: str
    """Claim of the shared file system, or empty."""
    priority_classes: tuple[str, ...] = priorities.NAMES
    """Priority classes that its jobs may name."""
    training_user_id: StrictInt | None = None
    """UID and GID of its jobs and of its directory; null where they are not known."""
    whole_nodes: StrictBool = False
    """Whether its pods take all devices of their nodes."""


class SharedVolumeOutput(ConfigModel):
    """The shared file system."""

    file_system_id: str
    """``fs-…``."""
    dns_name: str
    """Host to mount."""
    mount_name: str
    """Lustre's own name of the file system, the path after the host; ``<mount name>/<directory>`` mounts a part."""
    root: str = "/"
    """Directory of the file system in which each namespace has its own, ``<root>/<namespace>``; a namespace's claim
    shows its own directory alone."""
    capacity_gib: StrictInt
    """Size, GiB."""
    bucket: str
    """Linked S3 bucket, or empty."""
    write_megabytes_per_second: float | None = None
    """Its sustained write throughput, MB/s; null from a stack of an earlier release."""


class SageMakerOutput(ConfigModel):
    """SageMaker training jobs of the stack."""

    role_arn: str
    """Execution role."""
    bucket: str
    """Bucket of data, checkpoints and models."""
    prefix: str
    """Key prefix of checkpoints and models."""
    kms_key_arn: str
    """Key of volumes and models."""
    security_group_ids: tuple[str, ...]
    """Security groups of the instances."""
    subnet_ids: tuple[str, ...]
    """Private subnets of the instances."""
    serving_types: tuple[str, ...] = ()
    """Instance types that researchers may serve models on, the default first."""
    researcher_policy: str = ""
    """IAM policy of people who submit jobs, as JSON."""


class StackOutputs(ConfigModel):
    """Everything the stack exports, in camelCase."""

    schema_version: Literal[1] = 1
    """Changes when a field is removed or changes meaning."""
    region: str
    """AWS region."""
    cluster_name: str
    """EKS cluster."""
    kubeconfig: str
    """Kubeconfig as JSON text, for ``aws eks get-token``; holds no credential, and is a secret output because
    it names endpoint and certificate authority."""
    update_kubeconfig_command: str
    """Adds the cluster to ``~/.kube/config``."""
    queue_names: tuple[str, ...]
    """Volcano queues, in config order."""
    queues: dict[str, dict[str, StrictInt]]
    """Queue to its capability."""
    namespaces: tuple[NamespaceOutput, ...]
    """Team namespaces."""
    node_groups: tuple[NodeGroupOutput, ...]
    """Accelerator node groups."""
    shared_volume: SharedVolumeOutput | None = None
    """The shared file system, or null."""
    image_repository: str | None = None
    """URL of the image repository, or null."""
    base_images: dict[str, str] = pydantic.Field(default_factory=dict)
    """The config's own bases of training images, by target."""
    service_account: str
    """Service account of the first namespace."""
    rendezvous: str
    """``c10d``, or the etcd endpoint (``etcd-server.torchx-etcd.svc.cluster.local:2379``)."""
    instance_types: dict[str, Any] = pydantic.Field(default_factory=dict)
    """Entries by which the config adds to or changes the catalogue of instance types."""
    training: TrainingConfig = TrainingConfig()
    """Assumptions about jobs before they run: the size of a checkpoint, and how often nodes fail."""
    log_group: str | None = None
    """CloudWatch log group of the containers' logs, with streams ``<namespace>/<pod>/<container>``; null where the
    stack keeps none."""
    sage_maker: SageMakerOutput | None = None
    """SageMaker training jobs; null where the stack has none."""
    hourly_usd: float
    """Estimated cost an hour at desired sizes, USD; resources without a known price are left out."""
    other_hourly_usd: float | None = None
    """The same without the accelerator groups; null from a stack of an earlier release."""

    @property
    def catalogue(self) -> Catalogue:
        """The types of the stack: the catalogue of instance types, with the additions of its config."""
        return with_entries(CATALOGUE, self.instance_types) if self.instance_types else CATALOGUE

    @staticmethod
    def parse(data: Mapping[str, Any]) -> "StackOutputs":
        """Return the outputs from plain data: of an environment alone, or of a program that exports one environment as
        one output (``stackOutputs`` of a program in another language). ConfigModelError: malformed data, or another
        schema version."""
        return read(StackOutputs, _environment(data))

    @staticmethod
    def load(source: Path | str, *, directory: Path | None = None) -> "StackOutputs":
        """Return the outputs in a JSON file, or of a stack by its name in a Pulumi project (None: the working
        directory).

        FileNotFoundError: for a stack name, the Pulumi CLI is not on PATH. RuntimeError: ``pulumi`` fails; with its
        message. ConfigModelError: malformed data.
        """
        if isinstance(source, Path) or Path(source).is_file():
            return StackOutputs.parse(parse_json(Path(source).read_text()))
        command = ["pulumi", "stack", "output", "--json", "--show-secrets", "--stack", source]
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
        return StackOutputs.parse(parse_json(result.stdout))


def _environment(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the only output with an environment's fields; the data itself where it has them, or no output does."""
    if not isinstance(data, Mapping) or "schemaVersion" in data:
        return data
    inside = [value for value in data.values() if isinstance(value, Mapping) and "schemaVersion" in value]
    return inside[0] if len(inside) == 1 else data
