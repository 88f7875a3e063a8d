"""LustreVolumes: the Kubernetes side of a Lustre file system: volumes, a storage class, and each team's directories."""

import hashlib
import json
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s
import pydantic

from trainium_eks.model.catalogue import lustre, versions
from trainium_eks.model.config.namespaces import LUSTRE_SETUP, UserId
from trainium_eks.model.config.storage import Throughput
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, StrictBool, StrictInt
from trainium_eks.model.validation.problems import Problem, join_key

from . import _charts, _ids
from ._args import Text, child_of, outputs, validate_args
from ._dicts import LustreVolumesArgsDict

DIRECTORIES = ("data", "ckpt", "cache")
"""Directories of every team in the root of its volume: data sets, checkpoints, compiled graphs."""

MOUNT_OPTIONS = ["flock"]
"""File locks that hold across nodes, which data loaders and the compile cache use."""

CLAIM_TIMEOUTS = pulumi.CustomTimeouts(delete="5m")
"""Kubernetes keeps a claim while a pod that mounts it exists, finished or not. Unmounting takes seconds and a pod's own
end half a minute: a pod that still holds a claim after five minutes will not release it, and the engine should report
it."""

SETUP_NAMESPACE_REASON = "the directories' owner is set by root; capabilities are those of the baseline level"

SETUP_SCRIPT = """\
set -eu
umask 077
mkdir -p "$1"
cd "$1"
shift
for team in "$@"; do
  name=${team%=*}
  owner=${team#*=}
  for directory in "$name" DIRECTORIES; do
    [ -e "$directory" ] || [ -L "$directory" ] || mkdir "$directory"
    # Only what root owns: new directories, and those that a link to S3 brought in. A team may put anything
    # in the place of its own, a link to another team's directory too, and root must not follow it.
    find "$directory" -maxdepth 0 -type d -user 0 -exec chmod 2770 {} \\; -exec chown -h "$owner:$owner" {} \\;
  done
done
""".replace("DIRECTORIES", " ".join(f'"$name/{directory}"' for directory in DIRECTORIES))
"""Makes the directories of ``namespace=uid`` arguments in the first argument. Running it again changes nothing."""

SETUP_CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID"]
"""Capabilities for making a directory in another user's directory; FSETID keeps the set-group-id bit."""

MOUNT_PATH = "/lustre"

SETUP_SECONDS = 600
"""Time limit for making the directories: mostly the image pull and the first mount."""


class LustreVolumesArgs(ConfigModel):
    """Args of :class:`LustreVolumes`."""

    file_system_id: _ids.FileSystemId
    """``fs-…``."""
    dns_name: Text
    """Host to mount."""
    mount_name: Text
    """Lustre's own name of the file system."""
    storage_capacity_gib: StrictInt | pulumi.Output[int]
    """Size of the file system, GiB; volumes have the same."""
    subnet_id: _ids.SubnetId
    """Subnet of volumes that the storage class makes."""
    security_group_id: _ids.SecurityGroupId
    """Security group of those volumes, with rules that allow Lustre."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key of those volumes; None leaves them to FSx's own."""
    root: str = "/"
    """Parent of the namespaces' directories in the file system: ``/``, or the directory linked to S3."""
    namespaces: dict[str, UserId] = pydantic.Field(default_factory=dict)
    """Namespaces that mount the file system, each with the UID and GID that own its directories. A later change of a
    UID does not change the owner of existing directories."""
    on_demand: StrictBool = False
    """Whether to make a storage class that creates a file system for each claim."""
    throughput_per_tib: Throughput = 250
    """MB/s for each TiB of volumes that the storage class makes: 125, 250, 500 or 1000."""
    storage_class: str = lustre.STORAGE_CLASS
    """Name of the storage class."""
    shared_class: str = "fsx-shared"
    """Name of the static volumes' class, which provisions nothing."""
    setup_namespace: str = LUSTRE_SETUP
    """Namespace of the job that makes the directories; not a team's."""


def validate(args: LustreVolumesArgs) -> list[Problem]:
    """Return the problems of the values."""
    found = [
        *formats.dns_label("storage_class", args.storage_class),
        *formats.dns_label("shared_class", args.shared_class),
        *formats.dns_label("setup_namespace", args.setup_namespace),
    ]
    for namespace in args.namespaces:
        path = join_key("namespaces", namespace)
        found += formats.dns_label(path, namespace)
        if namespace == args.setup_namespace:
            found.append(Problem(path, "the directories are made in a namespace of this name", "rename one of the two"))
    if args.shared_class == args.storage_class:
        reason = "it is also the name of the class that makes volumes"
        found.append(Problem("shared_class", reason, "rename one of the two", value=args.shared_class))
    if not args.root.startswith("/") or "//" in args.root:
        good = f"/{args.root.strip('/')}"
        found.append(Problem("root", "it is not an absolute directory of the file system", value=args.root, good=good))
    return found


class LustreVolumes(pulumi.ComponentResource):
    """A static volume and a directory for each namespace, and optionally a storage class that makes file systems.

    A volume binds one claim, so each namespace has its own. The volume mounts the namespace's directory (a fileset), so
    that a pod, root or not, sees no other team's files; it is made once the directory exists. The Kubernetes provider
    comes by ``opts.providers``; a first mount waits for ``FsxLustre.client_access``, which ``opts.depends_on`` should
    name.
    """

    storage_class_name: pulumi.Output[str]
    """Storage class that creates a file system for each claim; empty without ``on_demand``."""
    volume_names: pulumi.Output[Mapping[str, str]]
    """Persistent volume by namespace, once the namespace's directory exists."""
    shared_class_name: pulumi.Output[str]
    """Storage class of those volumes, which their claims have to name."""

    def __init__(
        self,
        name: str,
        args: LustreVolumesArgs | LustreVolumesArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(LustreVolumesArgs, args, validate, f"LustreVolumes {name}", opts=opts)
        super().__init__("trainium-eks:index:LustreVolumes", name, {}, opts)
        self._args = args

        none = pulumi.Output.from_input("")
        self.storage_class_name = _name(self._make_storage_class()) if args.on_demand else none
        self.shared_class_name = _name(self._make_shared_class())
        directories = [self._make_directories()] if args.namespaces else []
        self._volumes = {
            namespace: self._make_volume(namespace, lustre.team_directory(args.root, namespace), *directories)
            for namespace in args.namespaces
        }

        self.volume_names = pulumi.Output.all(
            **{namespace: _name(volume) for namespace, volume in self._volumes.items()}
        )
        self.register_outputs(outputs(self, LustreVolumes))

    def volume_name(self, namespace: str) -> pulumi.Output[str]:
        """Return the name of a namespace's persistent volume.

        Raises:
            KeyError: for a namespace that the args do not name.
        """
        return _name(self._volumes[namespace])

    def _make_storage_class(self) -> k8s.storage.v1.StorageClass:
        """Make the class with every parameter set: the driver's defaults are a scratch file system of Lustre 2.10,
        which no AL2023 node can mount (fsx-csi#437). Parameters of a storage class are text."""
        args = self._args
        parameters: dict[str, pulumi.Input[str]] = {
            "subnetId": args.subnet_id,
            "securityGroupIds": args.security_group_id,
            "deploymentType": "PERSISTENT_2",
            "storageType": "SSD",
            "perUnitStorageThroughput": str(args.throughput_per_tib),
            "fileSystemTypeVersion": versions.LUSTRE,
            "dataCompressionType": "LZ4",
            "automaticBackupRetentionDays": "7",
            "copyTagsToBackups": "true",
        }
        if args.kms_key_arn is not None:
            parameters["kmsKeyId"] = args.kms_key_arn
        return k8s.storage.v1.StorageClass(
            f"{self._name}-class",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=args.storage_class),
            provisioner=lustre.DRIVER,
            parameters=parameters,
            mount_options=MOUNT_OPTIONS,
            # Pulumi does not know these file systems: a file system that stayed would keep its network interfaces,
            # and with them the VPC, forever.
            reclaim_policy="Delete",
            volume_binding_mode="Immediate",
            allow_volume_expansion=True,
            opts=child_of(self),
        )

    def _make_shared_class(self) -> k8s.storage.v1.StorageClass:
        """Make the class of the static volumes. Pulumi warns if an awaited claim has no class, although Kubernetes
        needs none for a static volume (pulumi-kubernetes, ``pvcBindMode``)."""
        return k8s.storage.v1.StorageClass(
            f"{self._name}-shared-class",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=self._args.shared_class),
            provisioner="kubernetes.io/no-provisioner",
            reclaim_policy="Retain",
            volume_binding_mode="Immediate",
            opts=child_of(self),
        )

    def _make_volume(self, namespace: str, directory: str, *after: pulumi.Resource) -> k8s.core.v1.PersistentVolume:
        """Make a volume for the namespace's claim that shows one directory; mounting it fails if the directory is
        missing."""
        args = self._args
        mounted = pulumi.Output.from_input(args.mount_name).apply(lambda name: lustre.fileset(name, directory))
        # Kubernetes tells volumes apart by their handle, and the driver uses it for nothing on a static volume: were
        # it the same on all, a pod with two of them would hang (fsx-csi#328).
        handle = pulumi.Output.concat(args.file_system_id, f"::{namespace}")
        return k8s.core.v1.PersistentVolume(
            f"{self._name}-{namespace}",
            spec=k8s.core.v1.PersistentVolumeSpecArgs(
                capacity={"storage": capacity(args.storage_capacity_gib)},
                volume_mode="Filesystem",
                access_modes=["ReadWriteMany"],
                persistent_volume_reclaim_policy="Retain",
                storage_class_name=self.shared_class_name,
                mount_options=MOUNT_OPTIONS,
                claim_ref=k8s.core.v1.ObjectReferenceArgs(
                    api_version="v1", kind="PersistentVolumeClaim", namespace=namespace, name=lustre.CLAIM
                ),
                csi=k8s.core.v1.CSIPersistentVolumeSourceArgs(
                    driver=lustre.DRIVER,
                    volume_handle=handle,
                    volume_attributes={"dnsname": args.dns_name, "mountname": mounted},
                ),
            ),
            opts=child_of(self, *after),
        )

    def _make_directories(self) -> k8s.batch.v1.Job:
        """Make the job that creates the teams' directories, because root owns a new file system, and Kubernetes does
        not change the owner of a shared volume."""
        home = self._args.setup_namespace
        volume = self._make_volume(home, "/")
        # After the volume, as a team's namespace: a destroy ends it, with the finished pod and its claim, before it.
        opts = child_of(self, volume)
        namespace = _charts.namespace(f"{self._name}-setup", home, "baseline", SETUP_NAMESPACE_REASON, opts)
        # The node mounts the file system, not the pod, which has no business on the network.
        inside = pulumi.ResourceOptions(parent=self, depends_on=[namespace], deleted_with=namespace)
        both = ("Ingress", "Egress")
        _charts.close_namespace(f"{self._name}-setup-network", "deny-all", home, inside, directions=both)
        claim = k8s.core.v1.PersistentVolumeClaim(
            f"{self._name}-setup-claim",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=lustre.CLAIM, namespace=home),
            spec=claim_spec(_name(volume), self._args.storage_capacity_gib, self.shared_class_name),
            opts=claim_options(self, namespace),
        )
        return self._make_setup_job(namespace, home, claim)

    def _make_setup_job(
        self, namespace: k8s.core.v1.Namespace, home: str, claim: k8s.core.v1.PersistentVolumeClaim
    ) -> k8s.batch.v1.Job:
        """Make a job that runs once, and again under a new name when teams, script or image change. The finished job
        stays: a job that Kubernetes removes by its time to live would be made anew after every ``pulumi refresh``.

        Its finished pod holds the claim. The pod's claim name is an Output of the claim, so the engine replaces the job
        with the claim, and deletes the job first. ``depends_on`` alone does not cause this.
        """
        teams = [f"{namespace}={user_id}" for namespace, user_id in sorted(self._args.namespaces.items())]
        return k8s.batch.v1.Job(
            f"{self._name}-directories",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=f"directories-{setup_digest(teams)}", namespace=home),
            spec=k8s.batch.v1.JobSpecArgs(
                backoff_limit=4,
                active_deadline_seconds=SETUP_SECONDS,
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(
                        # A new file system has no directories: this replaces the job for it.
                        annotations={"trainium-eks/file-system": self._args.file_system_id}
                    ),
                    spec=_setup_pod(teams, lustre.fileset(MOUNT_PATH, self._args.root), _name(claim)),
                ),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[claim],
                deleted_with=namespace,
                custom_timeouts=pulumi.CustomTimeouts(create="15m"),
            ),
        )


def _name(
    made: k8s.core.v1.PersistentVolume | k8s.core.v1.PersistentVolumeClaim | k8s.storage.v1.StorageClass,
) -> pulumi.Output[str]:
    """Return the name that the provider made for an object without ``metadata``."""
    return made.metadata.apply(lambda told: str(told["name"]) if told else "mocked")


def capacity(gib: int | pulumi.Output[int]) -> pulumi.Output[str]:
    """Return a size as a Kubernetes quantity: ``1200Gi``."""
    return pulumi.Output.from_input(gib).apply(lambda size: f"{int(size)}Gi")


def claim_options(
    parent: pulumi.Resource, namespace: k8s.core.v1.Namespace, *after: pulumi.Resource
) -> pulumi.ResourceOptions:
    """Return the resource options of a claim for a static volume.

    The claim is deleted with its namespace: deleted earlier, it would wait for pods that only the namespace's deletion
    removes, such as pods of finished training jobs.
    """
    return pulumi.ResourceOptions(
        parent=parent,
        depends_on=[namespace, *after],
        deleted_with=namespace,
        custom_timeouts=CLAIM_TIMEOUTS,
        # A file system can grow, and its volume with it, but nothing resizes a static claim, and a volume never binds a
        # claim made anew. Lustre does not look at the number.
        ignore_changes=["spec.resources"],
    )


def claim_spec(
    volume_name: pulumi.Input[str], gib: int | pulumi.Output[int], storage_class: pulumi.Input[str]
) -> k8s.core.v1.PersistentVolumeClaimSpecArgs:
    """Return the spec of a claim for one static volume and no other; its class has to be the volume's."""
    return k8s.core.v1.PersistentVolumeClaimSpecArgs(
        access_modes=["ReadWriteMany"],
        storage_class_name=storage_class,
        volume_name=volume_name,
        resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": capacity(gib)}),
    )


def setup_digest(teams: Sequence[str]) -> str:
    """Return ten hexadecimal digits that change with the teams, the script and the image."""
    content = json.dumps([list(teams), SETUP_SCRIPT, versions.IMAGES["lustre-setup"]])
    return hashlib.sha256(content.encode()).hexdigest()[:10]


def _setup_pod(teams: Sequence[str], directory: str, claim_name: pulumi.Output[str]) -> k8s.core.v1.PodSpecArgs:
    return k8s.core.v1.PodSpecArgs(
        restart_policy="Never",
        automount_service_account_token=False,
        security_context=k8s.core.v1.PodSecurityContextArgs(
            seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault")
        ),
        containers=[
            k8s.core.v1.ContainerArgs(
                name="directories",
                image=versions.IMAGES["lustre-setup"],
                command=["/bin/sh", "-c", SETUP_SCRIPT, "directories", directory],
                args=list(teams),
                resources=k8s.core.v1.ResourceRequirementsArgs(
                    requests={"cpu": "50m", "memory": "32Mi"}, limits={"cpu": "500m", "memory": "128Mi"}
                ),
                security_context=k8s.core.v1.SecurityContextArgs(
                    run_as_user=0,
                    allow_privilege_escalation=False,
                    read_only_root_filesystem=True,
                    capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"], add=SETUP_CAPABILITIES),
                ),
                volume_mounts=[k8s.core.v1.VolumeMountArgs(name="lustre", mount_path=MOUNT_PATH)],
            )
        ],
        volumes=[
            k8s.core.v1.VolumeArgs(
                name="lustre",
                persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=claim_name),
            )
        ],
    )
