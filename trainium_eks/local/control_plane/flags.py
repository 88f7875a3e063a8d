"""The command lines of the control plane. A process is restarted when its command line has changed."""

import os
from collections.abc import Mapping
from pathlib import Path

from trainium_eks.local.control_plane import credentials, kubelet, programs
from trainium_eks.local.paths import Paths

HOST = "127.0.0.1"

SERVICE_RANGE = "10.100.0.0/16"
"""Addresses of services where the cluster names none: one of the two ranges that EKS chooses from."""

ADMISSION_PLUGINS = ("ExtendedResourceToleration",)
"""Enabled beside the defaults. EKS has it: pods that ask for a device tolerate that device's taint."""

NODE_SELECTOR = "kwok.x-k8s.io/node=fake"
"""Annotation of the nodes that kwok simulates."""

STAGES = Path(__file__).with_name("kwok_stages.yaml")

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
"""Binaries that are run, in the order in which they are started; the pods' agent is Python, and comes last."""

PORTS = ("etcd", "etcd-peer", "kube-apiserver", kubelet.PORT)
"""Names of the listeners. Controller manager and scheduler do not listen: that is one port less to be taken."""

OPTIONAL_PORTS = (
    "vc-webhook-manager",
    *(f"{name}.healthz" for name in ("vc-webhook-manager", "vc-scheduler", "vc-controller-manager")),
    *(f"{name}.metrics" for name in ("vc-scheduler", "vc-controller-manager")),
    *("training-operator", "training-operator.healthz"),
)
"""Names of the listeners that not every stack has: where another program has taken a port, another one is chosen."""

LISTENING = (
    *("--listen", "--secure-port=", "--port=", "--healthz-address="),
    *("--webhook-server-port=", "--health-probe-bind-address="),
)
"""Beginnings of the arguments that end with a port on which the program listens."""


def commands(
    paths: Paths, binaries: Mapping[str, Path], ports: Mapping[str, int], service_range: str
) -> dict[str, list[str]]:
    """Return the command line of each process, in the order in which they are started."""
    server = f"https://{HOST}:{ports['kube-apiserver']}"
    arguments = {
        "etcd": _etcd(paths, ports),
        "kube-apiserver": _api_server(paths, ports, service_range),
        "kube-controller-manager": [*_CLIENT, *_controller_manager(paths)],
        # 1,000 nodes' pods at the default of 50 a second would take minutes.
        "kube-scheduler": [*_CLIENT, "--kube-api-qps=1000", "--kube-api-burst=2000"],
        "kwok": _KWOK,
    }
    for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
        arguments[name] = [
            f"--kubeconfig={credentials.kubeconfig(paths, name)}",
            f"--master={server}",
            *arguments[name],
        ]
    made = {name: [str(binaries[name]), *flags] for name, flags in arguments.items()}
    isolation = os.environ.get(programs.ISOLATION_VARIABLE) or "auto"
    listen = f"{HOST}:{ports[kubelet.PORT]}"
    made[programs.AGENT] = programs.agent_command(paths, server.removeprefix("https://"), listen, isolation)
    return made


def _etcd(paths: Paths, ports: Mapping[str, int]) -> list[str]:
    clients = f"https://{HOST}:{ports['etcd']}"
    peers = f"https://{HOST}:{ports['etcd-peer']}"
    tls = ("cert-file", "etcd.crt"), ("key-file", "etcd.key"), ("trusted-ca-file", "etcd-ca.crt")
    return [
        "--name=local",
        f"--data-dir={paths.etcd}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=local={peers}",
        *(f"--{flag}={paths.pki / file}" for flag, file in tls),
        "--client-cert-auth=true",
        *(f"--peer-{flag}={paths.pki / file}" for flag, file in tls),
        "--peer-client-cert-auth=true",
        # Killed processes lose nothing: written data is in the system's page cache. Only a machine that loses
        # power can lose the last seconds, and with them this stack, which the next `up` makes again.
        "--unsafe-no-fsync=true",
        "--log-level=warn",
    ]


def _api_server(paths: Paths, ports: Mapping[str, int], service_range: str) -> list[str]:
    return [
        f"--etcd-servers=https://{HOST}:{ports['etcd']}",
        f"--etcd-cafile={credentials.certificate(paths, 'etcd-ca')}",
        f"--etcd-certfile={credentials.certificate(paths, 'etcd-client')}",
        f"--etcd-keyfile={credentials.key(paths, 'etcd-client')}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={ports['kube-apiserver']}",
        f"--tls-cert-file={credentials.certificate(paths, 'kube-apiserver')}",
        f"--tls-private-key-file={credentials.key(paths, 'kube-apiserver')}",
        f"--client-ca-file={credentials.certificate(paths, 'ca')}",
        "--authorization-mode=Node,RBAC",
        f"--enable-admission-plugins={','.join(ADMISSION_PLUGINS)}",
        "--allow-privileged=true",  # as EKS: drivers' and device plugins' pods are
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={credentials.certificate(paths, credentials.SERVICE_ACCOUNT)}",
        f"--service-account-signing-key-file={credentials.key(paths, credentials.SERVICE_ACCOUNT)}",
        f"--service-cluster-ip-range={service_range}",
        # One server replaces all kubelets: no node has a separate port.
        f"--kubelet-preferred-address-types={kubelet.ADDRESS_TYPE}",
        f"--kubelet-port={ports[kubelet.PORT]}",
        f"--kubelet-certificate-authority={credentials.certificate(paths, 'ca')}",
        f"--kubelet-client-certificate={credentials.certificate(paths, kubelet.CLIENT)}",
        f"--kubelet-client-key={credentials.key(paths, kubelet.CLIENT)}",
        # Endpoints of the service `kubernetes` must not be loopback addresses, and no pod is there to use them.
        "--endpoint-reconciler-type=none",
        # How long `down` may take: open watches are cut.
        "--shutdown-delay-duration=0s",
        "--profiling=false",
    ]


def _controller_manager(paths: Paths) -> list[str]:
    return [
        "--controllers=*",
        f"--root-ca-file={credentials.certificate(paths, 'ca')}",
        f"--service-account-private-key-file={credentials.key(paths, credentials.SERVICE_ACCOUNT)}",
        f"--cluster-signing-cert-file={credentials.certificate(paths, 'ca')}",
        f"--cluster-signing-key-file={credentials.key(paths, 'ca')}",
        # Three of kwok's lease renewals may be late on a busy machine before a node counts as lost.
        "--node-monitor-grace-period=120s",
        # 1,000 nodes' DaemonSet pods at the default of 20 a second would take minutes.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


_CLIENT = ["--secure-port=0", "--leader-elect=false", "--profiling=false"]
_KWOK = [
    f"--config={STAGES}",
    # It listens nowhere: its own server has no authentication.
    "--server-address=",
    "--node-port=0",
    f"--manage-nodes-with-annotation-selector={NODE_SELECTOR}",
    # Renewed at a quarter of it.
    "--node-lease-duration-seconds=160",
]
