"""An API server that remembers all requests, and a researcher's session with it."""

import json
import os
import shlex
from contextlib import nullcontext
from pathlib import Path

from typer.testing import CliRunner

from trainium_eks.aws.sessions import Aws
from trainium_eks.cli.app import app
from trainium_eks.client import session
from trainium_eks.kube.api import Api
from trainium_eks.kube.types import ApiError, ApiKind, NoSuchKindError, ObjectReference
from trainium_eks.local.control_plane import researchers

NOW = "2026-11-21T10:00:00Z"
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/train:sdk2.30.0"


class RememberingApi:
    """Keeps objects; its controllers act at once, as configured here."""

    server = "https://remembering.example"

    def __init__(self, *served):
        self.objects = []
        self.patches = []
        self.served = {"v1", "apps/v1", "batch/v1", *served}
        self.nodes = 2
        self.is_allowed = True
        self.statuses = {}
        """The status of objects by kind."""
        self.pods = []
        self.log = ""

    def list(self, api_version, kind, **_):
        if kind == "Node":
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            labels = {"node.kubernetes.io/instance-type": "trn1.32xlarge"}
            return [{"metadata": {"name": str(n), "labels": labels}, "status": ready} for n in range(self.nodes)]
        if api_version not in self.served:
            raise NoSuchKindError("nobody serves it")
        own = [each for each in self.objects if (each["kind"], each["apiVersion"]) == (kind, api_version)]
        return self.pods if kind == "Pod" else own

    def get(self, reference):
        found = self.named(reference.kind, reference.name)
        return None if found is None else {**found, "status": self.statuses.get(reference.kind, {})}

    def named(self, kind, name):
        return next((each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind, name)), None)

    def create(self, manifest, *, dry_run=False):
        if manifest["apiVersion"] not in self.served:
            raise NoSuchKindError("nobody serves it")
        if manifest["kind"] == "Secret" and self.named("Secret", manifest["metadata"]["name"]):
            raise ApiError(409, "AlreadyExists", "it already exists")
        made = json.loads(json.dumps(manifest))
        made["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": NOW, "generation": 1}
        if not dry_run:
            self.objects.append(made)
        return made

    def delete(self, reference, **_):
        found = self.named(reference.kind, reference.name)
        self.objects = [each for each in self.objects if each is not found]
        return found is not None

    def request(self, method, path, body=None, **_):
        if path.endswith("selfsubjectaccessreviews"):
            return {"status": {"allowed": self.is_allowed}}
        if method == "PATCH":
            self.patches.append(body or {})
        return {"metadata": {"uid": "u"}}

    def lines(self, *_, **__):
        yield from self.log.splitlines()

    def reference(self, manifest):
        metadata = manifest["metadata"]
        return ObjectReference(manifest["apiVersion"], manifest["kind"], metadata["namespace"], metadata["name"])

    def kind(self, api_version, kind):
        return ApiKind(api_version, kind, f"{kind.lower()}s", namespaced=True)


def take_seat(monkeypatch, source, api):
    """Commands open their sessions there, and ECR holds one image."""
    file = Path(os.devnull)
    monkeypatch.setattr(session, "find_source", lambda *_: source)
    monkeypatch.setattr(session, "open_kubeconfig", lambda _: nullcontext(file))
    monkeypatch.setattr(researchers, "kubeconfig", lambda *_: file)
    monkeypatch.setattr(Api, "connect", lambda _: api)
    monkeypatch.setattr(Aws, "newest_image", lambda *_: IMAGE)
    monkeypatch.setattr(Aws, "image_problem", lambda *_: None)


def trn(command, given="", **environment):
    return CliRunner().invoke(app, shlex.split(command), input=given, env=environment)


def document(command):
    result = trn(command)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)
