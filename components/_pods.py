"""Pods that run a Python program of this library: its files, containers that the restricted level of Pod Security
admits, and rights in the whole cluster."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

import pulumi
import pulumi_kubernetes as k8s

from trainium_eks.model.catalogue import versions

from ._team_policies import role_rules

CODE = "/code"
"""Where the program's files are."""

NOBODY = 65534

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts a service account's token."""

READY = "/ready/file"
"""File that a controller writes once its work is done for the first time."""

Rules = Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]]
"""API group, resources and verbs."""


@dataclass(frozen=True)
class Program:
    """Modules of ``trainium_eks`` that import each other and the standard library alone; the first is run."""

    modules: tuple[str, ...]
    """``observe.idle.guard`` for ``trainium_eks.observe.idle.guard``. No two end with the same word."""

    @property
    def name(self) -> str:
        """Return the last word of the first module."""
        return self.modules[0].rpartition(".")[2]

    def sources(self) -> dict[str, str]:
        """Return the modules as the data of a ConfigMap."""
        home = resources.files("trainium_eks")
        return {_key(module): home.joinpath(_path(module)).read_text(encoding="utf-8") for module in self.modules}

    def volume(self, config_map: str) -> k8s.core.v1.VolumeArgs:
        """Return the volume that :meth:`container` mounts, with the modules of a ConfigMap."""
        items = [
            k8s.core.v1.KeyToPathArgs(key=_key(module), path=f"trainium_eks/{_path(module)}") for module in self.modules
        ]
        return k8s.core.v1.VolumeArgs(
            name="code", config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(name=config_map, items=items)
        )

    def container(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        env: Sequence[k8s.core.v1.EnvVarArgs] = (),
        mounts: Sequence[k8s.core.v1.VolumeMountArgs] = (),
        readiness: k8s.core.v1.ProbeArgs | None = None,
    ) -> k8s.core.v1.ContainerArgs:
        """Return a container with Python that runs the program.

        Args:
            name: of the container.
            arguments: of the program.
            env: variables besides Python's own.
            mounts: of volumes besides the code.
            readiness: how to find out whether it is ready; None for as soon as it runs.
        """
        return container(
            name,
            versions.IMAGES["python"],
            ["python", "-m", f"trainium_eks.{self.modules[0]}", *arguments],
            env=[
                k8s.core.v1.EnvVarArgs(name="PYTHONPATH", value=CODE),
                k8s.core.v1.EnvVarArgs(name="PYTHONDONTWRITEBYTECODE", value="1"),
                *env,
            ],
            mounts=[k8s.core.v1.VolumeMountArgs(name="code", mount_path=CODE, read_only=True), *mounts],
            readiness=readiness,
        )


def _key(module: str) -> str:
    return f"{module.rpartition('.')[2]}.py"


def _path(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def container(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    env: Sequence[k8s.core.v1.EnvVarArgs],
    mounts: Sequence[k8s.core.v1.VolumeMountArgs],
    readiness: k8s.core.v1.ProbeArgs | None = None,
) -> k8s.core.v1.ContainerArgs:
    """Return a small container without privileges or a writable root."""
    return k8s.core.v1.ContainerArgs(
        name=name,
        image=image,
        command=[*command],
        env=[*env],
        resources=k8s.core.v1.ResourceRequirementsArgs(
            requests={"cpu": "50m", "memory": "128Mi"}, limits={"cpu": "500m", "memory": "512Mi"}
        ),
        security_context=k8s.core.v1.SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"]),
        ),
        volume_mounts=[*mounts],
        readiness_probe=readiness,
    )


def unprivileged() -> k8s.core.v1.PodSecurityContextArgs:
    """Return the security context of a pod that runs as an unprivileged user (65534)."""
    return k8s.core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=NOBODY,
        run_as_group=NOBODY,
        fs_group=NOBODY,
        seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def controller(
    logical_name: str,
    program: Program,
    arguments: Sequence[str],
    *,
    name: str,
    namespace: str,
    env: Sequence[k8s.core.v1.EnvVarArgs] = (),
    priority: str | None = None,
    home: k8s.core.v1.Namespace,
    after: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> None:
    """Make the Deployment of a controller, with its code.

    Args:
        logical_name: Pulumi's name of the ConfigMap and of the Deployment.
        program: of the controller.
        arguments: of the program, besides ``--account`` and ``--ready``.
        name: of the ConfigMap, of the Deployment and of the service account that exists.
        namespace: of all three.
        env: variables of the container.
        priority: priority class of the pod; None for the default.
        home: the namespace.
        after: resources that the Deployment waits for.
        parent: of both resources.
    """
    metadata = k8s.meta.v1.ObjectMetaArgs(name=name, namespace=namespace)
    inside = pulumi.ResourceOptions(parent=parent, depends_on=[home], deleted_with=home)
    sources = program.sources()
    code = k8s.core.v1.ConfigMap(logical_name, metadata=metadata, data=sources, opts=inside)
    digest = hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()
    selected = {"app": name}
    asked = k8s.core.v1.ExecActionArgs(command=["test", "-f", READY])
    pod = k8s.core.v1.PodSpecArgs(
        service_account_name=name,
        enable_service_links=False,
        priority_class_name=priority,
        security_context=unprivileged(),
        containers=[
            program.container(
                program.name,
                # Paths are arguments: on a local cloud without namespaces these alone are rewritten.
                ["--account", ACCOUNT, "--ready", READY, *arguments],
                env=env,
                mounts=[k8s.core.v1.VolumeMountArgs(name="ready", mount_path=READY.rpartition("/")[0])],
                readiness=k8s.core.v1.ProbeArgs(exec_=asked, period_seconds=2),
            )
        ],
        volumes=[
            program.volume(name),
            k8s.core.v1.VolumeArgs(name="ready", empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit="1Mi")),
        ],
    )
    k8s.apps.v1.Deployment(
        logical_name,
        metadata=metadata,
        spec=k8s.apps.v1.DeploymentSpecArgs(
            replicas=1,
            # Of two releases of this library at once, one would undo the other's work.
            strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
            selector=k8s.meta.v1.LabelSelectorArgs(match_labels=selected),
            template=k8s.core.v1.PodTemplateSpecArgs(
                # A pod does not restart when its ConfigMap changes.
                metadata=k8s.meta.v1.ObjectMetaArgs(labels=selected, annotations={"trainium-eks/code": digest}),
                spec=pod,
            ),
        ),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[home, *after, code], deleted_with=home),
    )


def grant(
    logical_name: str,
    role: str,
    rules: Rules,
    *,
    subject: k8s.rbac.v1.SubjectArgs,
    account: k8s.core.v1.ServiceAccount,
    parent: pulumi.Resource,
    namespace: str | None = None,
    after: Sequence[pulumi.Resource] = (),
) -> pulumi.Resource:
    """Give a service account rights, and return the binding.

    Args:
        logical_name: Pulumi's name of the role and of its binding.
        role: their name in the cluster.
        rules: API group, resources and verbs of each right.
        subject: the service account as bindings name it.
        account: the service account.
        parent: of both resources.
        namespace: in which it has the rights; None for the whole cluster.
        after: resources that the role waits for.
    """
    metadata = k8s.meta.v1.ObjectMetaArgs(name=role, namespace=namespace)
    rbac, kind = k8s.rbac.v1, "ClusterRole" if namespace is None else "Role"
    make_role: Callable[..., pulumi.Resource] = rbac.ClusterRole if namespace is None else rbac.Role
    bind: Callable[..., pulumi.Resource] = rbac.ClusterRoleBinding if namespace is None else rbac.RoleBinding
    opts = pulumi.ResourceOptions(parent=parent, depends_on=[*after])
    made = make_role(logical_name, metadata=metadata, rules=role_rules(rules), opts=opts)
    return bind(
        logical_name,
        metadata=metadata,
        role_ref=rbac.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=role),
        subjects=[subject],
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[made, account]),
    )
