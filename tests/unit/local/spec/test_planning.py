"""From a pod's object to what its shim runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainium_eks.local.images.images import LocalImage
from trainium_eks.local.spec import environment, hosts, planning, volumes
from trainium_eks.local.spec.hosts import Host
from trainium_eks.local.spec.known import PlanInputs, UnmetError
from trainium_eks.local.spec.plan import Isolation, Mount, PodDirectory, RestartPolicy

PLACE = Path("/s/pods/u")
IMAGE = LocalImage("python", "0123456789ab", Path("/cache/python"), has_torch=False)


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    first = {"name": "c", "image": "local/python", "command": ["run"], **(container or {})}
    metadata = {"name": "p", "namespace": "team", "uid": "u", "labels": {"app": "x", "a": 'quo"te'}}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": [first], **spec}}


def known(**changes: Any) -> PlanInputs:
    node = {"status": {"addresses": [{"type": "InternalIP", "address": "100.64.0.9"}], "allocatable": {"cpu": "8"}}}
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


def variables(container: dict[str, Any], **changes: Any) -> dict[str, str]:
    body = pod(container)
    return environment.variables(body, body["spec"]["containers"][0], known(**changes))


# --- Variables ---


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(NONE) $A ${A}", "$(NONE) $A ${A}"),
        ("$(A)-$(A)", "1-1"),
        ("$(A", "$(A"),
    ],
)
def test_references_are_replaced(text: str, made: str) -> None:
    assert environment.expanded(text, {"A": "1"}) == made
    # A variable sees those before it.
    env = [{"name": "B", "value": text}, {"name": "A", "value": "1"}, {"name": "C", "value": text}]
    found = variables({"env": env})
    assert (found["B"], found["C"]) == (text.replace("$$", "$"), made)


def test_services_are_told_of_as_links() -> None:
    ports = [{"name": "web", "port": 80, "protocol": "TCP"}, {"name": "x-y", "port": 81, "protocol": "UDP"}]
    service = {"metadata": {"name": "my-db", "namespace": "team"}, "spec": {"clusterIP": "10.1.1.1", "ports": ports}}
    headless = {"metadata": {"name": "job", "namespace": "team"}, "spec": {"clusterIP": "None", "ports": ports}}
    made = variables({}, services=(service, headless))
    assert made["MY_DB_SERVICE_HOST"] == "10.1.1.1"
    assert (made["MY_DB_SERVICE_PORT"], made["MY_DB_SERVICE_PORT_X_Y"]) == ("80", "81")
    assert made["MY_DB_PORT_81_UDP"] == "udp://10.1.1.1:81"
    assert made["KUBERNETES_SERVICE_HOST"] == "100.127.0.1"
    assert not any(name.startswith("JOB_") for name in made)


def test_fields_are_written_as_the_downward_api_does_and_an_address_is_one_at_which_the_pod_is_reached() -> None:
    assert environment.field_value("metadata.labels", pod(), known()) == 'a="quo\\"te"\napp="x"'
    assert environment.field_value("metadata.labels['none']", pod(), known()) == ""
    assert environment.field_value("status.hostIP", pod(), known()) == "100.64.0.9"
    for isolation, address in ((Isolation.NET, "100.127.0.2"), (Isolation.NS, "127.0.0.1")):
        assert environment.field_value("status.podIP", pod(), known(isolation=isolation)) == address


@pytest.mark.parametrize(
    ("limits", "reference", "value"),
    [
        ({"cpu": "1500m"}, {"resource": "limits.cpu"}, "2"),
        ({"cpu": "1500m"}, {"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({}, {"resource": "limits.cpu"}, "8"),
        ({"memory": "1Gi"}, {"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({}, {"resource": "requests.memory"}, "0"),
    ],
)
def test_resources_are_counted_in_units_and_rounded_up(
    limits: dict[str, str], reference: dict[str, str], value: str
) -> None:
    body = pod({"resources": {"limits": limits}})
    assert environment.resource_value(reference, body, body["spec"]["containers"][0], known()) == value


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "k"}}, 'configmap "none" not found'),
        ({"configMapKeyRef": {"name": "m", "key": "z"}}, "couldn't find key z in Configmap m"),
        ({"secretKeyRef": {"name": "none", "key": "k"}}, 'secret "none" not found'),
        ({"fieldRef": {"fieldPath": "spec.hostname"}}, "unsupported pod field: spec.hostname"),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], why: str) -> None:
    with pytest.raises(UnmetError, match=why) as raised:
        variables({"env": [{"name": "A", "valueFrom": source}]})
    assert raised.value.reason == "CreateContainerConfigError"


# --- The whole plan ---


def test_a_plan_has_all_that_is_run() -> None:
    body = pod(
        {"args": ["$(A)"], "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"memory": "1Gi"}}},
        restartPolicy="OnFailure",
        terminationGracePeriodSeconds=0,
        hostname="h",
    )
    plan = planning.planned(body, known()).plan
    (container,) = plan.containers
    assert container.argv == ("run", "1")
    assert container.environment["PATH"].startswith("/cache/python/bin:")
    assert container.environment["PYTHONPATH"] == "/repo/workloads"
    assert container.environment["https_proxy"] == "http://100.127.0.1:3128"
    assert (container.restart, container.memory_bytes, container.directory) == (RestartPolicy.ON_FAILURE, 2**30, "/")
    assert (plan.hostname, plan.grace_seconds, plan.network_pid) == ("h", 0.0, 7)


def test_only_pods_with_local_images_alone_are_run_here_and_the_command_that_makes_a_missing_one_is_said() -> None:
    assert planning.is_ours(pod())
    assert not planning.is_ours(pod({"image": "python"}))
    assert not planning.is_ours(pod(initContainers=[{"name": "i", "image": "busybox"}]))
    with pytest.raises(UnmetError, match="trn local images make torch") as raised:
        planning.planned(pod({"image": "local/torch"}), known())
    assert (raised.value.reason, raised.value.container) == ("ErrImageNeverPull", "c")


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ({"command": []}, "no command specified"),
        ({"livenessProbe": {"grpc": {"port": 1}}}, "gRPC"),
        ({"livenessProbe": {"tcpSocket": {"port": "web"}}}, "no port of the container is called 'web'"),
    ],
)
def test_what_cannot_be_done_is_said(container: dict[str, Any], why: str) -> None:
    with pytest.raises(UnmetError, match=why):
        planning.planned(pod(container), known())


def test_a_pod_without_namespaces_has_the_machines_paths_and_addresses() -> None:
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
    assert container.liveness is not None
    assert container.liveness.action.command == ("test", "-e", f"{data}/y")
    assert "http_proxy" not in container.environment


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("/data", "/m"),
        ("/data/x", "/m/x"),
        ("a=/data:/data/y", "a=/m:/m/y"),
        ("/data2 /x/data ./data /data-x", "/data2 /x/data ./data /data-x"),
        ("p-1.job:80 xp-1.job p-1.job2 p-1.job.x", "127.0.0.1:80 xp-1.job p-1.job2 p-1.job.x"),
    ],
)
def test_only_whole_paths_and_names_are_replaced(text: str, made: str) -> None:
    assert planning.rewritten(text, [Mount("/m", "/data")], ["p-1.job"]) == made


# --- Volumes ---


def found(*listed: dict[str, Any], **changes: Any) -> dict[str, volumes.Volume]:
    return volumes.volumes(pod(volumes=list(listed)), known(**changes))


def test_files_of_volumes_have_content_place_and_mode() -> None:
    listed = found(
        {"name": "m", "configMap": {"name": "m", "items": [{"key": "k", "path": "d/f", "mode": 0o600}]}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {
            "name": "t",
            "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "m"}}]},
        },
        {"name": "o", "configMap": {"name": "none", "optional": True}},
        tokens={"t": {"token": "abc"}},
    )
    assert listed["o"].files == ()
    assert listed["m"].files == (volumes.File(PLACE / "volumes/m/d/f", b"v", 0o600),)
    assert listed["s"].files == (volumes.File(PLACE / "volumes/s/k", b"secret", 0o400),)
    assert [(each.path.name, each.content) for each in listed["t"].files] == [
        ("token", b"abc"),
        ("k", b"v"),
        ("l", b"w"),
    ]


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}}, "non-existent config key: z"),
        ({"nfs": {"server": "x", "path": "/"}}, "no volumes of the kind nfs"),
        ({"hostPath": {"path": "/no/such"}}, "there is no /no/such"),
    ],
)
def test_volumes_that_are_not_there_are_named(volume: dict[str, Any], why: str) -> None:
    with pytest.raises(UnmetError, match=why):
        found({"name": "v", **volume})


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc", "$(NONE)"])
def test_a_part_of_a_volume_is_in_the_volume(path: str) -> None:
    listed = found({"name": "v", "emptyDir": {}})
    with pytest.raises(UnmetError, match="must be a path in the volume"):
        volumes.mounts({"volumeMounts": [{"name": "v", "mountPath": "/x", "subPathExpr": path}]}, listed, {})


def test_what_a_pod_names_is_asked_for() -> None:
    body = pod(
        {
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "m1"}}],
        },
        initContainers=[{"name": "i", "image": "local/python", "envFrom": [{"secretRef": {"name": "s2"}}]}],
        volumes=[
            {"name": "a", "configMap": {"name": "m2"}},
            {
                "name": "b",
                "projected": {"sources": [{"secret": {"name": "s3"}}, {"serviceAccountToken": {"path": "t"}}]},
            },
        ],
    )
    named = volumes.references(body)
    assert (named.config_maps, named.secrets) == (("m1", "m2"), ("s1", "s2", "s3"))
    assert named.tokens == (volumes.TokenRequest("b", "t", "", 3600),)


# --- Names ---


def test_names_lead_to_pods() -> None:
    own = Host("team", "p-0", "job", {"app": "x"}, "100.127.0.2", ready=True)
    peer = Host("team", "p-1", "job", {"app": "x"}, "100.127.0.3", ready=False)
    other = Host("else", "q", "sub", {"app": "x"}, "100.127.0.4", ready=True)
    service = {"metadata": {"name": "web", "namespace": "team"}, "spec": {"selector": {"app": "x"}}}
    lines = hosts.text(own, [own, peer, other], [service]).splitlines()
    assert "100.127.0.2 p-0.job.team.svc.cluster.local p-0.job.team.svc p-0.job.team p-0.job p-0" in lines
    assert "100.127.0.3 p-1.job.team.svc.cluster.local p-1.job.team.svc p-1.job.team p-1.job" in lines
    assert "100.127.0.4 q.sub.else.svc.cluster.local q.sub.else.svc q.sub.else" in lines
    assert [line.split()[0] for line in lines if " web.team " in f"{line} "] == ["100.127.0.2"], "the peer is not ready"
