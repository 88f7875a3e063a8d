"""What a pod with a local image finds within: variables, volumes, names, other containers; and probes."""

import functools
import http.server
import shlex
import subprocess
import sys
import threading

import pytest
from local_project import ROOT
from manifests import claim, manifest, volume
from running_pods import ENDLESS, TOLD, condition, go_on, phase, state, status
from waiting import SECONDS

from trainium_eks.local.runtime import exec_command
from trainium_eks.local.spec.plan import Isolation


@pytest.fixture
def is_apart(isolation):
    return isolation is not Isolation.PLAIN


def mounts(*pairs, **more):
    return [{"name": name, "mountPath": path, **more} for name, path in pairs]


def test_pods_python_is_the_images_with_the_workloads(pods):
    code = "import sys, trainium_workloads; print(sys.version_info[:2], 'images/python-' in sys.prefix)"
    assert pods.outcome(f"python -c {shlex.quote(code)}") == f"{sys.version_info[:2]} True\n"


def test_volumes_are_mounted_at_their_paths(pods, is_apart):
    pods.api.create(manifest("ConfigMap", "files", pods.namespace, data={"a.txt": "one", "b.txt": "two"}))
    pods.api.create(manifest("Secret", "hidden", pods.namespace, stringData={"password": "x"}))
    items = [{"key": "b.txt", "path": "deep/c.txt"}]
    volumes = [
        {"name": "all", "configMap": {"name": "files"}},
        {"name": "some", "configMap": {"name": "files", "items": items}},
        {"name": "secret", "secret": {"secretName": "hidden", "defaultMode": 0o400}},
        {"name": "labels", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounted = [
        *mounts(("all", "/etc/all"), ("some", "/opt/some"), ("secret", "/etc/secret"), ("labels", "/labels")),
        *mounts(("memory", "/dev/shm"), ("scratch", "/scratch")),
        *mounts(("all", "/srv/one.txt"), subPath="a.txt"),
        *mounts(("scratch", "/below"), subPath="below"),
        *mounts(("scratch", "/readable"), readOnly=True),
    ]
    script = (
        "cat /etc/all/a.txt /etc/all/b.txt /opt/some/deep/c.txt /srv/one.txt /etc/secret/password; echo; cat /labels/l;"
        "echo; echo x > /below/x && ls /scratch/below /readable/below; echo y > /dev/shm/y && cat /dev/shm/y"
    )
    if is_apart:
        script += "; touch /readable/z /etc/all/z 2>&1 | grep -c Read-only; df -k /dev/shm | awk 'END {print $2}'"
    name = pods.make(script, spec={"volumes": volumes}, volumeMounts=mounted)
    pods.ended(name)
    lines = pods.log(name).splitlines()
    assert lines[:2] == ["onetwotwoonex", f'app="{name}"']
    assert [line for line in lines if line in ("x", "y")] == ["x", "x", "y"]
    if is_apart:
        assert lines[-2:] == ["2", "8192"]


@pytest.fixture
def data(pods, paths):
    held = volume(pods.namespace)
    pods.api.create(held)
    pods.api.create(claim("data", pods.namespace, volumeName=pods.namespace))
    yield paths.claims / pods.namespace / "data"
    pods.api.delete(pods.api.reference(held))


CLAIM = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "emptyDir": {}}]}


def test_a_claim_is_one_directory_for_all_pods_of_the_namespace(pods, data):
    script = "until [ -e /data/x/y ]; do sleep 0.1; done; cat /data/x/y"
    reads = pods.make(script, spec=CLAIM, volumeMounts=mounts(("d", "/data")))
    out = mounts(("d", "/out"), subPathExpr="$(WHERE)")
    writes = pods.make("echo hello > /out/y", spec=CLAIM, volumeMounts=out, env=[{"name": "WHERE", "value": "x"}])
    assert [phase(pods.ended(each)) for each in (writes, reads)] == ["Succeeded"] * 2
    assert pods.log(reads) == "hello\n"
    assert (data / "x" / "y").read_text() == "hello\n"


def test_symlink_in_a_claim_cannot_leave_it(pods, data, tmp_path):
    (tmp_path / "secret").write_text("secret")
    data.mkdir(parents=True, exist_ok=True)
    (data / "link").symlink_to(tmp_path)
    script = "cat /out/secret; echo bad > /out/bad"
    for mount in ({"subPath": "link"}, {"subPath": "link/deep"}, {"subPathExpr": "$(WHERE)"}):
        env = [{"name": "WHERE", "value": "link/."}]
        name = pods.make(script, spec=CLAIM, env=env, volumeMounts=mounts(("d", "/out"), **mount))
        pod = pods.when(name, lambda pod: (state(pod).get("waiting") or {}).get("message"))
        assert state(pod)["waiting"]["reason"] == "CreateContainerConfigError"
        assert "a link leads out of it" in state(pod)["waiting"]["message"]
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_symlink_in_a_claim_cannot_mount_over_the_machine(pods, data, tmp_path, is_apart):
    """A link is taken as the container sees it, and what is made for a mount is made in the container's root."""
    if not is_apart:
        pytest.skip("pods are not kept apart from the machine's files here")
    data.mkdir(parents=True)
    (data / "link").symlink_to(tmp_path)
    mounted = [*mounts(("d", "/data")), *mounts(("e", "/data/link/new"), readOnly=True)]
    pod = pods.ended(pods.make("true", spec=CLAIM, volumeMounts=mounted))
    assert (phase(pod), state(pod)["terminated"]["reason"]) == ("Failed", "StartError")
    assert not (tmp_path / "new").exists()


def test_service_account_token_is_mounted_and_accepted(pods):
    code = (
        "import json, os, ssl, urllib.request as u\n"
        "d = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "c = ssl.create_default_context(cafile=d + 'ca.crt')\n"
        "r = u.Request('https://%s:%s/apis/authentication.k8s.io/v1/selfsubjectreviews'\n"
        "  % (os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT']),\n"
        '  data=b\'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}\',\n'
        "  headers={'Authorization': 'Bearer ' + open(d + 'token').read(), 'Content-Type': 'application/json'})\n"
        "print(json.load(u.urlopen(r, context=c))['status']['userInfo']['username'], open(d + 'namespace').read())\n"
    )
    log = pods.outcome(f"python -c {shlex.quote(code)}")
    assert log == f"system:serviceaccount:{pods.namespace}:default {pods.namespace}\n"


def test_init_containers_come_first_one_after_the_other(pods):
    mount = {"image": "local/python", "volumeMounts": mounts(("v", "/v"))}

    def container(name, script, **more):
        return {"name": name, "command": ["sh", "-c", script], **mount, **more}

    def after(line):
        return f"until grep -qx {line} /v/order; do sleep 0.1; done"

    spec = {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "initContainers": [
            container("first", "echo first >> /v/order"),
            container("second", "echo second >> /v/order"),
        ],
        "containers": [
            container("a", f"echo a >> /v/order; {after('b')}; cat /v/order"),
            container("b", f"{after('a')}; echo b >> /v/order"),
        ],
    }
    name = pods.make(spec=spec)
    pod = pods.ended(name)
    assert phase(pod) == "Succeeded"
    assert pods.log(name, container="a").split() == ["first", "second", "a", "b"]
    init = pod["status"]["initContainerStatuses"]
    assert [each["state"]["terminated"]["exitCode"] for each in init] == [0, 0]
    assert condition(pod, "Initialized") == "True"


def test_probes_decide_readiness_and_restarts(pods, paths):
    serve = "mkdir -p www && cd www && echo ok > ok && python -m http.server 8080"
    often = {"periodSeconds": 1, "timeoutSeconds": 30}
    ready = pods.make(
        f"{TOLD}; {serve}",
        readinessProbe={"httpGet": {"path": "/ok", "port": "web"}, "initialDelaySeconds": 1, **often},
        startupProbe={"tcpSocket": {"port": 8080}, "failureThreshold": ENDLESS, **often},
        ports=[{"name": "web", "containerPort": 8080}],
    )
    sick = pods.make(
        f'well="${{TMPDIR:-/tmp}}/well"; touch "$well"; sleep 1.5; rm "$well"; sleep {ENDLESS}',
        spec={"restartPolicy": "Always"},
        livenessProbe={
            "exec": {"command": ["sh", "-c", "test -e ${TMPDIR:-/tmp}/well"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
            "terminationGracePeriodSeconds": 1,
            "initialDelaySeconds": 1,
        },
    )
    waits = pods.running(ready)
    assert condition(waits, "Ready") == "False"
    go_on(paths, waits)
    pods.when(ready, lambda pod: condition(pod, "Ready") == "True" and status(pod)["started"])
    pod = pods.when(sick, lambda pod: status(pod).get("restartCount"))
    assert status(pod)["lastState"]["terminated"]["exitCode"] in (137, 143)
    assert "liveness probe failed" in status(pod)["lastState"]["terminated"]["message"]


def test_pre_stop_hook_runs_before_sigterm(pods):
    script = "trap 'cat /v/hook; echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    name = pods.make(
        script,
        spec={"terminationGracePeriodSeconds": ENDLESS, "volumes": [{"name": "v", "emptyDir": {}}]},
        volumeMounts=mounts(("v", "/v")),
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "sleep 0.5; echo hook > /v/hook"]}}},
    )
    pods.await_log(name, "ready")
    follow = pods.followed(name)
    assert next(follow) == "ready"
    pods.delete(name)
    assert list(follow) == ["hook", "asked"]


def test_termination_message_and_deadline_are_in_the_pods_status(pods):
    told = pods.make("echo because > /dev/termination-log; exit 1")
    log = pods.make("echo reason; exit 1", terminationMessagePolicy="FallbackToLogsOnError")
    long = pods.make(f"sleep {ENDLESS}", spec={"activeDeadlineSeconds": 1})
    assert state(pods.ended(told))["terminated"]["message"] == "because\n"
    assert state(pods.ended(log))["terminated"]["message"] == "reason"
    pod = pods.ended(long)
    assert (phase(pod), pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_pods_of_a_headless_service_find_each_other(pods, is_apart):
    """As Volcano's plugin `svc` has it: host name and subdomain, and a service without an address."""
    headless = {"clusterIP": "None", "selector": {"app": "one"}, "publishNotReadyAddresses": True}
    pods.api.create(manifest("Service", "job", pods.namespace, spec=headless))
    port = 29555
    listen = (
        f"import socket, time; s = socket.create_server(('', {port})); print('up', flush=True); "
        f"s.accept()[0].sendall(b'hello'); time.sleep({ENDLESS})"
    )
    connect = (
        "import socket, sys, time\n"
        "for _ in range(1000):\n"
        f"  try: s = socket.create_connection((sys.argv[1], {port})); print(s.recv(9).decode()); break\n"
        "  except OSError: time.sleep(0.1)\n"
    )
    spec = {"subdomain": "job"}
    pods.make(f"exec python -c {shlex.quote(listen)}", name="one", spec={**spec, "hostname": "one"})
    pods.await_log("one", "up")
    # Volcano tells the names; without namespaces that is how they are known.
    env = [{"name": "VC_TASK_HOSTS", "value": "one.job"}]
    other = pods.make(f"python -c {shlex.quote(connect)} ${{VC_TASK_HOSTS}}", spec=spec, env=env)
    assert phase(pods.ended(other)) == "Succeeded"
    assert pods.log(other) == "hello\n"
    if is_apart:
        names = f"one.job.{pods.namespace}.svc.cluster.local job"
        log = pods.outcome(f"hostname; for n in {names}; do getent hosts $n; done", name="three")
        assert log.splitlines()[0] == "three"


def test_command_runs_in_a_pod_and_kubectl_exec_names_the_alternative(pods, paths, binaries):
    name = pods.make(f"echo $$ > /tmp/x; sleep {ENDLESS}", env=[{"name": "A", "value": "b"}])
    pods.running(name)
    place = exec_command.find(paths, f"pod/{name}", None, None)
    assert place.container.name == "c"
    code = (
        "import sys; from pathlib import Path; from trainium_eks.local.runtime import exec_command; "
        "from trainium_eks.local.paths import Paths; "
        "sys.exit(exec_command.run(exec_command.find(Paths(Path(sys.argv[1])), sys.argv[2], None, 'c'), sys.argv[3:]))"
    )

    def run(*command):
        whole = [sys.executable, "-c", code, str(paths.root), name, *command]
        how = {"cwd": ROOT, "input": "typed", "timeout": SECONDS}
        return subprocess.run(whole, capture_output=True, text=True, check=False, **how)

    done = run("sh", "-c", 'echo "$A"; cat; exit 7')
    assert (done.stdout, done.returncode) == ("b\ntyped", 7), done.stderr
    assert run("sh", "-c", "kill -9 $$").returncode == 137
    missing = run("no-such")
    assert (missing.returncode, "executable file not found" in missing.stderr) == (126, True)
    command = [binaries["kubectl"], f"--kubeconfig={paths.kubeconfig}", f"--namespace={pods.namespace}"]
    done = subprocess.run([*command, "exec", name, "--", "ls"], capture_output=True, text=True, check=False)
    assert (done.returncode != 0, "trn local exec POD -- command" in done.stderr) == (True, True)


def test_pod_reaches_the_machines_servers_and_its_own(pods, tmp_path):
    (tmp_path / "here").write_text("machine")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = (
            "import http.server, os, sys, threading, urllib.request as u\n"
            "os.chdir(os.environ.get('TMPDIR', '/tmp')); open('own', 'w').write('pod')\n"
            "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
            "threading.Thread(target=s.serve_forever, daemon=True).start()\n"
            "print(u.urlopen(f'http://127.0.0.1:{sys.argv[1]}/here').read().decode())\n"
            "print(u.urlopen(f'http://localhost:{s.server_port}/own').read().decode())\n"
        )
        log = pods.outcome(f"python -c {shlex.quote(code)} {server.server_port} 2>/dev/null")
        server.shutdown()
    assert log == "machine\npod\n"


def test_machines_files_are_read_only_in_a_pod(pods, is_apart):
    if not is_apart:
        pytest.skip("pods are not kept apart from the machine's files here")
    refused = "touch /usr/x /etc/x /root/x 2>&1 | grep -cE 'Read-only|denied'"  # /root is closed to an ordinary user
    log = pods.outcome(f"{refused}; touch /x /tmp/x && echo own; id -u")
    assert log.split() == ["3", "own", "0"]
