"""Validation of pod templates by the checks that the API server makes on pods.

Pod Security and the admission plugins for service accounts, priorities and runtime classes check pods alone. Volcano's
controllers retry each refused pod 15 times and again with every event, for all pods of a job: 164 jobs of 164 such pods
keep them busy for half an hour, and delay the jobs of all teams (decision 78).
"""

from collections.abc import Iterator

from trainium_eks.model.policies.admission_terms import Validation, listed, names, text

CONTAINERS = f"({listed('spec', 'containers')} + {listed('spec', 'initContainers')})"
"""Expression for all containers of a ``spec``."""

CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
"""Capabilities that containers may add at the baseline level (Kubernetes, Pod Security Standards)."""

SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
)
"""Kernel parameters that pods may set at that level."""

SELINUX_TYPES = ("", "container_engine_t", "container_init_t", "container_kvm_t", "container_t")
"""SELinux types that containers may have at that level."""

APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
"""Prefix of the annotations that name a container's AppArmor profile, from before Kubernetes 1.30."""

GIVEN = ("overhead", "preemptionPolicy", "priority")
"""Fields of a pod that the API server sets, from its priority class and its runtime class. It refuses a pod that comes
with another value, so templates leave them out."""


def validations() -> Iterator[Validation]:
    """Yield the validations of templates, over ``variables.specs`` and ``variables.metadata``."""
    yield _privileges()
    yield _profiles()
    yield _hosts()
    given = " && ".join(f"!has(spec.{field})" for field in GIVEN)
    yield Validation(
        f"variables.specs.all(spec, {given})",
        f"the template of a pod must not set {', '.join(GIVEN)}: the API server sets them and refuses the pod; name a "
        "priorityClassName",
    )


def _privileges() -> Validation:
    shared = " && ".join(f"(!has(spec.{field}) || !spec.{field})" for field in ("hostNetwork", "hostPID", "hostIPC"))
    context = "container.securityContext"
    added = f"{context}.capabilities.add"
    return Validation(
        f"variables.specs.all(spec, {shared} && {CONTAINERS}.all(container, "
        "(!has(container.ports) || container.ports.all(port, !has(port.hostPort) || port.hostPort == 0)) && "
        f"(!has({context}) || ((!has({context}.privileged) || !{context}.privileged) && "
        f"(!has({context}.capabilities) || !has({added}) || {added}.all(one, one in {names(CAPABILITIES)}))))))",
        "the namespace's Pod Security level, baseline, allows no hostNetwork, hostPID, hostIPC or hostPort, no "
        f"privileged container, and of added capabilities {', '.join(CAPABILITIES)}",
    )


def _profiles() -> Validation:
    """Return the validation of profiles and kernel parameters in the security contexts of pods and containers."""
    sysctls = "spec.securityContext.sysctls"
    process = "container.securityContext.procMount"
    annotation = f'one.annotations.all(key, !key.startsWith("{APPARMOR_ANNOTATION}") || one.annotations[key] != '
    return Validation(
        "variables.specs.all(spec, (!has(spec.securityContext) || "
        f"({_confined('spec.securityContext')} && (!has({sysctls}) || "
        f"{sysctls}.all(one, one.name in {names(SYSCTLS)})))) && "
        f"{CONTAINERS}.all(container, !has(container.securityContext) || "
        f"({_confined('container.securityContext')} && (!has({process}) || {process} == 'Default')))) && "
        f'variables.metadata.all(one, !has(one.annotations) || {annotation}"unconfined"))',
        "the namespace's Pod Security level, baseline, allows no profile Unconfined (seccompProfile, appArmorProfile), "
        f"of seLinuxOptions the types {', '.join(filter(None, SELINUX_TYPES))} and neither user nor role, no "
        f"hostProcess, no procMount but Default, and of sysctls {', '.join(SYSCTLS)}",
    )


def _confined(context: str) -> str:
    """Return the expression for whether an existing security context leaves its container confined."""
    profiles = " && ".join(
        f"(!has({context}.{field}) || {context}.{field}.type != 'Unconfined')"
        for field in ("seccompProfile", "appArmorProfile")
    )
    options, windows = f"{context}.seLinuxOptions", f"{context}.windowsOptions"
    return (
        f"{profiles} && (!has({options}) || ({text(options, 'type')} in {names(SELINUX_TYPES)} && "
        f"{text(options, 'user')} == '' && {text(options, 'role')} == '')) && "
        f"(!has({windows}) || !has({windows}.hostProcess) || !{windows}.hostProcess)"
    )


def _hosts() -> Validation:
    """Return the validation of hosts in probes and hooks, which the kubelet calls from the node's network."""
    probes = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
    lifecycle = "!has(container.lifecycle) || "
    own = " && ".join(
        f"({lifecycle if '.' in probe else ''}!has(container.{probe}) || "
        + " && ".join(
            f"(!has(container.{probe}.{kind}) || {text(f'container.{probe}.{kind}', 'host')} == '')"
            for kind in ("httpGet", "tcpSocket")
        )
        + ")"
        for probe in probes
    )
    return Validation(
        f"variables.specs.all(spec, {CONTAINERS}.all(container, {own}))",
        "the namespace's Pod Security level, baseline, allows no host in probes and lifecycle hooks: leave it out, and "
        "the pod itself is asked",
    )
