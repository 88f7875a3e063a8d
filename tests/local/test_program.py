"""What `trn local up` says of programs that ask for what cannot be, and an `up` that is killed.

`test_control_plane` has the kills before the first resource's, `test_stack` one in the middle of the whole stack.
"""

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
def project(binaries, tmp_path_factory):
    project = LocalProject.small(tmp_path_factory.mktemp("small") / "project", START + GOOD)
    with project.up("dev"):
        yield project


def up(project, program, code=0):
    """What `up` of another program says on stderr, or of one that fails."""
    (project.path / "__main__.py").write_text(START + program)
    shown = project.trn("local", "up", "--stack", "dev")
    assert shown.returncode == code, shown.stdout + shown.stderr
    assert "Traceback" not in shown.stderr
    return shown.stderr if code else " ".join(shown.stdout.split())


def names(project):
    return {each["metadata"]["name"] for each in project.get("dev", "namespaces")}


def config_map(name, namespace="room"):
    metadata = {"name": name, "namespace": namespace}
    return f'k8s.core.v1.ConfigMap("{name.lower()}", metadata={metadata}, opts=opts)\n'


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            config_map("Not_A_Name") + config_map("right"),
            ("urn:pulumi:dev::small::kubernetes:core/v1:ConfigMap::not_a_name", "a lowercase RFC 1123 subdomain"),
        ),
        (
            'k8s.apiextensions.CustomResource("queue", api_version="nowhere.example/v1", kind="Queue", '
            'metadata={"name": "q"}, opts=opts)\n',
            ("nowhere.example/v1", "::queue"),
        ),
    ],
    ids=["refused object", "unknown kind"],
)
def test_refusal_of_the_api_server_is_shown_with_the_urn(project, program, said):
    text = up(project, GOOD + program, code=1)
    assert all(each in text for each in said), text


def test_first_failure_stops_new_resources_and_the_next_up_repairs_it(project):
    hall = 'k8s.core.v1.Namespace("hall", metadata={"name": "hall"}, opts=%s)\n'
    after = "pulumi.ResourceOptions(provider=provider, depends_on=[bad])"
    up(project, GOOD + "bad = " + config_map("Bad", "default") + hall % after, code=1)
    assert "hall" not in names(project)
    up(project, hall % "opts")
    assert "hall" in names(project)
    assert "room" not in names(project), "what left the program goes"


def test_unreachable_chart_is_reported_and_does_not_fail_up(project):
    chart = 'name="web", chart="web", version="1.2.3", namespace="room", repository_opts=away, opts=opts'
    away = 'away = {"repo": "http://127.0.0.1:9/charts"}\n'
    said = up(project, f'{GOOD}{away}k8s.helm.v3.Release("web", {chart})\n')
    assert "chart repository not reachable: http://127.0.0.1:9/charts" in said
    assert "TRN_CHARTS" in said


@pytest.mark.parametrize("moment", ["started in", "+ Namespace"])
def test_killed_up_is_completed_by_the_next(binaries, tmp_path, moment):
    hall = 'k8s.core.v1.Namespace("hall", metadata={"name": "hall"}, opts=opts)\n'
    project = LocalProject.small(tmp_path / "project", START + GOOD + hall)
    try:
        project.kill_when(moment, "local", "up", "--stack", "dev")
        with project.up("dev"):
            again = project.trn("local", "up", "--stack", "dev")
            assert "Nothing has changed" in again.stdout, again.stderr
            assert names(project) >= {"room", "hall"}
    finally:
        project.trn("local", "down", "--stack", "dev")
    assert project.processes("dev") == []


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (lambda path: (path / "__main__.py").write_text("raise RuntimeError('no')\n"), 1, "RuntimeError: no"),
        (lambda path: (path / "Pulumi.dev.yaml").unlink(), 2, "no stack 'dev'"),
        (lambda path: (path / ".local").write_text("a file, not a directory"), 1, "project/.local"),
    ],
    ids=["invalid program", "unknown stack", "state that cannot be written"],
)
def test_invalid_project_starts_no_process(binaries, tmp_path, spoil, code, said):
    project = LocalProject.small(tmp_path / "project", START + GOOD)
    spoil(project.path)
    shown = project.trn("local", "up", "--stack", "dev")
    assert (shown.returncode, said in shown.stderr) == (code, True), shown.stderr
    assert not (project.path / ".local").is_dir()
    assert project.processes("dev") == []


def test_missing_programs_and_go_are_reported_with_the_remedy(tmp_path):
    project = LocalProject.small(tmp_path / "project", START + GOOD)
    bare = {"PATH": str(tmp_path / "empty"), "TRN_CACHE": str(tmp_path / "cache"), "TRN_OFFLINE": "1"}
    shown = LocalProject(project.path, bare).trn("local", "up", "--stack", "dev")
    assert shown.returncode == 1
    assert "kube-apiserver" in shown.stderr
    assert "Go" in shown.stderr
    assert not (project.path / ".local").exists()
