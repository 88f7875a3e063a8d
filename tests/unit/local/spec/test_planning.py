"""From a pod's object to what its shim runs."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.spec import hosts, planning, volumes
from trainium_eks.local.spec.hosts import Host
from trainium_eks.local.spec.known import PlanInputs, UnmetError
from trainium_eks.local.spec.plan import Isolation, Mount, PodDirectory, PodPlan

PLACE = Path("/s/pods/u")
IMAGE = LocalImage("python", "0123456789ab", Path("/cache/python"), has_torch=False)


def pod(container=None, **spec):
    first = {"name": "c", "image": "local/python", "command": ["run"], **(container or {})}
    metadata = {"name": "p", "namespace": "team", "uid": "u", "labels": {"app": "x", "a": 'quo"te'}}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": [first], **spec}}


def known(**changes):
    addresses = [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "100.64.0.9"}]
    node = {"status": {"addresses": addresses, "allocatable": {"cpu": "8"}}}
    made = PlanInputs(
        directory=PodDirectory(PLACE),
        claims=Path("/s/claims/team"),
        isolation=Isolation.NET,
        address="100.127.0.2",
        node=node,
        config_maps={"m": {"kind": "ConfigMap", "data": {"k": "v", "l": "w"}}},
        secrets={"s": {"kind": "Secret", "data": {"k": "c2VjcmV0"}}},
        services=(),
        find_image=lambda name: IMAGE if name == "local/python" else None,
        workloads=Path("/repo/workloads"),
        api_server=("100.127.0.1", 6443),
        network_pid=7,
        proxy="http://100.127.0.1:3128",
    )
    return replace(made, **changes)


def test_ultraserver_pod_finds_the_neuron_drivers_files():
    start = "neuron.amazonaws.com/ultraserver"
    labels = {f"{start}-{name}-{size}": f"{name[0]}{size}" for name in ("server-id", "node-id") for size in (2, 4)}
    made = planning.planned(pod(), known(node={"metadata": {"labels": labels}}))
    assert made.plan.containers[0].environment["TRN_NEURON_SYSFS"] == "/run/neuron_device"
    assert (
        Mount(str(PLACE / "volumes/neuron-driver"), "/run/neuron_device", read_only=True)
        in made.plan.containers[0].mounts
    )
    assert {file.path.name: file.content for file in made.files}["server_id_4"] == b"s4\n"
    plain = planning.planned(pod(), known(node={"metadata": {"labels": labels}}, isolation=Isolation.PLAIN))
    assert plain.plan.containers[0].environment["TRN_NEURON_SYSFS"] == str(PLACE / "volumes/neuron-driver")


def test_container_plan_has_every_field_of_its_pod():
    ports = {"clusterIP": "10.0.0.5", "ports": [{"port": 80, "name": "http-web"}]}
    services = [
        {"metadata": {"name": name, "namespace": namespace}, "spec": {**ports, **changes}}
        for name, namespace, changes in (
            ("my-web", "team", {}),
            ("headless", "team", {"clusterIP": "None"}),
            ("elsewhere", "other", {}),
        )
    ]
    sources = {
        "HOST": {"fieldRef": {"fieldPath": "status.hostIP"}},
        "IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "LABELS": {"fieldRef": {"fieldPath": "metadata.labels"}},
        "CPUS": {"resourceFieldRef": {"resource": "limits.cpu"}},
        "MILLIS": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
        "MIB": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
        "ASKED": {"resourceFieldRef": {"resource": "requests.memory"}},
        "SIDES": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "side"}},
        "TOKEN": {"secretKeyRef": {"name": "s", "key": "k"}},
        "APP": {"fieldRef": {"fieldPath": "metadata.labels['app']"}},
        "NONE": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}},
    }
    body = pod(
        {"env": [*({"name": name, "valueFrom": source} for name, source in sources.items()),
                 {"name": "ALL", "value": "$(IP) $(S_k) $$(IP) $(UNKNOWN)"}], "args": ["$(MIB)"],
         "envFrom": [{"prefix": "S_", "secretRef": {"name": "s"}}],
         "resources": {"limits": {"memory": "1Gi", "cpu": "1500m"}},
         "terminationMessagePolicy": "FallbackToLogsOnError", "securityContext": {"readOnlyRootFilesystem": True},
         "ports": [{"name": "web", "containerPort": 8080}],
         "readinessProbe": {"httpGet": {"port": "web", "path": "/ok"}, "failureThreshold": 5},
         "volumeMounts": [{"name": "m", "mountPath": "/etc/m/"}]},
        volumes=[{"name": "m", "configMap": {"name": "m", "items": [{"key": "l", "path": "deep/l", "mode": 0o400}]}}],
        initContainers=[{"name": "side", "image": "local/python", "command": ["x"]}],
        terminationGracePeriodSeconds=0,
    )  # fmt: skip
    made = planning.planned(body, known(services=services))
    assert PodPlan.from_json(made.plan.to_json()) == made.plan
    assert (made.plan.grace_seconds, made.plan.network_pid) == (0, 7)
    assert [(str(file.path), file.content, file.mode) for file in made.files] == [
        ("/s/pods/u/volumes/m/deep/l", b"w", 0o400)
    ]
    (container,) = made.plan.containers
    wanted = {
        "HOST": "100.64.0.9",
        "IP": "100.127.0.2",
        "LABELS": 'a="quo\\"te"\napp="x"',
        "CPUS": "2",
        "MILLIS": "1500",
        "MIB": "1024",
        "ASKED": "0",
        "SIDES": "8",
        "S_k": "secret",
        "TOKEN": "secret",
        "APP": "x",
        "ALL": "100.127.0.2 secret $(IP) $(UNKNOWN)",
        "MY_WEB_SERVICE_HOST": "10.0.0.5",
        "MY_WEB_SERVICE_PORT_HTTP_WEB": "80",
        "KUBERNETES_SERVICE_HOST": "100.127.0.1",
        "http_proxy": "http://100.127.0.1:3128",
    }
    assert wanted.items() <= container.environment.items()
    assert not [name for name in container.environment if name.startswith(("HEADLESS", "ELSEWHERE", "NONE"))]
    assert container.argv == ("run", "1024")
    assert (container.read_only_root, container.message_from_log) == (True, True)
    own = ["/dev/termination-log", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"]
    assert [each.target for each in container.mounts if each.target not in sys.base_prefix] == [*own, "/etc/m"]
    assert container.mounts[-1].read_only, "Kubernetes makes its content"
    probe = container.readiness
    assert (probe.action.port, probe.action.http_path, probe.failure_threshold) == (8080, "/ok", 5)
    assert (probe.period_seconds, probe.timeout_seconds, probe.success_threshold) == (10, 1, 1)


def value_from(**source):
    return {"env": [{"name": "A", "valueFrom": source}]}


@pytest.mark.parametrize(
    ("container", "why"),
    [
        (value_from(configMapKeyRef={"name": "m", "key": "z"}), "couldn't find key z in Configmap m"),
        (value_from(secretKeyRef={"name": "none", "key": "k"}), 'secret "none" not found'),
        (value_from(fieldRef={"fieldPath": "spec.hostname"}), "unsupported pod field: spec.hostname"),
        ({"command": []}, "no command specified"),
        ({"restartPolicy": "Always"}, r"init containers with a restartPolicy"),
        ({"livenessProbe": {"grpc": {"port": 1}}}, "gRPC"),
        ({"livenessProbe": {"tcpSocket": {"port": "web"}}}, "no port of the container is called 'web'"),
    ],
)
def test_missing_or_unsupported_container_field_is_named(container, why):
    with pytest.raises(UnmetError, match=why) as raised:
        planning.planned(pod(container), known())
    assert raised.value.reason.startswith("CreateContainer")


def test_a_pod_without_namespaces_has_the_machines_paths_and_addresses():
    body = pod(
        {
            "command": ["sh", "-c", "run --out=/data/x /database --peers $HOSTS; cat '/data'"],
            "env": [{"name": "VC_T_HOSTS", "value": "p-0.job,p-1.job"}, {"name": "OUT", "value": "/data"}],
            "workingDir": "/data/w",
            "volumeMounts": [{"name": "d", "mountPath": "/data"}],
            "livenessProbe": {"exec": {"command": ["test", "-e", "/data/y"]}},
        },
        volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "k"}}],
    )
    (container,) = planning.planned(body, known(isolation=Isolation.PLAIN)).plan.containers
    data = "/s/claims/team/k"
    assert container.argv[2] == f"run --out={data}/x /database --peers $HOSTS; cat '{data}'"
    assert container.environment["VC_T_HOSTS"] == "127.0.0.1,127.0.0.1"
    assert (container.environment["OUT"], container.directory) == (data, f"{data}/w")
    assert container.liveness.action.command == ("test", "-e", f"{data}/y")
    assert "http_proxy" not in container.environment


def test_only_whole_paths_and_names_are_substituted():
    for text, made in (
        ("/data /data/x", "/m /m/x"),
        ("a=/data:/data/y", "a=/m:/m/y"),
        ("/data2 /x/data ./data /data-x", "/data2 /x/data ./data /data-x"),
        ("p-1.job:80 xp-1.job p-1.job2 p-1.job.x", "127.0.0.1:80 xp-1.job p-1.job2 p-1.job.x"),
    ):
        assert planning.rewritten(text, [Mount("/m", "/data")], ["p-1.job"]) == made


def found(*listed):
    return volumes.volumes(pod(volumes=list(listed)), known())


def test_missing_volume_is_named_and_a_subpath_cannot_leave_its_volume():
    for volume, why in (
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}}, "non-existent config key: z"),
        ({"nfs": {"server": "x", "path": "/"}}, "no volumes of the kind nfs"),
        ({"hostPath": {"path": "/no/such"}}, "there is no /no/such"),
    ):
        with pytest.raises(UnmetError, match=why):
            found({"name": "v", **volume})
    assert found({"name": "o", "configMap": {"name": "none", "optional": True}})["o"].files == ()
    listed = found({"name": "v", "emptyDir": {}})
    for path in ("../x", "a/../../x", "/etc", "$(NONE)"):
        with pytest.raises(UnmetError, match="must be a path in the volume"):
            volumes.mounts({"volumeMounts": [{"name": "v", "mountPath": "/x", "subPathExpr": path}]}, listed, {})


def test_hosts_file_resolves_pods_and_services():
    own = Host("team", "p-0", "job", {"app": "x"}, "100.127.0.2", ready=True)
    peer = Host("team", "p-1", "job", {"app": "x"}, "100.127.0.3", ready=False)
    other = Host("else", "q", "sub", {"app": "x"}, "100.127.0.4", ready=True)

    def service(name, namespace, **more):
        return {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": {"app": "x"}, **more}}

    services = [service("web", "team"), service("sub", "else"), service("job", "team", publishNotReadyAddresses=True)]
    lines = hosts.text(own, [own, peer, other], services).splitlines()
    assert "100.127.0.2 p-0.job.team.svc.cluster.local p-0.job.team.svc p-0.job.team p-0.job p-0" in lines
    assert "100.127.0.3 p-1.job.team.svc.cluster.local p-1.job.team.svc p-1.job.team p-1.job" in lines
    assert "100.127.0.4 q.sub.else.svc.cluster.local q.sub.else.svc q.sub.else" in lines
    assert [line.split()[0] for line in lines if " web.team " in f"{line} "] == ["100.127.0.2"], "the peer is not ready"
    for theirs in (service("job", "team", selector={"app": "chat"}), service("job", "else"), service("job", "team")):
        assert " p-1.job" not in hosts.text(own, [own, peer], [theirs]), "no service of the name selects the peer"
