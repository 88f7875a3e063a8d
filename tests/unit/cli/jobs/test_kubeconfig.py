"""With whose rights a command asks the cluster: one order for all commands."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from cluster_snapshots import outputs
from command_lines import commands
from outcome import ends

from trainium_eks.cli.local import kubectl, target
from trainium_eks.client import kubeconfig_variable
from trainium_eks.client.failure import CommandError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.requests import Requests
from trainium_eks.local import toolchain
from trainium_eks.local.control_plane import researchers
from trainium_eks.local.paths import Paths

HERE, ELSEWHERE = "https://127.0.0.1:9", "https://other.example"
ARGUMENTS = {
    **dict.fromkeys(("cancel", "logs", "profile", "status", "tensorboard", "wait"), "x"),
    **dict.fromkeys(("doctor", "fabric", "jobs"), ""),
    "image push": "--in-cluster",
    "predict": "m in.csv --to out.csv",
    "scale": "ng1 1",
    "secret": "hf",
    "serve": "m",
    "stage": "https://example.com/x --to x",
    "train": "--example gradient-sum",
}
"""Each command that can be given a kubeconfig, and what else it must be given."""
ASKS_NO_CLUSTER_FIRST = {"doctor", "image push", "scale", "secret"}
"""Those that ask AWS or a person before the cluster."""


def document(user, server=HERE, namespace="", **cluster):
    context = {"cluster": "c", "user": user, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": user, "user": {"token": user}}],
        "contexts": [{"name": user, "context": context}],
        "current-context": user,
    }


@pytest.fixture
def files(tmp_path):
    """A kubeconfig of the stack's cluster for each user, one of another cluster, and the stack's outputs."""
    made = {name: tmp_path / name for name in ("option", "variable", "elsewhere", "outputs")}
    made["option"].write_text(yaml.safe_dump(document("option")))
    made["variable"].write_text(yaml.safe_dump(document("variable")))
    made["elsewhere"].write_text(yaml.safe_dump(document("elsewhere", ELSEWHERE)))
    known = outputs().model_dump(by_alias=True)
    made["outputs"].write_text(json.dumps({**known, "kubeconfig": json.dumps(document("own"))}))
    return made


@pytest.fixture
def asked(monkeypatch):
    """The users as which a cluster was asked. None answers."""
    found = []

    def connect(file):
        found.append(yaml.safe_load(file.read_text())["current-context"])
        raise ClusterError("nobody answers")

    monkeypatch.setattr(Requests, "connect", connect)
    return found


def test_every_command_with_a_kubeconfig_is_tested():
    taking = {" ".join(path) for path, each in commands() if any("--kubeconfig" in one.opts for one in each.params)}
    assert taking == ARGUMENTS.keys()


@pytest.mark.parametrize("command", sorted(ARGUMENTS.keys() - ASKS_NO_CLUSTER_FIRST))
def test_option_precedes_the_variable_and_the_stack(command, files, asked, trn, monkeypatch):
    words = [*command.split(), *ARGUMENTS[command].split(), "--outputs", files["outputs"]]
    trn(*words)
    monkeypatch.setenv("KUBECONFIG", str(files["elsewhere"]))
    assert f"leads to {ELSEWHERE}, which is not the cluster of" in " ".join(trn(*words).output.split())
    monkeypatch.setenv("KUBECONFIG", str(files["variable"]))
    trn(*words)
    trn(*words, "--kubeconfig", files["option"])
    assert asked == ["own", "own", "variable", "option"]


@pytest.fixture
def cloud(tmp_path, files, monkeypatch):
    """As much of a local cloud as a command looks at before it asks, with its administrator's kubeconfig."""
    paths = Paths(tmp_path / "cloud")
    paths.root.mkdir()
    paths.kubeconfig.parent.mkdir(exist_ok=True, parents=True)
    paths.kubeconfig.write_text(yaml.safe_dump(document("administrator")))
    paths.outputs.write_text(files["outputs"].read_text())
    report = {"schemaVersion": 1, "local": True, "notInstalled": [], "simulated": [], "realVolcano": False}
    paths.report.write_text(json.dumps({**report, "server": HERE, "kubernetes": "v1.35.0"}))

    def minted(_, namespace):
        file = tmp_path / f"minted-{namespace}"
        file.write_text(yaml.safe_dump(document(f"minted-{namespace}")))
        return file

    monkeypatch.setattr(researchers, "kubeconfig", minted)
    return paths


def test_local_kubeconfig_reuses_a_certificate_and_can_be_the_admins(cloud, files, asked, trn, monkeypatch):
    words = ("cancel", "x", "--namespace", "training", "--outputs", cloud.outputs)
    trn(*words)
    monkeypatch.setenv("KUBECONFIG", str(files["variable"]))
    trn(*words)
    assert asked == ["minted-training", "variable"]
    shown = yaml.safe_load(trn("kubeconfig", "--namespace", "training", "--outputs", cloud.outputs).output)
    assert shown["users"][0]["name"] == "variable"
    assert shown["contexts"][0]["context"]["namespace"] == "training"
    monkeypatch.setenv("KUBECONFIG", str(files["variable"]))
    shown = trn("kubeconfig", "--admin", "--outputs", cloud.outputs)
    assert yaml.safe_load(shown.output) == document("administrator")
    assert trn("kubeconfig", "--admin", "--path", "--outputs", cloud.outputs).output == f"{cloud.kubeconfig}\n"
    minted = trn("kubeconfig", "--namespace", "training", "--path", "--outputs", cloud.outputs).output
    assert yaml.safe_load(Path(minted.strip()).read_text()) == document("minted-training")
    refused = "--admin is for a local cloud, and this stack does not run here"
    ends(2, trn("kubeconfig", "--admin", "--outputs", files["outputs"]), refused)


def test_kubeconfig_of_a_deployed_stack_is_printed(files, trn):
    words = ("kubeconfig", "--outputs", files["outputs"])
    shown = yaml.safe_load(trn(*words).stdout)
    assert shown["contexts"][0]["context"]["namespace"] == "training"
    assert json.loads(trn(*words, "--json").stdout) == shown
    assert trn(*words, "--namespace", "trainign").exit_code == 2
    known = json.loads(files["outputs"].read_text())
    for text in ("[secret]", "{}", '{"current-context": "x", "contexts": []}'):
        files["outputs"].write_text(json.dumps({**known, "kubeconfig": text}))
        ends(2, trn(*words), "hold no kubeconfig")


def test_namespace_of_the_context_is_the_default(files, asked, trn, monkeypatch):
    known = json.loads(files["outputs"].read_text())
    known["namespaces"].append({**known["namespaces"][0], "name": "second"})
    files["outputs"].write_text(json.dumps(known))
    files["variable"].write_text(yaml.safe_dump(document("variable", namespace="second")))
    monkeypatch.setenv("KUBECONFIG", str(files["variable"]))
    seen = []
    monkeypatch.setattr("trainium_eks.client.session.find_namespace", lambda _, name, *__: seen.append(name) or {})
    trn("jobs", "--outputs", files["outputs"])
    trn("jobs", "--outputs", files["outputs"], "--namespace", "training")
    assert seen == ["second", "training"]
    monkeypatch.setenv("KUBECONFIG", "/no/such")
    ends(2, trn("jobs", "--outputs", files["outputs"]), "/no/such")


def test_several_files_are_one_kubeconfig_and_a_tunnel_is_the_same_cluster(tmp_path, monkeypatch):
    first = {**document("a"), "users": [], "current-context": ""}
    (tmp_path / "third").write_text(yaml.safe_dump(document("b")))
    second = document("a", ELSEWHERE, **{"certificate-authority": "ca.crt"})
    (tmp_path / "first").write_text(yaml.safe_dump(first))
    (tmp_path / "second").write_text(yaml.safe_dump(second))
    files = (str(tmp_path / each) for each in ("first", "none", "second", "third"))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))
    made = json.loads(kubeconfig_variable.merge_files(kubeconfig_variable.list_files()))
    assert made["current-context"] == "a"
    assert [each["cluster"]["server"] for each in made["clusters"]] == [HERE]
    assert [each["name"] for each in made["users"]] == ["a", "b"]
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "second"))
    [cluster] = json.loads(kubeconfig_variable.merge_files(kubeconfig_variable.list_files()))["clusters"]
    assert cluster["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")
    for text in ("{", "[1]", "clusters: 3", "- 2026-99-99"):
        (tmp_path / "broken").write_text(text)
        with pytest.raises(CommandError, match="broken, which is not a kubeconfig"):
            kubeconfig_variable.merge_files([tmp_path / "broken"])
    own, tunnel = document("a", **{"certificate-authority-data": "Y2E="}), document("a", "https://127.0.0.1:8443")
    tunnel["clusters"][0]["cluster"]["certificate-authority-data"] = "Y2E="
    assert kubeconfig_variable.other_server(json.dumps(tunnel), json.dumps(own)) == ""
    tunnel["clusters"][0]["cluster"]["certificate-authority-data"] = "YW5vdGhlcg=="
    assert kubeconfig_variable.other_server(json.dumps(tunnel), json.dumps(own)) == "https://127.0.0.1:8443"
    assert kubeconfig_variable.other_server(json.dumps(tunnel), "[secret]") == ""


@pytest.mark.parametrize(("file", "used"), [("variable", "variable"), ("elsewhere", "own"), (None, "own")])
def test_kubectl_uses_the_kubeconfig_variable(file, used, cloud, files, monkeypatch):
    given = {}
    monkeypatch.setattr(target, "kubeconfig_of", lambda *_: cloud.kubeconfig)
    monkeypatch.setattr(target, "paths_of", lambda *_: cloud)
    program = SimpleNamespace(path="kubectl")
    monkeypatch.setattr(toolchain, "provide", lambda *_, **__: {"kubectl": program})
    monkeypatch.setattr(os, "execve", lambda _program, _words, environment: given.update(environment))
    if file:
        monkeypatch.setenv("KUBECONFIG", str(files[file]))
    kubectl.kubectl(["get", "nodes"], "local")
    assert given["KUBECONFIG"] == str(files["variable"] if used == "variable" else cloud.kubeconfig)
