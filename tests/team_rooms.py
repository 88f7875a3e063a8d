"""Teams' namespaces on a real control plane, and a seat in one from which `trn` is called."""

import json
from contextlib import contextmanager

from cluster_snapshots import outputs
from manifests import claim, group, manifest, role, volume
from running_pods import await_right, cpu_nodes
from typer.testing import CliRunner

from components.training_namespace import TrainingNamespace
from components.volcano_stack import VolcanoStack
from trainium_eks.cli.app import app
from trainium_eks.local.objects.apply import Objects
from trainium_eks.model.policies import researchers

_MADE = (
    "core/v1:Namespace",
    "scheduling.k8s.io/v1:PriorityClass",
    "core/v1:ResourceQuota",
    "core/v1:LimitRange",
    "core/v1:ServiceAccount",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding",
    "rbac.authorization.k8s.io/v1:Role",
    "rbac.authorization.k8s.io/v1:RoleBinding",
    "rbac.authorization.k8s.io/v1:ClusterRole",
    "rbac.authorization.k8s.io/v1:ClusterRoleBinding",
)


@contextmanager
def in_force(api, record, queues, definitions=()):
    """The namespaces that the components make of teams and their queues, with quotas, policies and roles."""

    def program():
        VolcanoStack("volcano", {"queues": [{"name": queue} for queue in queues.values()]})
        for team, queue in queues.items():
            room = {"name": team, "queues": [queue], "region": "us-west-2", "cluster_name": "cluster"}
            TrainingNamespace(team, {**room, "volume_gib": 1200})

    graph, objects = record(program), Objects(api, waiting=lambda _: None)
    made = json.loads(json.dumps([dict(each.inputs) for kind in _MADE for each in graph.of_type(f"kubernetes:{kind}")]))
    for each in (*definitions, *made):
        objects.apply(each, timeout_seconds=300)
    yield
    for each in reversed(made):  # no test waits for the end of a namespace
        api.delete(api.reference(each), propagation="Background")
    for each in definitions:  # other tests define them in their own way
        objects.delete(api.reference(each), timeout_seconds=300)


@contextmanager
def seat(api, paths, team, *options):
    """A team with a claim and CPU nodes, without policies; `trn` is called as its researcher, with these options."""
    rules = [
        {"apiGroups": [each], "resources": list(resources), "verbs": list(verbs)}
        for each, resources, verbs in researchers.RESEARCHER_RULES
    ]
    made = [
        manifest("Namespace", team),
        manifest("ServiceAccount", "training", team),
        *role("team", team, rules, group(f"{team}:researchers")),
        volume(team),
        claim("fsx-claim", team, volumeName=team),
    ]
    room = {"name": team, "queues": ["q"], "serviceAccount": "training", "claim": "fsx-claim"}
    report = {"schemaVersion": 1, "local": True, "notInstalled": [], "simulated": ["aws"], "realVolcano": False}

    def trn(*words):
        asked = [*words, *options, "--outputs", str(paths.outputs)]
        done = CliRunner().invoke(app, asked, catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    with cpu_nodes(api, labels={"trainium-eks/pool": "cpu"}):
        for each in made:
            api.create(each)
        await_right(api, f"{team}:researchers", team, "create", "jobs.batch")
        paths.outputs.write_text(outputs(namespaces=[room]).model_dump_json(by_alias=True))
        paths.report.write_text(json.dumps(report))
        yield trn
        paths.outputs.unlink()
        paths.report.unlink()
        for each in reversed(made):
            api.delete(api.reference(each), propagation="Background")
