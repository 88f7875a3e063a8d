"""The components' args as Pulumi's analyzer reads them. Written by docs/provider_arguments.py."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NotRequired, TypedDict

import pulumi


class CapacityType(StrEnum):
    """Allowed values."""

    OnDemand = "on-demand"
    Spot = "spot"
    Reservation = "reservation"
    CapacityBlock = "capacity-block"


class Capacity(TypedDict):
    """One of 4 kinds.

    ``on-demand``: On-Demand capacity that EC2 has free when the group grows. Only with it is a placement group made
    by default.
    ``spot``: Spare capacity that EC2 takes back with two minutes' notice; a gang dies whole, so rule R29 must be
    waived.
    ``reservation``: An On-Demand Capacity Reservation: paid from the moment it is made, used or not.
    ``capacity-block``: A Capacity Block for ML: bought ahead for fixed days, all or nothing, drained 40 minutes
    before its end.
    """

    type: CapacityType
    """Which of them."""
    id: NotRequired[pulumi.Input[str]]
    """Of ``reservation``: The reservation, ``cr-`` and 17 hexadecimal digits.
    Of ``capacity-block``: The block's reservation, ``cr-`` and 17 hexadecimal digits.
    """
    zoneId: NotRequired[str]
    """Of ``reservation``: Zone id of the reservation (``usw2-az4``); the group's nodes go there.
    Of ``capacity-block``: Zone id of the block.
    """
    placementGroup: NotRequired[pulumi.Input[str]]
    """Of ``reservation``: Name of the cluster placement group the reservation was made in; None when it was made
    without one. With a group that the reservation was not made in, EC2 returns InsufficientInstanceCapacity
    (terraform-aws-eks#3730).
    """


class InterfaceLayout(StrEnum):
    """Allowed values."""

    Catalogue = "catalogue"
    EfaOnly = "efa-only"
    Ena = "ena"
    Efa = "efa"


class LocalStorage(StrEnum):
    """Allowed values."""

    Raid0 = "raid0"
    Nothing = "none"


class AcceleratorNodeGroupArgs(TypedDict):
    """Args of :class:`AcceleratorNodeGroup`: an entry of the config's node groups, and its wiring."""

    name: str
    """Name of the group within the stack (``trn1-32xl-ng1``): lower-case letters, digits and dashes."""
    instanceType: str
    """A type of the catalogue (``trn1.32xlarge``) or of ``instance_types`` in the stack's config."""
    minSize: NotRequired[int]
    """Fewest nodes; 0 lets the group rest."""
    maxSize: NotRequired[int]
    """Most nodes, 1 to 450."""
    desiredSize: NotRequired[int]
    """Number of nodes. With ``ignore_desired_size`` only at first."""
    capacity: NotRequired[Capacity]
    """How EC2 provides the instances: ``{type: on-demand}``, ``{type: spot}``,
    ``{type: reservation, id: cr-…, zoneId: usw2-az4}`` or ``{type: capacity-block, id: cr-…, zoneId: usw2-az4}``.
    """
    zoneId: NotRequired[str]
    """Zone of the nodes. Unset: the capacity's zone, else the network's accelerator zone."""
    interfaceLayout: NotRequired[InterfaceLayout]
    """How EFA interfaces are laid out over the network cards. ``efa-only``: card 0 ``efa``, further cards ``efa-only``
    (one address a node, needs vpc-cni 1.18.5). ``ena``: card 0 ``interface``, EFA beside it. ``efa``: every card
    ``efa`` (one address a card).
    """
    placementGroup: NotRequired[pulumi.Input[str]]
    """``auto``: a cluster placement group for plain On-Demand, none (or the reservation's own) otherwise.
    ``none``: never. Anything else: the name of an existing group.
    """
    rootVolumeGib: NotRequired[int]
    """Size of the encrypted gp3 root volume, GiB. Unset: 100 where containers live on local NVMe, 500 otherwise."""
    localStorage: NotRequired[LocalStorage]
    """``raid0``: local NVMe disks become one volume that holds containers and images. ``none``: left alone."""
    labels: NotRequired[Mapping[str, str]]
    """Further node labels."""
    maxUnavailable: NotRequired[int]
    """Nodes an update may take down at a time."""
    ignoreDesiredSize: NotRequired[bool]
    """True leaves ``desired_size`` to an autoscaler or to manual scaling: later changes to it here are ignored."""
    hugepages2Mi: NotRequired[int]
    """2 MiB hugepages that user data reserves on each node. Unset: the catalogue's number (0 on Trainium)."""
    installLustreClient: NotRequired[bool]
    """True installs the Lustre client at boot, for an AMI that comes without one (amazon-eks-ami#2696)."""
    releaseVersion: NotRequired[str]
    """AMI release (``1.35.0-20260723``). Unset: the pinned one for the Kubernetes version and AMI type."""
    kubernetesVersion: NotRequired[str]
    """Minor version of the nodes, ``1.35``; at most the cluster's."""
    region: str
    """AWS region."""
    clusterName: pulumi.Input[str]
    """EKS cluster that the nodes join."""
    clusterSecurityGroupId: pulumi.Input[str]
    """The security group that EKS made for the cluster."""
    vpcId: pulumi.Input[str]
    """VPC of the cluster, for the group's own EFA security group."""
    subnetId: pulumi.Input[str]
    """Private subnet in the group's zone."""
    nodeRoleArn: NotRequired[pulumi.Input[str]]
    """Role of the nodes, with its policies attached; None makes one."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds a role made here; None for no bound."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key for the root volume. Its policy must let Auto Scaling's service-linked role use it, or no node starts."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags for the group and for the instances, volumes and interfaces that it launches."""
    waivers: NotRequired[Mapping[str, str]]
    """Rules broken on purpose, each with its reason (R29 for Spot)."""


class Expander(StrEnum):
    """Allowed values."""

    LeastWaste = "least-waste"
    MostPods = "most-pods"
    LeastNodes = "least-nodes"
    Random = "random"


class AutoscaledGroup(TypedDict):
    """One node group that Cluster Autoscaler serves."""

    name: str
    """Its name in the program; the tags are named after it."""
    instanceType: str
    """EC2 type of its nodes."""
    autoscalingGroup: pulumi.Input[str]
    """Name of its Auto Scaling group (``eks-…``)."""
    labels: NotRequired[Mapping[str, str]]
    """Labels of its nodes, in addition to the labels of Kubernetes and EKS."""
    resources: NotRequired[Mapping[str, str]]
    """Resources of a node beside CPU and memory (``{ephemeral-storage: 85Gi}``), over its type's resources: devices,
    EFA, huge pages. An empty group never grows for a pod that requests any other resource.
    """


class ClusterAutoscalerArgs(TypedDict):
    """Args of :class:`ClusterAutoscaler`, the config section with its wiring."""

    acceleratorGroups: NotRequired[Sequence[str]]
    """Names of accelerator groups that it scales too, from zero where their `minSize` is 0. It knows no gangs: read
    docs/autoscaling.md first. Each needs ``ignoreDesiredSize: true``.
    """
    expander: NotRequired[Expander]
    """Choice of the group that grows when several would do. ``least-waste``: the group that leaves least CPU idle."""
    scaleDownMinutes: NotRequired[int]
    """Minutes that a CPU node is hardly used before it goes."""
    acceleratorScaleDownMinutes: NotRequired[int]
    """Minutes that an accelerator node is empty before it goes: a gang that starts again finds its nodes still there.
    A
    node with any pod that is not a DaemonSet's is never removed.
    """
    maxNodeProvisionMinutes: NotRequired[int]
    """Minutes that a node may take to join before its group is given up for a while."""
    evictLocalStorage: NotRequired[bool]
    """True lets CPU nodes go although pods keep files in an ``emptyDir``; the files are lost."""
    replicas: NotRequired[int]
    """Copies; one is active."""
    region: str
    """AWS region."""
    clusterName: pulumi.Input[str]
    """EKS cluster."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the roles made here; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags of its AWS resources, in addition to the provider's."""
    nodeSelector: NotRequired[Mapping[str, str]]
    """Labels of the nodes that it runs on itself; nodes that it takes away must not be among them."""
    groups: Sequence[pulumi.Input[AutoscaledGroup]]
    """The groups that it serves."""
    kubernetesVersion: NotRequired[str]
    """Minor version of the cluster: an autoscaler of the same version is run."""


class EncryptionKeyArgs(TypedDict):
    """Args of :class:`EncryptionKey`."""

    region: str
    """AWS region; the key serves the services of this region alone."""
    description: NotRequired[str]
    """Purpose of the key, as the KMS console shows it."""
    deletionWindowDays: NotRequired[int]
    """Days before a deletion takes effect; until then it can be cancelled."""
    retainOnDelete: NotRequired[bool]
    """True keeps the key (1 USD a month) when the stack is destroyed. Backups and buckets outlive a stack and can
    never
    be read again without it. False deletes it with the stack, after the deletion window.
    """
    keptKeyArn: NotRequired[pulumi.Input[str]]
    """ARN of the key that an earlier component of this name kept, to be used again: it gets this component's policy
    and
    alias, and nothing else of it is managed. None makes a key.
    """
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags in addition to the provider's."""


class ExistingSubnet(TypedDict):
    """One subnet of an existing VPC."""

    id: str
    """``subnet-`` and 8 or 17 hexadecimal digits."""
    zoneId: str
    """Zone id of the subnet (``usw2-az4``), not its name: names differ between accounts."""
    cidrBlock: str
    """The subnet's address range; the address budget is counted against it."""


class ExistingNetworkArgs(TypedDict):
    """Args of :class:`ExistingNetwork`: the config's existing-network section, and its region."""

    vpcId: str
    """``vpc-`` and 8 or 17 hexadecimal digits."""
    cidrBlock: str
    """Primary address range of the VPC."""
    privateSubnets: Sequence[pulumi.Input[ExistingSubnet]]
    """Private subnets in at least two zones; the first one's zone is the accelerator zone."""
    publicSubnets: NotRequired[Sequence[ExistingSubnet]]
    """Public subnets, for load balancers; may be empty."""
    peerCidrBlocks: NotRequired[Sequence[str]]
    """As in a new network."""
    region: str
    """AWS region of the VPC."""


class DeploymentType(StrEnum):
    """Allowed values."""

    Persistent2 = "PERSISTENT_2"
    Scratch2 = "SCRATCH_2"


class DurabilityType(StrEnum):
    """Allowed values."""

    Backup = "backup"
    S3 = "s3"
    Nothing = "none"


class Durability(TypedDict):
    """One of 3 kinds.

    ``backup``: Daily backups, and a last one when the file system is deleted. Excludes a link to S3 (FSx
    CreateBackup).
    ``s3``: A data repository association: the S3 bucket holds the data, the file system is its fast copy.
    ``none``: No backup and no link; only for SCRATCH_2 and only outside production.
    """

    type: DurabilityType
    """Which of them."""
    retentionDays: NotRequired[int]
    """Of ``backup``: Days a daily backup is kept."""
    bucket: NotRequired[pulumi.Input[str]]
    """Of ``s3``: Name of an existing bucket in the same region. Unset: the stack makes one, versioned and retained."""
    bucketKeyArn: NotRequired[pulumi.Input[str]]
    """Of ``s3``: ARN of the KMS key that encrypts the existing bucket. Jobs get its use through S3; its key policy
    lets FSx' role ``AWSServiceRoleForFSxS3Access_*`` use it, too. Unset: the bucket has no key of its own.
    """
    prefix: NotRequired[str]
    """Of ``s3``: Key prefix within the bucket, without leading slash."""
    fileSystemPath: NotRequired[str]
    """Of ``s3``: Directory of the file system that is linked."""


class FsxLustreArgs(TypedDict):
    """Args of :class:`FsxLustre`: the config's file-system section, and its wiring."""

    storageCapacityGib: NotRequired[int]
    """SSD size, GiB: 1200, 2400, then multiples of 2400 (with ``efa_enabled`` larger steps)."""
    deploymentType: NotRequired[DeploymentType]
    """PERSISTENT_2 replicates within the zone; SCRATCH_2 loses data on a server's failure."""
    throughputPerTib: NotRequired[int]
    """MB/s for each TiB, PERSISTENT_2 only."""
    durability: NotRequired[Durability]
    """Copy of the data that survives the file system: ``{type: backup, retentionDays: 7}``, ``{type: s3, bucket: …}``
    or ``{type: none}``. FSx takes no backups of a file system linked to S3, so it is one or the other.
    """
    metadataIops: NotRequired[int]
    """Provisioned metadata IOPS. Unset: automatic."""
    efaEnabled: NotRequired[bool]
    """Lets EFA-capable clients bypass TCP. Set at creation only; larger size steps apply."""
    zoneId: NotRequired[str]
    """Zone of the file system. Unset: the accelerator zone; another zone is slower, and traffic to it costs money."""
    onDemand: NotRequired[bool]
    """Adds a storage class ``fsx``, which creates a file system for each claim (from 1200 GiB, hundreds of dollars a
    month), and lets the driver make and delete these. A namespace's ``resource_quota`` says how many it may have
    (``fsx.storageclass.storage.k8s.io/persistentvolumeclaims``, by default none). Delete those claims before you
    switch
    this off again: without the permission, the driver leaves the file systems behind.
    """
    importPath: NotRequired[str]
    """Not with PERSISTENT_2: use ``durability``. It exists only so that the error can say this."""
    protect: NotRequired[bool]
    """Pulumi refuses to delete or replace it while true. Unset: on in production."""
    region: str
    """AWS region."""
    vpcId: pulumi.Input[str]
    """VPC of the security group."""
    subnetId: pulumi.Input[str]
    """The one subnet of the file system, in the accelerators' zone."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key for data, bucket and logs. None makes one."""
    clientSecurityGroupIds: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Security groups that may mount it, each under a key that stays the same (``{cluster: sg-…}``)."""
    production: NotRequired[bool]
    """Applies the production rules and, where ``protect`` is unset, protects the resources with data: the file system
    and its bucket. Their settings, the rules and the log group may change.
    """
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags in addition to the provider's."""
    waivers: NotRequired[Mapping[str, str]]
    """Rules that this file system breaks on purpose, each with its reason."""


class GpuAddonsArgs(TypedDict):
    """Args of :class:`GpuAddons`, the config section with its wiring."""

    trainers: NotRequired[Sequence[str]]
    """Kubeflow's controllers. ``v1``: Training Operator v1.9.3 (PyTorchJob, MPIJob); its jobs run as Volcano gangs and
    name their queue in ``runPolicy.schedulingPolicy.queue``. ``v2``: Kubeflow Trainer 2.3 (TrainJob over JobSet)
    with
    its runtimes, for new work; a runtime for a team's namespace names Volcano in ``podGroupPolicy``. Both side by
    side
    while jobs move over; empty for neither.
    """
    dcgmExporter: NotRequired[bool]
    """GPU metrics on port 9400."""
    nvidiaValues: NotRequired[Mapping[str, Any]]
    """Further values for the nvidia-device-plugin chart, merged over the stack's."""
    region: str
    """AWS region; decides which registry the EFA plugin's image comes from."""
    instanceTypes: Sequence[str]
    """Types of the GPU node groups: the nodes that get device plugin and exporter. On nodes that no
    ``AcceleratorNodeGroup`` made, NVIDIA's runtime must accept device lists as volume mounts, or ``nvidia_values``
    must
    name another ``deviceListStrategy``.
    """
    efaInstanceTypes: NotRequired[Sequence[str]]
    """Types that get the EFA plugin. Unset: the types in ``instance_types`` with EFA. Empty: no plugin here, because
    another component of the cluster installs it; a cluster has exactly one.
    """


class GuardedGroup(TypedDict):
    """A node group that the guard watches."""

    eksName: pulumi.Input[str]
    """Its name in EKS."""
    devices: Sequence[str]
    """Resources of its nodes that jobs request: ``(aws.amazon.com/neuron, …)``."""
    minimum: NotRequired[int]
    """Nodes that stay."""
    removes: NotRequired[bool]
    """False only warns."""


class IdleGuardArgs(TypedDict):
    """Args of :class:`IdleGuard`: the config's section, and its wiring."""

    warnAfterMinutes: NotRequired[float]
    """Minutes without work after which it is reported: an event of the node, a line in the guard's log."""
    removeAfterMinutes: NotRequired[float]
    """Minutes without work after which a node goes. Null: never. A node takes about 6 minutes to come back."""
    region: str
    """AWS region."""
    clusterName: pulumi.Input[str]
    """EKS cluster."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the roles made here; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags of its AWS resources, in addition to the provider's."""
    groups: Mapping[str, pulumi.Input[GuardedGroup]]
    """Key that stays the same to the group; the name that the stack has for it."""


class ImageRepositoryArgs(TypedDict):
    """Args of :class:`ImageRepository`: the config's section, and its wiring."""

    name: NotRequired[str]
    """Repository name. Unset: ``<project>-<stack>/training``."""
    keptImages: NotRequired[int]
    """Tagged images kept; older ones expire."""
    untaggedDays: NotRequired[int]
    """Days an untagged image is kept."""
    baseImages: NotRequired[Mapping[str, str]]
    """What `trn image build` starts from, over its own table: target (`trn1`, `trn2`, `jax`, `cuda`, `cpu`) to image
    (`{trn2: <registry>/<repository>:<tag>}`). For `trn2` no public tag is known, and one must be named here.
    """
    region: str
    """AWS region."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key for the images. None makes one."""
    forceDelete: NotRequired[bool]
    """True lets a destroy delete the repository with its images; otherwise it must be empty."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags in addition to the provider's."""


class KarpenterPoolConfig(TypedDict):
    """Accelerator nodes of one type in one zone, that Karpenter starts one by one. It knows no gangs."""

    name: str
    """Name of the NodePool: lower-case letters, digits and dashes."""
    instanceType: str
    """A type of the catalogue (``trn1.32xlarge``) that no node group has."""
    maxNodes: NotRequired[int]
    """Most nodes: the largest gang."""
    zoneId: NotRequired[str]
    """Zone of the nodes. Unset: the accelerator zone."""
    capacityReservationIds: NotRequired[Sequence[str]]
    """Capacity Reservations or Blocks (``cr-…``) to start in, and nowhere else. Empty: On-Demand."""


class KarpenterArgs(TypedDict):
    """Args of :class:`Karpenter`, the config section with its wiring."""

    cpuLimit: NotRequired[int]
    """Most vCPUs of its CPU nodes together; 0 for accelerator pools alone."""
    instanceTypes: NotRequired[Sequence[str]]
    """Types of the CPU nodes; it takes the cheapest that fits and that EC2 has."""
    rootVolumeGib: NotRequired[int]
    """Size of a CPU node's encrypted gp3 root volume, GiB."""
    consolidateMinutes: NotRequired[int]
    """Minutes without a change after which it may move pods to fewer or cheaper CPU nodes."""
    expireAfterHours: NotRequired[int]
    """Hours after which a CPU node is replaced. Accelerator nodes never are for their age."""
    acceleratorPools: NotRequired[Sequence[KarpenterPoolConfig]]
    """Accelerator nodes that it starts too. It knows no gangs: read docs/autoscaling.md first."""
    acceleratorEmptyMinutes: NotRequired[int]
    """Minutes that an accelerator node is empty before it goes. A node in use never goes."""
    replicas: NotRequired[int]
    """Copies; one is active."""
    region: str
    """AWS region."""
    clusterName: pulumi.Input[str]
    """EKS cluster."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the roles made here; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags for everything, and for the instances, volumes and interfaces that Karpenter starts."""
    nodeSelector: NotRequired[Mapping[str, str]]
    """Labels of the nodes that it runs on itself; nodes that it takes away must not be among them."""
    clusterSecurityGroupId: pulumi.Input[str]
    """The security group that EKS made for the cluster."""
    vpcId: pulumi.Input[str]
    """VPC of the cluster, for the accelerator nodes' EFA security group."""
    subnetIdsByZone: Mapping[str, pulumi.Input[str]]
    """Zone id to the private subnet in it; CPU nodes start in the first."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key for root volumes; None for the account's default EBS key."""
    kubernetesVersion: NotRequired[str]
    """Minor version of the cluster, which decides the AMI release."""


class LogShippingArgs(TypedDict):
    """Args of :class:`LogShipping`, the config section with its wiring."""

    retentionDays: NotRequired[int]
    """Days that logs are kept."""
    system: NotRequired[bool]
    """True ships the logs of ``kube-system`` too, which are large and seldom read."""
    region: str
    """AWS region."""
    clusterName: pulumi.Input[str]
    """EKS cluster; the log group is named after it."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the roles made here; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags of its AWS resources, in addition to the provider's."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key of the log group; None for a key of AWS' own. Its policy must let CloudWatch Logs of the region use it, as
    the policy of ``EncryptionKey`` does.
    """
    production: NotRequired[bool]
    """Holds the retention to the production rules."""
    waivers: NotRequired[Mapping[str, str]]
    """Rules broken on purpose, each with its reason: ``R84`` for logs that production keeps for less than a month."""


class LustreVolumesArgs(TypedDict):
    """Args of :class:`LustreVolumes`."""

    fileSystemId: pulumi.Input[str]
    """``fs-…``."""
    dnsName: pulumi.Input[str]
    """Host to mount."""
    mountName: pulumi.Input[str]
    """Lustre's own name of the file system."""
    storageCapacityGib: pulumi.Input[float]
    """Size of the file system, GiB; volumes have the same."""
    subnetId: pulumi.Input[str]
    """Subnet of volumes that the storage class makes."""
    securityGroupId: pulumi.Input[str]
    """Security group of those volumes, with rules that allow Lustre."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key of those volumes; None leaves them to FSx's own."""
    root: NotRequired[str]
    """Parent of the namespaces' directories in the file system: ``/``, or the directory linked to S3."""
    namespaces: NotRequired[Mapping[str, int]]
    """Namespaces that mount the file system, each with the UID and GID that own its directories. A later change of a
    UID does not change the owner of existing directories.
    """
    onDemand: NotRequired[bool]
    """Whether to make a storage class that creates a file system for each claim."""
    throughputPerTib: NotRequired[int]
    """MB/s for each TiB of volumes that the storage class makes: 125, 250, 500 or 1000."""
    storageClass: NotRequired[str]
    """Name of the storage class."""
    sharedClass: NotRequired[str]
    """Name of the static volumes' class, which provisions nothing."""
    setupNamespace: NotRequired[str]
    """Namespace of the job that makes the directories; not a team's."""


class Authentication(StrEnum):
    """Allowed values."""

    AwsSso = "AWS_SSO"
    Saml = "SAML"


class ManagedGrafanaArgs(TypedDict):
    """Args of :class:`ManagedGrafana`, the config section with its wiring."""

    authentication: NotRequired[Authentication]
    """Identity provider that decides on logins: IAM Identity Center (AWS_SSO), or your own (SAML)."""
    workspaceArn: pulumi.Input[str]
    """ARN of the workspace of Amazon Managed Prometheus (``MetricsStack.workspace_arn``)."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the role made here; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags of its AWS resources, in addition to the provider's."""


class AlertsConfig(TypedDict):
    """Where alerts go."""

    topicArn: str
    """ARN of an SNS topic, which sends them on: by e-mail, to a chat, to a pager."""
    topicKeyArn: NotRequired[str]
    """ARN of the KMS key by which the topic is encrypted, if it is a customer-managed key."""


class AlertSettings(TypedDict):
    """Thresholds of alerts. The defaults suit gangs of some nodes that train for hours."""

    gangWaitsMinutes: NotRequired[int]
    """A gang that has waited so long while the idle nodes would hold it is stuck."""
    gangPartialMinutes: NotRequired[int]
    """How long a gang may run with pods missing."""
    stalledMinutes: NotRequired[int]
    """A training without a step for so long has stalled, unless ten times its own pace is longer."""
    firstStepMinutes: NotRequired[int]
    """How long a training may take until its first step. Compiling for Neuron comes before it."""
    checkpointHours: NotRequired[int]
    """How old a running training's newest checkpoint may be. ``trn train`` proposes to save every four hours at the
    latest.
    """
    idleMinutes: NotRequired[int]
    """How long an accelerator node may have no pod that asks for a device."""
    heldIdleMinutes: NotRequired[int]
    """How long pods may hold devices that hardly compute."""
    busyPercent: NotRequired[int]
    """Devices that are busy for a smaller share of the time hardly compute, %."""
    fillingHours: NotRequired[int]
    """A volume that will be full within so long, at the pace of the last six hours, is filling."""
    volumeFreePercent: NotRequired[int]
    """A volume with a smaller share free is filling whatever its pace, %."""
    exportMinutes: NotRequired[int]
    """How long a changed file may wait for its export to S3."""
    capacityBlockHours: NotRequired[int]
    """How long before the end of a Capacity Block its jobs are named."""
    certificateDays: NotRequired[int]
    """How long before a kubelet's serving certificate ends it should have been renewed."""
    failingMinutes: NotRequired[int]
    """How long webhooks, rules, exporters and remote write may fail."""
    nodeRepairMinutes: NotRequired[int]
    """How long a node may be not ready. EKS' node repair begins after 30 minutes."""
    hardwareRepairMinutes: NotRequired[int]
    """How long a node may stay with broken accelerators. EKS' node repair begins after 10 minutes."""
    hardwareXids: NotRequired[Sequence[int]]
    """NVIDIA's XIDs that mean a broken GPU."""
    runbookUrl: NotRequired[str]
    """Where docs/alerts.md is read: each alert links to ``<runbook_url>#<its name in lower case>``. Empty: alerts name
    `trn doctor` only.
    """


class ManagedGrafanaConfig(TypedDict):
    """A workspace of Amazon Managed Grafana. IAM Identity Center must be on in the organisation (or bring SAML)."""

    authentication: NotRequired[Authentication]
    """Identity provider that decides on logins: IAM Identity Center (AWS_SSO), or your own (SAML)."""


class GrafanaConfig(TypedDict):
    """Grafana, with the dashboards of this library."""

    inCluster: NotRequired[bool]
    """Grafana in the cluster, reached by `kubectl port-forward`."""
    volumeGib: NotRequired[int]
    """Size of its volume, GiB; it holds users' settings and dashboards of their own."""
    managed: NotRequired[ManagedGrafanaConfig]
    """Amazon Managed Grafana besides; null for none. It is billed by user, and its dashboards are imported by hand."""


class MetricsStackArgs(TypedDict):
    """Args of :class:`MetricsStack`, the config section with its wiring."""

    retentionDays: NotRequired[int]
    """Days that the cluster's own Prometheus keeps; Amazon Managed Prometheus keeps its own 150."""
    volumeGib: NotRequired[int]
    """Size of its volume, GiB (gp3, encrypted). The oldest data goes before the volume is full."""
    scrapeIntervalSeconds: NotRequired[int]
    """How often everything is scraped."""
    managedPrometheus: NotRequired[bool]
    """True makes a workspace of Amazon Managed Prometheus and writes everything there too, by Pod Identity. It is
    billed by sample and outlives the cluster's own Prometheus.
    """
    alerts: NotRequired[AlertsConfig]
    """Where alerts go; null: they show in Prometheus and Grafana only."""
    thresholds: NotRequired[AlertSettings]
    """From when on alerts fire (docs/alerts.md)."""
    values: NotRequired[Mapping[str, Any]]
    """Further values for the chart kube-prometheus-stack, merged over the stack's."""
    region: str
    """AWS region."""
    clusterName: pulumi.Input[str]
    """EKS cluster."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the roles made here; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags of its AWS resources, in addition to the provider's."""
    grafana: NotRequired[GrafanaConfig]
    """Grafana; None for none."""
    instanceTypes: NotRequired[Sequence[str]]
    """Types of the cluster's nodes: their prices are recorded, as far as the catalogue has them."""
    efaInstanceTypes: NotRequired[Sequence[str]]
    """Types with EFA interfaces: each of their nodes gets an exporter of EFA counters."""
    fileSystemId: NotRequired[pulumi.Input[str]]
    """Lustre file system to read CloudWatch metrics of; None for none."""
    nodeSelector: NotRequired[Mapping[str, str]]
    """Labels of the nodes for Prometheus, Grafana and Alertmanager, all in one zone: an EBS volume stays in its zone,
    and its pod needs a node there. Empty: any node without a taint.
    """
    exportsToS3: NotRequired[bool]
    """Whether that file system exports to S3 automatically, so that its export lag is read."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key of the workspace of Amazon Managed Prometheus; None for a key of AWS' own. Its policy must let the service
    use it for its callers, as the policy of ``EncryptionKey`` does. Another key is another workspace.
    """


class NatGateways(StrEnum):
    """Allowed values."""

    Single = "single"
    PerZone = "per-zone"


class NetworkArgs(TypedDict):
    """Args of :class:`Network`: the config's network section, and its wiring."""

    cidrBlock: NotRequired[str]
    """Address range of the VPC, /16 to /28. Private subnets take its larger part: EFA nodes use many addresses."""
    zoneIds: NotRequired[Sequence[str]]
    """Zones by id (``usw2-az4``), at least two; the first is the accelerator zone. Empty: the region's default
    pair from the catalogue, where trn1.32xlarge and trn1n.32xlarge are offered.
    """
    natGateways: NotRequired[NatGateways]
    """``single``: one, in the accelerator zone (if that zone fails, the others are cut off). ``per-zone``: one each."""
    interfaceEndpoints: NotRequired[Sequence[str]]
    """Interface endpoints by service name without prefix (``ecr.api``, ``sts``); each costs money per zone and hour."""
    flowLogRetentionDays: NotRequired[int]
    """Days that flow logs are kept in CloudWatch."""
    peerCidrBlocks: NotRequired[Sequence[str]]
    """Ranges reached by peering, a VPN or a transit gateway; the VPC must not overlap them. They may reach the private
    endpoint of the Kubernetes API.
    """
    region: str
    """AWS region of the zones."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key for the flow logs' group; None leaves them to CloudWatch's own encryption."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds every role made here; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags in addition to the provider's."""


class NeuronAddonsArgs(TypedDict):
    """Args of :class:`NeuronAddons`, the config section with its wiring."""

    schedulerExtension: NotRequired[bool]
    """Neuron's scheduler extension: only for pods that take part of a node, and never with Volcano's scheduler."""
    monitor: NotRequired[bool]
    """neuron-monitor on every Trainium node (metrics on port 8000)."""
    neuronValues: NotRequired[Mapping[str, Any]]
    """Further values for the neuron-helm-chart, merged over the stack's."""
    region: str
    """AWS region; decides which registry the EFA plugin's image comes from."""
    instanceTypes: Sequence[str]
    """Types of the Neuron node groups: the nodes that get the device plugin."""
    efaInstanceTypes: NotRequired[Sequence[str]]
    """Types that get the EFA plugin. Unset: the types in ``instance_types`` with EFA. Empty: no plugin here, because
    another component of the cluster installs it; a cluster has exactly one.
    """


class SageMakerEndpointArgs(TypedDict):
    """Args of :class:`SageMakerEndpoint`: an entry of the config, and its wiring."""

    name: str
    """Name after the stack's: lower-case letters, digits and dashes."""
    model: pulumi.Input[str]
    """Key of the ``model.tar.gz`` in the bucket of ``sageMaker``."""
    image: pulumi.Input[str]
    """Image in ECR with the command ``serve``; training images of `trn image build` have it."""
    instanceType: str
    """``ml.inf2.xlarge``."""
    instances: NotRequired[int]
    """Instances, at first where ``max_instances`` is set. With two or more, one answers alone after a change, before
    all do.
    """
    maxInstances: NotRequired[int]
    """Most instances of automatic scaling. Unset: the number stays."""
    callsPerMinute: NotRequired[int]
    """Calls a minute and instance that automatic scaling aims at."""
    capturePercent: NotRequired[int]
    """Part of the calls and answers that are kept in the bucket; 0 for none."""
    mostErrors: NotRequired[int]
    """Calls a minute that end with an error of the server (5xx), from which on the alarm rings: a change is rolled
    back.
    """
    logRetentionDays: NotRequired[int]
    """Days that the endpoint's logs are kept."""
    region: str
    """AWS region."""
    vpcId: pulumi.Input[str]
    """VPC of the instances."""
    subnetIds: Sequence[pulumi.Input[str]]
    """Private subnets of the instances."""
    kmsKeyArn: pulumi.Input[str]
    """Key of the volumes, the logs and the captured calls."""
    bucket: pulumi.Input[str]
    """Bucket of the model and of captured calls."""
    bucketKeyArn: NotRequired[pulumi.Input[str]]
    """Key of the bucket's objects; None for ``kms_key_arn``."""
    prefix: NotRequired[str]
    """Key prefix of captured calls."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the role; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags in addition to the provider's."""


class SageMakerTrainingArgs(TypedDict):
    """Args of :class:`SageMakerTraining`: the config's section, and its wiring."""

    bucket: NotRequired[pulumi.Input[str]]
    """Name of an existing bucket for data, checkpoints and models. Unset: the bucket behind the file system, else a
    new
    one.
    """
    bucketKeyArn: NotRequired[pulumi.Input[str]]
    """ARN of the KMS key that encrypts the existing bucket. Unset: the bucket has no key of its own."""
    prefix: NotRequired[str]
    """Key prefix of checkpoints and models, without slashes at its ends; the role may write nowhere else."""
    logRetentionDays: NotRequired[int]
    """Days that logs of training jobs are kept: the stack makes the log group ``/aws/sagemaker/TrainingJobs``, which
    all jobs of an account and region share. 365 or more (rule R08). Unset: SageMaker makes it, without an end and
    without the stack's key.
    """
    servingTypes: NotRequired[Sequence[str]]
    """Instance types on which researchers may serve models (`trn serve --on sagemaker`) and transform files (`trn
    predict --on sagemaker`), the default first: ``[ml.inf2.xlarge]``. Empty: none.
    """
    region: str
    """AWS region."""
    vpcId: pulumi.Input[str]
    """VPC of the training instances."""
    subnetIds: Sequence[pulumi.Input[str]]
    """Private subnets of the training instances."""
    kmsKeyArn: pulumi.Input[str]
    """Key of the volumes, the models and a new bucket."""
    repositoryArn: NotRequired[pulumi.Input[str]]
    """ECR repository of the training images; None for images of other accounts alone."""
    fileSystemSecurityGroupId: NotRequired[pulumi.Input[str]]
    """Security group of a Lustre file system that jobs read; None for none."""
    protect: NotRequired[bool]
    """Pulumi refuses to delete a new bucket while true."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the role; None for no bound."""
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags in addition to the provider's."""


class Rendezvous(StrEnum):
    """Allowed values."""

    C10d = "c10d"
    Etcd = "etcd"


class TrainingNamespaceArgs(TypedDict):
    """Args of :class:`TrainingNamespace`: one entry of the config's namespaces, and its wiring."""

    name: str
    """Name of the namespace."""
    queues: Sequence[pulumi.Input[str]]
    """Queues its jobs may use; the first is its own and the default of launchers."""
    principals: NotRequired[Sequence[str]]
    """IAM role ARNs of its researchers; each gets an access entry in the namespace's Kubernetes group."""
    resourceQuota: NotRequired[Mapping[str, str]]
    """ResourceQuota ``hard`` values (``{requests.aws.amazon.com/neuron: "64", pods: "200"}``), merged over the
    default:
    ten times what the queues may run and the nodes have (because waiting jobs count too), the pods that the nodes
    hold,
    1 TiB of EBS volumes, and no file systems made for claims.
    """
    priorityClasses: NotRequired[Sequence[str]]
    """PriorityClasses that its jobs may name. Kubernetes' own (``system-…``) are refused: they end other teams'
    jobs.
    """
    dataBucket: NotRequired[pulumi.Input[str]]
    """Name of an S3 bucket, besides the stack's, in which its jobs may read and write below the prefix
    ``<namespace>/``.
    """
    dataBucketKeyArn: NotRequired[pulumi.Input[str]]
    """ARN of the KMS key that encrypts that bucket. Unset: it has no key of its own."""
    trainingUserId: NotRequired[int]
    """UID and GID that own its directories on the file system and that its jobs run as; each team has its own."""
    region: str
    """AWS region."""
    clusterName: pulumi.Input[str]
    """EKS cluster."""
    queueCapability: NotRequired[Mapping[str, int]]
    """Resources that its queues may use at once, in total (``{aws.amazon.com/neuron: 64}``); the default quota comes
    from it.
    """
    room: NotRequired[Mapping[str, str]]
    """CPU, memory and pods of all nodes that its pods may run on, as Kubernetes quantities, when every group is at its
    largest; the default quota comes from it. Empty: unknown and not limited.
    """
    volumeName: NotRequired[pulumi.Input[str]]
    """Persistent volume of the shared file system that is reserved for this namespace; None for no claim."""
    volumeGib: NotRequired[int]
    """Size of that volume, GiB."""
    volumeClass: NotRequired[pulumi.Input[str]]
    """Storage class of that volume; empty for a volume of no class."""
    bucketArn: NotRequired[pulumi.Input[str]]
    """The stack's own bucket; None without one."""
    bucketPrefix: NotRequired[str]
    """Prefix of the file system's root in that bucket; the team's prefix is ``<namespace>/`` below it."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key of the objects in the stack's bucket; None where S3's default key is used."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds the role made here; None for no bound."""
    rendezvous: NotRequired[Rendezvous]
    """``etcd`` lets its pods reach the stack's etcd."""
    principalArns: NotRequired[Mapping[str, pulumi.Input[str]]]
    """IAM roles of further researchers with ARNs that may be known later, each under a key that stays the same
    (``{ops:
    role.arn}``).
    """
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags of its AWS resources, in addition to the provider's."""


class PrivateAccessVia(StrEnum):
    """Allowed values."""

    Vpc = "vpc"
    Peers = "peers"


class EndpointConfig(TypedDict):
    """Access to the Kubernetes API. The private endpoint is always on."""

    publicAccessCidrs: NotRequired[Sequence[str]]
    """Ranges that reach the public endpoint. Empty turns it off: the private endpoint alone remains.
    ``0.0.0.0/0`` needs a waiver of R02 (and of R03 in production).
    """
    privateAccessVia: NotRequired[PrivateAccessVia]
    """Location of the machine that runs ``pulumi up``, when the public endpoint does not admit it: ``vpc``, in the VPC
    (a runner, CodeBuild), or ``peers``, in a range of the network's ``peer_cidr_blocks`` (VPN, transit gateway,
    peering). Opens port 443 of the private endpoint to the VPC and to those ranges, as does an empty
    ``public_access_cidrs``.
    """


class SupportType(StrEnum):
    """Allowed values."""

    Standard = "STANDARD"
    Extended = "EXTENDED"


class CpuNodesConfig(TypedDict):
    """A CPU node group. Its sizes are per zone for system nodes, in total for the CPU pool."""

    instanceType: NotRequired[str]
    """EC2 type; 4 vCPU and 16 GiB hold the control components of one zone."""
    minSize: NotRequired[int]
    """Fewest nodes."""
    maxSize: NotRequired[int]
    """Most nodes."""
    desiredSize: NotRequired[int]
    """Number of nodes."""
    rootVolumeGib: NotRequired[int]
    """Size of the encrypted gp3 root volume, GiB."""


class CpuPoolConfig(TypedDict):
    """The CPU pool: like system nodes, but it may have no node."""

    instanceType: NotRequired[str]
    """EC2 type; 4 vCPU and 16 GiB hold the control components of one zone."""
    minSize: NotRequired[int]
    """Fewest nodes."""
    maxSize: NotRequired[int]
    """Most nodes."""
    desiredSize: NotRequired[int]
    """Number of nodes."""
    rootVolumeGib: NotRequired[int]
    """Size of the encrypted gp3 root volume, GiB."""
    ignoreDesiredSize: NotRequired[bool]
    """True leaves ``desired_size`` to an autoscaler or to manual scaling: later changes to it here are ignored."""


class AddonIdentityConfig(TypedDict):
    """The rights of an add-on's controller in AWS, by Pod Identity."""

    serviceAccount: str
    """Service account that the add-on's pods run as."""
    namespace: NotRequired[str]
    """Namespace of that service account."""
    policies: Mapping[str, pulumi.Input[str]]
    """IAM policies that its role gets: a name of your choosing to the policy's ARN."""


class AddonConfig(TypedDict):
    """One EKS add-on."""

    version: NotRequired[str]
    """Its build, ``v1.21.1-eksbuild.1``. Unset: the pinned one, where there is one."""
    settings: NotRequired[Mapping[str, Any]]
    """Configuration values, merged over the stack's. EKS refuses keys that the add-on's schema does not list (``aws
    eks
    describe-addon-configuration``).
    """
    identity: NotRequired[AddonIdentityConfig]
    """The role of an add-on of your own. Add-ons that the stack knows have theirs."""


class NodeGroupConfig(TypedDict):
    """One accelerator node group. The facts of its type (accelerators, EFA, taint, AMI) come from the catalogue."""

    name: str
    """Name of the group within the stack (``trn1-32xl-ng1``): lower-case letters, digits and dashes."""
    instanceType: str
    """A type of the catalogue (``trn1.32xlarge``) or of ``instance_types`` in the stack's config."""
    minSize: NotRequired[int]
    """Fewest nodes; 0 lets the group rest."""
    maxSize: NotRequired[int]
    """Most nodes, 1 to 450."""
    desiredSize: NotRequired[int]
    """Number of nodes. With ``ignore_desired_size`` only at first."""
    capacity: NotRequired[Capacity]
    """How EC2 provides the instances: ``{type: on-demand}``, ``{type: spot}``,
    ``{type: reservation, id: cr-…, zoneId: usw2-az4}`` or ``{type: capacity-block, id: cr-…, zoneId: usw2-az4}``.
    """
    zoneId: NotRequired[str]
    """Zone of the nodes. Unset: the capacity's zone, else the network's accelerator zone."""
    interfaceLayout: NotRequired[InterfaceLayout]
    """How EFA interfaces are laid out over the network cards. ``efa-only``: card 0 ``efa``, further cards ``efa-only``
    (one address a node, needs vpc-cni 1.18.5). ``ena``: card 0 ``interface``, EFA beside it. ``efa``: every card
    ``efa`` (one address a card).
    """
    placementGroup: NotRequired[pulumi.Input[str]]
    """``auto``: a cluster placement group for plain On-Demand, none (or the reservation's own) otherwise.
    ``none``: never. Anything else: the name of an existing group.
    """
    rootVolumeGib: NotRequired[int]
    """Size of the encrypted gp3 root volume, GiB. Unset: 100 where containers live on local NVMe, 500 otherwise."""
    localStorage: NotRequired[LocalStorage]
    """``raid0``: local NVMe disks become one volume that holds containers and images. ``none``: left alone."""
    labels: NotRequired[Mapping[str, str]]
    """Further node labels."""
    maxUnavailable: NotRequired[int]
    """Nodes an update may take down at a time."""
    ignoreDesiredSize: NotRequired[bool]
    """True leaves ``desired_size`` to an autoscaler or to manual scaling: later changes to it here are ignored."""
    hugepages2Mi: NotRequired[int]
    """2 MiB hugepages that user data reserves on each node. Unset: the catalogue's number (0 on Trainium)."""
    installLustreClient: NotRequired[bool]
    """True installs the Lustre client at boot, for an AMI that comes without one (amazon-eks-ami#2696)."""
    releaseVersion: NotRequired[str]
    """AMI release (``1.35.0-20260723``). Unset: the pinned one for the Kubernetes version and AMI type."""
    kubernetesVersion: NotRequired[str]
    """Minor version of the nodes. Unset: the cluster's. The one before, or up to three before, keeps nodes and the
    jobs
    on them while the control plane is upgraded.
    """


class TrainiumClusterArgs(TypedDict):
    """Args of :class:`TrainiumCluster`: the config's cluster section, and its wiring."""

    kubernetesVersion: NotRequired[str]
    """Minor version; ``1.35`` is the highest that Volcano 1.15 certifies."""
    endpoint: NotRequired[EndpointConfig]
    """Access to the Kubernetes API."""
    adminPrincipals: NotRequired[Sequence[str]]
    """IAM **role** or user ARNs that administer the cluster. The deployer is an administrator already and must not
    be listed: EKS refuses the second entry (pulumi-eks#2373).
    """
    serviceCidrBlock: NotRequired[str]
    """Range of Kubernetes service addresses; must not overlap the VPC or its peers."""
    logRetentionDays: NotRequired[int]
    """Days that control-plane logs are kept."""
    supportType: NotRequired[SupportType]
    """What happens when a version's standard support ends: STANDARD upgrades by itself, EXTENDED costs
    0.60 USD an hour instead of 0.10.
    """
    deletionProtection: NotRequired[bool]
    """EKS refuses to delete the cluster while true. Unset: on in production, off otherwise."""
    systemNodes: NotRequired[CpuNodesConfig]
    """Node group for control components, one in each zone."""
    cpuNodes: NotRequired[CpuPoolConfig]
    """Small pool in the accelerator zone for staging, TensorBoard and monitoring."""
    addons: NotRequired[Mapping[str, AddonConfig]]
    """EKS add-ons by name. For the stack's own: another version or further settings. Others are installed after the
    nodes: ``{snapshot-controller: {version: v8.3.0-eksbuild.1}}``.
    """
    region: str
    """AWS region."""
    vpcId: pulumi.Input[str]
    """VPC of the cluster."""
    subnetIdsByZone: Mapping[str, pulumi.Input[str]]
    """Zone id to the private subnet in it, at least two; the first is the accelerator zone."""
    nodeGroups: NotRequired[Sequence[NodeGroupConfig]]
    """Accelerator node groups."""
    vpcCidrBlock: NotRequired[pulumi.Input[str]]
    """Address range of the VPC. It may reach the private endpoint where that is somebody's way to the Kubernetes API;
    with None only the cluster's own nodes may.
    """
    peerCidrBlocks: NotRequired[Sequence[str]]
    """Further ranges that may reach it then, of peers and of the VPC's further ranges."""
    kmsKeyArn: NotRequired[pulumi.Input[str]]
    """Key for secrets, logs and volumes; None makes one."""
    permissionsBoundary: NotRequired[pulumi.Input[str]]
    """ARN of the IAM policy that bounds every role made here; None for no bound."""
    fileSystemsOnDemand: NotRequired[bool]
    """Whether the FSx driver may make and delete file systems, one for each claim of the on-demand class."""
    production: NotRequired[bool]
    """True turns deletion protection on (unless it is set) and protects the control plane in Pulumi too."""
    adminPrincipalArns: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Further IAM roles that administer the cluster, with ARNs that may be known later, each under a key that stays
    the
    same (``{ops: role.arn}``).
    """
    tags: NotRequired[Mapping[str, pulumi.Input[str]]]
    """Tags for everything, and for resources that node groups launch, which the provider's default tags do not
    reach.
    """
    waivers: NotRequired[Mapping[str, str]]
    """Rules broken on purpose, each with its reason."""


class QueueConfig(TypedDict):
    """One Volcano queue. Amounts are Kubernetes resources: ``{aws.amazon.com/neuron: 32}``."""

    name: str
    """Name of the queue; ``default`` and ``root`` belong to Volcano."""
    weight: NotRequired[int]
    """Share against the other queues when the pool is full."""
    capability: NotRequired[Mapping[str, int]]
    """The most the queue may use. Unset: the whole pool (devices and EFA of every group at its maximum)."""
    deserved: NotRequired[Mapping[str, int]]
    """Amounts that it may take back from others (switches Volcano to the ``capacity`` plugin). Unset: not limited."""
    guarantee: NotRequired[Mapping[str, int]]
    """Amounts that are kept free for it (switches Volcano to the ``capacity`` plugin). Unset: nothing."""
    reclaimable: NotRequired[bool]
    """Whether others may take back what it borrowed, when reclaim is on."""
    parent: NotRequired[str]
    """Name of the parent queue; only leaf queues take jobs."""


class VolcanoStackArgs(TypedDict):
    """Args of :class:`VolcanoStack`, the config section with its wiring."""

    replicas: NotRequired[int]
    """Copies of scheduler, controller and admission; more than one switches leader election on."""
    scaleFromZero: NotRequired[bool]
    """Gives a job its pods while its pool has no node. Otherwise Volcano holds it back until there are nodes for it,
    and no pod makes one come (volcano#3910). Unset: on when some group may rest at zero nodes.
    """
    reclaim: NotRequired[bool]
    """Lets queues take back what others borrowed. Not gang-aware: it kills single pods of several gangs."""
    rendezvous: NotRequired[Rendezvous]
    """How workers find each other. ``c10d`` needs nothing; ``etcd`` adds a single etcd 3.5 in the cluster."""
    queues: NotRequired[Sequence[QueueConfig]]
    """Queues to make, besides Volcano's own ``default`` and ``root``, which are left alone."""
    pool: NotRequired[Mapping[str, int]]
    """Resources of all the cluster's groups at their maximum (``{aws.amazon.com/neuron: 64}``): the most that queues
    may name, and the capability of a queue that names none.
    """
    restsAtZero: NotRequired[bool]
    """Whether some accelerator group may have no node; decides ``scale_from_zero`` where that is unset."""
    topologyLabels: NotRequired[Sequence[str]]
    """Node labels that name a node's switches, the widest layer first. A controller keeps a HyperNode for each switch;
    empty for no controller, and existing HyperNodes stay.
    """
    rendezvousNamespaces: NotRequired[Sequence[str]]
    """Namespaces with jobs that may reach etcd (it has no password); only with ``rendezvous: etcd``."""
    waivers: NotRequired[Mapping[str, str]]
    """Rules broken on purpose, each with its reason: ``R58`` for a single replica, ``R60`` for ``scale_from_zero``
    off although a group rests at zero.
    """


class NetworkConfig(TypedDict):
    """A new VPC: one public and one private subnet in each zone, NAT, gateway endpoint, flow logs."""

    cidrBlock: NotRequired[str]
    """Address range of the VPC, /16 to /28. Private subnets take its larger part: EFA nodes use many addresses."""
    zoneIds: NotRequired[Sequence[str]]
    """Zones by id (``usw2-az4``), at least two; the first is the accelerator zone. Empty: the region's default
    pair from the catalogue, where trn1.32xlarge and trn1n.32xlarge are offered.
    """
    natGateways: NotRequired[NatGateways]
    """``single``: one, in the accelerator zone (if that zone fails, the others are cut off). ``per-zone``: one each."""
    interfaceEndpoints: NotRequired[Sequence[str]]
    """Interface endpoints by service name without prefix (``ecr.api``, ``sts``); each costs money per zone and hour."""
    flowLogRetentionDays: NotRequired[int]
    """Days that flow logs are kept in CloudWatch."""
    peerCidrBlocks: NotRequired[Sequence[str]]
    """Ranges reached by peering, a VPN or a transit gateway; the VPC must not overlap them. They may reach the private
    endpoint of the Kubernetes API.
    """


class ExistingNetworkConfig(TypedDict):
    """An existing VPC. Private subnets need a NAT or endpoints of their own."""

    vpcId: str
    """``vpc-`` and 8 or 17 hexadecimal digits."""
    cidrBlock: str
    """Primary address range of the VPC."""
    privateSubnets: Sequence[pulumi.Input[ExistingSubnet]]
    """Private subnets in at least two zones; the first one's zone is the accelerator zone."""
    publicSubnets: NotRequired[Sequence[ExistingSubnet]]
    """Public subnets, for load balancers; may be empty."""
    peerCidrBlocks: NotRequired[Sequence[str]]
    """As in a new network."""


class ClusterConfig(TypedDict):
    """The EKS control plane and its CPU nodes."""

    kubernetesVersion: NotRequired[str]
    """Minor version; ``1.35`` is the highest that Volcano 1.15 certifies."""
    endpoint: NotRequired[EndpointConfig]
    """Access to the Kubernetes API."""
    adminPrincipals: NotRequired[Sequence[str]]
    """IAM **role** or user ARNs that administer the cluster. The deployer is an administrator already and must not
    be listed: EKS refuses the second entry (pulumi-eks#2373).
    """
    serviceCidrBlock: NotRequired[str]
    """Range of Kubernetes service addresses; must not overlap the VPC or its peers."""
    logRetentionDays: NotRequired[int]
    """Days that control-plane logs are kept."""
    supportType: NotRequired[SupportType]
    """What happens when a version's standard support ends: STANDARD upgrades by itself, EXTENDED costs
    0.60 USD an hour instead of 0.10.
    """
    deletionProtection: NotRequired[bool]
    """EKS refuses to delete the cluster while true. Unset: on in production, off otherwise."""
    systemNodes: NotRequired[CpuNodesConfig]
    """Node group for control components, one in each zone."""
    cpuNodes: NotRequired[CpuPoolConfig]
    """Small pool in the accelerator zone for staging, TensorBoard and monitoring."""
    addons: NotRequired[Mapping[str, AddonConfig]]
    """EKS add-ons by name. For the stack's own: another version or further settings. Others are installed after the
    nodes: ``{snapshot-controller: {version: v8.3.0-eksbuild.1}}``.
    """


class FileSystemConfig(TypedDict):
    """A Lustre 2.15 file system in the accelerator zone, LZ4-compressed, encrypted with the stack's key."""

    storageCapacityGib: NotRequired[int]
    """SSD size, GiB: 1200, 2400, then multiples of 2400 (with ``efa_enabled`` larger steps)."""
    deploymentType: NotRequired[DeploymentType]
    """PERSISTENT_2 replicates within the zone; SCRATCH_2 loses data on a server's failure."""
    throughputPerTib: NotRequired[int]
    """MB/s for each TiB, PERSISTENT_2 only."""
    durability: NotRequired[Durability]
    """Copy of the data that survives the file system: ``{type: backup, retentionDays: 7}``, ``{type: s3, bucket: …}``
    or ``{type: none}``. FSx takes no backups of a file system linked to S3, so it is one or the other.
    """
    metadataIops: NotRequired[int]
    """Provisioned metadata IOPS. Unset: automatic."""
    efaEnabled: NotRequired[bool]
    """Lets EFA-capable clients bypass TCP. Set at creation only; larger size steps apply."""
    zoneId: NotRequired[str]
    """Zone of the file system. Unset: the accelerator zone; another zone is slower, and traffic to it costs money."""
    onDemand: NotRequired[bool]
    """Adds a storage class ``fsx``, which creates a file system for each claim (from 1200 GiB, hundreds of dollars a
    month), and lets the driver make and delete these. A namespace's ``resource_quota`` says how many it may have
    (``fsx.storageclass.storage.k8s.io/persistentvolumeclaims``, by default none). Delete those claims before you
    switch
    this off again: without the permission, the driver leaves the file systems behind.
    """
    importPath: NotRequired[str]
    """Not with PERSISTENT_2: use ``durability``. It exists only so that the error can say this."""
    protect: NotRequired[bool]
    """Pulumi refuses to delete or replace it while true. Unset: on in production."""


class VolcanoConfig(TypedDict):
    """The gang scheduler and its queues."""

    replicas: NotRequired[int]
    """Copies of scheduler, controller and admission; more than one switches leader election on."""
    scaleFromZero: NotRequired[bool]
    """Gives a job its pods while its pool has no node. Otherwise Volcano holds it back until there are nodes for it,
    and no pod makes one come (volcano#3910). Unset: on when some group may rest at zero nodes.
    """
    reclaim: NotRequired[bool]
    """Lets queues take back what others borrowed. Not gang-aware: it kills single pods of several gangs."""
    rendezvous: NotRequired[Rendezvous]
    """How workers find each other. ``c10d`` needs nothing; ``etcd`` adds a single etcd 3.5 in the cluster."""


class NamespaceConfig(TypedDict):
    """One team's namespace."""

    name: str
    """Name of the namespace."""
    queues: Sequence[pulumi.Input[str]]
    """Queues its jobs may use; the first is its own and the default of launchers."""
    principals: NotRequired[Sequence[str]]
    """IAM role ARNs of its researchers; each gets an access entry in the namespace's Kubernetes group."""
    resourceQuota: NotRequired[Mapping[str, str]]
    """ResourceQuota ``hard`` values (``{requests.aws.amazon.com/neuron: "64", pods: "200"}``), merged over the
    default:
    ten times what the queues may run and the nodes have (because waiting jobs count too), the pods that the nodes
    hold,
    1 TiB of EBS volumes, and no file systems made for claims.
    """
    priorityClasses: NotRequired[Sequence[str]]
    """PriorityClasses that its jobs may name. Kubernetes' own (``system-…``) are refused: they end other teams'
    jobs.
    """
    dataBucket: NotRequired[pulumi.Input[str]]
    """Name of an S3 bucket, besides the stack's, in which its jobs may read and write below the prefix
    ``<namespace>/``.
    """
    dataBucketKeyArn: NotRequired[pulumi.Input[str]]
    """ARN of the KMS key that encrypts that bucket. Unset: it has no key of its own."""
    trainingUserId: NotRequired[int]
    """UID and GID that own its directories on the file system and that its jobs run as; each team has its own."""


class ImageRepositoryConfig(TypedDict):
    """An ECR repository for training images: scanned on push, immutable tags, encrypted."""

    name: NotRequired[str]
    """Repository name. Unset: ``<project>-<stack>/training``."""
    keptImages: NotRequired[int]
    """Tagged images kept; older ones expire."""
    untaggedDays: NotRequired[int]
    """Days an untagged image is kept."""
    baseImages: NotRequired[Mapping[str, str]]
    """What `trn image build` starts from, over its own table: target (`trn1`, `trn2`, `jax`, `cuda`, `cpu`) to image
    (`{trn2: <registry>/<repository>:<tag>}`). For `trn2` no public tag is known, and one must be named here.
    """


class TrainingConfig(TypedDict):
    """The inputs for jobs' checkpoint interval and useful share of time (docs/goodput.md)."""

    checkpointGigabytes: NotRequired[float]
    """Size of a checkpoint where a job does not say, GB: 12 for each billion parameters with Adam in FP32."""
    failuresPerNodeYear: NotRequired[float]
    """How often a node stops its gang in a year of training, Spot interruptions included. Unset: as published for its
    accelerator; Trainium has no published rate and is taken to fail like H100 (1.4).
    """


class NeuronAddonsConfig(TypedDict):
    """Neuron device plugin, EFA device plugin, neuron-monitor."""

    schedulerExtension: NotRequired[bool]
    """Neuron's scheduler extension: only for pods that take part of a node, and never with Volcano's scheduler."""
    monitor: NotRequired[bool]
    """neuron-monitor on every Trainium node (metrics on port 8000)."""
    neuronValues: NotRequired[Mapping[str, Any]]
    """Further values for the neuron-helm-chart, merged over the stack's."""


class GpuAddonsConfig(TypedDict):
    """NVIDIA device plugin, EFA device plugin, DCGM exporter, Kubeflow's controllers for training jobs."""

    trainers: NotRequired[Sequence[str]]
    """Kubeflow's controllers. ``v1``: Training Operator v1.9.3 (PyTorchJob, MPIJob); its jobs run as Volcano gangs and
    name their queue in ``runPolicy.schedulingPolicy.queue``. ``v2``: Kubeflow Trainer 2.3 (TrainJob over JobSet)
    with
    its runtimes, for new work; a runtime for a team's namespace names Volcano in ``podGroupPolicy``. Both side by
    side
    while jobs move over; empty for neither.
    """
    dcgmExporter: NotRequired[bool]
    """GPU metrics on port 9400."""
    nvidiaValues: NotRequired[Mapping[str, Any]]
    """Further values for the nvidia-device-plugin chart, merged over the stack's."""


class ClusterAutoscalerConfig(TypedDict):
    """Cluster Autoscaler. It serves the CPU pool, and the accelerator groups that are named here."""

    acceleratorGroups: NotRequired[Sequence[str]]
    """Names of accelerator groups that it scales too, from zero where their `minSize` is 0. It knows no gangs: read
    docs/autoscaling.md first. Each needs ``ignoreDesiredSize: true``.
    """
    expander: NotRequired[Expander]
    """Choice of the group that grows when several would do. ``least-waste``: the group that leaves least CPU idle."""
    scaleDownMinutes: NotRequired[int]
    """Minutes that a CPU node is hardly used before it goes."""
    acceleratorScaleDownMinutes: NotRequired[int]
    """Minutes that an accelerator node is empty before it goes: a gang that starts again finds its nodes still there.
    A
    node with any pod that is not a DaemonSet's is never removed.
    """
    maxNodeProvisionMinutes: NotRequired[int]
    """Minutes that a node may take to join before its group is given up for a while."""
    evictLocalStorage: NotRequired[bool]
    """True lets CPU nodes go although pods keep files in an ``emptyDir``; the files are lost."""
    replicas: NotRequired[int]
    """Copies; one is active."""


class KarpenterConfig(TypedDict):
    """Karpenter. By default it starts CPU nodes for pods that fit nowhere; not together with Cluster Autoscaler."""

    cpuLimit: NotRequired[int]
    """Most vCPUs of its CPU nodes together; 0 for accelerator pools alone."""
    instanceTypes: NotRequired[Sequence[str]]
    """Types of the CPU nodes; it takes the cheapest that fits and that EC2 has."""
    rootVolumeGib: NotRequired[int]
    """Size of a CPU node's encrypted gp3 root volume, GiB."""
    consolidateMinutes: NotRequired[int]
    """Minutes without a change after which it may move pods to fewer or cheaper CPU nodes."""
    expireAfterHours: NotRequired[int]
    """Hours after which a CPU node is replaced. Accelerator nodes never are for their age."""
    acceleratorPools: NotRequired[Sequence[KarpenterPoolConfig]]
    """Accelerator nodes that it starts too. It knows no gangs: read docs/autoscaling.md first."""
    acceleratorEmptyMinutes: NotRequired[int]
    """Minutes that an accelerator node is empty before it goes. A node in use never goes."""
    replicas: NotRequired[int]
    """Copies; one is active."""


class AutoscalingConfig(TypedDict):
    """Controllers that add and remove nodes. None is installed unless the config names it."""

    clusterAutoscaler: NotRequired[ClusterAutoscalerConfig]
    """Cluster Autoscaler; null for none, ``{}`` for the CPU pool alone."""
    karpenter: NotRequired[KarpenterConfig]
    """Karpenter; null for none, ``{}`` for CPU nodes alone."""


class MetricsConfig(TypedDict):
    """Prometheus in the cluster, with exporters for nodes, devices, EFA, the file system, Volcano and trainings."""

    retentionDays: NotRequired[int]
    """Days that the cluster's own Prometheus keeps; Amazon Managed Prometheus keeps its own 150."""
    volumeGib: NotRequired[int]
    """Size of its volume, GiB (gp3, encrypted). The oldest data goes before the volume is full."""
    scrapeIntervalSeconds: NotRequired[int]
    """How often everything is scraped."""
    managedPrometheus: NotRequired[bool]
    """True makes a workspace of Amazon Managed Prometheus and writes everything there too, by Pod Identity. It is
    billed by sample and outlives the cluster's own Prometheus.
    """
    alerts: NotRequired[AlertsConfig]
    """Where alerts go; null: they show in Prometheus and Grafana only."""
    thresholds: NotRequired[AlertSettings]
    """From when on alerts fire (docs/alerts.md)."""
    values: NotRequired[Mapping[str, Any]]
    """Further values for the chart kube-prometheus-stack, merged over the stack's."""


class LogsConfig(TypedDict):
    """Container logs in CloudWatch Logs, kept after their pods are deleted."""

    retentionDays: NotRequired[int]
    """Days that logs are kept."""
    system: NotRequired[bool]
    """True ships the logs of ``kube-system`` too, which are large and seldom read."""


class ObservabilityConfig(TypedDict):
    """Metrics, Grafana and logs."""

    metrics: NotRequired[MetricsConfig]
    """Prometheus; null for none."""
    grafana: NotRequired[GrafanaConfig]
    """Grafana; null for none. It needs ``metrics``."""
    logs: NotRequired[LogsConfig]
    """Container logs in CloudWatch; null for none."""


class SpendingAlertConfig(TypedDict):
    """A budget of AWS Budgets over the resources with the environment's tag: it sends e-mails at 50, 80 and 100 % of
    the month's amount, and once 100 % is forecast. It stops nothing.

    AWS counts by the tag ``Environment`` only after the payer's account has activated it as a cost allocation tag.
    """

    monthlyUsd: float
    """USD a month, discounts and credits included as AWS bills them."""
    emails: Sequence[str]
    """Addresses of the recipients."""


class BudgetConfig(TypedDict):
    """The most that an environment may come to by itself: with every node group at its largest."""

    hourlyUsd: NotRequired[float]
    """Most USD an hour at list prices; usage charges (traffic, storage in S3) are not counted. Unset: no bound."""
    nodes: NotRequired[int]
    """Most nodes, CPU nodes included. Unset: no bound."""
    alert: NotRequired[SpendingAlertConfig]
    """E-mails about this month's cost; null for none."""


class IdleGuardConfig(TypedDict):
    """A guard that reports and removes idle accelerator nodes: EC2 bills a node that waits for jobs like a node that
    trains.

    Nodes of groups with ``ignoreDesiredSize: true`` are removed, down to the group's ``minSize``. For the other
    groups
    it only warns, because the next ``up`` would bring the nodes back. It removes no node with pods other than
    DaemonSets', and no node of a group that a pending gang could use.
    """

    warnAfterMinutes: NotRequired[float]
    """Minutes without work after which it is reported: an event of the node, a line in the guard's log."""
    removeAfterMinutes: NotRequired[float]
    """Minutes without work after which a node goes. Null: never. A node takes about 6 minutes to come back."""


class FabricGateConfig(TypedDict):
    """A gate before accelerator nodes: new, replaced and rebooted ones carry the taint ``trainium-eks/fabric-
    untested``
    until the fabric test has passed on them; nodes that fail are cordoned and named (docs/fabric.md).
    """

    images: Mapping[str, str]
    """Image of the test by target of `trn image build --for`: `{trn1: <registry>/<repository>:<tag>}`, as `trn image
    push` prints it. On the local cloud `local/torch`.
    """


class SageMakerConfig(TypedDict):
    """SageMaker training jobs in the stack's network, with an execution role that writes to one prefix of one
    bucket.
    """

    bucket: NotRequired[pulumi.Input[str]]
    """Name of an existing bucket for data, checkpoints and models. Unset: the bucket behind the file system, else a
    new
    one.
    """
    bucketKeyArn: NotRequired[pulumi.Input[str]]
    """ARN of the KMS key that encrypts the existing bucket. Unset: the bucket has no key of its own."""
    prefix: NotRequired[str]
    """Key prefix of checkpoints and models, without slashes at its ends; the role may write nowhere else."""
    logRetentionDays: NotRequired[int]
    """Days that logs of training jobs are kept: the stack makes the log group ``/aws/sagemaker/TrainingJobs``, which
    all jobs of an account and region share. 365 or more (rule R08). Unset: SageMaker makes it, without an end and
    without the stack's key.
    """
    servingTypes: NotRequired[Sequence[str]]
    """Instance types on which researchers may serve models (`trn serve --on sagemaker`) and transform files (`trn
    predict --on sagemaker`), the default first: ``[ml.inf2.xlarge]``. Empty: none.
    """


class SageMakerEndpointConfig(TypedDict):
    """A SageMaker endpoint of the stack, which answers in real time with one model; needs ``sageMaker``."""

    name: str
    """Name after the stack's: lower-case letters, digits and dashes."""
    model: pulumi.Input[str]
    """Key of the ``model.tar.gz`` in the bucket of ``sageMaker``."""
    image: pulumi.Input[str]
    """Image in ECR with the command ``serve``; training images of `trn image build` have it."""
    instanceType: str
    """``ml.inf2.xlarge``."""
    instances: NotRequired[int]
    """Instances, at first where ``max_instances`` is set. With two or more, one answers alone after a change, before
    all do.
    """
    maxInstances: NotRequired[int]
    """Most instances of automatic scaling. Unset: the number stays."""
    callsPerMinute: NotRequired[int]
    """Calls a minute and instance that automatic scaling aims at."""
    capturePercent: NotRequired[int]
    """Part of the calls and answers that are kept in the bucket; 0 for none."""
    mostErrors: NotRequired[int]
    """Calls a minute that end with an error of the server (5xx), from which on the alarm rings: a change is rolled
    back.
    """
    logRetentionDays: NotRequired[int]
    """Days that the endpoint's logs are kept."""


class WaiverConfig(TypedDict):
    """The reason for breaking a rule on purpose, and its last day."""

    reason: str
    """Why, for readers of the plan."""
    expires: str
    """The last day on which it holds, ``YYYY-MM-DD`` in UTC, no more than a year ahead. From the next day on the plan
    fails, until the rule passes or somebody sets another day.
    """


class StackConfig(TypedDict):
    """One environment. Each field is a key of the stack's config file, in camelCase."""

    region: str
    """AWS region. us-east-1, us-east-2 and us-west-2 work from defaults; others need ``network.zoneIds``."""
    owner: str
    """Who answers for this environment; tag ``Owner`` on everything."""
    costCenter: NotRequired[str]
    """Tag ``CostCenter`` on everything."""
    production: NotRequired[bool]
    """True holds the environment to the production rules: deletion protection, ``protect`` on resources with data,
    private endpoint or named ranges, NAT per zone.
    """
    allowedAccountIds: NotRequired[Sequence[str]]
    """The only AWS accounts this environment may be built in (12 digits each). Empty: any, waive R67."""
    permissionsBoundary: NotRequired[str]
    """ARN of the IAM policy that bounds every role of this environment; the documented deploy role may make no role
    without it (docs/deploying.md). Unset: no bound.
    """
    keptKeyArn: NotRequired[str]
    """ARN of the KMS key that an earlier stack of this name kept, to be used again; `trn check` proposes it. Set it
    before the first ``up``: another key replaces the cluster, the file system and every volume. Unset: the stack
    makes
    a key.
    """
    tags: NotRequired[Mapping[str, str]]
    """Further tags on everything."""
    network: NotRequired[NetworkConfig]
    """The VPC to make; see also ``existing_network``."""
    existingNetwork: NotRequired[ExistingNetworkConfig]
    """A VPC to use instead of making one."""
    cluster: NotRequired[ClusterConfig]
    """Control plane and CPU nodes."""
    nodeGroups: NotRequired[Sequence[NodeGroupConfig]]
    """Accelerator node groups."""
    instanceTypes: NotRequired[Mapping[str, Mapping[str, Any]]]
    """Catalogue entries added or changed: ``{trn3.48xlarge: {…}}`` with the fields of the catalogue."""
    fileSystem: NotRequired[FileSystemConfig]
    """The shared file system; null for none."""
    volcano: NotRequired[VolcanoConfig]
    """Gang scheduler."""
    queues: NotRequired[Sequence[QueueConfig]]
    """Volcano queues."""
    namespaces: NotRequired[Sequence[NamespaceConfig]]
    """Team namespaces."""
    imageRepository: NotRequired[ImageRepositoryConfig]
    """Repository for training images; null for none."""
    training: NotRequired[TrainingConfig]
    """Assumptions of the plan and `trn train` about jobs: the size of a checkpoint, and how often nodes fail."""
    neuronAddons: NotRequired[NeuronAddonsConfig]
    """Add-ons of Trainium and Inferentia groups; installed when there is such a group."""
    gpuAddons: NotRequired[GpuAddonsConfig]
    """Add-ons of GPU groups; installed when there is such a group."""
    autoscaling: NotRequired[AutoscalingConfig]
    """Controllers that add and remove nodes; none by default."""
    observability: NotRequired[ObservabilityConfig]
    """Metrics, Grafana and logs; none by default (docs/observability.md)."""
    budget: NotRequired[BudgetConfig]
    """Bounds on the environment's size and price (a plan above them fails, rule R72), and recipients of e-mails about
    its cost.
    """
    idleGuard: NotRequired[IdleGuardConfig]
    """Guard that warns of idle accelerators and removes them; null for none."""
    fabricGate: NotRequired[FabricGateConfig]
    """Taint on new and rebooted accelerator nodes until the fabric test has passed on them (docs/fabric.md); null for
    none.
    """
    sageMaker: NotRequired[SageMakerConfig]
    """SageMaker training jobs beside the cluster (docs/sagemaker.md); null for none."""
    sageMakerEndpoints: NotRequired[Sequence[SageMakerEndpointConfig]]
    """SageMaker endpoints of the stack (docs/sagemaker.md)."""
    waivers: NotRequired[Mapping[str, WaiverConfig]]
    """Rules that this environment breaks on purpose, each with its reason and its last day:
    ``{R06: {reason: torn down every night, expires: 2027-03-31}}``.
    """


ARGS: Mapping[str, type] = {
    "AcceleratorNodeGroup": AcceleratorNodeGroupArgs,
    "ClusterAutoscaler": ClusterAutoscalerArgs,
    "EncryptionKey": EncryptionKeyArgs,
    "ExistingNetwork": ExistingNetworkArgs,
    "FsxLustre": FsxLustreArgs,
    "GpuAddons": GpuAddonsArgs,
    "IdleGuard": IdleGuardArgs,
    "ImageRepository": ImageRepositoryArgs,
    "Karpenter": KarpenterArgs,
    "LogShipping": LogShippingArgs,
    "LustreVolumes": LustreVolumesArgs,
    "ManagedGrafana": ManagedGrafanaArgs,
    "MetricsStack": MetricsStackArgs,
    "Network": NetworkArgs,
    "NeuronAddons": NeuronAddonsArgs,
    "SageMakerEndpoint": SageMakerEndpointArgs,
    "SageMakerTraining": SageMakerTrainingArgs,
    "TrainingNamespace": TrainingNamespaceArgs,
    "TrainiumCluster": TrainiumClusterArgs,
    "VolcanoStack": VolcanoStackArgs,
    "TrainingStack": StackConfig,
}
"""Component to its args: all that the provider serves."""
