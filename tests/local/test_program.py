"""What `trn local up` says of programs that ask for what cannot be."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from local_project import LocalProject

pytestmark = pytest.mark.slow

START = """\
import pulumi
import pulumi_kubernetes as k8s

provider = k8s.Provider("cluster", kubeconfig="{}")
opts = pulumi.ResourceOptions(provider=provider)
"""

GOOD = 'k8s.core.v1.Namespace("room", metadata={"name": "room"}, opts=opts)\n'


@pytest.fixture(scope="module")
def project(binaries: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProject]:
    """A small project that is up."""
    assert binaries
    project = LocalProject.small(tmp_path_factory.mktemp("small") / "project", START + GOOD)
    shown = project.trn("local", "up", "--stack", "dev")
    try:
        assert shown.returncode == 0, shown.stderr
        yield project
    finally:
        project.trn("local", "down", "--stack", "dev")


def up(project: LocalProject, program: str) -> str:
    """What `up` of another program says when it fails."""
    (project.path / "__main__.py").write_text(START + program)
    shown = project.trn("local", "up", "--stack", "dev")
    assert shown.returncode == 1, shown.stdout
    assert "Traceback" not in shown.stderr
    return shown.stderr


def test_an_object_that_the_api_server_refuses_is_shown_with_its_urn_and_the_servers_words(
    project: LocalProject,
) -> None:
    said = up(
        project,
        GOOD
        + 'k8s.core.v1.ConfigMap("wrong", metadata={"name": "Not_A_Name", "namespace": "room"}, opts=opts)\n'
        + 'k8s.core.v1.ConfigMap("right", metadata={"name": "right"}, opts=opts)\n',
    )
    assert "urn:pulumi:dev::small::kubernetes:core/v1:ConfigMap::wrong" in said
    assert "a lowercase RFC 1123 subdomain" in said


DEFINITION = """\
schema = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
}
definition = k8s.apiextensions.v1.CustomResourceDefinition(
    "things",
    metadata={"name": "things.example.com"},
    spec={
        "group": "example.com",
        "names": {"kind": "Thing", "plural": "things"},
        "scope": "Cluster",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
    },
    opts=opts,
)
k8s.apiextensions.CustomResource(
    "thing",
    api_version="example.com/v1",
    kind="Thing",
    metadata={"name": "thing"},
    spec={"sise": 1},
    opts=pulumi.ResourceOptions(provider=provider, depends_on=[definition]),
)
"""


def test_a_field_that_does_not_exist_is_refused_by_strict_validation(project: LocalProject) -> None:
    said = up(project, GOOD + DEFINITION)
    assert ".spec.sise" in said
    assert "::thing" in said


def test_a_kind_that_the_cluster_lacks_is_named(project: LocalProject) -> None:
    said = up(
        project,
        GOOD
        + 'k8s.apiextensions.CustomResource("queue", api_version="nowhere.example/v1", kind="Queue", '
        + 'metadata={"name": "q"}, opts=opts)\n',
    )
    assert "nowhere.example/v1" in said
    assert "::queue" in said


def test_nothing_new_begins_after_the_first_failure(project: LocalProject) -> None:
    up(
        project,
        'bad = k8s.core.v1.ConfigMap("bad", metadata={"name": "Bad", "namespace": "default"}, opts=opts)\n'
        'after = k8s.core.v1.Namespace("after", metadata={"name": "after"}, '
        "opts=pulumi.ResourceOptions(provider=provider, depends_on=[bad]))\n",
    )
    assert "after" not in {each["metadata"]["name"] for each in project.get("dev", "namespaces")}


def test_what_failed_before_is_made_by_the_next_up_and_what_left_the_program_goes(project: LocalProject) -> None:
    up(project, GOOD + 'k8s.core.v1.ConfigMap("c", metadata={"name": "C", "namespace": "room"}, opts=opts)\n')
    program = 'k8s.core.v1.Namespace("hall", metadata={"name": "hall"}, opts=opts)\n'
    (project.path / "__main__.py").write_text(START + program)
    shown = project.trn("local", "up", "--stack", "dev")
    assert shown.returncode == 0, shown.stderr
    names = {each["metadata"]["name"] for each in project.get("dev", "namespaces")}
    assert "hall" in names
    assert "room" not in names
    (project.path / "__main__.py").write_text(START + GOOD)
    assert project.trn("local", "up", "--stack", "dev").returncode == 0


def test_a_chart_that_cannot_be_had_is_told_and_is_no_failure(project: LocalProject) -> None:
    program = (
        GOOD
        + 'k8s.helm.v3.Release("web", name="web", chart="web", version="1.2.3", namespace="room", '
        + 'repository_opts={"repo": "http://127.0.0.1:9/charts"}, opts=opts)\n'
    )
    (project.path / "__main__.py").write_text(START + program)
    shown = project.trn("local", "up", "--stack", "dev")
    assert shown.returncode == 0, shown.stderr
    assert "chart repository not reachable: http://127.0.0.1:9/charts" in " ".join(shown.stdout.split())
    assert "TRN_CHARTS" in shown.stdout


def test_a_protected_resource_that_left_the_program_stops_the_deletion(project: LocalProject) -> None:
    kept = GOOD.replace("opts=opts", "opts=pulumi.ResourceOptions(provider=provider, protect=True)")
    (project.path / "__main__.py").write_text(START + kept)
    assert project.trn("local", "up", "--stack", "dev").returncode == 0
    assert "protected" in up(project, "")
    assert "room" in {each["metadata"]["name"] for each in project.get("dev", "namespaces")}


def test_an_invalid_program_starts_nothing(binaries: Mapping[str, Path], tmp_path: Path) -> None:
    project = LocalProject.small(tmp_path / "project", "raise RuntimeError('no')\n")
    shown = project.trn("local", "up", "--stack", "dev")
    assert shown.returncode == 1
    assert "RuntimeError: no" in shown.stderr
    assert not (project.path / ".local").exists()


def test_an_unknown_stack_is_wrong_usage(tmp_path: Path) -> None:
    project = LocalProject.small(tmp_path / "project", GOOD)
    shown = project.trn("local", "up", "--stack", "nowhere")
    assert shown.returncode == 2
    assert "no stack 'nowhere'" in shown.stderr


def test_state_that_cannot_be_written_is_told_before_anything_is_started(
    binaries: Mapping[str, Path], tmp_path: Path
) -> None:
    project = LocalProject.small(tmp_path / "project", START + GOOD)
    (project.path / ".local").write_text("a file, not a directory")
    shown = project.trn("local", "up", "--stack", "dev")
    assert shown.returncode == 1
    assert str(project.path / ".local") in shown.stderr
    assert "Traceback" not in shown.stderr
    assert project.processes("dev") == []


def test_without_programs_and_without_go_it_says_what_would_help(tmp_path: Path) -> None:
    project = LocalProject.small(tmp_path / "project", START + GOOD)
    bare = {"PATH": str(tmp_path / "empty"), "TRN_CACHE": str(tmp_path / "cache"), "TRN_OFFLINE": "1"}
    shown = LocalProject(project.path, bare).trn("local", "up", "--stack", "dev")
    assert shown.returncode == 1
    assert "kube-apiserver" in shown.stderr
    assert "Go" in shown.stderr
    assert not (project.path / ".local").exists()
